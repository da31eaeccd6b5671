/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The table of handlers, and what they share. The mount is not `ro`, since the control
 * file is written to; everything else refuses to be changed with EROFS.
 */
#include "ops.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "control.h"
#include "handle.h"
#include "node.h"
#include "setting.h"

struct node *ops_node(fuse_ino_t ino)
{
	assert(ino != OPS_CONTROL_ID);
	return ino == FUSE_ROOT_ID ? node_root() : (struct node *)(uintptr_t)ino;
}

struct handle *ops_handle(const struct fuse_file_info *fi)
{
	assert(fi && fi->fh);
	return (struct handle *)(uintptr_t)fi->fh;
}

double ops_timeout(void)
{
	return (double)setting_load(SETTING_TIMEOUT_US) / 1e6;
}

bool ops_is_control(fuse_ino_t parent, const char *name)
{
	return parent == FUSE_ROOT_ID && !strcmp(name, CONTROL_NAME);
}

/* Runs in the thread that received the interrupt, while the request waits in another. */
static void on_interrupt(fuse_req_t req, void *wait)
{
	(void)req;
	rule_interrupt(wait);
}

int ops_enter_open(fuse_req_t req, const char *path)
{
	struct rule_wait wait = { .interrupted = false };
	int ret;

	fuse_req_interrupt_func(req, on_interrupt, &wait);
	ret = rule_enter_open(path, &wait);
	fuse_req_interrupt_func(req, NULL, NULL);
	return ret;
}

int ops_enter_read(fuse_req_t req, const struct handle *handle)
{
	struct rule_wait wait = { .interrupted = false };
	int ret;

	fuse_req_interrupt_func(req, on_interrupt, &wait);
	ret = rule_enter_read(handle->path, &handle->rule, &wait);
	fuse_req_interrupt_func(req, NULL, NULL);
	return ret;
}

static void ops_init(void *userdata, struct fuse_conn_info *conn)
{
	(void)userdata;
	/* The kernel's default of 12 would queue readahead and asynchronous direct reads
	 * before they get here. */
	conn->max_background = OPS_THREADS;
	conn->congestion_threshold = OPS_THREADS * 3 / 4;
}

static void refuse_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
			 dev_t rdev)
{
	(void)parent, (void)name, (void)mode, (void)rdev;
	fuse_reply_err(req, EROFS);
}

static void refuse_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	(void)parent, (void)name, (void)mode;
	fuse_reply_err(req, EROFS);
}

static void refuse_name(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	(void)parent, (void)name;
	fuse_reply_err(req, EROFS);
}

static void refuse_symlink(fuse_req_t req, const char *link, fuse_ino_t parent, const char *name)
{
	(void)link, (void)parent, (void)name;
	fuse_reply_err(req, EROFS);
}

static void refuse_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
			  const char *newname, unsigned int flags)
{
	(void)parent, (void)name, (void)newparent, (void)newname, (void)flags;
	fuse_reply_err(req, EROFS);
}

static void refuse_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent, const char *newname)
{
	(void)ino, (void)newparent, (void)newname;
	fuse_reply_err(req, EROFS);
}

static void refuse_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
			  struct fuse_file_info *fi)
{
	(void)parent, (void)name, (void)mode, (void)fi;
	fuse_reply_err(req, EROFS);
}

static const struct fuse_lowlevel_ops table = {
	.init = ops_init,
	.lookup = ops_lookup,
	.forget = ops_forget,
	.forget_multi = ops_forget_multi,
	.getattr = ops_getattr,
	.setattr = ops_setattr,
	.readlink = ops_readlink,
	.statfs = ops_statfs,
	.open = ops_open,
	.read = ops_read,
	.write = ops_write,
	.release = ops_release,
	.opendir = ops_opendir,
	.readdir = ops_readdir,
	.readdirplus = ops_readdirplus,
	.releasedir = ops_release,
	.mknod = refuse_mknod,
	.mkdir = refuse_mkdir,
	.unlink = refuse_name,
	.rmdir = refuse_name,
	.symlink = refuse_symlink,
	.rename = refuse_rename,
	.link = refuse_link,
	.create = refuse_create,
};

const struct fuse_lowlevel_ops *ops_table(void)
{
	return &table;
}
