/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The ways to read. Whatever is not exactly right is counted; there are no errors that pass. */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "readers.h"

#define PIECE_MAX (128u << 10)
#define HELD_NS (4 * SECOND) /* at most */
#define HELD_REST_NS (20 * MS)
#define LIST_REST_NS (100 * MS)

/* Compares what was read of a file, which is in reader->got, or mapped. */
static void compare(struct reader *reader, const char *got, uint64_t file, uint64_t offset,
		    size_t size)
{
	size_t wrong = 0, first = 0;

	count(BYTES, size);
	content_fill(reader->wanted, file, offset, size);
	if (!memcmp(got, reader->wanted, size))
		return;
	for (size_t i = size; i-- > 0;)
		if (got[i] != reader->wanted[i]) {
			wrong++;
			first = i;
		}
	if (!wrong) /* a mapped page changed between the two looks, which is as bad */
		wrong = 1;
	report(reader, WRONG_BYTES, "%zu of %zu bytes from %llu on are wrong, first at %llu", wrong,
	       size, (unsigned long long)offset, (unsigned long long)offset + first);
	count(WRONG_BYTES, wrong - 1);
}

/* A descriptor of a file that has its size, or -1. */
static int open_file(struct reader *reader, uint64_t file)
{
	char path[PATH_ROOM];
	struct stat stat;
	int fd;

	content_path(path, options.mount, file);
	set_doing(reader, "open", file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		report(reader, ERRORS, "open: %s", strerror(errno));
		return -1;
	}
	set_doing(reader, "fstat", file);
	if (fstat(fd, &stat))
		report(reader, ERRORS, "fstat: %s", strerror(errno));
	else if ((uint64_t)stat.st_size != content_size(file))
		report(reader, ERRORS, "it has %lld bytes instead of %llu", (long long)stat.st_size,
		       (unsigned long long)content_size(file));
	else
		return fd;
	close(fd);
	return -1;
}

static void close_file(struct reader *reader, int fd, uint64_t file)
{
	set_doing(reader, "close", file);
	if (close(fd))
		report(reader, ERRORS, "close: %s", strerror(errno));
}

/* Reads on to the end of the file, in pieces; it must come where it has to. */
static void read_whole(struct reader *reader, int fd, uint64_t file, size_t piece)
{
	uint64_t at = 0;

	set_doing(reader, "read", file);
	for (;;) {
		ssize_t got = read(fd, reader->got, piece);

		if (got < 0) {
			report(reader, ERRORS, "read at %llu: %s", (unsigned long long)at,
			       strerror(errno));
			return;
		}
		if (!got)
			break;
		if (at + (uint64_t)got > content_size(file)) {
			report(reader, ERRORS, "it goes on after its end");
			return;
		}
		compare(reader, reader->got, file, at, (size_t)got);
		at += (uint64_t)got;
	}
	if (at != content_size(file))
		report(reader, ERRORS, "it ends at %llu instead of %llu", (unsigned long long)at,
		       (unsigned long long)content_size(file));
}

void *read_plainly(void *context)
{
	struct reader *reader = context;

	while (!is_ending()) {
		uint64_t file = draw(reader, options.files), began = now_ns();
		size_t piece = draw(reader, 4) ? PIECE_MAX : 1 + draw(reader, PIECE_MAX);
		int fd = open_file(reader, file);

		if (fd >= 0) {
			read_whole(reader, fd, file, piece < 4096 ? 4096 : piece);
			close_file(reader, fd, file);
			count(READS, 1);
		} else {
			rest(10 * MS); /* one who gets errors must not take all the time */
		}
		count_time(began);
	}
	return NULL;
}

/* --- mapped --------------------------------------------------------------------------------------
 */

static _Thread_local sigjmp_buf on_bus_error;
static _Thread_local volatile sig_atomic_t looks_at_mapping;

static void take_bus_error(int number)
{
	if (!looks_at_mapping) {
		signal(number, SIG_DFL);
		return; /* it comes again, and ends the program */
	}
	siglongjmp(on_bus_error, 1);
}

void catch_bus_errors(void)
{
	struct sigaction action = { .sa_handler = take_bus_error };

	sigemptyset(&action.sa_mask);
	if (sigaction(SIGBUS, &action, NULL))
		abort();
}

/* Looks at pages backwards at times: then nothing is read ahead, and each page is asked for. */
static void look_at_mapping(struct reader *reader, const char *map, uint64_t file, bool backwards)
{
	size_t size = content_size(file), pages = (size + 4095) / 4096;

	if (sigsetjmp(on_bus_error, 1)) {
		looks_at_mapping = 0;
		report(reader, ERRORS, "a mapped page: SIGBUS");
		return;
	}
	looks_at_mapping = 1;
	for (size_t i = 0; i < pages; i++) {
		size_t at = (backwards ? pages - 1 - i : i) * 4096;

		compare(reader, map + at, file, at, size - at < 4096 ? size - at : 4096);
	}
	looks_at_mapping = 0;
}

void *read_mapped(void *context)
{
	struct reader *reader = context;

	while (!is_ending()) {
		uint64_t file = draw(reader, options.files), began = now_ns();
		size_t size = content_size(file);
		int fd = open_file(reader, file);
		void *map;

		if (fd < 0) {
			rest(10 * MS);
			continue;
		}
		map = mmap(NULL, size, PROT_READ, draw(reader, 2) ? MAP_SHARED : MAP_PRIVATE, fd,
			   0);
		close_file(reader, fd, file); /* the mapping stays */
		if (map == MAP_FAILED) {
			report(reader, ERRORS, "mmap: %s", strerror(errno));
			continue;
		}
		set_doing(reader, "look at a mapping of", file);
		look_at_mapping(reader, map, file, !draw(reader, 3));
		munmap(map, size);
		count(READS, 1);
		count_time(began);
	}
	return NULL;
}

/* --- held ----------------------------------------------------------------------------------------
 */

static void read_range(struct reader *reader, int fd, uint64_t file)
{
	uint64_t size = content_size(file), offset = draw(reader, size), began = now_ns();
	size_t wanted = 1 + draw(reader, PIECE_MAX), due = wanted;
	ssize_t got;

	if (due > size - offset)
		due = (size_t)(size - offset);
	set_doing(reader, "pread", file);
	got = pread(fd, reader->got, wanted, (off_t)offset);
	if (got < 0)
		report(reader, ERRORS, "pread at %llu: %s", (unsigned long long)offset,
		       strerror(errno));
	else if ((size_t)got != due)
		report(reader, ERRORS, "pread at %llu: %zd bytes instead of %zu",
		       (unsigned long long)offset, got, due);
	else
		compare(reader, reader->got, file, offset, due);
	count_time(began);
	count(READS, 1);
}

/* Keeps a file open for seconds: it is the same file before and after the daemon died. */
void *hold_files(void *context)
{
	struct reader *reader = context;

	while (!is_ending()) {
		uint64_t file = draw(reader, options.files);
		uint64_t until = now_ns() + draw(reader, HELD_NS);
		int fd = open_file(reader, file);

		if (fd < 0) {
			rest(10 * MS);
			continue;
		}
		do {
			/* The pages go, so that the daemon is asked. */
			if (!draw(reader, 4))
				(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
			read_range(reader, fd, file);
			rest(draw(reader, HELD_REST_NS));
		} while (now_ns() < until && !is_ending());
		close_file(reader, fd, file);
	}
	return NULL;
}

/* --- names ---------------------------------------------------------------------------------------
 */

static uint64_t files_in(unsigned dir)
{
	return options.files / DIRS + (dir < options.files % DIRS);
}

/* Whether it is the name of a file in a directory, and which file. */
static bool parse_name(const char *name, unsigned dir, uint64_t *file)
{
	char wanted[64], *end;

	if (name[0] != 'f')
		return false;
	*file = strtoull(name + 1, &end, 10);
	snprintf(wanted, sizeof(wanted), "f%05llu", (unsigned long long)*file);
	return !strcmp(wanted, name) && *file % DIRS == dir && *file < options.files;
}

static void stat_file(struct reader *reader, uint64_t file)
{
	char path[PATH_ROOM];
	struct stat stat;

	content_path(path, options.mount, file);
	set_doing(reader, "stat", file);
	if (lstat(path, &stat))
		report(reader, ERRORS, "stat: %s", strerror(errno));
	else if (!S_ISREG(stat.st_mode) || (uint64_t)stat.st_size != content_size(file))
		report(reader, ERRORS, "stat: mode %o, %lld bytes instead of %llu",
		       (unsigned)stat.st_mode, (long long)stat.st_size,
		       (unsigned long long)content_size(file));
}

/* Each name once, and no other: `seen` has a byte for each file of all directories. */
static void list_dir(struct reader *reader, unsigned dir, char *seen)
{
	char path[PATH_ROOM];
	struct dirent *entry;
	uint64_t found = 0;
	DIR *listing;

	snprintf(path, sizeof(path), "%s/d%u", options.mount, dir);
	set_doing(reader, "list the directory of", dir);
	listing = opendir(path);
	if (!listing) {
		report(reader, ERRORS, "opendir: %s", strerror(errno));
		return;
	}
	while ((errno = 0, entry = readdir(listing))) {
		uint64_t file;

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (!parse_name(entry->d_name, dir, &file))
			report(reader, ERRORS, "it lists %s", entry->d_name);
		else if (seen[file]++)
			report(reader, ERRORS, "it lists %s twice", entry->d_name);
		else
			found++;
	}
	if (errno)
		report(reader, ERRORS, "readdir: %s", strerror(errno));
	else if (found != files_in(dir))
		report(reader, ERRORS, "it lists %llu names of %llu", (unsigned long long)found,
		       (unsigned long long)files_in(dir));
	closedir(listing);
}

/* The directories themselves. */
static void list_root(struct reader *reader)
{
	unsigned found = 0;
	struct dirent *entry;
	DIR *listing;

	set_doing(reader, "list the root, not", 0);
	listing = opendir(options.mount);
	if (!listing) {
		report(reader, ERRORS, "opendir: %s", strerror(errno));
		return;
	}
	while ((errno = 0, entry = readdir(listing)))
		found += entry->d_name[0] == 'd';
	if (errno || found != DIRS)
		report(reader, ERRORS, "the root has %u of %u directories: %s", found, DIRS,
		       strerror(errno));
	closedir(listing);
}

void *list_all(void *context)
{
	struct reader *reader = context;
	char *seen = malloc(options.files);

	assert(seen);
	while (!is_ending()) {
		uint64_t began = now_ns();

		memset(seen, 0, options.files);
		list_root(reader);
		for (unsigned dir = 0; dir < DIRS; dir++)
			list_dir(reader, dir, seen);
		count_time(began);
		for (uint64_t file = 0; file < options.files && !is_ending(); file++) {
			began = now_ns();
			stat_file(reader, file);
			count_time(began);
		}
		count(LISTS, 1);
		rest(LIST_REST_NS);
	}
	free(seen);
	return NULL;
}
