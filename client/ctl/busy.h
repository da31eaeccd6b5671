/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Who keeps a mount from being unmounted. */
#ifndef SHADE_CTL_BUSY_H
#define SHADE_CTL_BUSY_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

#define BUSY_MAX 32

struct holder {
	pid_t pid;
	char name[64];
	char what[32]; /* "directory", "file 3" */
	char path[PATH_MAX];
};

struct busy {
	struct holder holders[BUSY_MAX];
	unsigned count;	 /* of holders */
	unsigned more;	 /* processes that found no place there */
	unsigned hidden; /* processes that we may not look into */
	unsigned others; /* of count and more: who is not a shadefs daemon */
};

/* Looks at all processes but this one. One holder a process: the first thing found. */
void busy_find(struct busy *busy, const char *point);

/* A line for each. */
void busy_print(const struct busy *busy, FILE *out);

#endif
