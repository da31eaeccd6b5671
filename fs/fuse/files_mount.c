/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The connection of the source's files: which of its requests may wait, and how it is mounted and
 * unmounted. Their handlers are in files.c. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/threads.h"
#include "fuse/agreed.h"
#include "fuse/internal.h"

#define ATTR_WORKERS 16 /* of them, one at most waits for each directory */

/* The kernel remembers ENOSYS and sends no opens any more, so a hit costs no round trip. */
static void refuse_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino, (void)fi;
	fuse_reply_err(req, ENOSYS);
}

static bool is_old_dir(const struct files *files, const struct node *node)
{
	return node_is_dir(node) &&
	       tree_is_old(cache_tree(files->options.cache), node, clock_now_ms());
}

/* What asks the source while it holds a thread. */
static bool asks_source(uint32_t opcode)
{
	return opcode == FUSE_READLINK || opcode == FUSE_GETXATTR || opcode == FUSE_STATFS;
}

/* A report or a command of .shade takes long. All else is answered at once, or waits in the cache
 * or the tree. */
static enum session_lane lane_of(void *user_data, uint32_t opcode, uint64_t ino)
{
	const struct files *files = user_data;

	switch (opcode) {
	case FUSE_GETATTR:
		/* In native mode all directories are asked about in time. */
		return !control_owns(ino) && !files->native &&
				       is_old_dir(files, node_of(files, ino))
			       ? SESSION_ATTR
			       : SESSION_AT_ONCE;
	case FUSE_OPENDIR:
	case FUSE_RELEASEDIR:
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
	case FUSE_NOTIFY_REPLY:
	case FUSE_INIT:
	case FUSE_DESTROY:
		return SESSION_AT_ONCE;
	default:
		if (control_owns(ino))
			return SESSION_CONTROL;
		return asks_source(opcode) ? SESSION_SOURCE : SESSION_AT_ONCE;
	}
}

static void *hold(void *user_data, uint64_t ino)
{
	struct node *node;

	if (control_owns(ino) || ino == FUSE_ROOT_ID)
		return NULL;
	node = node_of(user_data, ino);
	node_hold(node);
	return node;
}

static void let_go(void *user_data, void *held)
{
	const struct files *files = user_data;

	tree_release(cache_tree(files->options.cache), held);
}

/* --- begin and end -----------------------------------------------------------------------------*/

int files_create(struct files **out, const struct files_options *options)
{
	struct files *files = calloc(1, sizeof(*files));
	int rc;

	assert(options->cache && options->store && options->control && options->ended &&
	       options->heritage);
	if (!files)
		return -ENOMEM;
	rc = options->is_successor ? 0 : numbers_init(&options->heritage->numbers);
	if (rc) {
		free(files);
		return rc;
	}
	files->numbers = options->heritage->numbers;
	files->options = *options;
	files->root = -1;
	lock_init(&files->notify_lock, LOCK_NOTIFY);
	cond_init(&files->notified);
	lock_init(&files->signals_lock, LOCK_SIGNALS);
	files->signalled_end = &files->signalled;
	files->shade =
		(struct shade){ .control = options->control, .timeout_s = options->staleness_s };
	*out = files;
	return 0;
}

static void choose_handlers(struct files *files, bool native)
{
	files->native = native;
	files->shade.is_empty = native;
	files->ops = files_ops;
	shade_join(&files->ops);
	if (native) {
		files->ops.open = files->ops.opendir = refuse_open;
		files->ops.read = files_ops.read; /* .shade has no files here */
	}
}

int files_check(const struct files_heritage *heritage, bool native, bool allow_other)
{
	struct files *files = calloc(1, sizeof(*files));
	int rc;

	if (!files)
		return -ENOMEM;
	files->options.allow_other = allow_other;
	choose_handlers(files, native);
	rc = agreed_check(&files->ops, files, &heritage->session);
	free(files);
	return rc;
}

int files_mount(struct files *files, const struct files_point *point, bool native)
{
	const struct files_options *o = &files->options;
	struct session_options options = { .ops = &files->ops,
					   .user_data = files,
					   .source = o->source,
					   .mount_point = point->path,
					   .directory = point->directory,
					   .above = point->above,
					   .connection = point->connection,
					   .heritage = &o->heritage->session,
					   .allow_other = !native && o->allow_other,
					   .noexec = !native && o->noexec,
					   .workers = { [SESSION_SOURCE] = o->workers,
							[SESSION_CONTROL] = SHADE_WORKERS,
							[SESSION_ATTR] = ATTR_WORKERS },
					   .lane_of = lane_of,
					   .hold = hold,
					   .let_go = let_go,
					   .ended = o->ended,
					   .context = o->context };
	struct session *session;
	int rc;

	assert(!files->session);
	choose_handlers(files, native);
	rc = session_create(&session, &options);
	if (rc)
		return rc;
	lock_acquire(&files->notify_lock);
	files->session = session; /* what requests bring about may notify before this returns */
	lock_release(&files->notify_lock);
	rc = session_start(session);
	if (rc)
		files_unmount(files);
	return rc;
}

/* A notification may wait for a request, which the session still answers meanwhile. */
void files_unmount(struct files *files)
{
	struct session *session;
	int root;

	lock_acquire(&files->notify_lock);
	session = files->session; /* only this function takes it away */
	lock_release(&files->notify_lock);
	root = session ? session_reach(session) : -1;
	lock_acquire(&files->notify_lock);
	files->session = NULL;
	files->root = root;
	while (files->notifying)
		cond_wait(&files->notified, &files->notify_lock);
	lock_release(&files->notify_lock);
	if (!session)
		return;
	session_close(session);
	lock_acquire(&files->notify_lock);
	if (files->root >= 0)
		close(files->root);
	files->root = -1;
	lock_release(&files->notify_lock);
}

void files_pause(struct files *files)
{
	struct session *session;

	lock_acquire(&files->notify_lock);
	session = files->session;
	lock_release(&files->notify_lock);
	if (session)
		(void)session_stop(session);
}

const struct mount *files_get_mount(const struct files *files)
{
	return session_mount(files->session);
}

int files_connection(const struct files *files)
{
	return session_connection(files->session);
}

int files_reach(struct files *files)
{
	int root;

	lock_acquire(&files->notify_lock);
	if (files->session)
		root = session_reach(files->session);
	else
		root = files->root < 0 ? -ENOENT : fcntl(files->root, F_DUPFD_CLOEXEC, 0);
	lock_release(&files->notify_lock);
	return root;
}

void files_tick(struct files *files)
{
	uint64_t now_ms = clock_now_ms();

	if (now_ms < files->polled_ms + SIGNALS_POLL_MS)
		return;
	files->polled_ms = now_ms;
	signals_poll(files);
}

void files_destroy(struct files *files)
{
	if (!files)
		return;
	assert(!files->session);
	signals_free(files);
	lock_destroy(&files->notify_lock);
	cond_destroy(&files->notified);
	lock_destroy(&files->signals_lock);
	free(files);
}
