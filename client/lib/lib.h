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

/* Names that do not get into the way of who links it statically. */
#define lib_fail shade_lib_fail
#define lib_fail_file shade_lib_fail_file
#define lib_read shade_lib_read
#define lib_send_table shade_lib_send_table

/* From ids of the handle to those of the mount. */
struct lib_table {
	uint32_t *ids;
	uint32_t count; /* 0: they are the same */
};

struct shade {
	char *path;
	int root; /* MNT/.shade */
	int job;  /* MNT/.shade/jobs/NAME, or the same directory as root */
	int control;
	pthread_mutex_t lock;	/* control: what one call writes, and its answer */
	struct lib_table table; /* lock */
};

/* Notes why a call of this thread failed, and returns RC. */
int lib_fail(int rc, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for a file of the mount. */
int lib_fail_file(const struct shade *shade, const char *name, int rc);

/* read() that no signal ends. */
ssize_t lib_read(int fd, void *to, size_t size);

/* Sends the paths of a table, relative to the mount, each with its NUL, BYTES in all. If they
 * are taken, the handle's table and TABLE change places, before anybody sends by the new one. */
int lib_send_table(struct shade *shade, const char *paths, size_t bytes, struct lib_table *table);

#endif
