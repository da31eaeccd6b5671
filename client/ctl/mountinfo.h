/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The kernel's list of mounts, /proc/self/mountinfo. */
#ifndef SHADE_CTL_MOUNTINFO_H
#define SHADE_CTL_MOUNTINFO_H

#include <stdbool.h>
#include <stdio.h>

struct mountinfo {
	FILE *file;
	char *line;   /* as the kernel wrote it */
	char *copy;   /* taken apart: the fields below point into it */
	char *point;  /* where it is mounted, without escapes */
	char *type;   /* fuse.shadefs, overlay */
	char *source; /* without escapes */
	char *options;
};

/* False, and errno set, if the list cannot be read. */
bool mountinfo_open(struct mountinfo *info);
bool mountinfo_next(struct mountinfo *info);
void mountinfo_close(struct mountinfo *info);

/* Leaves INFO at the uppermost mount at POINT, to be closed. False, and closed, if none is. */
bool mountinfo_find(struct mountinfo *info, const char *point);

#endif
