/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the files of libshade share. */
#ifndef SHADE_LIB_H
#define SHADE_LIB_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "shade/client.h"

#define LIB_ANSWER_MAX 4096

/* Whoever serves .shade may not be a shadefs, or not a friend: nothing is read without a bound. */
#define LIB_STATS_MAX ((size_t)1 << 20)	  /* bytes of `stats` */
#define LIB_SAMPLES_MAX ((size_t)1 << 28) /* lines of `samples`, and bits of `resident` */
#define LIB_LINE_MAX ((size_t)1 << 16)	  /* a path, escaped, is shorter */
#define LIB_RECORD_MAX ((size_t)1 << 30)  /* bytes of an order with its weights */

/* A program that links libshade statically may have functions of these names. */
#define lib_say shade_lib_say
#define lib_fail_file shade_lib_fail_file
#define lib_read shade_lib_read
#define lib_read_all shade_lib_read_all
#define lib_ask shade_lib_ask
#define lib_send_table shade_lib_send_table

/* The mount's ids by the ids of the handle. */
struct lib_table {
	uint32_t *ids;
	uint32_t count; /* 0: both are the same */
};

struct shade {
	char *path;   /* where the mount is, or the folder of it that is bound here */
	char *prefix; /* that folder's path in the mount; "": it is the mount itself */
	int root;     /* MNT/.shade */
	int job;      /* MNT/.shade/jobs/NAME, or the same directory as root */
	int control;
	pthread_mutex_t lock;	/* of control, from a write until its answer is read */
	struct lib_table table; /* lock */
};

/* Notes why a call of this thread failed. */
void lib_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same, and is RC: a macro, so that who reads the caller sees that it is an error. */
#define lib_fail(rc, ...) (lib_say(__VA_ARGS__), (rc))

/* The same for a file of the mount. */
int lib_fail_file(const struct shade *shade, const char *name, int rc);

/* read() that no signal ends. */
ssize_t lib_read(int fd, void *to, size_t size);

/* All of FD, and a NUL; -EFBIG above MAX bytes, 0: no limit. Notes no message. */
int lib_read_all(int fd, size_t max, char **text, size_t *length);

/* Sends a line whose answer is a record, and reads that; to be freed. */
int lib_ask(struct shade *shade, const char *line, char **data, size_t *size);

/* Sends the paths of a table, relative to the mount, each with its NUL, BYTES in all. If the daemon
 * accepts them, exchanges the handle's table and TABLE before it releases the lock, so that every
 * call sees the table that the daemon has. */
int lib_send_table(struct shade *shade, const char *paths, size_t bytes, struct lib_table *table);

#endif
