/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Tells the cache what is opened and closed in an overlay, by fanotify, and notices that the
 * overlay was unmounted. A thread does both.
 *
 * libc has fanotify_init() and fanotify_mark(); all other names that begin so are ours.
 */
#ifndef SHADE_FANOTIFY_H
#define SHADE_FANOTIFY_H

#include "base/mount.h"
#include "fuse/files.h"

struct fanotify;

struct fanotify_options {
	struct cache *cache;
	struct control *control;   /* who reads for whom */
	const struct files *files; /* what is below the overlay */
	const struct mount *mount; /* the overlay; not copied */
	int events; /* a dead daemon's, to be taken over: the overlay is marked; otherwise -1 */
	/* By the thread: the overlay was unmounted. It is called once, and the thread ends. */
	void (*unmounted)(void *context);
	/* By the thread, some time after fanotify_wake(). */
	void (*woken)(void *context);
	void *context;
};

/* The overlay is mounted, .shade in it not yet; `root` is a descriptor of its root, which is needed
 * only for the call, and not at all to take events over. 0 or a negative errno. */
int fanotify_open(struct fanotify **out, const struct fanotify_options *options, int root);
/* The descriptor that events are read from, which is not the caller's. What happens while nobody
 * reads waits there. */
int fanotify_events(const struct fanotify *fanotify);
/* Ends the thread. */
void fanotify_stop(struct fanotify *fanotify);
void fanotify_close(struct fanotify *fanotify);
/* Returns when the cache knows of all opens and closes up to now. Without a call it learns of them
 * within a few milliseconds. */
void fanotify_drain(struct fanotify *fanotify);
/* At least so many events were lost, since the kernel's queue was full. */
uint64_t fanotify_lost(const struct fanotify *fanotify);
/* Has the thread call woken(). */
void fanotify_wake(struct fanotify *fanotify);

#endif
