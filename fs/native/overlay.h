/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Native mode: three mounts instead of one, so that a hit asks the daemon nothing.
 *
 *   /run/shadefs/PID/files   FUSE without opens: the kernel serves what is in its page cache
 *   MOUNTPOINT               a read-only overlay over that, which also keeps ioctls (Python sends
 *                            one for every file it opens) from becoming requests
 *   MOUNTPOINT/.shade        FUSE with opens, for control
 *
 * The cache learns of accesses by fanotify on the overlay. Its events carry file handles, and in a
 * handle of the overlay is the node id of the file below: no descriptor is opened for them.
 */
#ifndef SHADE_OVERLAY_H
#define SHADE_OVERLAY_H

#include "fuse/files.h"

struct overlay;
struct mount;

enum overlay_part { OVERLAY_FILES, OVERLAY_CONTROL };

struct overlay_options {
	struct files *files; /* not mounted yet */
	struct cache *cache;
	struct store *store;
	struct control *control;
	const char *source;
	const char *mount_point; /* absolute; its name at first */
	int directory;		 /* a descriptor of it; only overlay_open() needs it */
	int above;		 /* of the directory that it is in, until overlay_free() */
	double staleness_s;
	bool allow_other;
	bool noexec;
	/* A FUSE connection was mounted, which has to end with the daemon. */
	void (*mounted)(void *context, enum overlay_part part, const struct mount *mount);
	/* The overlay was unmounted, or should be: the daemon is to end. */
	void (*ended)(void *context);
	void *context;
};

/* Mounts; each thing that native mode needs is tried, none is guessed from versions. 0, or a
 * negative errno with a sentence in `why`, and then nothing is left. Requests may come before it
 * returns: `*out` is set before that. */
int overlay_open(struct overlay **out, const struct overlay_options *options, char *why,
		 size_t room);
/* Unmounts all. overlay_flush() may still be called, and does nothing. */
void overlay_close(struct overlay *overlay);
/* After overlay_close(). NULL is fine. */
void overlay_free(struct overlay *overlay);
/* Detaches and removes everything, even if threads still use it: the process ends now. */
void overlay_abandon(struct overlay *overlay);

/* Returns when the cache knows of all opens and closes up to now. */
void overlay_catch_up(struct overlay *overlay);
/* At least so many accesses were not told of. */
uint64_t overlay_accesses_lost(const struct overlay *overlay);
/* Names have changed: has the overlay forget all names that are not in use. */
void overlay_flush(struct overlay *overlay);
/* Unmounts and removes what daemons left that were killed. */
void overlay_clean_up(void);

#endif
