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

#include <sys/types.h>

#include "base/mount.h"
#include "fuse/files.h"
#include "native/run_dir.h"

#define OVERLAY_TOLD_MAX 4096

struct overlay;

/* What a successor takes over by descriptors. */
enum overlay_part {
	OVERLAY_FILES,	     /* the connection of the files */
	OVERLAY_CONTROL,     /* the connection of .shade */
	OVERLAY_EVENTS,	     /* fanotify's */
	OVERLAY_FILE_SYSTEM, /* the overlay itself */
	OVERLAY_LOCK,	     /* of the directory in /run/shadefs; nobody takes it over */
	OVERLAY_PARTS
};

/* And what by memory that outlives the daemon, all zeros at first. */
struct overlay_heritage {
	struct run_dir run_dir; /* its lock means nothing to others */
	struct mount mount;	/* as little does `above` */
	struct session_heritage control;
	struct store_attr top, listed;
	char told[OVERLAY_TOLD_MAX]; /* empty: umount(8) was told nothing */
};

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
	pid_t owner; /* whose directory in /run/shadefs it is */
	struct overlay_heritage *heritage;
	/* This part is to be kept for a successor, in place of one that there was before; -1: there
	 * is none. A FUSE connection has a mount, and ends if there is no successor. */
	void (*keep)(void *context, enum overlay_part part, int fd, const struct mount *mount);
	/* The overlay was unmounted, or should be: the daemon is to end. */
	void (*ended)(void *context);
	void *context;
};

/* Mounts; each thing that native mode needs is tried, none is guessed from versions. 0, or a
 * negative errno with a sentence in `why`, and then nothing is left. Requests may come before it
 * returns: `*out` is set before that. */
int overlay_open(struct overlay **out, const struct overlay_options *options, char *why,
		 size_t room);
/* Takes over what another daemon had opened, and kept. 0, or a negative errno with a sentence. */
int overlay_take_over(struct overlay **out, const struct overlay_options *options,
		      const int parts[OVERLAY_PARTS], char *why, size_t room);
/* Takes no more requests; those at hand are answered if that takes no longer than a moment. The
 * process ends next. */
void overlay_pause(struct overlay *overlay);
/* Unmounts all. overlay_flush() may still be called, and does nothing. */
void overlay_close(struct overlay *overlay);
/* After overlay_close(). NULL is fine. */
void overlay_free(struct overlay *overlay);
/* Detaches and removes everything, even if threads still use it: the process ends now. */
void overlay_abandon(struct overlay *overlay);

/* The same for what a dead daemon had, given by what it left; `file_system` is the part of that
 * name, or -1, and `above` the directory that the mount point is in. */
void overlay_abandon_heritage(struct overlay_heritage *heritage, int file_system, int above);

extern const struct format_line overlay_format[];

/* Returns when the cache knows of all opens and closes up to now. */
void overlay_catch_up(struct overlay *overlay);
/* At least so many accesses were not told of. */
uint64_t overlay_accesses_lost(const struct overlay *overlay);
/* Names have changed: has the overlay forget all names that are not in use. */
void overlay_flush(struct overlay *overlay);
/* Unmounts and removes what daemons left that were killed. */
void overlay_clean_up(void);

#endif
