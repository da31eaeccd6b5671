/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A successor makes the tree from the nodes that the dead daemon has left in the estate.
 *
 * What a node is (its name, parent, attributes, and whether it has lost its name) is as it was.
 * What somebody was doing with it (holders, readings) is forgotten, and arrays of children, which
 * were on the dead daemon's heap, are made anew. The kernel's lookups are still counted; a request
 * that was counted and not answered comes again and is counted twice, so there may be more than the
 * kernel knows of, but never fewer.
 *
 * The daemon may have died in the middle of a change. A directory whose children were being
 * replaced has no time of reading, so it is read again before anybody is told of a name in it.
 * Until then it may lack names, or have two nodes with one name, of which one is taken. If its
 * attributes were being written, nobody but root may enter until it was read again.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "names/tree_internal.h"

#define MODE_ANYBODY 0777u

static struct node *next_node(const struct tree *tree, const struct node *node)
{
	return estate_next(tree->estate, ESTATE_NODE, node);
}

/* The address of its children means nothing any more, but whether there was one does. */
static bool had_children(const struct node *dir)
{
	return dir->dir.children && !dir->detached;
}

static void reset(struct node *node)
{
	node->next_released = NULL;
	atomic_store(&node->holders, 0);
	atomic_store(&node->released, 0);
	if (!node_is_dir(node))
		return;
	node->dir.child_count = 0;
	node->dir.reading = false;
	if (atomic_load(&node->dir.is_torn)) {
		node->attr.mode &= ~MODE_ANYBODY & 0xffff;
		node_set_checked_ms(node, 0);
	}
}

/* How many children each directory will have, and who holds whom. */
static void count_children(const struct tree *tree)
{
	for (struct node *node = next_node(tree, NULL); node; node = next_node(tree, node)) {
		if (!node->parent)
			continue;
		node_hold(node->parent);
		if (!node->detached && had_children(node->parent))
			node->parent->dir.child_count++;
	}
}

/* After that, an array that is there is the successor's. */
static int allocate_children(const struct tree *tree)
{
	for (struct node *dir = next_node(tree, NULL); dir; dir = next_node(tree, dir)) {
		if (!node_is_dir(dir))
			continue;
		if (!had_children(dir)) {
			dir->dir.children = NULL;
			continue;
		}
		dir->dir.children = malloc(tree_children_bytes(dir->dir.child_count));
		if (!dir->dir.children)
			return -ENOMEM;
		dir->dir.child_count = 0;
	}
	return 0;
}

static void fill_children(const struct tree *tree)
{
	for (struct node *node = next_node(tree, NULL); node; node = next_node(tree, node)) {
		struct node *dir = node->parent;

		if (dir && !node->detached && dir->dir.children)
			dir->dir.children[dir->dir.child_count++] = node;
	}
}

static bool is_sorted(const struct node *dir)
{
	for (uint32_t i = 1; i < dir->dir.child_count; i++)
		if (strcmp(dir->dir.children[i - 1]->name, dir->dir.children[i]->name) >= 0)
			return false;
	return true;
}

static void lose_name(struct node *node)
{
	node->detached = true;
	atomic_store(&node->stale, true);
}

/* Of two nodes with one name, one was about to lose it. Returns whether there were any. */
static bool leave_out_twins(struct node *dir)
{
	struct node **children = dir->dir.children;
	uint32_t count = 0, before = dir->dir.child_count;

	for (uint32_t i = 0; i < before; i++) {
		struct node *node = children[i];

		if (!count || tree_by_name(&children[count - 1], &node)) {
			children[count++] = node;
		} else if (atomic_load(&children[count - 1]->stale)) {
			lose_name(children[count - 1]);
			children[count - 1] = node;
		} else {
			lose_name(node);
		}
	}
	dir->dir.child_count = count;
	return count != before;
}

static int sort_children(const struct tree *tree, bool *twins)
{
	for (struct node *dir = next_node(tree, NULL); dir; dir = next_node(tree, dir)) {
		if (!node_is_dir(dir) || !dir->dir.children)
			continue;
		if (!is_sorted(dir)) {
			qsort(dir->dir.children, dir->dir.child_count, sizeof(struct node *),
			      tree_by_name);
			*twins = leave_out_twins(dir) || *twins;
		}
		if (tree_index_children(dir->dir.children, dir->dir.child_count))
			return -ENOMEM;
	}
	return 0;
}

static bool is_below_detached(const struct node *node)
{
	while (node && !node->detached)
		node = node->parent;
	return node;
}

/* What is below a directory without a name has none either. */
static void detach_below(const struct tree *tree)
{
	for (struct node *node = next_node(tree, NULL); node; node = next_node(tree, node))
		if (!node->detached && is_below_detached(node))
			lose_name(node);
	for (struct node *dir = next_node(tree, NULL); dir; dir = next_node(tree, dir))
		if (node_is_dir(dir) && dir->detached)
			dir->dir.child_count = 0;
}

/* Sums, and nodes that nobody needs. */
static void tidy_up(struct tree *tree)
{
	lock_acquire(&tree->lock);
	for (struct node *node = next_node(tree, NULL); node; node = next_node(tree, node)) {
		tree->orphans += node->detached && node->lookups;
		tree->orphans += node->closed_lookups > 0;
		if (node_is_dir(node))
			tree->left_out += node->dir.left_out;
		node_free_if_unused_locked(tree, node);
	}
	lock_release(&tree->lock);
}

int tree_inherit(struct tree *tree)
{
	bool twins = false;
	int rc;

	for (struct node *node = next_node(tree, NULL); node; node = next_node(tree, node)) {
		reset(node);
		if (!node->parent)
			tree->root = node;
	}
	if (!tree->root)
		return -ENODATA;
	count_children(tree);
	rc = allocate_children(tree);
	if (rc)
		return rc;
	fill_children(tree);
	rc = sort_children(tree, &twins);
	if (rc)
		return rc;
	if (twins)
		detach_below(tree);
	tidy_up(tree);
	return 0;
}

void tree_for_all(struct tree *tree, void (*visit)(void *context, struct node *node), void *context)
{
	lock_acquire(&tree->lock);
	for (struct node *node = next_node(tree, NULL); node; node = next_node(tree, node))
		visit(context, node);
	lock_release(&tree->lock);
}

void tree_is_forgotten(struct tree *tree, struct node *node)
{
	lock_acquire(&tree->lock);
	if (node->detached && node->lookups) {
		node->lookups = 0;
		tree->orphans--;
		node_free_if_unused_locked(tree, node);
	}
	lock_release(&tree->lock);
}

/* Of fields of bits the version of the format tells. */
const struct format_line tree_format[] = { FORMAT_SIZE(struct node),
					   FORMAT_FIELD(struct node, parent),
					   FORMAT_FIELD(struct node, attr),
					   FORMAT_FIELD(struct node, checked_ms),
					   FORMAT_FIELD(struct node, next_released),
					   FORMAT_FIELD(struct node, holders),
					   FORMAT_FIELD(struct node, released),
					   FORMAT_FIELD(struct node, dir.children),
					   FORMAT_FIELD(struct node, dir.child_count),
					   FORMAT_FIELD(struct node, dir.reading),
					   FORMAT_FIELD(struct node, dir.is_torn),
					   FORMAT_FIELD(struct node, dir.closings),
					   FORMAT_FIELD(struct node, cache.fetch),
					   FORMAT_FIELD(struct node, cache.late_ms),
					   FORMAT_FIELD(struct node, cache.slot),
					   FORMAT_FIELD(struct node, pages.drop),
					   FORMAT_FIELD(struct node, pages.name),
					   FORMAT_FIELD(struct node, pages.there),
					   FORMAT_FIELD(struct node, stale),
					   FORMAT_FIELD(struct node, detached),
					   FORMAT_FIELD(struct node, type),
					   FORMAT_FIELD(struct node, name),
					   FORMAT_NUMBER(PAGES_STRAY),
					   FORMAT_NUMBER(PAGES_WHOLE),
					   FORMAT_NUMBER(PAGES_LEAVING),
					   FORMAT_END };
