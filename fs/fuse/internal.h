/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The inside of fuse/, for files.c (handlers of the source's files), shade.c (handlers of .shade)
 * and notify.c (what the daemon tells the kernel). All that knows libfuse includes this. */
#ifndef SHADE_FUSE_INTERNAL_H
#define SHADE_FUSE_INTERNAL_H

#define FUSE_USE_VERSION FUSE_MAKE_VERSION(3, 14)
#include <fuse_lowlevel.h>

#include "fuse/files.h"
#include "fuse/shade.h"

struct files {
	struct shade shade; /* first, for the handlers in shade.c */
	struct files_options options;
	bool native;		      /* constant while mounted */
	const char *mount_point;      /* constant while mounted */
	struct fuse_lowlevel_ops ops; /* constant while mounted */
	struct session *session;
};

/* The handlers of the source's files alone. */
extern const struct fuse_lowlevel_ops files_ops;

/* Puts .shade into a connection of files: requests for its inodes go to its own handlers, all
 * others to those of files_ops. */
void shade_join(struct fuse_lowlevel_ops *ops);

/* The address of a node is its inode number. */
static inline fuse_ino_t ino_of(const struct node *node)
{
	return node->parent ? (fuse_ino_t)node : FUSE_ROOT_ID;
}

#endif
