/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Native mode: three mounts instead of one, so that a hit asks the daemon nothing.
 *
 *   /run/shadefs/PID/files   FUSE without opens: the kernel serves what is in its page cache
 *   MOUNTPOINT               a read-only overlay over that, which also keeps ioctls (Python sends
 *                            one for every file it opens) from becoming requests
 *   MOUNTPOINT/.shade        FUSE with opens, for control
 *
 * Accesses are observed by fanotify on the overlay. Its events carry file handles, and in a
 * handle of the overlay is the node id of the file below: no descriptor is opened for them.
 */
#ifndef SHADE_NATIVE_H
#define SHADE_NATIVE_H

#include "daemon/daemon.h"

/* Mounts; each thing that this needs is tried, not guessed. 0, or a negative errno with a sentence
 * in `why`, and then nothing is left. */
int native_open(struct front *front, char *why, size_t room);
void native_close(struct front *front);
/* Unmounts and removes everything, whatever threads still use it: the process ends now. */
void native_abandon(struct front *front);
/* Tells the cache of all opens up to now: whoever asks or says something about accesses goes by
 * those that were before. */
void native_settle(struct front *front);
/* Names have changed: makes the overlay look again. */
void native_flush(struct front *front);
/* Unmounts and removes what daemons left that did not end well. */
void native_clean_up(void);

#endif
