/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A mounted shadefs as the verbs use it: files below MNT/.shade. Nothing here prints or exits;
 * errors are negative errno.
 */
#ifndef SHADE_CTL_MOUNT_H
#define SHADE_CTL_MOUNT_H

#include <stdbool.h>
#include <stddef.h>

#define MOUNT_ANSWER_MAX 4096
#define MOUNT_WRITE_MAX 65536
#define MOUNT_TEXT_MAX (2 << 20)

struct mount;

/*
 * Opens the mount at PATH. -ENODEV: something is there, but no shadefs; -ENOTCONN: its daemon
 * is gone; -ENXIO: a folder of one is bound there, without its .shade, and mount_why() has a
 * sentence; others as of open().
 */
int mount_open(const char *path, struct mount **opened);
const char *mount_why(void);
void mount_close(struct mount *mount);

/* The mount point without symbolic links. */
const char *mount_path(const struct mount *mount);
/* The folder of the mount that is bound there; "": all of it. */
const char *mount_prefix(const struct mount *mount);

/* A descriptor for reading .shade/NAME, for files that are too large to hold. */
int mount_file(const struct mount *mount, const char *name);

/* All of .shade/NAME, to be freed by the caller, with nothing in it that a terminal would take for
 * a command; -EFBIG above MOUNT_TEXT_MAX. */
int mount_read(const struct mount *mount, const char *name, char **text);

/*
 * Sends commands, whole lines of at most MOUNT_WRITE_MAX bytes. ANSWER, of MOUNT_ANSWER_MAX
 * bytes, gets what the daemon said, without the newline: after a failure a sentence, or "".
 * All commands of one struct mount go through one descriptor; at mount_close() the daemon drops an
 * order that was begun there and not ended.
 */
int mount_send(struct mount *mount, const char *commands, size_t length, char *answer);

/* One line `key value`; the value is the rest of the line. Neither is terminated by NUL. */
struct pair {
	const char *key;
	const char *value;
	size_t key_length;
	size_t value_length;
};

/* The pair at *CURSOR, which moves on; false at the end. Empty lines are passed over. */
bool pair_next(const char **cursor, struct pair *pair);

/* Finds KEY in such lines. */
bool pair_find(const char *text, const char *key, struct pair *pair);

/* KEY as a number; NaN if it is missing or is none, which arithmetic then hands on. */
double pair_number(const char *text, const char *key);

#endif
