/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What kernel and daemon have agreed upon at the begin of a connection, which comes once: the
 * daemon that takes a connection over brings its libfuse to the same state with the same bytes.
 */
#ifndef SHADE_AGREED_H
#define SHADE_AGREED_H

#include "fuse/internal.h"
#include "fuse/session.h"

/* Has libfuse read and write by us. 0 or a negative errno; the session then has the descriptor. */
int agreed_take_connection(struct fuse_session *fuse, int connection);
/* Handles the kernel's INIT, and keeps it and the answer in `heritage`. */
void agreed_answer(struct fuse_session *fuse, struct session_heritage *heritage,
		   const struct fuse_buf *buffer, size_t size);
/* Has libfuse read the kept INIT again, without an answer to the kernel. 0, or -EPROTO if this
 * daemon would have answered something else. */
int agreed_repeat(struct fuse_session *fuse, const struct session_heritage *heritage);

/* The same without a connection, for handlers that do no more with `user_data` than at the begin of
 * one. */
int agreed_check(const struct fuse_lowlevel_ops *ops, void *user_data,
		 const struct session_heritage *heritage);

#endif
