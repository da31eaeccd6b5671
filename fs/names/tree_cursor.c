/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Places in listings. A large directory is listed in many pieces, and may be read again between
 * two of them. A place is the number of the child that came last and a hash of its name: if that
 * number is another's by now, the name is looked for, among the children and among the last
 * names that were removed.
 */
#include <stdlib.h>
#include <string.h>

#include "names/tree_internal.h"

static uint32_t tag_of(const char *name)
{
	uint32_t hash = 2166136261; /* FNV-1a */

	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * 16777619;
	return hash >> 2;
}

uint64_t tree_place_after(const struct node *child, uint32_t index)
{
	return (uint64_t)tag_of(child->name) << 32 | index;
}

void tree_remember_name_locked(struct tree *tree, const struct node *node)
{
	struct gone *gone;

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
	for (uint32_t i = 0; tree->gone && i < GONE_MAX; i++) {
		const struct gone *gone = &tree->gone[i];

		if (gone->dir == dir && gone->name && tag_of(gone->name) == tag)
			return gone->name;
	}
	return NULL;
}

/* Others that have come or gone have moved it: not far, mostly. */
uint32_t tree_find_place_locked(struct tree *tree, const struct node *dir, uint64_t place)
{
	uint32_t tag = (uint32_t)(place >> 32), index = (uint32_t)place;
	const char *gone;

	if (place == TREE_BEGIN || !dir->child_count)
		return 0;
	if (index >= dir->child_count)
		index = dir->child_count - 1;
	for (uint32_t far = 0; far < dir->child_count; far++) {
		if (far <= index && tag_of(dir->children[index - far]->name) == tag)
			return index - far + 1;
		if (index + far < dir->child_count &&
		    tag_of(dir->children[index + far]->name) == tag)
			return index + far + 1;
	}
	gone = find_gone_locked(tree, dir, tag);
	return gone ? tree_number_of(dir, gone) : index;
}
