/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A FUSE connection: mounted, and served by a thread of its own.
 *
 * That thread takes all requests and handles at once what never waits: it is warm, and whoever
 * reads files needs nobody else. Several equal threads were three times slower, since the
 * kernel wakes the one that has slept longest. Requests that may wait for the source are queued for
 * workers, so that they delay no others.
 */
#ifndef SHADE_SESSION_H
#define SHADE_SESSION_H

#include <stdbool.h>
#include <stdint.h>

struct session;
struct fuse_lowlevel_ops;
struct fuse_session;

struct session_options {
	const struct fuse_lowlevel_ops *ops; /* until the session is closed */
	void *user_data;		     /* of the requests, and for may_wait() */
	const char *source;		     /* what mount(8) shows */
	const char *mount_point;	     /* until the session is closed */
	bool allow_other;
	bool noexec;
	unsigned workers; /* at most, started as they are needed */
	/* Whether a request may wait, by its opcode and inode. */
	bool (*may_wait)(void *user_data, uint32_t opcode, uint64_t ino);
	/* The mount has ended without session_close(). Called by the session's thread. */
	void (*ended)(void *context);
	void *context; /* of ended() */
};

/* Mounts and serves. 0 or a negative errno. Requests may come before it returns: `*out` is set
 * before that. */
int session_open(struct session **out, const struct session_options *options);
/* libfuse's part of it, to notify the kernel. */
struct fuse_session *session_fuse(struct session *session);
/* Whether the caller is a session's own thread, which must not wait for the source. */
bool session_is_prompt(void);
/* Takes no more requests. False: some are not answered after a while, since the source hangs; then
 * the session can only be left as it is, and never be closed. */
bool session_stop(struct session *session);
/* Unmounts. No request is handled any more when it returns; that takes as long as the source. */
void session_close(struct session *session);
/* Unmounts for whoever looks the mount point up from now on, even if requests hang. */
void session_detach(const char *mount_point);

#endif
