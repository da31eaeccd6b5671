/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Walks over all known directories: to read them again, or to tell of them. */
#include <errno.h>
#include <stdlib.h>

#include "base/threads.h"
#include "names/tree_internal.h"

/* Whether the directory was read completely and nothing in it is known to have changed since. */
static bool is_whole_locked(const struct tree *tree, const struct node *dir)
{
	lock_assert_held(&tree->lock);
	if (!dir->dir.children || !node_checked_ms(dir) || dir->detached || dir->dir.left_out)
		return false;
	for (uint32_t i = 0; i < dir->dir.child_count; i++)
		if (atomic_load(&dir->dir.children[i]->stale))
			return false;
	return true;
}

/* The directories in a directory, held. NULL: no memory. */
static struct node **hold_dirs_locked(const struct tree *tree, const struct node *dir,
				      uint32_t *count)
{
	struct node **dirs;
	size_t room = 1;

	lock_assert_held(&tree->lock);
	*count = 0;
	for (uint32_t i = 0; i < dir->dir.child_count; i++)
		room += node_is_dir(dir->dir.children[i]);
	dirs = malloc(room * sizeof(struct node *));
	if (!dirs)
		return NULL;
	for (uint32_t i = 0; i < dir->dir.child_count; i++)
		if (node_is_dir(dir->dir.children[i])) {
			node_hold(dir->dir.children[i]);
			dirs[(*count)++] = dir->dir.children[i];
		}
	return dirs;
}

/* What one walk of tree_refresh() is told. */
struct refresh {
	struct tree *tree;
	uint64_t now_ms, age_ms, patience_ms;
	const _Atomic bool *stop;
};

static bool is_due_locked(const struct refresh *refresh, const struct node *dir)
{
	uint64_t checked_ms = node_checked_ms(dir);

	lock_assert_held(&refresh->tree->lock);
	return dir->dir.children &&
	       (!checked_ms || checked_ms + refresh->age_ms <= refresh->now_ms);
}

static int refresh_dir(const struct refresh *refresh, struct node *dir)
{
	struct tree *tree = refresh->tree;
	struct node **dirs = NULL;
	uint32_t count = 0;
	int rc = 0;

	lock_acquire(&tree->lock);
	if (is_due_locked(refresh, dir))
		rc = tree_read_again_locked(tree, dir, refresh->now_ms, refresh->patience_ms);
	dirs = hold_dirs_locked(tree, dir, &count);
	lock_release(&tree->lock);
	if (!dirs)
		return -ENOMEM;
	/* Nobody can read it any more, or its path leads to another directory, and its parent is
	 * read again. */
	if (tree_is_unreadable(tree, dir, rc) || (rc == -ESTALE && dir->parent))
		rc = 0;
	for (uint32_t i = 0; i < count; i++) {
		if (atomic_load(refresh->stop))
			rc = -ECANCELED;
		/* An error in one directory does not end the walk. */
		if (rc != -ECANCELED) {
			int below = refresh_dir(refresh, dirs[i]);

			rc = !rc || below == -ECANCELED ? below : rc;
		}
		tree_release(tree, dirs[i]);
	}
	free(dirs);
	return rc;
}

int tree_refresh(struct tree *tree, uint64_t now_ms, uint64_t age_ms, uint64_t patience_ms,
		 const _Atomic bool *stop)
{
	struct refresh refresh = { tree, now_ms, age_ms, patience_ms, stop };

	return refresh_dir(&refresh, tree->root);
}

static int visit_dir(struct tree *tree, struct node *dir, const struct tree_visitor *visitor,
		     void *context, const _Atomic bool *stop)
{
	int rc = atomic_load(stop) ? -ECANCELED : 0;
	char *path = node_path(dir);
	struct node **dirs = NULL;
	uint32_t count = 0;

	lock_acquire(&tree->lock);
	if (path)
		dirs = hold_dirs_locked(tree, dir, &count);
	if (dirs && is_whole_locked(tree, dir) &&
	    visitor->dir(context, path, &dir->attr, node_checked_ms(dir)))
		for (uint32_t i = 0; i < dir->dir.child_count; i++)
			visitor->entry(context, dir->dir.children[i]->name,
				       &dir->dir.children[i]->attr);
	lock_release(&tree->lock);
	free(path);
	if (!dirs)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++) {
		if (!rc)
			rc = visit_dir(tree, dirs[i], visitor, context, stop);
		tree_release(tree, dirs[i]);
	}
	free(dirs);
	return rc;
}

int tree_visit(struct tree *tree, const struct tree_visitor *visitor, void *context,
	       const _Atomic bool *stop)
{
	return visit_dir(tree, tree->root, visitor, context, stop);
}
