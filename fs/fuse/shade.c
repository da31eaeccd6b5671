/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The connection of .shade in native mode: its root is what .shade is in the other. An access that
 * was before a question or a command is known when that is dealt with. */
#include <errno.h>

#include "native/overlay.h"

static struct front *front_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

static fuse_ino_t inside(fuse_ino_t ino)
{
	return ino == FUSE_ROOT_ID ? SHADE_DIR_INO : ino;
}

static void do_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	shade_lookup(front_of(req), req, inside(parent), name);
}

static void do_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)fi;
	shade_getattr(front_of(req), req, inside(ino));
}

/* `> control` truncates it first. */
static void do_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int what,
		       struct fuse_file_info *fi)
{
	(void)attr, (void)fi;
	shade_setattr(front_of(req), req, inside(ino), what);
}

static void do_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		       struct fuse_file_info *fi)
{
	(void)fi;
	shade_readdir(front_of(req), req, inside(ino), size, offset, false);
}

static void do_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	native_settle(front_of(req));
	shade_open(front_of(req), req, ino, fi);
}

static void do_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		    struct fuse_file_info *fi)
{
	(void)ino;
	shade_read(front_of(req), req, size, offset, fi);
}

static void do_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t offset,
		     struct fuse_file_info *fi)
{
	(void)ino, (void)offset;
	native_settle(front_of(req));
	shade_write(front_of(req), req, data, size, fi);
}

static void do_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	shade_release(front_of(req), req, fi);
}

static void do_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg,
		     struct fuse_file_info *fi, unsigned flags, const void *in, size_t in_size,
		     size_t out_size)
{
	(void)arg, (void)flags, (void)out_size;
	native_settle(front_of(req));
	if (shade_is_dir(inside(ino)))
		fuse_reply_err(req, ENOTTY);
	else
		shade_ioctl(front_of(req), req, cmd, in, in_size, fi);
}

static void do_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	(void)mode;
	shade_mkdir(front_of(req), req, inside(parent), name);
}

static void do_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	shade_rmdir(front_of(req), req, inside(parent), name);
}

const struct fuse_lowlevel_ops front_control_ops = {
	.lookup = do_lookup,
	.getattr = do_getattr,
	.setattr = do_setattr,
	.readdir = do_readdir,
	.open = do_open,
	.read = do_read,
	.write = do_write,
	.release = do_release,
	.ioctl = do_ioctl,
	.mkdir = do_mkdir,
	.rmdir = do_rmdir,
};
