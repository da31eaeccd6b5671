/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the daemon tells the kernel: contents to store in its page cache, and what to drop. Each may
 * wait for locks that requests under way hold, so no thread that serves requests may call these. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuse/internal.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

/* The session, which stays until end_notify(). NULL: there is none, since nothing is mounted, or
 * files_unmount() has begun. */
static struct session *begin_notify(struct files *files)
{
	struct session *session;

	lock_acquire(&files->notify_lock);
	session = files->session;
	if (session)
		files->notifying++;
	lock_release(&files->notify_lock);
	return session;
}

static void end_notify(struct files *files)
{
	lock_acquire(&files->notify_lock);
	if (--files->notifying == 0)
		cond_wake_all(&files->notified);
	lock_release(&files->notify_lock);
}

static int notify_store(void *context, struct node *node, const void *data, size_t size,
			uint64_t offset)
{
	struct fuse_bufvec buffer = FUSE_BUFVEC_INIT(size);
	struct session *session = begin_notify(context);
	int rc;

	if (!session)
		return -ENOENT;
	buffer.buf[0].mem = (void *)data;
	rc = fuse_lowlevel_notify_store(session_fuse(session), ino_of(context, node), (off_t)offset,
					&buffer, 0);
	end_notify(context);
	return rc;
}

/* Waits for folio locks, and for nothing else. */
static int notify_drop(void *context, struct node *node)
{
	struct files *files = context;
	struct session *session = begin_notify(files);
	int rc;

	if (!session)
		return -ENOENT;
	/* A listing that was begun earlier would bring back what is dropped here. */
	if (node_is_dir(node))
		tree_wait_for_replies(cache_tree(files->options.cache));
	rc = fuse_lowlevel_notify_inval_inode(session_fuse(session), ino_of(files, node), 0, 0);
	end_notify(files);
	return rc;
}

/* libfuse frees what it keeps of the request when the kernel answers, and at the end, when it does
 * not, never: no leak of ours. */
static int retrieve(struct session *session, fuse_ino_t ino, off_t offset, struct probe *probe)
{
	int rc;

#ifdef __SANITIZE_ADDRESS__
	__lsan_disable();
#endif
	rc = fuse_lowlevel_notify_retrieve(session_fuse(session), ino, 1, offset, probe);
#ifdef __SANITIZE_ADDRESS__
	__lsan_enable();
#endif
	return rc;
}

/* The kernel sends what it has of the byte's page in its cache, which does not count as a use. */
static int notify_probe(void *context, struct node *node, uint64_t offset, struct probe *probe)
{
	struct session *session = begin_notify(context);
	int rc;

	if (!session)
		return -ENOENT;
	rc = retrieve(session, ino_of(context, node), (off_t)offset, probe);
	end_notify(context);
	return rc;
}

/* An entry for the caller's thread. */
static _Atomic pid_t *claim_own(struct files *files)
{
	for (unsigned i = 0;; i = (i + 1) % OWN_THREADS) {
		pid_t none = 0;

		if (atomic_compare_exchange_strong(&files->own[i], &none, gettid()))
			return &files->own[i];
	}
}

/* Looks a file or directory up through the mount itself, as any process would. The handler of
 * LOOKUP knows this thread, and answers with what is known, so that no directory that hangs keeps
 * it. */
static int look_up_here(struct files *files, const struct session *session, const struct node *node)
{
	int root = session_reach(session);
	char *below = node_path(node);
	_Atomic pid_t *own;
	struct stat stat;
	int rc = 0;

	if (root < 0 || !below) {
		rc = root < 0 ? root : -ENOMEM;
		goto out;
	}
	own = claim_own(files);
	if (fstatat(root, below, &stat, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH))
		rc = -errno;
	atomic_store(own, 0);
out:
	if (root >= 0)
		close(root);
	free(below);
	return rc;
}

static int notify_introduce(void *context, struct node *node)
{
	struct files *files = context;
	struct session *session = begin_notify(files);
	int rc;

	if (!session)
		return -ENOENT;
	rc = look_up_here(files, session, node);
	end_notify(files);
	return rc;
}

/* Waits for the kernel's lock of the directory, which a LOOKUP or a listing has until it is
 * answered. */
static int notify_forget_name(void *context, struct node *node)
{
	struct files *files = context;
	struct tree *tree = cache_tree(files->options.cache);
	struct session *session = begin_notify(files);
	int rc;

	if (!session)
		return -ENOENT;
	/* An answer that was begun earlier would bring the name back. */
	tree_wait_for_replies(tree);
	rc = fuse_lowlevel_notify_inval_entry(session_fuse(session), ino_of(files, node->parent),
					      node->name, strlen(node->name));
	/* Somebody who is in the directory never looks it up: see entry_generation(). */
	if (node_closings(node) && !atomic_load(&node->stale)) {
		(void)look_up_here(files, session, node);
		tree_name_renewed(tree);
	}
	end_notify(files);
	return rc;
}

const struct page_cache_kernel files_kernel = { .store = notify_store,
						.drop = notify_drop,
						.probe = notify_probe,
						.forget_name = notify_forget_name,
						.introduce = notify_introduce };
