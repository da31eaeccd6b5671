/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the files of the front end share: ops.c (the source's files), shade_files.c (the files of
 * .shade), native.c (the mounts of native mode), main.c (begin and end). */
#ifndef SHADE_FRONT_H
#define SHADE_FRONT_H

#define FUSE_USE_VERSION FUSE_MAKE_VERSION(3, 14)
#include <fuse_lowlevel.h>

#include "base/threads.h"
#include "cache/cache.h"
#include "daemon/options.h"

#define SHADE_JOBS_MAX 15 /* besides the one that is always there */

struct front {
	struct options options;
	bool native;
	struct channel *files;	  /* the source's files */
	struct channel *control;  /* native: .shade */
	const char *files_path;	  /* where `files` is mounted */
	const char *control_path; /* native: where `control` is */
	/* native.c's. Who looks at it while it may end has the lock and sees `stopping`.
	 */
	struct native *native_state;
	struct lock flush_lock;
	struct store *store;
	struct cache *cache;
	bool acls;	       /* others may come, and the source has lists of who may */
	uid_t owner;	       /* who mounted, and may use .shade */
	_Atomic bool stopping; /* ends the scan */
	_Atomic bool scan_wanted;
	_Atomic uint64_t accesses_lost;	  /* native: at least so many were not told of */
	void (*end)(struct front *front); /* the mount is gone: the daemon should be, too */

	struct lock jobs_lock;
	struct {
		char name[64]; /* empty: there is none */
		uint32_t id;   /* the policy core's */
		unsigned opens;
	} jobs[SHADE_JOBS_MAX + 1]; /* jobs_lock; the first is not used */

	struct shade_handle *handles; /* jobs_lock: what is open in .shade */

	struct lock trace_lock;
	struct trace_wait *trace_waits; /* trace_lock */
};

static inline const char *front_mode(const struct front *front)
{
	return front->native ? "native" : "portable";
}

/* Of the source's files. In native mode opens are refused, and the kernel sends none. */
const struct fuse_lowlevel_ops *front_files_ops(bool native);
extern const struct fuse_lowlevel_ops front_control_ops; /* .shade alone */
/* Whether a request may wait for the source, or takes long. */
bool front_may_wait(void *front, uint32_t opcode, uint64_t ino);
extern const struct page_cache_kernel front_kernel; /* context: the front */

/* --- .shade: inode numbers below FIRST_NODE are its own ------------------------------------------
 */

#define SHADE_DIR_INO 2
#define FIRST_NODE 4096

static inline bool shade_owns(fuse_ino_t ino)
{
	return ino >= SHADE_DIR_INO && ino < FIRST_NODE;
}

/* Each answers the request. */
void shade_lookup(struct front *front, fuse_req_t req, fuse_ino_t parent, const char *name);
void shade_getattr(struct front *front, fuse_req_t req, fuse_ino_t ino);
void shade_readdir(struct front *front, fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		   bool plus);
/* `> control` truncates it first: that is taken, and nothing else. */
void shade_setattr(struct front *front, fuse_req_t req, fuse_ino_t ino, int what);
void shade_mkdir(struct front *front, fuse_req_t req, fuse_ino_t parent, const char *name);
void shade_rmdir(struct front *front, fuse_req_t req, fuse_ino_t parent, const char *name);
void shade_open(struct front *front, fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void shade_read(struct front *front, fuse_req_t req, size_t size, off_t offset,
		struct fuse_file_info *fi);
void shade_write(struct front *front, fuse_req_t req, const char *data, size_t size,
		 struct fuse_file_info *fi);
void shade_release(struct front *front, fuse_req_t req, struct fuse_file_info *fi);
void shade_ioctl(struct front *front, fuse_req_t req, unsigned command, const void *in,
		 size_t in_size, struct fuse_file_info *fi);

/* No more requests come: what is still open is freed. */
void shade_close_all(struct front *front);
bool shade_is_dir(fuse_ino_t ino);
/* Answers those who wait for accesses; at the end, all of them. */
void shade_trace_tick(struct front *front, bool ending);

#endif
