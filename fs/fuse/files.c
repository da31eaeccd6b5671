/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The FUSE handlers of the source's files: decode, call, answer exactly once.
 *
 * A node is one version of a file, so what the kernel has cached of it is always right and
 * every open keeps it (FOPEN_KEEP_CACHE). An open of a version that the source does not
 * have any more is answered with ESTALE: the kernel then looks the name up again and
 * opens the new version, unnoticed by the caller.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/threads.h"
#include "fuse/internal.h"

static struct files *files_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

static struct cache *cache_of(fuse_req_t req)
{
	return files_of(req)->options.cache;
}

static struct tree *tree_of(fuse_req_t req)
{
	return cache_tree(cache_of(req));
}

const struct node *files_find(const struct files *files, uint64_t number)
{
	return number < NUMBERS_FIRST ? NULL : node_of(files, number);
}

static int visible_errno(int rc)
{
	return rc == -ESHUTDOWN ? EIO : -rc;
}

/* --- requests that wait for a directory --------------------------------------------------------*/

struct parked {
	struct tree_wait wait;
	struct pending pending;
	fuse_ino_t dir;
	size_t size; /* of a listing; 0: a lookup */
	off_t offset;
	bool plus;
	char name[]; /* of a lookup */
};

static void look_up(fuse_req_t req, fuse_ino_t parent, const char *name, bool fresh);
static void read_dir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, bool plus,
		     bool fresh);

static struct pending pending_new(struct files *files, fuse_req_t req)
{
	return (struct pending){ req, atomic_fetch_add(&files->last_serial, 1) + 1 };
}

/* The directory was read, or what is known of it is the answer. */
static void unpark(struct tree_wait *wait, int rc)
{
	struct parked *parked = (struct parked *)wait;
	fuse_req_t req = parked->pending.req;

	if (rc)
		fuse_reply_err(req, visible_errno(rc));
	else if (parked->size)
		read_dir(req, parked->dir, parked->size, parked->offset, parked->plus, false);
	else
		look_up(req, parked->dir, parked->name, false);
	free(parked);
}

/* Has the directory read, and answers the request after that. `how` has the request but for the
 * name. */
static void park(const struct parked *how, const char *name)
{
	struct files *files = files_of(how->pending.req);
	struct parked *parked = malloc(sizeof(*parked) + strlen(name) + 1);
	int rc;

	if (!parked) {
		fuse_reply_err(how->pending.req, ENOMEM);
		return;
	}
	*parked = *how;
	strcpy(parked->name, name);
	parked->wait.ready = unpark;
	parked->wait.key = (uintptr_t)parked->pending.req;
	fuse_req_interrupt_func(parked->pending.req, signals_interrupted, files);
	rc = tree_await(cache_tree(files->options.cache), node_of(files, parked->dir),
			clock_now_ms(), &parked->wait);
	if (rc <= 0)
		unpark(&parked->wait, rc);
}

/* --- lookups -----------------------------------------------------------------------------------*/

static bool is_dots(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..");
}

/* Whether the daemon itself asks: see notify.c. */
static bool is_own(const struct files *files, fuse_req_t req)
{
	pid_t caller = fuse_req_ctx(req)->pid;

	for (unsigned i = 0; caller && i < OWN_THREADS; i++)
		if (atomic_load(&files->own[i]) == caller)
			return true;
	return false;
}

static void look_up(fuse_req_t req, fuse_ino_t parent, const char *name, bool fresh)
{
	struct files *files = files_of(req);
	struct fuse_entry_param entry;
	struct store_attr attr;
	struct node *node;
	uint32_t generation;
	unsigned turn;
	int rc = tree_lookup(tree_of(req), node_of(files, parent), name, clock_now_ms(), fresh,
			     &node, &turn);

	if (rc == -EAGAIN) {
		struct parked parked = { .pending = pending_new(files, req), .dir = parent };

		park(&parked, name);
		return;
	}
	if (rc) {
		fuse_reply_err(req, -rc);
		return;
	}
	generation = entry_generation(node);
	tree_get_attr(tree_of(req), node, &attr);
	entry = entry_make(files, node, &attr);
	entry.generation = generation;
	if (fuse_reply_entry(req, &entry) == -ENOENT)
		/* interrupted: the kernel did not take it */
		cache_forget(files->options.cache, node, 1);
	tree_replied(cache_tree(files->options.cache), turn);
}

static void do_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	/* Somebody kept a file's handle. The kernel has forgotten the file, and so may we have.
	 */
	if (is_dots(name))
		fuse_reply_err(req, ESTALE);
	else
		look_up(req, parent, name, !is_own(files_of(req), req));
}

static void forget_one(const struct files *files, fuse_ino_t ino, uint64_t count)
{
	if (ino != FUSE_ROOT_ID && !control_owns(ino))
		cache_forget(files->options.cache, node_of(files, ino), count);
}

static void do_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count)
{
	forget_one(files_of(req), ino, count);
	fuse_reply_none(req);
}

static void do_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		forget_one(files_of(req), forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}

/* The kernel looks the name of a file up again before it goes by old attributes. It uses the root
 * and the current directory of a process without a name, so for these the source is asked: what is
 * known may be older than `staleness`, and decides who may enter. */
static void do_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	const struct files *files = files_of(req);
	struct node *node = node_of(files, ino);
	struct store_attr attr;
	bool is_told = true;
	struct stat stat;

	(void)fi;
	if (session_is_prompt())
		tree_get_attr(tree_of(req), node, &attr);
	else
		is_told = tree_ask_attr(tree_of(req), node, clock_now_ms(), &attr);
	stat = entry_stat(&attr);
	/* The kernel may take this answer and ignore a better one that comes meanwhile. */
	fuse_reply_attr(req, &stat, is_told ? entry_timeout(files) : 0);
}

/* The kernel asks for these when somebody else than a file's owner uses it, and keeps them as long
 * as it keeps the attributes. A list of another version of a file may allow more than that of this
 * one did. */
static int read_acl(const struct files *files, struct node *node, void *value, size_t size)
{
	struct tree *tree = cache_tree(files->options.cache);
	char *path = node_path(node);
	struct store_attr expected;
	int rc;

	tree_get_attr(tree, node, &expected);
	rc = path ? store_acl(files->options.store, path, &expected, value, size) : -ENOMEM;
	if (rc == -ESTALE)
		tree_mark_stale(tree, node);
	free(path);
	return rc;
}

static void do_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	const struct files *files = files_of(req);
	char value[65536]; /* no attribute is larger */
	int rc = -ENODATA;

	/* The kernel remembers ENOSYS, and does not ask again. */
	if (!files->options.allow_other)
		rc = -ENOSYS;
	else if (!control_owns(ino) && !strcmp(name, STORE_ACL))
		rc = read_acl(files, node_of(files, ino), value,
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
	const struct files *files = files_of(req);
	struct node *node = node_of(files, ino);
	char *path = node_path(node), *target = NULL;
	int rc = path ? store_readlink(files->options.store, path, &node->attr, &target) : -ENOMEM;

	if (rc == -ESTALE)
		tree_mark_stale(tree_of(req), node);
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
	int rc = store_statfs(files_of(req)->options.store, &out);

	(void)ino;
	/* An error would say that this daemon is dead, to those who look whether it is. */
	if (rc)
		out = (struct statvfs){ .f_bsize = 4096, .f_frsize = 4096, .f_namemax = 255 };
	fuse_reply_statfs(req, &out);
}

/* --- directories -------------------------------------------------------------------------------*/

struct dir_reply {
	const struct files *files;
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
	struct fuse_entry_param entry = entry_make(reply->files, child, &child->attr);

	return add_name(reply, child->name, &entry, (off_t)tree_cursor_after(child, index) + 3);
}

static bool add_dots(struct dir_reply *reply, const struct node *dir, off_t offset)
{
	struct store_attr attr;
	struct fuse_entry_param dot;

	tree_get_attr(tree_of(reply->req), dir, &attr);
	/* Without an inode number of its own the kernel does not count it as looked up. */
	dot = (struct fuse_entry_param){ .attr = entry_stat(&attr) };
	return (offset > 0 || add_name(reply, ".", &dot, 1)) &&
	       (offset > 1 || add_name(reply, "..", &dot, 2));
}

static void read_dir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, bool plus,
		     bool fresh)
{
	struct files *files = files_of(req);
	struct tree *tree = tree_of(req);
	struct dir_reply reply = { .files = files, .req = req, .plus = plus, .size = size };
	struct parked parked = { .dir = ino, .size = size, .offset = offset, .plus = plus };
	struct node *dir = node_of(files, ino);
	unsigned turn = 0;
	bool listed = false;
	int rc = 0;

	reply.buffer = malloc(size);
	if (!reply.buffer)
		rc = -ENOMEM;
	else if ((listed = add_dots(&reply, dir, offset)))
		rc = tree_children(tree, dir, offset > 2 ? (uint64_t)offset - 3 : TREE_BEGIN,
				   clock_now_ms(), fresh, plus, add_child, &reply, &turn);
	if (rc == -EAGAIN) {
		parked.pending = pending_new(files, req);
		park(&parked, "");
	} else if (rc)
		fuse_reply_err(req, -rc);
	else
		fuse_reply_buf(req, reply.buffer, reply.used);
	if (!rc && listed)
		tree_replied(tree, turn);
	free(reply.buffer);
}

static void do_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		       struct fuse_file_info *fi)
{
	(void)fi;
	read_dir(req, ino, size, offset, false, true);
}

static void do_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
			   struct fuse_file_info *fi)
{
	(void)fi;
	read_dir(req, ino, size, offset, true, true);
}

/* The kernel keeps a listing until the directory was read again. */
static void do_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	fi->cache_readdir = 1;
	fi->keep_cache =
		tree_begin_listing(tree_of(req), node_of(files_of(req), ino), clock_now_ms());
	fuse_reply_open(req, fi);
}

/* --- files -------------------------------------------------------------------------------------*/

struct request {
	struct waiter waiter;
	struct pending pending;
	struct cache *cache;
	struct node *node;
	struct fuse_file_info fi; /* opens */
};

static void answer_open(struct waiter *waiter, int rc, const void *data, size_t size)
{
	struct request *request = (struct request *)waiter;

	(void)data;
	(void)size;
	request->fi.keep_cache = 1;
	if (rc)
		fuse_reply_err(request->pending.req, visible_errno(rc));
	else if (fuse_reply_open(request->pending.req, &request->fi) == -ENOENT)
		cache_release(request->cache, request->node);
	free(request);
}

static void answer_read(struct waiter *waiter, int rc, const void *data, size_t size)
{
	struct request *request = (struct request *)waiter;

	if (!rc && !waiter->direct)
		node_gives_pages(request->node);
	if (rc)
		fuse_reply_err(request->pending.req, visible_errno(rc));
	else
		fuse_reply_buf(request->pending.req, data, size);
	free(request);
}

static bool matches(const struct pending *pending, struct search *search)
{
	if (pending->req != search->req || (search->serial && pending->serial != search->serial))
		return false;
	search->serial = pending->serial;
	search->found = true;
	return search->take;
}

static bool is_waiter(const struct waiter *waiter, void *search)
{
	return matches(&((const struct request *)waiter)->pending, search);
}

static bool is_parked(const struct tree_wait *wait, void *search)
{
	return matches(&((const struct parked *)wait)->pending, search);
}

/* Requests that wait never go to workers, so an INTERRUPT cannot overtake them. */
void files_search(struct files *files, struct search *search)
{
	struct cache *cache = files->options.cache;
	uint64_t key = (uintptr_t)search->req;
	struct waiter *waiter = cache_take_waiter(cache, key, is_waiter, search);
	struct tree_wait *wait =
		search->found ? NULL : tree_take_wait(cache_tree(cache), key, is_parked, search);

	if (waiter)
		fuse_reply_err(((struct request *)waiter)->pending.req, EINTR);
	if (wait)
		fuse_reply_err(((struct parked *)wait)->pending.req, EINTR);
	free(waiter);
	free(wait);
}

/* An access, by whoever asks. */
static struct request *request_new(fuse_req_t req, fuse_ino_t ino)
{
	struct request *request = calloc(1, sizeof(*request));

	if (!request) {
		fuse_reply_err(req, ENOMEM);
		return NULL;
	}
	request->pending = pending_new(files_of(req), req);
	request->waiter.key = (uintptr_t)req;
	request->waiter.thread = fuse_req_ctx(req)->pid;
	request->waiter.job =
		control_job_of(files_of(req)->options.control, request->waiter.thread);
	request->cache = cache_of(req);
	request->node = node_of(files_of(req), ino);
	fuse_req_interrupt_func(req, signals_interrupted, files_of(req));
	return request;
}

static void do_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct request *request;

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
	cache_open(request->cache, request->node, &request->waiter);
}

static void do_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		    struct fuse_file_info *fi)
{
	struct request *request = request_new(req, ino);

	if (!request)
		return;
	request->waiter.answer = answer_read;
	request->waiter.offset = (uint64_t)offset;
	request->waiter.size = size;
	request->waiter.direct = fi->flags & O_DIRECT;
	cache_read(request->cache, request->node, &request->waiter);
}

static void do_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)fi;
	cache_release(cache_of(req), node_of(files_of(req), ino));
	fuse_reply_err(req, 0);
}

/* Python asks every file that it opens whether it is a terminal. */
static void do_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg,
		     struct fuse_file_info *fi, unsigned flags, const void *in, size_t in_size,
		     size_t out_size)
{
	(void)ino, (void)cmd, (void)arg, (void)fi, (void)flags, (void)in, (void)in_size;
	(void)out_size;
	fuse_reply_err(req, ENOTTY);
}

/* --- what would change something ---------------------------------------------------------------*/

static void do_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t offset,
		     struct fuse_file_info *fi)
{
	(void)ino, (void)data, (void)size, (void)offset, (void)fi;
	fuse_reply_err(req, EROFS);
}

static void do_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int what,
		       struct fuse_file_info *fi)
{
	(void)ino, (void)attr, (void)what, (void)fi;
	fuse_reply_err(req, EROFS);
}

static void do_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t dev)
{
	(void)parent, (void)name, (void)mode, (void)dev;
	fuse_reply_err(req, EROFS);
}

static void do_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	(void)parent, (void)name, (void)mode;
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

/* --- the connection ----------------------------------------------------------------------------*/

static void do_init(void *context, struct fuse_conn_info *conn)
{
	const struct files *files = context;

	/* Every listing brings the attributes of its files along, not only when the kernel expects
	 * that they are wanted: the files will be opened, and a lookup for each takes far longer.
	 */
	conn->want &=
		~(unsigned)(FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_READDIRPLUS_AUTO |
			    FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
	conn->want |= conn->capable & (FUSE_CAP_READDIRPLUS | FUSE_CAP_PARALLEL_DIROPS |
				       FUSE_CAP_EXPLICIT_INVAL_DATA);
	/* The overlay makes handles of files, which fanotify's events carry. */
	if (files->native)
		conn->want |= conn->capable & FUSE_CAP_EXPORT_SUPPORT;
	if (files->options.allow_other)
		conn->want |= conn->capable & FUSE_CAP_POSIX_ACL;
	/* Without this the kernel would hold back some READs. The folios of such a READ are locked,
	 * and storing the file waits for those: it would wait for READs of other files. */
	conn->max_background = UINT16_MAX;
	conn->congestion_threshold = UINT16_MAX;
}

/* What notify_probe() asked for. */
static void do_retrieve_reply(fuse_req_t req, void *cookie, fuse_ino_t ino, off_t offset,
			      struct fuse_bufvec *data)
{
	(void)offset;
	cache_probed(cookie, node_of(files_of(req), ino), fuse_buf_size(data) > 0);
	fuse_reply_none(req);
}

const struct fuse_lowlevel_ops files_ops = {
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
	.retrieve_reply = do_retrieve_reply,
	.write = do_write,
	.ioctl = do_ioctl,
	.setattr = do_setattr,
	.mknod = do_mknod,
	.mkdir = do_mkdir,
	.unlink = do_remove,
	.rmdir = do_remove,
	.symlink = do_symlink,
	.rename = do_rename,
	.link = do_link,
	.create = do_create,
};
