/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The FUSE handlers of .shade: decode, call control, reply exactly once.
 *
 * They are written once and used twice. In native mode .shade is a connection of its own, whose
 * root is .shade and which has just these handlers. In portable mode .shade is a directory in the
 * connection of the source's files: shade_join() sends each request to one set of handlers or the
 * other, by its inode number.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "fuse/agreed.h"
#include "fuse/internal.h"

static_assert(offsetof(struct files, shade) == 0, "the user data begins with it");

static struct shade *shade_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

static struct control *control_of(fuse_req_t req)
{
	return shade_of(req)->control;
}

/* Of a connection of its own, the root is .shade. */
static uint64_t inside(fuse_ino_t ino)
{
	return ino == FUSE_ROOT_ID ? CONTROL_DIR : ino;
}

static int groups_of(void *context, gid_t *groups, int max)
{
	return fuse_req_getgroups(context, max, groups);
}

static struct control_caller caller_of(fuse_req_t req)
{
	const struct fuse_ctx *context = fuse_req_ctx(req);

	return (struct control_caller){
		.uid = context->uid,
		.gid = context->gid,
		.thread = context->pid,
		.groups = groups_of,
		.context = req,
		.request = session_request(),
		.is_repeated = session_is_repeated(),
	};
}

/* --- names and attributes ----------------------------------------------------------------------*/

static void reply_entry(fuse_req_t req, uint64_t ino)
{
	const struct shade *shade = shade_of(req);
	struct fuse_entry_param entry = {
		.ino = ino,
		.attr = control_stat(shade->control, ino),
		.attr_timeout = shade->timeout_s,
		.entry_timeout = control_is_of_job(ino) ? 0 : shade->timeout_s,
	};

	fuse_reply_entry(req, &entry);
}

static void do_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	uint64_t ino = 0;
	int rc = shade_of(req)->is_empty
			 ? -ENOENT
			 : control_lookup(control_of(req), inside(parent), name, &ino);

	if (rc)
		fuse_reply_err(req, -rc);
	else
		reply_entry(req, ino);
}

static void do_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat stat = control_stat(control_of(req), inside(ino));

	(void)fi;
	fuse_reply_attr(req, &stat, shade_of(req)->timeout_s);
}

/* `> control` truncates the file first: that succeeds and does nothing. All else is refused. */
static void do_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int what,
		       struct fuse_file_info *fi)
{
	(void)attr;
	if (what & ~(FUSE_SET_ATTR_SIZE | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_CTIME))
		fuse_reply_err(req, EROFS);
	else
		do_getattr(req, ino, fi);
}

struct listing {
	fuse_req_t req;
	bool plus;
	size_t size, used;
	char buffer[8192];
};

static bool add_name(void *context, const char *name, uint64_t ino, uint64_t next)
{
	struct listing *listing = context;
	char *at = listing->buffer + listing->used;
	size_t left = listing->size - listing->used, length;
	/* Without an inode number of its own the kernel does not count it as looked up. */
	struct fuse_entry_param entry = { .attr = control_stat(control_of(listing->req), ino) };

	if (listing->plus)
		length = fuse_add_direntry_plus(listing->req, at, left, name, &entry, (off_t)next);
	else
		length = fuse_add_direntry(listing->req, at, left, name, &entry.attr, (off_t)next);
	if (length > left)
		return false;
	listing->used += length;
	return true;
}

static void list(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, bool plus)
{
	struct listing listing = { .req = req, .plus = plus };

	listing.size = size < sizeof(listing.buffer) ? size : sizeof(listing.buffer);
	if (!shade_of(req)->is_empty)
		control_list(control_of(req), inside(ino), (uint64_t)offset, add_name, &listing);
	fuse_reply_buf(req, listing.buffer, listing.used);
}

static void do_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		       struct fuse_file_info *fi)
{
	(void)fi;
	list(req, ino, size, offset, false);
}

static void do_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
			   struct fuse_file_info *fi)
{
	(void)fi;
	list(req, ino, size, offset, true);
}

static void do_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	fuse_reply_open(req, fi);
}

static void do_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct control_caller caller = caller_of(req);
	uint64_t ino;
	int rc = control_make_job(control_of(req), &caller, inside(parent), name, &ino);

	(void)mode;
	if (rc)
		fuse_reply_err(req, -rc);
	else
		reply_entry(req, ino);
}

static void do_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct control_caller caller = caller_of(req);

	fuse_reply_err(req, -control_remove_job(control_of(req), &caller, inside(parent), name));
}

/* --- open files --------------------------------------------------------------------------------*/

/* The file that the kernel means; NULL: a dead daemon had it, and nobody can go on with it. */
static struct control_file *file_of(fuse_req_t req, const struct fuse_file_info *fi)
{
	return control_find(control_of(req), fi->fh);
}

static void do_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct control_caller caller = caller_of(req);
	bool writes = (fi->flags & O_ACCMODE) != O_RDONLY;
	struct control_file *file;
	int rc = control_open(control_of(req), &caller, ino, writes, &file);

	if (rc) {
		fuse_reply_err(req, -rc);
		return;
	}
	fi->fh = control_number(file);
	fi->direct_io = 1;
	fi->nonseekable = !control_is_seekable(file);
	/* Interrupted: the kernel has no open file. Or the request came twice, and was answered. */
	if (fuse_reply_open(req, fi) == -ENOENT && !caller.is_repeated)
		control_close(file);
	control_put(file);
}

static void do_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct control_file *file = file_of(req, fi);

	(void)ino;
	if (file) {
		control_close(file);
		control_put(file);
	}
	fuse_reply_err(req, 0);
}

struct read_request {
	struct control_waiter waiter;
	fuse_req_t req;
};

static void answer_read(struct control_waiter *waiter, int rc, const void *data, size_t size)
{
	struct read_request *request = (struct read_request *)waiter;

	if (rc)
		fuse_reply_err(request->req, -rc);
	else
		fuse_reply_buf(request->req, data, size);
	free(request);
}

static bool is_interrupted(struct control_waiter *waiter)
{
	return fuse_req_interrupted(((struct read_request *)waiter)->req);
}

static void do_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		    struct fuse_file_info *fi)
{
	struct control_file *file = file_of(req, fi);
	struct control_caller caller = caller_of(req);
	struct read_request *request = file ? calloc(1, sizeof(*request)) : NULL;

	(void)ino;
	if (!request) {
		fuse_reply_err(req, file ? ENOMEM : EIO);
		return;
	}
	request->req = req;
	request->waiter.answer = answer_read;
	request->waiter.is_interrupted = is_interrupted;
	request->waiter.caller = &caller;
	request->waiter.offset = (uint64_t)offset;
	request->waiter.size = size;
	control_read(file, &request->waiter);
	control_put(file);
}

static void do_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t offset,
		     struct fuse_file_info *fi)
{
	struct control_file *file = file_of(req, fi);
	struct control_caller caller = caller_of(req);
	int rc = file ? control_write(file, &caller, data, size) : -EIO;

	(void)ino, (void)offset;
	if (file)
		control_put(file);
	if (rc)
		fuse_reply_err(req, -rc);
	else
		fuse_reply_write(req, size);
}

static void do_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg,
		     struct fuse_file_info *fi, unsigned flags, const void *in, size_t in_size,
		     size_t out_size)
{
	char out[CONTROL_IOCTL_MAX];
	struct control_file *file;
	size_t length = 0;
	int rc = -ENOTTY;

	(void)arg, (void)flags, (void)out_size;
	if (!control_is_dir(inside(ino))) {
		file = file_of(req, fi);
		rc = file ? control_ioctl(file, cmd, in, in_size, out, &length) : -EIO;
		if (file)
			control_put(file);
	}
	if (rc)
		fuse_reply_err(req, -rc);
	else
		fuse_reply_ioctl(req, 0, length ? out : NULL, length);
}

static const struct fuse_lowlevel_ops shade_ops = {
	.lookup = do_lookup,
	.getattr = do_getattr,
	.setattr = do_setattr,
	.opendir = do_opendir,
	.readdir = do_readdir,
	.readdirplus = do_readdirplus,
	.mkdir = do_mkdir,
	.rmdir = do_rmdir,
	.open = do_open,
	.release = do_release,
	.read = do_read,
	.write = do_write,
	.ioctl = do_ioctl,
};

/* --- a connection of its own -------------------------------------------------------------------*/

/* A report or a command takes long, and a write to `control` may wait for the source. */
static enum session_lane lane_of(void *user_data, uint32_t opcode, uint64_t ino)
{
	(void)user_data, (void)opcode, (void)ino;
	return SESSION_CONTROL;
}

/* Other users may send requests: file modes, and control_open() for each caller, decide who may
 * use .shade. */
int shade_mount(struct session **out, struct shade *shade, const struct session_options *options)
{
	struct session_options own = { .ops = &shade_ops,
				       .user_data = shade,
				       .source = options->source,
				       .mount_point = options->mount_point,
				       .directory = options->directory,
				       .connection = options->connection,
				       .heritage = options->heritage,
				       .above = -1, /* it goes with what it is mounted in */
				       .allow_other = true,
				       .workers = { [SESSION_CONTROL] = SHADE_WORKERS },
				       .lane_of = lane_of,
				       .ended = options->ended,
				       .context = options->context };

	int rc;

	assert(shade->control && !shade->is_empty);
	rc = session_create(out, &own);
	if (rc)
		return rc;
	rc = session_start(*out);
	if (rc) {
		session_close(*out);
		*out = NULL;
	}
	return rc;
}

int shade_check(const struct session_heritage *heritage)
{
	return agreed_check(&shade_ops, NULL, heritage);
}

/* --- in a connection of files ------------------------------------------------------------------*/

static const struct fuse_lowlevel_ops *ops_of(fuse_ino_t ino)
{
	return control_owns(ino) ? &shade_ops : &files_ops;
}

/* A lookup of . or .. comes from a file handle that somebody kept, so `parent` may be any number.
 */
static void either_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	if (parent == FUSE_ROOT_ID && !strcmp(name, TREE_TAKEN))
		reply_entry(req, CONTROL_DIR);
	else if (!strcmp(name, ".") || !strcmp(name, ".."))
		files_ops.lookup(req, parent, name);
	else
		ops_of(parent)->lookup(req, parent, name);
}

static void either_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	ops_of(ino)->getattr(req, ino, fi);
}

static void either_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int what,
			   struct fuse_file_info *fi)
{
	ops_of(ino)->setattr(req, ino, attr, what, fi);
}

static void either_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	ops_of(ino)->opendir(req, ino, fi);
}

static void either_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
			   struct fuse_file_info *fi)
{
	ops_of(ino)->readdir(req, ino, size, offset, fi);
}

static void either_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
			       struct fuse_file_info *fi)
{
	ops_of(ino)->readdirplus(req, ino, size, offset, fi);
}

static void either_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	ops_of(parent)->mkdir(req, parent, name, mode);
}

static void either_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	ops_of(parent)->rmdir(req, parent, name);
}

static void either_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	ops_of(ino)->open(req, ino, fi);
}

static void either_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	ops_of(ino)->release(req, ino, fi);
}

static void either_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
			struct fuse_file_info *fi)
{
	ops_of(ino)->read(req, ino, size, offset, fi);
}

static void either_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size,
			 off_t offset, struct fuse_file_info *fi)
{
	ops_of(ino)->write(req, ino, data, size, offset, fi);
}

static void either_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg,
			 struct fuse_file_info *fi, unsigned flags, const void *in, size_t in_size,
			 size_t out_size)
{
	ops_of(ino)->ioctl(req, ino, cmd, arg, fi, flags, in, in_size, out_size);
}

void shade_join(struct fuse_lowlevel_ops *ops)
{
	ops->lookup = either_lookup;
	ops->getattr = either_getattr;
	ops->setattr = either_setattr;
	ops->opendir = either_opendir;
	ops->readdir = either_readdir;
	ops->readdirplus = either_readdirplus;
	ops->mkdir = either_mkdir;
	ops->rmdir = either_rmdir;
	ops->open = either_open;
	ops->release = either_release;
	ops->read = either_read;
	ops->write = either_write;
	ops->ioctl = either_ioctl;
}
