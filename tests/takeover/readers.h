/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Threads that read a mount in several ways and compare every byte with what it must be, while
 * somebody else kills the daemon. tests/mount/takeover.py runs this program.
 *
 *	main.c		the command line, the threads, what is counted and printed
 *	content.c	names, sizes and bytes of files, which all follow from a number
 *	readers.c	the ways to read
 *	hints.c		what the mount is told meanwhile
 */
#ifndef SHADE_TEST_TAKEOVER_READERS_H
#define SHADE_TEST_TAKEOVER_READERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MS 1000000ull
#define SECOND 1000000000ull
#define DIRS 8u
#define PATH_ROOM 4096

/* What is to be read, and how. */
struct options {
	const char *mount;
	uint64_t files, bytes; /* as given to `make` */
	uint64_t threads, seconds, seed;
	uint64_t hints;	   /* 1: a thread more that writes hints; 2: also messages in pieces */
	uint64_t patience; /* seconds for all threads to end */
};

extern struct options options;

/* --- content.c ------------------------------------------------------------------------------- */

/* "dN/fNNNNN" into a buffer of PATH_ROOM bytes, below `top`. */
void content_path(char *path, const char *top, uint64_t file);
uint64_t content_size(uint64_t file);
/* The bytes of a file from `offset` on. */
void content_fill(void *to, uint64_t file, uint64_t offset, size_t size);
/* Makes the data set below a directory. 0 or a negative errno. */
int content_make(const char *top);

/* --- main.c ---------------------------------------------------------------------------------- */

enum counter { READS, LISTS, HINTS, BYTES, ERRORS, WRONG_BYTES, COUNTERS };

/* What one thread needs. */
struct reader {
	unsigned number;
	uint64_t chance; /* the state of its random numbers */
	char *got, *wanted;
	/* What it does now, for a report of those that hang. */
	_Atomic(const char *) doing;
	_Atomic uint64_t file;
};

uint64_t now_ns(void);
void count(enum counter counter, uint64_t number);
/* Something took its time since `began_ns`. */
void count_time(uint64_t began_ns);
uint64_t draw(struct reader *reader, uint64_t below);
bool is_ending(void);
/* Sleeps, or less if the end comes. */
void rest(uint64_t ns);
/* Sets what the reader does, for reports. */
void set_doing(struct reader *reader, const char *what, uint64_t file);
/* Counts an error, and prints the first ones. `errno` is not looked at. */
__attribute__((format(printf, 3, 4))) void report(struct reader *reader, enum counter counter,
						  const char *format, ...);

/* --- readers.c ------------------------------------------------------------------------------- */

/* The start routines of threads: each reads until the end. */
void *read_plainly(void *reader);
void *read_mapped(void *reader);
void *hold_files(void *reader);
void *list_all(void *reader);
/* Has a SIGBUS of a mapped reader counted as an error. */
void catch_bus_errors(void);

/* --- hints.c --------------------------------------------------------------------------------- */

void *give_hints(void *reader);

#endif
