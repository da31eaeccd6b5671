/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the kernel has open: a file, a directory, or the control file. */
#ifndef SLOWFS_HANDLE_H
#define SLOWFS_HANDLE_H

#include <dirent.h>
#include <stddef.h>
#include <sys/types.h>

#include "arm.h"
#include "rule.h"

struct handle {
	int fd;		       /* file, else -1 */
	char *path;	       /* file: as the rules know it */
	struct rule_open rule; /* file; belongs to rule.c */
	struct place place;    /* file: on the disk; with seek_us at its opening */

	DIR *dir;	      /* directory, else NULL */
	struct dirent *entry; /* directory: read, but not yet delivered; or NULL */
	off_t offset;	      /* directory: where `entry`, or the next, is */

	char *text; /* control file, else NULL: what the open found */
	size_t text_size;

	struct handle *prev, *next; /* the lock in handle.c */
};

/* NULL: no memory. */
struct handle *handle_new(void);

/* Closes and frees all that is in it. */
void handle_free(struct handle *handle);

/* At the end: what the kernel had open when the mount went away. */
void handle_free_all(void);

#endif
