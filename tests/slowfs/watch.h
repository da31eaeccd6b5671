/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A thread that sees to it that the mount can always end. */
#ifndef SLOWFS_WATCH_H
#define SLOWFS_WATCH_H

struct fuse_session;
struct watch;

/* Blocks the signals that end the program, in this thread and those that it starts. Call
 * before any thread. */
void watch_block_signals(void);

/*
 * Starts to watch a session that is mounted at `mountpoint` and that the calling thread
 * is about to run. Once the mount answers, a byte goes to `ready_fd` (unless it is -1),
 * which is then closed. Returns NULL after a message if it cannot.
 */
struct watch *watch_start(struct fuse_session *session, const char *mountpoint, int ready_fd);

/* Call when the session has ended and is still mounted. Returns whether it ever answered. */
int watch_stop(struct watch *watch);

#endif
