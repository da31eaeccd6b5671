/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The inside of fuse/, for files.c (handlers of the source's files), files_mount.c, shade.c
 * (handlers of .shade), notify.c (what the daemon tells the kernel), entry.c and signals.c (callers
 * that are killed while they wait). All that knows libfuse includes this. */
#ifndef SHADE_FUSE_INTERNAL_H
#define SHADE_FUSE_INTERNAL_H

#include <assert.h>

#define FUSE_USE_VERSION FUSE_MAKE_VERSION(3, 14)
#include <fuse_lowlevel.h>

#include "base/threads.h"
#include "fuse/files.h"
#include "fuse/numbers.h"
#include "fuse/shade.h"

/* Threads of the daemon that look names up through the mount: more than there are. */
#define OWN_THREADS 8

struct files {
	struct shade shade; /* first, for the handlers in shade.c */
	struct files_options options;
	struct numbers numbers;	      /* constant */
	bool native;		      /* constant while mounted */
	struct fuse_lowlevel_ops ops; /* constant while mounted */

	struct lock notify_lock;
	struct cond notified;	 /* notify_lock: `notifying` is 0 */
	struct session *session; /* notify_lock; only files_mount() and files_unmount() set it */
	unsigned notifying;	 /* notify_lock: threads that use the session */
	int root; /* notify_lock: files_unmount() has begun to unmount this; -1: nothing */
	_Atomic pid_t own[OWN_THREADS]; /* that are looking something up for themselves; 0: none */

	struct lock signals_lock;
	struct signalled *signalled, **signalled_end; /* signals_lock: in the order of polls */
	unsigned signalled_count;		      /* signals_lock */
	uint64_t polled_ms;			      /* only files_tick() uses it */
	_Atomic uint64_t last_serial;
};

/* A request that waits, in the cache or in the tree. Serial numbers are never used twice. */
struct pending {
	fuse_req_t req;
	uint64_t serial;
};

/* --- files.c */

/* Looks for the request with this handle, and with this number unless that is 0, among those that
 * wait. libfuse uses handles again. Sets `serial` and `found`. With `take` the request is taken out
 * and answered with EINTR. */
struct search {
	fuse_req_t req;
	uint64_t serial;
	bool take;
	bool found;
};
void files_search(struct files *files, struct search *search);

/* --- signals.c */

#define SIGNALS_POLL_MS 200

/* What fuse_req_interrupt_func() calls; the data is a struct files. */
void signals_interrupted(fuse_req_t req, void *files);
/* Looks again whether callers are being killed. */
void signals_poll(struct files *files);
void signals_free(struct files *files);

/* The handlers of the source's files alone. */
extern const struct fuse_lowlevel_ops files_ops;

/* Puts .shade into a connection of files: requests for its inodes go to its own handlers, all
 * others to those of files_ops. */
void shade_join(struct fuse_lowlevel_ops *ops);

static_assert(NUMBERS_FIRST >= CONTROL_END, "no node has a number of .shade's");

/* The inode number of the FUSE protocol. */
static inline fuse_ino_t ino_of(const struct files *files, const struct node *node)
{
	return node->parent ? numbers_encipher(&files->numbers, (uintptr_t)node) : FUSE_ROOT_ID;
}

static inline struct node *node_of(const struct files *files, fuse_ino_t ino)
{
	assert(!control_owns(ino));
	return ino == FUSE_ROOT_ID
		       ? tree_root(cache_tree(files->options.cache))
		       : (struct node *)(uintptr_t)numbers_decipher(&files->numbers, ino);
}

/* --- entry.c */

struct stat entry_stat(const struct store_attr *attr);
/* For how long the kernel may go by what it was told now, in seconds. */
double entry_timeout(const struct files *files);
uint32_t entry_generation(const struct node *node);
struct fuse_entry_param entry_make(const struct files *files, const struct node *node,
				   const struct store_attr *attr);

#endif
