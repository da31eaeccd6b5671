/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the daemon tells the kernel: contents to store in its page cache, and what to drop. Each may
 * wait for locks that requests under way hold, so no thread that serves requests may call these. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fuse/internal.h"

static struct fuse_session *session_of(const struct files *files)
{
	return session_fuse(files->session);
}

static int notify_store(void *context, struct node *node, const void *data, size_t size,
			uint64_t offset)
{
	struct fuse_bufvec buffer = FUSE_BUFVEC_INIT(size);

	buffer.buf[0].mem = (void *)data;
	return fuse_lowlevel_notify_store(session_of(context), ino_of(node), (off_t)offset, &buffer,
					  0);
}

static int notify_introduce(void *context, struct node *node);

static int notify_drop(void *context, struct node *node)
{
	const struct files *files = context;
	bool stale = atomic_load(&node->stale), entry_changed;
	int rc;

	/* An answer that was begun earlier would bring back what is dropped here. */
	if (stale || node_is_dir(node))
		tree_wait_for_replies(cache_tree(files->options.cache));
	/* The kernel looks the name up again, and then learns who may enter the directory now. */
	entry_changed = atomic_exchange(&node->pages.entry_changed, false);
	if ((entry_changed || stale) && node->parent)
		(void)fuse_lowlevel_notify_inval_entry(session_of(files), ino_of(node->parent),
						       node->name, strlen(node->name));
	rc = fuse_lowlevel_notify_inval_inode(session_of(files), ino_of(node), 0, 0);
	/* Somebody who is in the directory never looks it up: see generation_of(). */
	if (entry_changed && !stale && node_closings(node)) {
		(void)notify_introduce(context, node);
		tree_name_renewed(cache_tree(files->options.cache));
	}
	return rc;
}

/* The kernel sends what it has of the byte's page in its cache, which does not count as a use. */
static int notify_probe(void *context, struct node *node, uint64_t offset, struct probe *probe)
{
	return fuse_lowlevel_notify_retrieve(session_of(context), ino_of(node), 1, (off_t)offset,
					     probe);
}

/* Looks a file or directory up through the mount itself, as any process would. */
static int notify_introduce(void *context, struct node *node)
{
	const struct files *files = context;
	char *below = node_path(node), *path = NULL;
	struct stat stat;
	int rc = 0;

	if (!below || asprintf(&path, "%s/%s", files->mount_point, below) < 0)
		rc = -ENOMEM;
	else if (lstat(path, &stat))
		rc = -errno;
	free(path);
	free(below);
	return rc;
}

const struct page_cache_kernel files_kernel = { .store = notify_store,
						.drop = notify_drop,
						.probe = notify_probe,
						.introduce = notify_introduce };
