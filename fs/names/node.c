/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Nodes: how they begin, lose their names, and end. */
#include "names/node.h"
#include "base/threads.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "names/tree_internal.h"

static_assert(offsetof(struct node, name) + 18 <= 136, "node.h says how much a node takes");

#define CLOSED_MAX (((uint64_t)1 << 24) - 1)

struct node *node_new(struct tree *tree, struct node *parent, const char *name,
		      const struct store_attr *attr, uint64_t now_ms)
{
	size_t length = strlen(name), size = offsetof(struct node, name) + length + 1;
	struct node *node = estate_new(tree->estate, size > sizeof(*node) ? size : sizeof(*node));

	if (!node)
		return NULL;
	memcpy(node->name, name, length + 1);
	node->parent = parent;
	node->attr = *attr;
	node->type = (uint8_t)(attr->mode >> 12);
	node->checked_ms = now_ms;
	if (node_is_file(node))
		node->cache.slot = SLOT_NONE;
	if (parent)
		node_hold(parent);
	return node;
}

void node_hold(struct node *node)
{
	atomic_fetch_add(&node->holders, 1);
}

void node_free(struct tree *tree, struct node *node)
{
	if (node_is_dir(node))
		free(node->dir.children);
	estate_free(tree->estate, node);
}

void node_discard(struct tree *tree, struct node *node)
{
	atomic_fetch_sub(&node->parent->holders, 1);
	estate_free(tree->estate, node);
}

/* Frees nodes that have no name and that nobody knows, up to the root. Tree lock held. */
void node_free_if_unused_locked(struct tree *tree, struct node *node)
{
	lock_assert_held(&tree->lock);
	while (node && node->detached && !node->lookups && !atomic_load(&node->holders)) {
		struct node *parent = node->parent;

		assert(node != tree->root);
		if (!tree->stopping) /* the store may be closed by then */
			store_forget(tree->store, &node->attr);
		node_free(tree, node);
		if (parent)
			atomic_fetch_sub(&parent->holders, 1);
		node = parent;
	}
}

void tree_release(struct tree *tree, struct node *node)
{
	if (atomic_fetch_add(&node->released, 1) > 0)
		return; /* it is in the list already */
	lock_acquire(&tree->release_lock);
	node->next_released = tree->released;
	tree->released = node;
	lock_release(&tree->release_lock);
}

void tree_reap(struct tree *tree)
{
	struct node *node;

	lock_acquire(&tree->release_lock);
	node = tree->released;
	tree->released = NULL;
	lock_release(&tree->release_lock);
	if (!node)
		return;
	lock_acquire(&tree->lock);
	for (struct node *next; node; node = next) {
		next = node->next_released;
		atomic_fetch_sub(&node->holders, atomic_exchange(&node->released, 0));
		node_free_if_unused_locked(tree, node);
	}
	lock_release(&tree->lock);
}

void node_lose_name_locked(struct tree *tree, struct node *node)
{
	lock_assert_held(&tree->lock);
	node->detached = true;
	atomic_store(&node->stale, true);
	tree->orphans += node->lookups > 0;
}

/* A node loses its name, and with a directory all below. */
void node_detach_locked(struct tree *tree, struct node *node)
{
	lock_assert_held(&tree->lock);
	if (node_is_dir(node)) {
		for (uint32_t i = 0; i < node->dir.child_count; i++)
			node_detach_locked(tree, node->dir.children[i]);
		node->dir.child_count = 0;
		tree_set_left_out_locked(tree, node, 0);
	}
	node_lose_name_locked(tree, node);
	tree_remember_name_locked(tree, node);
	if (node_is_file(node))
		tree->options.events->file_removed(tree->options.context, node);
	else
		tree->options.events->dir_changed(tree->options.context, node);
	node_free_if_unused_locked(tree, node);
}

static void set_closed_locked(struct tree *tree, struct node *dir, uint64_t lookups)
{
	lock_assert_held(&tree->lock);
	tree->orphans -= dir->closed_lookups > 0;
	dir->closed_lookups = (lookups < CLOSED_MAX ? lookups : CLOSED_MAX) & CLOSED_MAX;
	tree->orphans += dir->closed_lookups > 0;
}

/* Somebody who is in the directory keeps the kernel's old inode of it. As long as that is in use,
 * the directory counts as an orphan, so that native mode has the overlay forget it some time. */
void node_close_locked(struct tree *tree, struct node *dir)
{
	lock_assert_held(&tree->lock);
	if (!tree->closes || !dir->parent)
		return;
	atomic_store(&dir->dir.closings, (uint8_t)(node_closings(dir) % UINT8_MAX + 1));
	set_closed_locked(tree, dir, dir->lookups);
}

/* The kernel does not say which inode of a directory it forgets. But it forgets an inode whole, and
 * the new one hardly while that is in use. Answers that were on their way when the directory was
 * closed may have counted for either. */
void node_forget_locked(struct tree *tree, struct node *node, uint64_t count)
{
	lock_assert_held(&tree->lock);
	assert(node->lookups >= count);
	node->lookups -= count;
	if (node->closed_lookups &&
	    (count >= node->closed_lookups / 2 || node->closed_lookups > node->lookups))
		set_closed_locked(tree, node, 0);
}

char *node_path(const struct node *node)
{
	size_t length = 0, at;
	char *path;

	for (const struct node *n = node; n->parent; n = n->parent)
		length += strlen(n->name) + 1;
	path = malloc(length + 1);
	if (!path)
		return NULL;
	at = length ? length - 1 : 0;
	path[at] = 0;
	for (const struct node *n = node; n->parent; n = n->parent) {
		size_t part = strlen(n->name);

		at -= part;
		memcpy(path + at, n->name, part);
		if (at)
			path[--at] = '/';
	}
	return path;
}
