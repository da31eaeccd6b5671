/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is read through the mount, and in which ways. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model.h"

#define NAME_ROOM 4096
#define DIRS 4
#define LARGE (1u << 20)
#define WAIT_NS (20 * MS) /* for a writer to begin */

enum way {
	AT_ONCE,
	IN_PIECES,
	SLOWLY,	   /* in pieces, with pauses in which others drop what is there */
	BACKWARDS, /* the second half first */
	DROPPING,  /* the pages are dropped in the middle */
	DIRECT,	   /* around the page cache */
	WAYS
};

static void mount_name(char name[NAME_ROOM], const struct path *path)
{
	snprintf(name, NAME_ROOM, "%s/%s", options.mount, path->name);
}

/* Up to `end`, in pieces of up to `piece`. Returns where it ended, or a negative errno. */
static ssize_t read_until(int fd, char *buffer, size_t from, size_t end, size_t piece)
{
	while (from < end) {
		size_t wanted = end - from < piece ? end - from : piece;
		ssize_t got = pread(fd, buffer + from, wanted, (off_t)from);

		if (got < 0)
			return -errno;
		if (!got)
			break;
		from += (size_t)got;
	}
	return (ssize_t)from;
}

static ssize_t read_slowly(int fd, char *buffer, size_t room, struct chance *chance)
{
	size_t at = 0;

	for (;;) {
		size_t end = at + 4096 + draw(chance, room / 4 + 1);
		ssize_t got = read_until(fd, buffer, at, end < room ? end : room, SIZE_MAX);

		if (got < 0 || (size_t)got == at)
			return got;
		at = (size_t)got;
		sleep_ns(draw(chance, 30 * MS));
	}
}

static ssize_t read_backwards(int fd, char *buffer, size_t room, size_t size)
{
	size_t middle = size / 2 / 4096 * 4096;
	ssize_t end = read_until(fd, buffer, middle, room, SIZE_MAX);
	ssize_t begin = end < 0 ? end : read_until(fd, buffer, 0, middle, SIZE_MAX);

	return begin < (ssize_t)middle ? begin : end;
}

static ssize_t read_dropping(int fd, char *buffer, size_t room, size_t size)
{
	ssize_t got = read_until(fd, buffer, 0, size / 2, SIZE_MAX);

	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	return got < 0 ? got : read_until(fd, buffer, (size_t)got, room, SIZE_MAX);
}

/* A direct read ends with a page, and its buffer begins with one. */
static ssize_t read_direct(int fd, char *buffer, size_t room)
{
	ssize_t got = pread(fd, buffer, room / 4096 * 4096, 0);

	return got < 0 ? -errno : got;
}

static ssize_t read_all(int fd, char *buffer, size_t size, enum way way, struct chance *chance)
{
	size_t room = options.largest + 4096; /* more than any file has */

	switch (way) {
	case IN_PIECES:
		return read_until(fd, buffer, 0, room, 1000 + draw(chance, 200000));
	case SLOWLY:
		return read_slowly(fd, buffer, room, chance);
	case BACKWARDS:
		return read_backwards(fd, buffer, room, size);
	case DROPPING:
		return read_dropping(fd, buffer, room, size);
	case DIRECT:
		return read_direct(fd, buffer, room);
	default:
		return read_until(fd, buffer, 0, room, SIZE_MAX);
	}
}

/* Reads once more from the same open: it must be the same version, or an error. */
static void read_again(int fd, const struct path *path, const struct look *look, char *second)
{
	char before[512], after[512];
	ssize_t got;

	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	got = read_until(fd, second, 0, options.largest + 4096, SIZE_MAX);
	if (got < 0 || ((size_t)got == look->size && !memcmp(second, look->data, look->size)))
		return;
	fail("%s: one open gave two versions: %s; then %s", path->name,
	     content_describe(look->data, look->size, before),
	     content_describe(second, (size_t)got, after));
}

/* Returns the descriptor, or -1. */
static int take_look(struct path *path, enum way way, struct chance *chance, char *buffer,
		     struct look *look)
{
	char name[NAME_ROOM];
	struct stat stat = { 0 };
	ssize_t got;
	int fd;

	mount_name(name, path);
	if (way != AT_ONCE)
		memset(buffer, 0xa5, options.largest); /* what was read before is not read again */
	*look = (struct look){ .began_ns = now_ns(), .data = buffer };
	fd = open(name, O_RDONLY | O_CLOEXEC | (way == DIRECT ? O_DIRECT : 0));
	if (fd < 0 && way == DIRECT && errno == EINVAL)
		fd = open(name, O_RDONLY | O_CLOEXEC);
	got = fd < 0 || fstat(fd, &stat) ? -errno : 0;
	if (!got) {
		look->stat_size = (uint64_t)stat.st_size;
		got = read_all(fd, buffer, look->stat_size, way, chance);
	}
	look->ended_ns = now_ns();
	look->error = got < 0 ? (int)-got : 0;
	look->size = got < 0 ? 0 : (size_t)got;
	return fd;
}

/* Any path, or the one that a writer has just begun to write in place. Small files are written too
 * quickly for that. */
static struct path *choose(struct chance *chance)
{
	unsigned before = atomic_load(&writes_begun);
	uint64_t until = now_ns() + WAIT_NS;

	if (options.largest < LARGE || one_in(chance, 2))
		return &paths[draw(chance, options.files)];
	while (atomic_load(&writes_begun) == before && now_ns() < until)
		sleep_ns(MS / 10);
	sleep_ns(draw(chance, 4 * MS));
	return &paths[atomic_load(&path_written)];
}

void look_at_something(struct chance *chance, char *buffer, char *second)
{
	struct path *path = choose(chance);
	bool calm = atomic_load(&suspicions);
	enum way way = calm || draw(chance, 3) ? AT_ONCE : (enum way)draw(chance, WAYS);
	struct look look;
	int fd = take_look(path, way, chance, buffer, &look);

	if (history_judge(path, &look) && !calm && one_in(chance, 8))
		read_again(fd, path, &look, second);
	if (fd >= 0)
		close(fd);
}

/* --- at rest -------------------------------------------------------------------------------------
 */

static bool is_present(const struct state *present, const struct look *look)
{
	if (present->kind == ABSENT)
		return look->error == ENOENT;
	return !look->error && look->size == present->size && look->stat_size == present->size &&
	       content_is(look->data, look->size, present->edition);
}

static bool is_mixture(const struct look *look)
{
	return !look->error && look->size >= BLOCK &&
	       !content_is(look->data, look->size, content_edition(look->data, 0));
}

/* Looks until it sees the present state. Returns how often it did not. */
static unsigned wait_for_present(struct path *path, char *buffer)
{
	struct state present = history_present(path);
	uint64_t began = now_ns(), mixed = began;
	struct look look;

	for (unsigned wrong = 0;; wrong++) {
		int fd = take_look(path, AT_ONCE, NULL, buffer, &look);

		if (fd >= 0)
			close(fd);
		if (is_present(&present, &look)) {
			atomic_fetch_sub(&suspicions, wrong > 0);
			return wrong;
		}
		if (!is_mixture(&look))
			mixed = look.ended_ns;
		if (look.began_ns > began + PATIENCE_NS || look.began_ns > mixed + MIXTURE_NS)
			history_fail(path, &look,
				     "it has not changed for long, and is still read as");
		atomic_fetch_add(&suspicions, !wrong);
		sleep_ns(20 * MS);
	}
}

void look_settled(struct path *path, char *buffer)
{
	if (wait_for_present(path, buffer))
		count(LATE);
	count(COMPARISONS);
}

/* NULL: the names are as they are at the source. */
static const char *find_wrong_name(unsigned dir, char name[NAME_ROOM])
{
	unsigned expected = 0, found = 0;
	struct dirent *entry;
	DIR *listing;

	for (unsigned i = dir; i < options.files; i += DIRS)
		expected += history_present(&paths[i]).kind != ABSENT;
	snprintf(name, NAME_ROOM, "%s/d%u", options.mount, dir);
	listing = opendir(name);
	if (!listing)
		return "the directory cannot be opened";
	while ((entry = readdir(listing)))
		if (entry->d_name[0] == 'f') {
			unsigned long number = strtoul(entry->d_name + 1, NULL, 10);

			found++;
			if (number >= options.files || strlen(entry->d_name) != 4 ||
			    history_present(&paths[number]).kind == ABSENT)
				found = options.files;
		}
	closedir(listing);
	return found == expected ? NULL : "it lists other names than the source";
}

void look_at_names(void)
{
	uint64_t until = now_ns() + PATIENCE_NS;
	char name[NAME_ROOM];
	const char *wrong;

	for (unsigned dir = 0; dir < DIRS; dir++)
		while ((wrong = find_wrong_name(dir, name))) {
			if (now_ns() > until)
				fail("%s: nothing has changed for long, and still: %s", name,
				     wrong);
			sleep_ns(20 * MS);
		}
}
