/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/threads.h"
#include "names/manifest.h"
#include "names/tree_internal.h"

/* --- answers that tell of names ------------------------------------------------------------------
 */

static void begin_reply_locked(struct tree *tree, unsigned *turn)
{
	lock_assert_held(&tree->lock);
	*turn = tree->phase;
	atomic_fetch_add(&tree->replying[tree->phase], 1);
}

void tree_replied(struct tree *tree, unsigned turn)
{
	atomic_fetch_sub(&tree->replying[turn], 1);
}

void tree_wait_for_replies(struct tree *tree)
{
	unsigned before;

	/* A second one would wait for the answers of its own phase alone, not for older ones. */
	lock_acquire(&tree->replies_lock);
	lock_acquire(&tree->lock);
	before = tree->phase;
	tree->phase = !before;
	lock_release(&tree->lock);
	while (atomic_load(&tree->replying[before]))
		clock_sleep_us(20);
	lock_release(&tree->replies_lock);
}

/* --- finding -------------------------------------------------------------------------------------
 */

/* A child that the source may have another version of makes its directory old. */
static int find_locked(const struct tree *tree, struct node *parent, const char *name, bool fresh,
		       struct node **out)
{
	lock_assert_held(&tree->lock);
	*out = tree_find_child(parent, name);
	if (!*out)
		return -ENOENT;
	if (!fresh || !atomic_load(&(*out)->stale))
		return 0;
	node_set_checked_ms(parent, 0);
	return -EAGAIN;
}

int tree_lookup(struct tree *tree, struct node *parent, const char *name, uint64_t now_ms,
		bool fresh, struct node **out, unsigned *turn)
{
	int rc;

	lock_acquire(&tree->lock);
	rc = tree_check_dir_locked(tree, parent, now_ms, fresh);
	if (!rc)
		rc = find_locked(tree, parent, name, fresh, out);
	if (!rc) {
		(*out)->lookups++;
		begin_reply_locked(tree, turn);
	}
	lock_release(&tree->lock);
	return rc;
}

void tree_forget(struct tree *tree, struct node *node, uint64_t count,
		 void (*last)(void *context, struct node *node), void *context)
{
	lock_acquire(&tree->lock);
	node_forget_locked(tree, node, count);
	if (!node->lookups) {
		tree->orphans -= node->detached;
		last(context, node);
		node_free_if_unused_locked(tree, node);
	}
	lock_release(&tree->lock);
}

void tree_get_attr(struct tree *tree, const struct node *node, struct store_attr *attr)
{
	lock_acquire(&tree->lock);
	*attr = node->attr;
	lock_release(&tree->lock);
}

uint64_t tree_orphans(struct tree *tree)
{
	uint64_t orphans;

	lock_acquire(&tree->lock);
	orphans = tree->orphans;
	lock_release(&tree->lock);
	return orphans;
}

uint64_t tree_left_out(struct tree *tree)
{
	uint64_t left_out;

	lock_acquire(&tree->lock);
	left_out = tree->left_out;
	lock_release(&tree->lock);
	return left_out;
}

static bool is_mount_point(struct tree *tree, const struct node *dir)
{
	bool differs;

	lock_acquire(&tree->lock);
	differs = dir->parent && dir->attr.dev != dir->parent->attr.dev;
	lock_release(&tree->lock);
	return differs;
}

bool tree_is_unreadable(struct tree *tree, const struct node *dir, int rc)
{
	if (rc == -ENOTCONN || rc == -ECONNABORTED) /* what a FUSE mount without a server gives */
		return is_mount_point(tree, dir);
	return rc == -EACCES || rc == -ENOENT || rc == -ENOTDIR || rc == -ELOOP ||
	       rc == -ENAMETOOLONG;
}

bool tree_is_displaced(struct tree *tree, struct node *dir)
{
	bool displaced;

	lock_acquire(&tree->lock);
	if (dir->parent && !dir->detached)
		(void)tree_await_here_locked(tree, dir->parent, clock_now_ms());
	displaced = dir->detached;
	lock_release(&tree->lock);
	return displaced;
}

bool tree_begin_listing(struct tree *tree, struct node *dir, uint64_t now_ms)
{
	uint64_t checked_ms;
	bool kept;

	lock_acquire(&tree->lock);
	checked_ms = node_checked_ms(dir);
	kept = dir->dir.children && dir->dir.listed_ms == checked_ms &&
	       !tree_is_older(dir, now_ms, tree->options.staleness_ms);
	dir->dir.listed_ms = checked_ms;
	lock_release(&tree->lock);
	return kept;
}

int tree_children(struct tree *tree, struct node *dir, uint64_t from, uint64_t now_ms, bool fresh,
		  bool counts, bool (*entry)(void *context, struct node *child, uint32_t index),
		  void *context, unsigned *turn)
{
	int rc;

	lock_acquire(&tree->lock);
	/* A listing goes on even if the directory is gone by now: then it ends. */
	rc = from == TREE_BEGIN || !dir->dir.children
		     ? tree_check_dir_locked(tree, dir, now_ms, fresh)
		     : 0;
	assert(rc || dir->dir.children);
	for (uint32_t i = rc ? 0 : tree_find_cursor_locked(tree, dir, from);
	     !rc && i < dir->dir.child_count; i++) {
		if (!entry(context, dir->dir.children[i], i))
			break;
		dir->dir.children[i]->lookups += counts;
	}
	if (!rc && turn)
		begin_reply_locked(tree, turn);
	lock_release(&tree->lock);
	return rc;
}

/* From a held directory to a held child. */
static int step_down_locked(struct tree *tree, struct node **at, const char *name, uint64_t now_ms)
{
	struct node *dir = *at, *child = NULL;
	int rc = tree_await_here_locked(tree, dir, now_ms);

	lock_assert_held(&tree->lock);
	if (!rc)
		child = tree_find_child(dir, name);
	if (!child)
		return rc ? rc : -ENOENT;
	node_hold(child);
	*at = child;
	tree_release(tree, dir);
	return 0;
}

int tree_find(struct tree *tree, const char *path, uint64_t now_ms, struct node **out)
{
	char *copy = strdup(path), *rest = copy, *name;
	struct node *at = tree->root;
	int rc = copy ? 0 : -ENOMEM;

	lock_acquire(&tree->lock);
	node_hold(at);
	while (!rc && (name = strsep(&rest, "/")))
		if (*name && strcmp(name, "."))
			rc = step_down_locked(tree, &at, name, now_ms);
	if (rc)
		tree_release(tree, at);
	else
		*out = at;
	lock_release(&tree->lock);
	free(copy);
	return rc;
}

/* The root has no name that could be another's. */
void tree_mark_stale(struct tree *tree, struct node *node)
{
	if (!node->parent)
		return;
	atomic_store(&node->stale, true);
	node_set_checked_ms(node->parent, 0);
	atomic_store(&tree->doubted, true);
}

bool tree_is_doubted(struct tree *tree)
{
	return atomic_exchange(&tree->doubted, false);
}

bool tree_has_news(struct tree *tree)
{
	return atomic_exchange(tree->news, false);
}

void tree_set_closing(struct tree *tree)
{
	lock_acquire(&tree->lock);
	tree->closes = true;
	lock_release(&tree->lock);
}

void tree_name_renewed(struct tree *tree)
{
	atomic_store(tree->news, true);
}

void tree_set_manifest(struct tree *tree, struct manifest *manifest)
{
	struct manifest *before;

	if (manifest)
		manifest_hold(manifest);
	lock_acquire(&tree->lock);
	before = tree->manifest;
	tree->manifest = manifest;
	lock_release(&tree->lock);
	manifest_put(before);
}

/* --- begin and end ------------------------------------------------------------------------------
 */

static void release(struct tree *tree)
{
	lock_destroy(&tree->lock);
	lock_destroy(&tree->release_lock);
	lock_destroy(&tree->replies_lock);
	cond_destroy(&tree->read);
	cond_destroy(&tree->wanted);
	if (!tree->options.estate)
		estate_destroy(tree->estate);
	free(tree->readers);
	free(tree);
}

/* The first daemon's tree has a root, and nothing else yet. */
static int begin(struct tree *tree)
{
	struct store_attr attr;
	int rc = store_stat(tree->store, "", &attr);

	if (rc)
		return rc;
	tree->root = node_new(tree, NULL, "", &attr, 0);
	if (!tree->root)
		return -ENOMEM;
	tree->root->lookups = 1; /* the kernel's, as long as it is mounted */
	estate_keep(tree->root, ESTATE_NODE);
	return 0;
}

static int find_news(struct tree *tree)
{
	tree->news = estate_next(tree->estate, ESTATE_NEWS, NULL);
	if (tree->news)
		return 0;
	tree->news = estate_new(tree->estate, sizeof(*tree->news));
	if (!tree->news)
		return -ENOMEM;
	estate_keep(tree->news, ESTATE_NEWS);
	return 0;
}

static int fill(struct tree *tree)
{
	int rc = 0;

	if (!tree->readers)
		return -ENOMEM;
	if (!tree->estate)
		rc = estate_create(&tree->estate);
	if (!rc)
		rc = find_news(tree);
	if (rc)
		return rc;
	return tree->options.is_successor ? tree_inherit(tree) : begin(tree);
}

int tree_open(struct tree **out, struct store *store, const struct tree_options *options)
{
	struct tree *tree = calloc(1, sizeof(*tree));
	int rc;

	assert(options->events && options->readers && options->deadline_ms);
	if (!tree)
		return -ENOMEM;
	*tree = (struct tree){ .store = store, .options = *options, .estate = options->estate };
	tree->readings_end = &tree->readings;
	lock_init(&tree->lock, LOCK_TREE);
	cond_init(&tree->read);
	cond_init(&tree->wanted);
	lock_init(&tree->release_lock, LOCK_RELEASED);
	lock_init(&tree->replies_lock, LOCK_REPLIES);
	tree->readers = calloc(options->readers, sizeof(*tree->readers));
	rc = fill(tree);
	if (rc)
		release(tree);
	else
		*out = tree;
	return rc;
}

/* Unmounted, the kernel never says what it has forgotten: nodes without names go, too. */
static void free_all(struct tree *tree)
{
	struct node *node = NULL;

	while ((node = estate_next(tree->estate, ESTATE_NODE, node)))
		node_free(tree, node);
}

void tree_close(struct tree *tree)
{
	assert(!tree->reader_count && !tree->readings);
	tree_reap(tree);
	manifest_put(tree->manifest);
	tree_forget_names(tree);
	free_all(tree);
	release(tree);
}

struct node *tree_root(struct tree *tree)
{
	return tree->root;
}
