/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How a source is found again whose file system has ended and was mounted again at the same place:
 * a FUSE file system whose server has died, or an NFS export that is stale.
 *
 * Names are resolved once, when the daemon starts, for somebody else may rename the directories on
 * the way later. Nobody can rename a mount point, so what is kept is a descriptor of the directory
 * above the mount that the source is in, and the name of the mount point there. What is mounted
 * there later counts only if it is of the same type, from the same device or server, with the same
 * directory as its root, and, if it is FUSE, by the same user. So whoever could put something else
 * there was trusted with the source before: others can neither mount as root nor as that user.
 */
#ifndef SHADE_ANCHOR_H
#define SHADE_ANCHOR_H

#include <stdint.h>

struct anchor {
	int above;   /* a descriptor for O_PATH; -1: the source cannot be found again */
	char *name;  /* of the mount point there */
	char *below; /* the source's path from there; "." if it is the mount's root */
	char *kind;  /* what anchor_reopen() compares */
};

/* `root` is a descriptor of the source. Not to be found again is no error. */
void anchor_set(struct anchor *anchor, int root);
/* What is there now: a descriptor for O_PATH of the source, which may be as dead as the one before.
 * -ENOENT: nothing is mounted there; -EXDEV: something else is; or another negative errno. */
int anchor_reopen(const struct anchor *anchor);
void anchor_free(struct anchor *anchor);

#endif
