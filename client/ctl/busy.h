/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The processes that keep a mount from being unmounted. */
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
	unsigned more;	 /* processes beyond BUSY_MAX */
	unsigned hidden; /* processes that we may not look into */
	unsigned others; /* of count and more: all but shadefs daemons */
};

/* Looks at all processes but this one. A process is one holder, by the first thing it uses. */
void busy_find(struct busy *busy, const char *point);

/* A line for each. */
void busy_print(const struct busy *busy, FILE *out);

#endif
