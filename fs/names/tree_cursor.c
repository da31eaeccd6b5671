/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Cursors in listings. A large directory is listed in many pieces, and may be read again between
 * two of them. A cursor is the number of the child that came last and a hash of its name, the tag:
 * if that number is another's by now, the name is looked for, among the children and among the last
 * names that were removed.
 *
 * Anybody can seek to any number that never was a cursor, as often as they like, while all requests
 * wait. So a directory of many children has an index of their tags, in which a search takes as
 * many steps as the number of children has bits, however the names were chosen. The index is made
 * when the directory was read, without the tree's lock.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "fnv.h"
#include "names/tree_internal.h"

#define TAG_PART 10 /* bits that tags are sorted by at a time, three times */

/* 30 bits, so that a cursor stays below 2^63. */
static uint32_t tag_of(const char *name)
{
	return fnv32_add(FNV32_BEGIN, name, strlen(name)) >> 2;
}

uint64_t tree_cursor_after(const struct node *child, uint32_t index)
{
	return (uint64_t)tag_of(child->name) << 32 | index;
}

/* --- the index ----------------------------------------------------------------------------------
 */

#define FEW 32 /* children: they are searched one by one, and have no index */

size_t tree_children_bytes(uint32_t count)
{
	size_t each = sizeof(struct node *) + (count > FEW ? sizeof(uint32_t) : 0);

	return (count + !count) * each;
}

/* What the index is sorted by: tags that are equal by the number of the child. */
static uint64_t key_of(struct node *const *children, uint32_t number)
{
	return (uint64_t)tag_of(children[number]->name) << 32 | number;
}

static uint32_t part_of(uint64_t key, unsigned shift)
{
	return (uint32_t)(key >> shift) & ((1u << TAG_PART) - 1);
}

/* By ten bits of the tags; what is equal stays in the order that it has. */
static void sort_by_bits(const uint64_t *from, uint64_t *to, uint32_t count, unsigned shift)
{
	uint32_t begin[1 << TAG_PART] = { 0 }, sum = 0;

	for (uint32_t i = 0; i < count; i++)
		begin[part_of(from[i], shift)]++;
	for (uint32_t part = 0; part < 1 << TAG_PART; part++) {
		uint32_t here = begin[part];

		begin[part] = sum;
		sum += here;
	}
	for (uint32_t i = 0; i < count; i++)
		to[begin[part_of(from[i], shift)]++] = from[i];
}

/* A successor does this for all directories before its mount answers, so no comparisons: for a
 * million children they take four times as long. */
int tree_index_children(struct node **children, uint32_t count)
{
	uint32_t *numbers = (uint32_t *)(children + count);
	uint64_t *keys, *others;

	if (count <= FEW)
		return 0;
	keys = malloc(2 * (size_t)count * sizeof(*keys));
	if (!keys)
		return -ENOMEM;
	others = keys + count;
	for (uint32_t i = 0; i < count; i++)
		keys[i] = key_of(children, i);
	sort_by_bits(keys, others, count, 32);
	sort_by_bits(others, keys, count, 32 + TAG_PART);
	sort_by_bits(keys, others, count, 32 + 2 * TAG_PART);
	for (uint32_t i = 0; i < count; i++)
		numbers[i] = (uint32_t)others[i];
	free(keys);
	return 0;
}

/* Where a key is in the index, or would be. */
static uint32_t search(struct node *const *children, uint32_t count, uint64_t key)
{
	const uint32_t *numbers = (const uint32_t *)(children + count);
	uint32_t from = 0, to = count;

	while (from < to) {
		uint32_t middle = from + (to - from) / 2;

		if (key_of(children, numbers[middle]) < key)
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

static uint32_t distance(uint32_t a, uint32_t b)
{
	return a < b ? b - a : a - b;
}

/* The child with this tag that is nearest to a number. UINT32_MAX: there is none. */
static uint32_t find_nearest(struct node *const *children, uint32_t count, uint32_t tag,
			     uint32_t index)
{
	const uint32_t *numbers = (const uint32_t *)(children + count);
	uint32_t at = search(children, count, (uint64_t)tag << 32 | index), found = UINT32_MAX;

	if (at < count && tag_of(children[numbers[at]]->name) == tag)
		found = numbers[at];
	if (at && tag_of(children[numbers[at - 1]]->name) == tag &&
	    (found == UINT32_MAX || distance(numbers[at - 1], index) <= distance(found, index)))
		found = numbers[at - 1];
	return found;
}

/* The same, one by one. */
static uint32_t find_nearest_of_few(struct node *const *children, uint32_t count, uint32_t tag,
				    uint32_t index)
{
	uint32_t found = UINT32_MAX;

	for (uint32_t i = 0; i < count; i++)
		if (tag_of(children[i]->name) == tag &&
		    (found == UINT32_MAX || distance(i, index) < distance(found, index)))
			found = i;
	return found;
}

/* --- names that are no more ---------------------------------------------------------------------
 */

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
	*gone = (struct gone){ .dir = node->parent,
			       .tag = tag_of(node->name),
			       .name = strdup(node->name) };
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

		if (gone->dir == dir && gone->tag == tag && gone->name)
			return gone->name;
	}
	return NULL;
}

/* --- cursors ------------------------------------------------------------------------------------
 */

uint32_t tree_find_cursor_locked(struct tree *tree, const struct node *dir, uint64_t cursor)
{
	uint32_t tag = (uint32_t)(cursor >> 32), index = (uint32_t)cursor;
	uint32_t count = dir->dir.child_count, found;
	struct node *const *children = dir->dir.children;
	const char *gone;

	lock_assert_held(&tree->lock);
	if (cursor == TREE_BEGIN || !count)
		return 0;
	if (index >= count)
		index = count - 1;
	if (tag_of(children[index]->name) == tag)
		return index + 1;
	found = count > FEW ? find_nearest(children, count, tag, index)
			    : find_nearest_of_few(children, count, tag, index);
	if (found != UINT32_MAX)
		return found + 1;
	gone = find_gone_locked(tree, dir, tag);
	return gone ? tree_number_of(dir, gone) : index;
}
