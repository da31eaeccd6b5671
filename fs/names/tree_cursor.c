/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Cursors in listings. A large directory is listed in many pieces, and may be read again between
 * two of them. A cursor is the number of the child that came last and a hash of its name: if that
 * number is another's by now, the name is looked for, among the children and among the last
 * names that were removed.
 */
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "fnv.h"
#include "names/tree_internal.h"

/* 30 bits, so that a cursor stays below 2^63. */
static uint32_t tag_of(const char *name)
{
	return fnv32_add(FNV32_BEGIN, name, strlen(name)) >> 2;
}

uint64_t tree_cursor_after(const struct node *child, uint32_t index)
{
	return (uint64_t)tag_of(child->name) << 32 | index;
}

void tree_remember_name_locked(struct tree *tree, const struct node *node)
{
	struct gone *gone;

	lock_assert_held(&tree->lock);
	if (!tree->gone)
		tree->gone = calloc(GONE_MAX, sizeof(*tree->gone));
	if (!tree->gone)
		return;
	gone = &tree->gone[tree->gone_next++ % GONE_MAX];
	free(gone->name);
	*gone = (struct gone){ .dir = node->parent, .name = strdup(node->name) };
}

void tree_forget_names(struct tree *tree)
{
	for (uint32_t i = 0; tree->gone && i < GONE_MAX; i++)
		free(tree->gone[i].name);
	free(tree->gone);
}

/* NULL: it is not among the last that were removed. */
static const char *find_gone_locked(const struct tree *tree, const struct node *dir, uint32_t tag)
{
	lock_assert_held(&tree->lock);
	for (uint32_t i = 0; tree->gone && i < GONE_MAX; i++) {
		const struct gone *gone = &tree->gone[i];

		if (gone->dir == dir && gone->name && tag_of(gone->name) == tag)
			return gone->name;
	}
	return NULL;
}

/* Names that came or went have moved the child, mostly not far: the search goes outwards. */
uint32_t tree_find_cursor_locked(struct tree *tree, const struct node *dir, uint64_t cursor)
{
	uint32_t tag = (uint32_t)(cursor >> 32), index = (uint32_t)cursor;
	const char *gone;

	lock_assert_held(&tree->lock);
	if (cursor == TREE_BEGIN || !dir->dir.child_count)
		return 0;
	if (index >= dir->dir.child_count)
		index = dir->dir.child_count - 1;
	for (uint32_t far = 0; far < dir->dir.child_count; far++) {
		if (far <= index && tag_of(dir->dir.children[index - far]->name) == tag)
			return index - far + 1;
		if (index + far < dir->dir.child_count &&
		    tag_of(dir->dir.children[index + far]->name) == tag)
			return index + far + 1;
	}
	gone = find_gone_locked(tree, dir, tag);
	return gone ? tree_number_of(dir, gone) : index;
}
