/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the files of the FUSE front end share: ops.c (the source's files), shade_files.c (the
 * files of .shade), main.c (begin and end). */
#ifndef SHADE_FRONT_H
#define SHADE_FRONT_H

#define FUSE_USE_VERSION FUSE_MAKE_VERSION(3, 14)
#include <fuse_lowlevel.h>

#include "cache.h"
#include "options.h"

struct front {
	struct options options;
	struct fuse_session *session;
	struct store *store;
	struct cache *cache;
	uid_t owner;	       /* who mounted, and may use .shade */
	_Atomic bool stopping; /* ends the scan */
	_Atomic bool scan_wanted;
};

extern const struct fuse_lowlevel_ops front_ops;
extern const struct residency_kernel front_kernel; /* context: the front */

/* --- .shade: inode numbers below FIRST_NODE are its own ------------------------------------------
 */

#define SHADE_DIR_INO 2
#define FIRST_NODE 64

static inline bool shade_owns(fuse_ino_t ino)
{
	return ino >= SHADE_DIR_INO && ino < FIRST_NODE;
}

/* Each answers the request. */
void shade_lookup(struct front *front, fuse_req_t req, fuse_ino_t parent, const char *name);
void shade_getattr(struct front *front, fuse_req_t req, fuse_ino_t ino);
void shade_readdir(struct front *front, fuse_req_t req, size_t size, off_t offset, bool plus);
void shade_open(struct front *front, fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void shade_read(struct front *front, fuse_req_t req, size_t size, off_t offset,
		struct fuse_file_info *fi);
void shade_write(struct front *front, fuse_req_t req, const char *data, size_t size,
		 struct fuse_file_info *fi);
void shade_release(struct front *front, fuse_req_t req, struct fuse_file_info *fi);
void shade_ioctl(struct front *front, fuse_req_t req, unsigned command, const void *in,
		 size_t in_size, struct fuse_file_info *fi);

#endif
