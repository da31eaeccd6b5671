/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The FUSE handlers of the source's files: decode, call, answer exactly once.
 *
 * A node is one version of a file, so what the kernel has cached of it is always right and
 * every open keeps it (FOPEN_KEEP_CACHE). An open of a version that the source does not
 * have any more is answered with ESTALE: the kernel then looks the name up again and
 * opens the new version, unnoticed by the caller.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/threads.h"
#include "daemon/daemon.h"
#include "fuse/session.h"

static struct front *front_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

static struct node *node_of(struct front *front, fuse_ino_t ino)
{
	return ino == FUSE_ROOT_ID ? tree_root(cache_tree(front->cache)) : (struct node *)ino;
}

static fuse_ino_t ino_of(const struct node *node)
{
	return node->parent ? (fuse_ino_t)node : FUSE_ROOT_ID;
}

/* --- names and attributes
 * ------------------------------------------------------------------------- */

static struct stat stat_from(const struct store_attr *attr)
{
	return (struct stat){
		.st_ino = attr->ino,
		.st_mode = attr->mode,
		.st_nlink = attr->nlink,
		.st_uid = attr->uid,
		.st_gid = attr->gid,
		.st_size = (off_t)attr->size,
		.st_blksize = 4096,
		.st_blocks = (blkcnt_t)((attr->size + 511) / 512),
		.st_mtim = { attr->mtime_ns / 1000000000, attr->mtime_ns % 1000000000 },
		.st_ctim = { attr->ctime_ns / 1000000000, attr->ctime_ns % 1000000000 },
		.st_atim = { attr->mtime_ns / 1000000000, attr->mtime_ns % 1000000000 },
	};
}

/* In native mode the kernel is told of changes: an overlay cannot cope with names that become
 * others by themselves. */
static double timeout_of(const struct front *front)
{
	return front->native ? 1e9 : front->options.staleness_s;
}

static struct fuse_entry_param entry_of(const struct front *front, const struct node *node,
					const struct store_attr *attr)
{
	return (struct fuse_entry_param){ .ino = ino_of(node),
					  /* observe.c finds the node by it; 0: no slot. */
					  .generation = (uint32_t)(node_slot(node) + 1),
					  .attr = stat_from(attr),
					  .attr_timeout = timeout_of(front),
					  .entry_timeout = timeout_of(front) };
}

static bool is_dots(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..");
}

static void do_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct front *front = front_of(req);
	struct fuse_entry_param entry;
	struct store_attr attr;
	struct node *node;
	unsigned turn;
	int rc;

	/* Somebody has a file's handle, and the kernel has forgotten the file. So may we. */
	if (is_dots(name)) {
		fuse_reply_err(req, ESTALE);
		return;
	}
	if (shade_owns(parent) || (parent == FUSE_ROOT_ID && !strcmp(name, TREE_TAKEN))) {
		/* In native mode it is only where the other connection is mounted. */
		if (shade_owns(parent) && front->native)
			fuse_reply_err(req, ENOENT);
		else
			shade_lookup(front, req, parent, name);
		return;
	}
	rc = tree_lookup(cache_tree(front->cache), node_of(front, parent), name, clock_now_ms(),
			 !channel_is_prompt(), &node, &turn);
	if (rc) {
		fuse_reply_err(req, -rc);
		return;
	}
	tree_get_attr(cache_tree(front->cache), node, &attr);
	entry = entry_of(front, node, &attr);
	if (fuse_reply_entry(req, &entry) == -ENOENT)
		cache_forget(front->cache, node, 1); /* interrupted: the kernel did not take it */
	tree_replied(cache_tree(front->cache), turn);
}

static void forget_one(struct front *front, fuse_ino_t ino, uint64_t count)
{
	if (ino != FUSE_ROOT_ID && !shade_owns(ino))
		cache_forget(front->cache, node_of(front, ino), count);
}

static void do_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count)
{
	forget_one(front_of(req), ino, count);
	fuse_reply_none(req);
}

static void do_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		forget_one(front_of(req), forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}

static void do_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct front *front = front_of(req);
	struct store_attr attr;
	struct stat stat;

	(void)fi;
	if (shade_owns(ino)) {
		shade_getattr(front, req, ino);
		return;
	}
	tree_get_attr(cache_tree(front->cache), node_of(front, ino), &attr);
	stat = stat_from(&attr);
	fuse_reply_attr(req, &stat, timeout_of(front));
}

/* The kernel asks for these when somebody else than a file's owner comes, and keeps them as long as
 * it keeps the attributes. */
static int read_acl(struct front *front, const struct node *node, void *value, size_t size)
{
	char *path = node_path(node);
	int rc = path ? store_acl(front->store, path, value, size) : -ENOMEM;

	free(path);
	return rc;
}

static void do_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	struct front *front = front_of(req);
	char value[65536]; /* no attribute is larger */
	int rc = -ENODATA;

	/* The kernel remembers that, and does not ask again. */
	if (!front->acls)
		rc = -ENOSYS;
	else if (!shade_owns(ino) && !strcmp(name, STORE_ACL))
		rc = read_acl(front, node_of(front, ino), value,
			      size < sizeof(value) ? size : sizeof(value));
	if (rc < 0)
		fuse_reply_err(req, -rc);
	else if (!size)
		fuse_reply_xattr(req, (size_t)rc);
	else
		fuse_reply_buf(req, value, (size_t)rc);
}

static void do_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct front *front = front_of(req);
	char *path = node_path(node_of(front, ino)), *target = NULL;
	int rc = path ? store_readlink(front->store, path, &target) : -ENOMEM;

	if (rc)
		fuse_reply_err(req, -rc);
	else
		fuse_reply_readlink(req, target);
	free(target);
	free(path);
}

static void do_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct statvfs out;
	int rc = store_statfs(front_of(req)->store, &out);

	(void)ino;
	if (rc)
		fuse_reply_err(req, -rc);
	else
		fuse_reply_statfs(req, &out);
}

/* --- directories
 * ------------------------------------------------------------------------------------ */

struct dir_reply {
	struct front *front;
	fuse_req_t req;
	bool plus;
	char *buffer;
	size_t size, used;
};

/* Offsets: 1 is after ".", 2 after "..", others after a child: see tree_cursor_after(). */
static bool add_name(struct dir_reply *reply, const char *name,
		     const struct fuse_entry_param *entry, off_t next)
{
	char *at = reply->buffer + reply->used;
	size_t left = reply->size - reply->used;
	size_t length = reply->plus
				? fuse_add_direntry_plus(reply->req, at, left, name, entry, next)
				: fuse_add_direntry(reply->req, at, left, name, &entry->attr, next);

	if (length > left)
		return false;
	reply->used += length;
	return true;
}

static bool add_child(void *context, struct node *child, uint32_t index)
{
	struct dir_reply *reply = context;
	struct fuse_entry_param entry = entry_of(reply->front, child, &child->attr);

	return add_name(reply, child->name, &entry, (off_t)tree_cursor_after(child, index) + 3);
}

static bool add_dots(struct dir_reply *reply, const struct node *dir, off_t offset)
{
	struct store_attr attr;
	struct fuse_entry_param dot;

	tree_get_attr(cache_tree(reply->front->cache), dir, &attr);
	/* Without an inode number of its own the kernel does not count it as looked up. */
	dot = (struct fuse_entry_param){ .attr = stat_from(&attr) };
	return (offset > 0 || add_name(reply, ".", &dot, 1)) &&
	       (offset > 1 || add_name(reply, "..", &dot, 2));
}

static void read_dir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, bool plus)
{
	struct front *front = front_of(req);
	struct dir_reply reply = { .front = front, .req = req, .plus = plus, .size = size };
	unsigned turn = 0;
	bool told = false;
	struct node *dir;
	int rc = 0;

	if (shade_owns(ino)) {
		if (front->native)
			fuse_reply_buf(req, NULL, 0);
		else
			shade_readdir(front, req, ino, size, offset, plus);
		return;
	}
	dir = node_of(front, ino);
	reply.buffer = malloc(size);
	if (!reply.buffer)
		rc = -ENOMEM;
	else if ((told = add_dots(&reply, dir, offset)))
		rc = tree_children(cache_tree(front->cache), dir,
				   offset > 2 ? (uint64_t)offset - 3 : TREE_BEGIN, clock_now_ms(),
				   !channel_is_prompt(), plus, add_child, &reply, &turn);
	if (rc)
		fuse_reply_err(req, -rc);
	else
		fuse_reply_buf(req, reply.buffer, reply.used);
	if (!rc && told)
		tree_replied(cache_tree(front->cache), turn);
	free(reply.buffer);
}

static void do_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		       struct fuse_file_info *fi)
{
	(void)fi;
	read_dir(req, ino, size, offset, false);
}

static void do_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
			   struct fuse_file_info *fi)
{
	(void)fi;
	read_dir(req, ino, size, offset, true);
}

/* The kernel keeps a listing until the directory was read again. */
static void do_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct front *front = front_of(req);

	if (!shade_owns(ino)) {
		fi->cache_readdir = 1;
		fi->keep_cache = tree_begin_listing(cache_tree(front->cache), node_of(front, ino),
						    clock_now_ms());
	}
	fuse_reply_open(req, fi);
}

/* --- files
 * -------------------------------------------------------------------------------------------- */

struct request {
	struct waiter waiter;
	fuse_req_t req;
	struct front *front;
	struct node *node;
	struct fuse_file_info fi; /* opens */
};

static int visible_errno(int rc)
{
	return rc == -ESHUTDOWN ? EIO : -rc;
}

static void answer_open(struct waiter *waiter, int rc, const void *data, size_t size)
{
	struct request *request = (struct request *)waiter;

	(void)data;
	(void)size;
	request->fi.keep_cache = 1;
	if (rc)
		fuse_reply_err(request->req, visible_errno(rc));
	else if (fuse_reply_open(request->req, &request->fi) == -ENOENT)
		cache_release(request->front->cache, request->node);
	free(request);
}

static void answer_read(struct waiter *waiter, int rc, const void *data, size_t size)
{
	struct request *request = (struct request *)waiter;

	if (rc)
		fuse_reply_err(request->req, visible_errno(rc));
	else
		fuse_reply_buf(request->req, data, size);
	free(request);
}

static bool is_request(const struct waiter *waiter, void *req)
{
	return ((const struct request *)waiter)->req == req;
}

/* The caller was interrupted: it need not wait any longer. */
static void interrupted(fuse_req_t req, void *context)
{
	struct front *front = context;
	struct waiter *waiter = cache_take_waiter(front->cache, is_request, req);

	if (!waiter)
		return; /* about to be answered */
	fuse_reply_err(req, EINTR);
	free(waiter);
}

static struct request *request_new(fuse_req_t req, fuse_ino_t ino)
{
	struct front *front = front_of(req);
	struct request *request = calloc(1, sizeof(*request));

	if (!request) {
		fuse_reply_err(req, ENOMEM);
		return NULL;
	}
	request->req = req;
	request->front = front;
	request->node = node_of(front, ino);
	fuse_req_interrupt_func(req, interrupted, front);
	return request;
}

static void do_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct request *request;

	if (shade_owns(ino)) {
		shade_open(front_of(req), req, ino, fi);
		return;
	}
	if ((fi->flags & O_ACCMODE) != O_RDONLY || fi->flags & O_TRUNC) {
		fuse_reply_err(req, EROFS);
		return;
	}
	request = request_new(req, ino);
	if (!request)
		return;
	request->fi = *fi;
	request->waiter.answer = answer_open;
	request->waiter.opens = true;
	cache_open(request->front->cache, request->node, &request->waiter);
}

static void do_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		    struct fuse_file_info *fi)
{
	struct request *request;

	if (shade_owns(ino)) {
		shade_read(front_of(req), req, size, offset, fi);
		return;
	}
	request = request_new(req, ino);
	if (!request)
		return;
	request->waiter.answer = answer_read;
	request->waiter.offset = (uint64_t)offset;
	request->waiter.size = size;
	request->waiter.direct = fi->flags & O_DIRECT;
	cache_read(request->front->cache, request->node, &request->waiter);
}

static void do_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct front *front = front_of(req);

	if (shade_owns(ino)) {
		shade_release(front, req, fi);
		return;
	}
	cache_release(front->cache, node_of(front, ino));
	fuse_reply_err(req, 0);
}

static void do_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t offset,
		     struct fuse_file_info *fi)
{
	(void)offset;
	if (shade_owns(ino))
		shade_write(front_of(req), req, data, size, fi);
	else
		fuse_reply_err(req, EROFS);
}

/* Python asks every file that it opens whether it is a terminal. */
static void do_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg,
		     struct fuse_file_info *fi, unsigned flags, const void *in, size_t in_size,
		     size_t out_size)
{
	(void)arg, (void)flags, (void)out_size;
	if (shade_owns(ino) && !shade_is_dir(ino))
		shade_ioctl(front_of(req), req, cmd, in, in_size, fi);
	else
		fuse_reply_err(req, ENOTTY);
}

/* --- what would change something
 * ------------------------------------------------------------------------- */

static void do_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int what,
		       struct fuse_file_info *fi)
{
	(void)attr, (void)fi;
	if (shade_owns(ino))
		shade_setattr(front_of(req), req, ino, what);
	else
		fuse_reply_err(req, EROFS);
}

static void do_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t dev)
{
	(void)parent, (void)name, (void)mode, (void)dev;
	fuse_reply_err(req, EROFS);
}

static void do_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	(void)mode;
	if (shade_owns(parent))
		shade_mkdir(front_of(req), req, parent, name);
	else
		fuse_reply_err(req, EROFS);
}

static void do_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	if (shade_owns(parent))
		shade_rmdir(front_of(req), req, parent, name);
	else
		fuse_reply_err(req, EROFS);
}

static void do_remove(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	(void)parent, (void)name;
	fuse_reply_err(req, EROFS);
}

static void do_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	(void)target, (void)parent, (void)name;
	fuse_reply_err(req, EROFS);
}

static void do_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t to,
		      const char *to_name, unsigned flags)
{
	(void)parent, (void)name, (void)to, (void)to_name, (void)flags;
	fuse_reply_err(req, EROFS);
}

static void do_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	(void)ino, (void)parent, (void)name;
	fuse_reply_err(req, EROFS);
}

static void do_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		      struct fuse_file_info *fi)
{
	(void)parent, (void)name, (void)mode, (void)fi;
	fuse_reply_err(req, EROFS);
}

/* --- the connection
 * ---------------------------------------------------------------------------------------- */

static void do_init(void *context, struct fuse_conn_info *conn)
{
	const struct front *front = context;

	/* Every listing tells of the files, too, not only when the kernel thinks that they are
	 * wanted: they will be opened, and to be asked for each takes far longer. */
	conn->want &=
		~(unsigned)(FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_READDIRPLUS_AUTO |
			    FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
	conn->want |= conn->capable & (FUSE_CAP_READDIRPLUS | FUSE_CAP_PARALLEL_DIROPS |
				       FUSE_CAP_EXPLICIT_INVAL_DATA);
	/* The overlay makes handles of files, by which their accesses are told. */
	if (front->native)
		conn->want |= conn->capable & FUSE_CAP_EXPORT_SUPPORT;
	if (front->acls)
		conn->want |= conn->capable & FUSE_CAP_POSIX_ACL;
	/* The kernel keeps back what is more. A READ that is kept back has its folios locked, and
	 * storing a file waits for those: it must not be behind READs that wait for other files. */
	conn->max_background = UINT16_MAX;
	conn->congestion_threshold = UINT16_MAX;
}

static const struct fuse_lowlevel_ops files_ops = {
	.init = do_init,
	.lookup = do_lookup,
	.forget = do_forget,
	.forget_multi = do_forget_multi,
	.getattr = do_getattr,
	.getxattr = do_getxattr,
	.readlink = do_readlink,
	.statfs = do_statfs,
	.opendir = do_opendir,
	.readdir = do_readdir,
	.readdirplus = do_readdirplus,
	.open = do_open,
	.read = do_read,
	.release = do_release,
	.write = do_write,
	.ioctl = do_ioctl,
	.setattr = do_setattr,
	.mknod = do_mknod,
	.mkdir = do_mkdir,
	.unlink = do_remove,
	.rmdir = do_rmdir,
	.symlink = do_symlink,
	.rename = do_rename,
	.link = do_link,
	.create = do_create,
};

/* The kernel remembers that, and does not ask again: a hit costs no round trip. */
static void refuse_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino, (void)fi;
	fuse_reply_err(req, ENOSYS);
}

const struct fuse_lowlevel_ops *front_files_ops(bool native)
{
	static struct fuse_lowlevel_ops without_opens;

	without_opens = files_ops;
	without_opens.open = without_opens.opendir = refuse_open;
	return native ? &without_opens : &files_ops;
}

bool front_may_wait(void *context, uint32_t opcode, uint64_t ino)
{
	struct front *front = context;

	switch (opcode) {
	case FUSE_LOOKUP:
	case FUSE_READDIR:
	case FUSE_READDIRPLUS:
		return shade_owns(ino) || !tree_is_current(cache_tree(front->cache),
							   node_of(front, ino), clock_now_ms());
	case FUSE_OPEN:
	case FUSE_READ:
	case FUSE_RELEASE:
	case FUSE_IOCTL:
		return shade_owns(ino);
	case FUSE_GETATTR:
	case FUSE_OPENDIR:
	case FUSE_RELEASEDIR:
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
	case FUSE_INIT:
	case FUSE_DESTROY:
		return false;
	default:
		return true;
	}
}

static int kernel_store(void *context, struct node *node, const void *data, size_t size,
			uint64_t offset)
{
	struct front *front = context;
	struct fuse_bufvec buffer = FUSE_BUFVEC_INIT(size);

	buffer.buf[0].mem = (void *)data;
	return fuse_lowlevel_notify_store(channel_session(front->files), ino_of(node),
					  (off_t)offset, &buffer, 0);
}

static int kernel_drop(void *context, struct node *node)
{
	struct front *front = context;

	if (atomic_load(&node->stale) || node_is_dir(node))
		tree_wait_for_replies(cache_tree(front->cache));
	/* Asked for again, it comes with who may enter it. */
	if ((atomic_exchange(&node->pages.entry_changed, false) || atomic_load(&node->stale)) &&
	    node->parent)
		(void)fuse_lowlevel_notify_inval_entry(channel_session(front->files),
						       ino_of(node->parent), node->name,
						       strlen(node->name));
	return fuse_lowlevel_notify_inval_inode(channel_session(front->files), ino_of(node), 0, 0);
}

/* Asks for the file through the mount itself, like anybody. */
static int kernel_introduce(void *context, struct node *node)
{
	struct front *front = context;
	char *below = node_path(node), *path = NULL;
	struct stat stat;
	int rc = 0;

	if (!below || asprintf(&path, "%s/%s", front->files_path, below) < 0)
		rc = -ENOMEM;
	else if (lstat(path, &stat))
		rc = -errno;
	free(path);
	free(below);
	return rc;
}

const struct page_cache_kernel front_kernel = { kernel_store, kernel_drop, kernel_introduce };
