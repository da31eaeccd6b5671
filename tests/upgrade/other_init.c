/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A libfuse that answers the kernel's first request in another way, as a newer one might: with a
 * smaller limit of what is read ahead. */
#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>
#include <linux/fuse.h>
#include <string.h>

void __real_fuse_session_process_buf(struct fuse_session *fuse, const struct fuse_buf *buffer);
void __wrap_fuse_session_process_buf(struct fuse_session *fuse, const struct fuse_buf *buffer);

void __wrap_fuse_session_process_buf(struct fuse_session *fuse, const struct fuse_buf *buffer)
{
	_Alignas(8) char bytes[512];
	struct fuse_buf changed = *buffer;
	struct fuse_init_in *init = (void *)(bytes + sizeof(struct fuse_in_header));

	if (((const struct fuse_in_header *)buffer->mem)->opcode == FUSE_INIT &&
	    buffer->size <= sizeof(bytes)) {
		memcpy(bytes, buffer->mem, buffer->size);
		changed.mem = bytes;
		init->max_readahead /= 2;
	}
	__real_fuse_session_process_buf(fuse, &changed);
}
