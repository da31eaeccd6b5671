/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Files. By default the kernel is told to pass its page cache by (direct_io), so each
 * read() of a client is seen, counted and faulted here. With direct_io=0 pages live until
 * the next open; that is what MAP_SHARED needs. With keep_cache=1 as well they live until the
 * kernel needs the memory, as with other remote file systems; an open is still asked for.
 */
#include "ops.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control.h"
#include "counter.h"
#include "handle.h"
#include "node.h"
#include "pace.h"
#include "setting.h"
#include "source.h"

/* What a reader will see is written down now. */
static int open_control(struct handle *handle, struct fuse_file_info *fi)
{
	fi->direct_io = 1;
	handle->text = control_status(&handle->text_size);
	return handle->text ? 0 : -ENOMEM;
}

static int find_place(struct handle *handle)
{
	struct stat st;

	return fstat(handle->fd, &st) ? -errno : arm_find(handle->path, st.st_ino, &handle->place);
}

static int open_file(fuse_req_t req, struct handle *handle, fuse_ino_t ino,
		     struct fuse_file_info *fi)
{
	char path[PATH_MAX];
	int ret;

	if ((fi->flags & O_ACCMODE) != O_RDONLY || (fi->flags & O_TRUNC))
		return -EROFS;
	ret = node_path(ops_node(ino), path, sizeof(path));
	if (ret)
		return ret;
	counter_add(COUNTER_OPENS, 1);
	counter_add(COUNTER_DIRECT_OPENS, !!(fi->flags & O_DIRECT));
	ret = ops_enter_open(req, path);
	if (ret)
		return ret;
	pace_delay(setting_load(SETTING_DELAY_US));
	handle->path = strdup(path);
	if (!handle->path)
		return -ENOMEM;
	handle->fd = source_open(ops_node(ino), 0);
	if (handle->fd >= 0 && setting_load(SETTING_SEEK_US))
		ret = find_place(handle);
	fi->direct_io = !!setting_load(SETTING_DIRECT_IO);
	fi->keep_cache = !!setting_load(SETTING_KEEP_CACHE);
	return handle->fd < 0 ? handle->fd : ret;
}

void ops_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct handle *handle = handle_new();
	int ret;

	if (!handle) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	ret = ino == OPS_CONTROL_ID ? open_control(handle, fi) : open_file(req, handle, ino, fi);
	fi->fh = (uintptr_t)handle;
	if (ret)
		fuse_reply_err(req, -ret);
	else
		ret = fuse_reply_open(req, fi);
	/* Also if nobody waits for the answer any more: then no release will come. */
	if (ret)
		handle_free(handle);
}

/* The answer is a copy: as soon as the kernel has it, a release may free the text, while
 * this thread is not yet back from answering. */
static void read_control(fuse_req_t req, const struct handle *handle, size_t size, off_t offset)
{
	size_t start = (size_t)offset < handle->text_size ? (size_t)offset : handle->text_size;
	size_t left = handle->text_size - start;
	char *copy;

	if (size > left)
		size = left;
	copy = malloc(size + 1);
	if (!copy) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	memcpy(copy, handle->text + start, size);
	fuse_reply_buf(req, copy, size);
	free(copy);
}

/* Returns the bytes to deliver, or -errno. */
static ssize_t read_file(fuse_req_t req, struct handle *handle, unsigned char *data, size_t size,
			 off_t offset)
{
	struct arm_pace arm;
	ssize_t got;
	int ret;

	counter_add(COUNTER_READS, 1);
	ret = ops_enter_read(req, handle);
	if (ret)
		return ret;
	pace_delay(setting_load(SETTING_READ_DELAY_US));
	arm = (struct arm_pace){ setting_load(SETTING_SEEK_US), setting_load(SETTING_PASS_US) };
	if (arm.seek_us)
		arm_move(handle->place, arm);
	got = pread(handle->fd, data, size, offset);
	if (got < 0)
		return -errno;
	got = (ssize_t)rule_shape(handle->path, &handle->rule, data, (size_t)got);
	pace_transfer((size_t)got);
	counter_add(COUNTER_BYTES, (uint64_t)got);
	return got;
}

void ops_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi)
{
	struct handle *handle = ops_handle(fi);
	unsigned char *data;
	ssize_t got;

	if (ino == OPS_CONTROL_ID) {
		read_control(req, handle, size, offset);
		return;
	}
	data = malloc(size ? size : 1);
	got = data ? read_file(req, handle, data, size, offset) : -ENOMEM;
	if (got < 0)
		fuse_reply_err(req, (int)-got);
	else
		fuse_reply_buf(req, (const char *)data, (size_t)got);
	free(data);
}

/* Only the control file could be opened for writing. One write() is one message, wherever
 * in the file it goes. */
void ops_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t offset,
	       struct fuse_file_info *fi)
{
	int ret = -EROFS;

	(void)offset, (void)fi;
	if (ino == OPS_CONTROL_ID)
		ret = control_apply(data, size);
	if (ret)
		fuse_reply_err(req, -ret);
	else
		fuse_reply_write(req, size);
}

void ops_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	handle_free(ops_handle(fi));
	fuse_reply_err(req, 0);
}
