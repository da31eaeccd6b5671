/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reads whole files as fast as it can: open, read to the end, close.
 *
 *	bench-read each|shared READERS COUNT < PATHS
 *
 * PATHS have a NUL after each. With `each` every reader reads COUNT files, round and round,
 * beginning at a place of its own; with `shared` the readers take COUNT files together, each
 * the next one. Readers are processes and begin at one moment. Prints the seconds from there
 * to the end of the last one, the files read and their bytes.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "grow.h"

#define BUFFER_BYTES (2u << 20)
/* A buffer a few bytes beside a page makes the kernel's copy two to three times slower on some
 * processors, which would hide what is measured. */
#define BUFFER_ALIGNMENT 4096

struct paths {
	char *text;
	const char **at;
	size_t count;
};

/* What the readers share. */
struct board {
	_Atomic int ready;
	_Atomic bool go;
	_Atomic uint64_t next, bytes;
};

static void fail(const char *what)
{
	fprintf(stderr, "bench-read: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void paths_read(struct paths *paths)
{
	size_t room = 0, length = 0, got;

	do {
		if (grow(paths->text, room, length, 65536))
			fail("memory");
		got = fread(paths->text + length, 1, room - length, stdin);
		length += got;
	} while (got);
	for (size_t i = 0; i < length; i++)
		paths->count += !paths->text[i];
	paths->at = calloc(paths->count + 1, sizeof(*paths->at));
	if (!paths->at || !paths->count)
		fail("no paths");
	for (size_t i = 0, at = 0; i < paths->count; i++) {
		paths->at[i] = paths->text + at;
		at += strlen(paths->at[i]) + 1;
	}
}

/* Returns the bytes of the file. */
static uint64_t read_file(const char *path, char *buffer)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t bytes = 0;
	ssize_t got;

	if (fd < 0)
		fail(path);
	while ((got = read(fd, buffer, BUFFER_BYTES)) > 0)
		bytes += (uint64_t)got;
	if (got < 0)
		fail(path);
	close(fd);
	return bytes;
}

static void read_each(const struct paths *paths, struct board *board, size_t first, size_t count,
		      char *buffer)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < count; i++)
		bytes += read_file(paths->at[(first + i) % paths->count], buffer);
	atomic_fetch_add(&board->bytes, bytes);
}

static void read_shared(const struct paths *paths, struct board *board, size_t count, char *buffer)
{
	uint64_t bytes = 0;
	size_t i;

	while ((i = atomic_fetch_add(&board->next, 1)) < count)
		bytes += read_file(paths->at[i % paths->count], buffer);
	atomic_fetch_add(&board->bytes, bytes);
}

int main(int argc, char **argv)
{
	struct paths paths = { 0 };
	struct board *board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int readers = argc == 4 ? atoi(argv[2]) : 0, status, failed = 0;
	size_t count = argc == 4 ? strtoul(argv[3], NULL, 10) : 0;
	bool shared = argc == 4 && !strcmp(argv[1], "shared");
	char *buffer = aligned_alloc(BUFFER_ALIGNMENT, BUFFER_BYTES);
	double start;

	if (readers < 1 || readers > 1024 || !count) {
		fputs("usage: bench-read each|shared READERS COUNT < PATHS\n", stderr);
		return 2;
	}
	if (board == MAP_FAILED || !buffer)
		fail("memory");
	memset(buffer, 1, BUFFER_BYTES);
	paths_read(&paths);
	for (int i = 0; i < readers; i++) {
		pid_t child = fork();

		if (child < 0)
			fail("fork");
		if (child)
			continue;
		memset(buffer, 2, BUFFER_BYTES); /* pages of its own, before the clock runs */
		atomic_fetch_add(&board->ready, 1);
		while (!atomic_load(&board->go))
			usleep(100);
		if (shared)
			read_shared(&paths, board, count, buffer);
		else
			read_each(&paths, board, paths.count * (size_t)i / (size_t)readers, count,
				  buffer);
		_exit(0);
	}
	while (atomic_load(&board->ready) < readers)
		usleep(100);
	start = now_s();
	atomic_store(&board->go, true);
	while (wait(&status) > 0)
		failed |= status;
	printf("%.9f %zu %llu\n", now_s() - start, shared ? count : count * (size_t)readers,
	       (unsigned long long)atomic_load(&board->bytes));
	free(paths.at);
	free(paths.text);
	free(buffer);
	return failed ? 1 : 0;
}
