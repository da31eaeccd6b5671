/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A FUSE connection: mounted, and served by a thread of its own.
 *
 * That thread takes all requests and handles at once what never waits: it is warm, and whoever
 * reads files needs nobody else. Several equal threads were three times slower, since the
 * kernel wakes the one that has slept longest. Requests that wait for a directory or for the bytes
 * of a file are kept by the tree and the cache until these answer them. What is left and may take
 * long is queued for workers, so that it delays no others. Workers for .shade are apart from those
 * that ask the source, which may all hang.
 */
#ifndef SHADE_SESSION_H
#define SHADE_SESSION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/format.h"
#include "base/mount.h"

#define SESSION_AGREED_MAX 256 /* bytes of an INIT, and of its answer */

/* Who handles a request. */
enum session_lane {
	SESSION_SOURCE,	 /* workers that may wait for the source */
	SESSION_CONTROL, /* workers for .shade */
	SESSION_ATTR,	 /* workers that ask about directories, and give up at a deadline */
	SESSION_LANES,
	SESSION_AT_ONCE = SESSION_LANES, /* the session's thread: it never waits */
};

/* What a daemon that takes a connection over needs besides the descriptor. It is in memory that
 * outlives the daemon, and all zeros at first. */
struct session_heritage {
	struct mount mount;			      /* `above` means nothing to others */
	_Alignas(8) char request[SESSION_AGREED_MAX]; /* the kernel's INIT */
	char reply[SESSION_AGREED_MAX];
	uint32_t request_size;
	_Atomic uint32_t reply_size; /* 0: the kernel has not asked yet */
};

struct session;
struct fuse_lowlevel_ops;
struct fuse_session;

struct session_options {
	const struct fuse_lowlevel_ops *ops; /* until the session is closed */
	void *user_data;		     /* of the requests, and for lane_of() */
	const char *source;		     /* what mount(8) shows */
	const char *mount_point;	     /* its name at first; until the session is closed */
	int directory;			     /* a descriptor of it, until the session is started */
	int connection; /* to be taken over, as `heritage` says; -1: it has to be mounted */
	struct session_heritage *heritage; /* until the session is closed */
	int above; /* of what it is in, until the session is closed; -1: somebody else unmounts */
	bool allow_other;
	bool noexec;
	unsigned workers[SESSION_LANES]; /* at most, started as they are needed; 0: none */
	/* By opcode and inode. A lane without workers is not for it. */
	enum session_lane (*lane_of)(void *user_data, uint32_t opcode, uint64_t ino);
	/* A request that comes again may come twice. Whoever is faster answers it, and then the
	 * kernel may forget what it was about, while the other one is still in a queue: so that is
	 * held from here to there. NULL: nothing has to be. */
	void *(*hold)(void *user_data, uint64_t ino);
	void (*let_go)(void *user_data, void *held);
	/* The mount has ended without session_close(). Called by the session's thread. */
	void (*ended)(void *context);
	void *context; /* of ended() */
};

/* Makes one that is not mounted yet. 0 or a negative errno. */
int session_create(struct session **out, const struct session_options *options);
/* Mounts, or takes the connection over, and serves, once. Requests may come before it returns. 0 or
 * a negative errno, and then session_close() is all that may follow. */
int session_start(struct session *session);
/* A descriptor of the connection, which is the session's. */
int session_connection(const struct session *session);
/* libfuse's part of it, to notify the kernel. */
struct fuse_session *session_fuse(struct session *session);
/* Whether the caller is a session's own thread, which must not wait for the source. */
bool session_is_prompt(void);
/* Whether the request that the caller handles came a second time, since a daemon had read it and
 * died: perhaps after it had done what was asked, but for the answer. */
bool session_is_repeated(void);
/* The number of the request that the caller handles; no other one of the connection has it. */
uint64_t session_request(void);
/* Takes no more requests. False: workers still have some after a while, since the source hangs. */
bool session_stop(struct session *session);
/* Unmounts. No worker has a request any more when it returns; that takes as long as the source. */
void session_close(struct session *session);
/* What session_start() has mounted or taken over. */
const struct mount *session_mount(const struct session *session);
/* A descriptor of the mount's root, which keeps the mount busy; or a negative errno. */
int session_reach(const struct session *session);
/* Unmounts what that is the root of, for whoever looks it up from now on, even if requests hang. */
void session_detach(int root);

/* --- of a connection that nobody serves */

/* What all that fuse/ has left is like. */
extern const struct format_line agreed_format[];

/* Whether the kernel can be made to repeat what was not answered (Linux 6.9). */
bool session_can_repeat(const struct session_heritage *heritage);
/* Has the kernel repeat all requests that were read and not answered: 0 or a negative errno. */
int session_repeat(int connection);
/* Ends and unmounts it, unless it is not there any more; `above` is a descriptor of what it is in.
 */
void session_abandon(const struct session_heritage *heritage, int connection, int above);

#endif
