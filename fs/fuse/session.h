/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A FUSE connection: mounted, and served by a thread of its own.
 *
 * That thread takes all requests and handles at once what never waits: it is warm, and whoever
 * reads files needs nobody else. Several equal threads were three times slower, since the
 * kernel wakes the one that has slept longest. Whatever may wait for the source is passed to
 * workers, so that it keeps nobody.
 */
#ifndef SHADE_CHANNEL_H
#define SHADE_CHANNEL_H

#define FUSE_USE_VERSION FUSE_MAKE_VERSION(3, 14)
#include <fuse_lowlevel.h>
#include <stdbool.h>

struct channel;

struct channel_options {
	const struct fuse_lowlevel_ops *ops;
	void *context;
	const char *source; /* what mount(8) shows */
	const char *mount_point;
	bool allow_other;
	bool noexec;
	unsigned workers; /* at most, started as they are needed */
	/* Whether a request may wait, by its opcode and inode. */
	bool (*may_wait)(void *context, uint32_t opcode, uint64_t ino);
	/* The mount has ended without channel_close(). Called by the channel's thread. */
	void (*ended)(void *context);
};

/* Mounts and serves. 0 or a negative errno. */
int channel_open(struct channel **out, const struct channel_options *options);
struct fuse_session *channel_session(struct channel *channel);
/* Whether the caller is a channel's own thread, which must not wait for the source. */
bool channel_is_prompt(void);
/* Takes no more requests. False: some are not answered after a while, since the source hangs; then
 * the channel can only be left alone. */
bool channel_stop(struct channel *channel);
/* Unmounts. No request is handled any more when it returns; that takes as long as the source. */
void channel_close(struct channel *channel);
/* Unmounts for whoever looks it up from now on, whatever hangs. */
void channel_detach(const char *mount_point);

#endif
