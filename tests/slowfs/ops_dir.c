/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Directories. Offsets are the source's own, so a listing can go on anywhere. */
#include "ops.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "counter.h"
#include "handle.h"
#include "node.h"
#include "pace.h"
#include "setting.h"
#include "source.h"

/* A listing on its way to the kernel. */
struct listing {
	fuse_req_t req;
	fuse_ino_t ino;
	bool plus; /* with the attributes of each entry */
	char *data;
	size_t used, size;
};

static int open_directory(fuse_req_t req, struct handle *handle, const struct node *node)
{
	char path[PATH_MAX];
	int fd, ret;

	ret = node_path(node, path, sizeof(path));
	if (!ret)
		ret = ops_enter_open(req, path);
	if (ret)
		return ret;
	fd = source_open(node, O_DIRECTORY);
	if (fd < 0)
		return fd;
	handle->dir = fdopendir(fd);
	if (!handle->dir) {
		ret = -errno;
		close(fd);
	}
	return ret;
}

void ops_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct handle *handle = handle_new();
	int ret;

	if (!handle) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	ret = open_directory(req, handle, ops_node(ino));
	fi->fh = (uintptr_t)handle;
	if (ret)
		fuse_reply_err(req, -ret);
	else
		ret = fuse_reply_open(req, fi);
	if (ret)
		handle_free(handle);
}

static bool is_dots(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..");
}

/* Returns what the entry needs; it was added if that is not more than there is room for. */
static size_t add_plain(struct listing *listing, const struct dirent *entry)
{
	struct stat st = { .st_ino = entry->d_ino, .st_mode = DTTOIF(entry->d_type) };

	return fuse_add_direntry(listing->req, listing->data + listing->used,
				 listing->size - listing->used, entry->d_name, &st, entry->d_off);
}

/* As add_plain(). 0: the entry has vanished meanwhile. */
static size_t add_plus(struct listing *listing, const struct dirent *entry)
{
	struct fuse_entry_param param = {
		.attr = { .st_ino = entry->d_ino, .st_mode = DTTOIF(entry->d_type) },
	};
	size_t room = listing->size - listing->used, needed;

	/* The kernel takes no lookup for these two. */
	if (!is_dots(entry->d_name) && ops_entry(ops_node(listing->ino), entry->d_name, &param))
		return 0;
	needed = fuse_add_direntry_plus(listing->req, listing->data + listing->used, room,
					entry->d_name, &param, entry->d_off);
	if (needed > room && param.ino)
		node_forget(ops_node(param.ino), 1);
	return needed;
}

/* False: it is full. */
static bool listing_add(struct listing *listing, const struct dirent *entry)
{
	size_t needed;

	if (ops_is_control(listing->ino, entry->d_name))
		return true;
	needed = listing->plus ? add_plus(listing, entry) : add_plain(listing, entry);
	if (needed > listing->size - listing->used)
		return false;
	listing->used += needed;
	return true;
}

/* Returns 0 or -errno. */
static int listing_fill(struct listing *listing, struct handle *handle, off_t offset)
{
	if (offset != handle->offset) {
		seekdir(handle->dir, offset);
		handle->entry = NULL;
		handle->offset = offset;
	}
	for (;;) {
		if (!handle->entry) {
			errno = 0;
			handle->entry = readdir(handle->dir);
			if (!handle->entry)
				return -errno;
		}
		if (!listing_add(listing, handle->entry))
			return 0;
		handle->offset = handle->entry->d_off;
		handle->entry = NULL;
	}
}

static void reply_listing(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
			  struct fuse_file_info *fi, bool plus)
{
	struct listing listing = { .req = req, .ino = ino, .plus = plus, .size = size };
	int ret = -ENOMEM;

	pace_delay(setting_load(SETTING_META_DELAY_US));
	listing.data = malloc(size ? size : 1);
	if (listing.data)
		ret = listing_fill(&listing, ops_handle(fi), offset);
	/* What was already found has lookups that the kernel must learn of. */
	if (ret && !listing.used)
		fuse_reply_err(req, -ret);
	else
		fuse_reply_buf(req, listing.data, listing.used);
	free(listing.data);
}

void ops_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		 struct fuse_file_info *fi)
{
	counter_add(COUNTER_READDIRS, 1);
	reply_listing(req, ino, size, offset, fi, false);
}

void ops_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		     struct fuse_file_info *fi)
{
	counter_add(COUNTER_READDIRPLUS, 1);
	reply_listing(req, ino, size, offset, fi, true);
}
