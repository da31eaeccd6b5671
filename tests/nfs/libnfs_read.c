/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reads whole files through libnfs, with its defaults, as fast as it can: open, read to the end,
 * close. It is what shadefs's own NFS client is compared with.
 *
 *	nfs-libnfs URL READERS [DIRECTORY] < PATHS
 *
 * URL names the export, as libnfs reads it. PATHS begin with a slash and have a NUL after each.
 *Each reader is a thread with a context of its own and takes the next path. With DIRECTORY, where
 *the export's files are, every byte is compared. Prints the seconds, the files that were read,
 *their bytes, the files that gave errors, the files that were read without an error and were wrong,
 *and their wrong bytes.
 */
#include <errno.h>
#include <fcntl.h>
#include <nfsc/libnfs.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "grow.h"

#define BUFFER_BYTES (32u << 20)
#define READ_BYTES (1u << 20)
#define READERS 1024
#define STUCK_S 2

static struct {
	const char *url, *directory;
	char *text;
	const char **paths;
	size_t count;
	pthread_barrier_t ready;
	_Atomic size_t next, files, bytes, errors, wrong_files, wrong_bytes;
} run;

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "nfs-libnfs: %s: %s\n", what, why);
	exit(1);
}

static void read_paths(void)
{
	size_t used = 0, room = 0, got;

	do {
		if (grow(run.text, room, used, 65536))
			fail("paths", "no memory");
		got = fread(run.text + used, 1, room - used, stdin);
		used += got;
	} while (got);
	room = 0;
	for (size_t at = 0; at < used; at += strlen(run.text + at) + 1) {
		if (grow(run.paths, room, run.count, 1))
			fail("paths", "no memory");
		run.paths[run.count++] = run.text + at;
	}
}

/* Bytes, or a negative errno. A short read is the end of a file, which saves libnfs a call; but
 * where bytes are compared, only the end itself is. */
static int64_t read_file(struct nfs_context *nfs, const char *path, char *buffer)
{
	struct nfsfh *file;
	uint64_t used = 0;
	int rc = nfs_open(nfs, path, O_RDONLY, &file);

	if (rc)
		return rc;
	do {
		rc = nfs_read(nfs, file, READ_BYTES, buffer + used);
		used += rc > 0 ? (uint64_t)rc : 0;
	} while ((run.directory ? rc > 0 : rc == READ_BYTES) && used <= BUFFER_BYTES - READ_BYTES);
	nfs_close(nfs, file);
	return rc < 0 ? rc : (int64_t)used;
}

/* Bytes that are not those of the file, missing ones and surplus ones included. */
static size_t compare(const char *path, const char *bytes, size_t count, char *other)
{
	char name[4096];
	size_t wrong = 0, have = 0;
	ssize_t got;
	int fd;

	snprintf(name, sizeof(name), "%s%s", run.directory, path);
	fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		fail(name, strerror(errno));
	while ((got = read(fd, other + have, BUFFER_BYTES - have)) > 0)
		have += (size_t)got;
	close(fd);
	if (have == count && !memcmp(bytes, other, count))
		return 0;
	for (size_t i = 0; i < have || i < count; i++)
		wrong += i >= have || i >= count || bytes[i] != other[i];
	return wrong;
}

/* Of a file that has been read, or has given a negative errno. */
static void take(const char *path, int64_t got, const char *buffer, char *other)
{
	size_t wrong;

	if (got < 0) {
		atomic_fetch_add(&run.errors, 1);
		return;
	}
	wrong = run.directory ? compare(path, buffer, (size_t)got, other) : 0;
	atomic_fetch_add(&run.files, 1);
	atomic_fetch_add(&run.bytes, (size_t)got);
	atomic_fetch_add(&run.wrong_files, wrong > 0);
	atomic_fetch_add(&run.wrong_bytes, wrong);
}

static struct nfs_context *mount(struct nfs_url **url)
{
	struct nfs_context *nfs = nfs_init_context();

	*url = nfs ? nfs_parse_url_dir(nfs, run.url) : NULL;
	if (!*url)
		fail(run.url, nfs ? nfs_get_error(nfs) : "no memory");
	if (nfs_mount(nfs, (*url)->server, (*url)->path))
		fail(run.url, nfs_get_error(nfs));
	return nfs;
}

static void *reader(void *unused)
{
	struct nfs_url *url;
	struct nfs_context *nfs = mount(&url);
	char *buffer = malloc(BUFFER_BYTES), *other = malloc(BUFFER_BYTES);
	size_t i;

	if (!buffer || !other)
		fail(run.url, "no memory");
	pthread_barrier_wait(&run.ready);
	while ((i = atomic_fetch_add(&run.next, 1)) < run.count)
		take(run.paths[i], read_file(nfs, run.paths[i], buffer), buffer, other);
	nfs_destroy_url(url);
	nfs_destroy_context(nfs);
	free(buffer);
	free(other);
	return unused;
}

/* One of the files that are under way in one context. */
struct task {
	const char *path;
	struct nfsfh *file;
	char *other;
	size_t *active;
};

static void task_next(struct nfs_context *nfs, struct task *task);

static void task_closed(int rc, struct nfs_context *nfs, void *data, void *context)
{
	(void)rc;
	(void)data;
	task_next(nfs, context);
}

/* A file is smaller than READ_BYTES, so that one call has all of it. */
static void task_read(int rc, struct nfs_context *nfs, void *data, void *context)
{
	struct task *task = context;

	take(task->path, rc, data, task->other);
	if (nfs_close_async(nfs, task->file, task_closed, task))
		task_next(nfs, task);
}

static void task_opened(int rc, struct nfs_context *nfs, void *data, void *context)
{
	struct task *task = context;

	task->file = data;
	if (rc < 0) {
		take(task->path, rc, NULL, task->other);
		task_next(nfs, task);
	} else if (nfs_read_async(nfs, task->file, READ_BYTES, task_read, task)) {
		fail("nfs_read_async", nfs_get_error(nfs));
	}
}

static void task_next(struct nfs_context *nfs, struct task *task)
{
	size_t i = atomic_fetch_add(&run.next, 1);

	if (i >= run.count) {
		--*task->active;
		return;
	}
	task->path = run.paths[i];
	if (nfs_open_async(nfs, task->path, O_RDONLY, task_opened, task))
		fail("nfs_open_async", nfs_get_error(nfs));
}

static void *event_loop(void *context)
{
	size_t depth = *(const size_t *)context, active = depth;
	struct task *tasks = calloc(depth, sizeof(*tasks));
	char *other = malloc(BUFFER_BYTES);
	struct nfs_url *url;
	struct nfs_context *nfs = mount(&url);

	if (!tasks || !other)
		fail(run.url, "no memory");
	pthread_barrier_wait(&run.ready);
	for (size_t i = 0; i < depth; i++) {
		tasks[i] = (struct task){ .other = other, .active = &active };
		task_next(nfs, &tasks[i]);
	}
	while (active) {
		struct pollfd poller = { .fd = nfs_get_fd(nfs),
					 .events = (short)nfs_which_events(nfs) };

		if (poll(&poller, 1, 100) < 0 || nfs_service(nfs, poller.revents) < 0)
			fail("nfs_service", nfs_get_error(nfs));
	}
	nfs_destroy_url(url);
	nfs_destroy_context(nfs);
	free(tasks);
	free(other);
	return NULL;
}

/* Waits for the end of all readers, as long as they get on. Returns how many were left. */
static size_t wait_for_readers(const pthread_t *threads, size_t count)
{
	size_t ended = 0, done, before = 0;
	struct timespec until;

	while (ended < count) {
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += STUCK_S;
		if (!pthread_timedjoin_np(threads[ended], NULL, &until)) {
			ended++;
			continue;
		}
		done = atomic_load(&run.files) + atomic_load(&run.errors);
		if (done == before)
			break;
		before = done;
	}
	return count - ended;
}

int main(int argc, char **argv)
{
	bool async = argc >= 3 && !strncmp(argv[2], "async:", 6);
	int number = argc >= 3 ? atoi(argv[2] + (async ? 6 : 0)) : 0;
	size_t depth = (size_t)number, readers = async ? 1 : depth, left;
	pthread_t threads[READERS];
	double start;

	if (argc < 3 || argc > 4 || number < 1 || number > READERS) {
		fputs("usage: nfs-libnfs URL READERS|async:DEPTH [DIRECTORY] < PATHS\n", stderr);
		return 2;
	}
	run.url = argv[1];
	run.directory = argc == 4 ? argv[3] : NULL;
	read_paths();
	pthread_barrier_init(&run.ready, NULL, (unsigned)readers + 1);
	for (size_t i = 0; i < readers; i++)
		if (pthread_create(&threads[i], NULL, async ? event_loop : reader, &depth))
			fail("thread", "cannot start");
	pthread_barrier_wait(&run.ready);
	start = now_s();
	left = wait_for_readers(threads, readers);
	printf("%.9f %zu %zu %zu %zu %zu %zu\n", now_s() - start, atomic_load(&run.files),
	       atomic_load(&run.bytes), atomic_load(&run.errors), atomic_load(&run.wrong_files),
	       atomic_load(&run.wrong_bytes), left);
	fflush(stdout);
	if (left)
		_exit(0); /* the others use what would be freed */
	free(run.paths);
	free(run.text);
	return 0;
}
