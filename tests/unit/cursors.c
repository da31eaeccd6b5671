/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Cursors in listings: they find the name that they were made after, whatever came or went, and a
 * search takes few steps, whatever the cursor and the names are. A step is a name that is hashed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "fnv.h"

static unsigned steps;
static uint32_t tags_mask = UINT32_MAX; /* fewer bits: many names have the same tag */

static uint32_t counted_fnv32_add(uint32_t hash, const void *bytes, size_t size)
{
	steps++;
	return fnv32_add(hash, bytes, size) & tags_mask;
}

#define fnv32_add counted_fnv32_add
/* Whole, so that its hash is the counted one. */
#include "names/tree_cursor.c" /* NOLINT(bugprone-suspicious-include) */
#undef fnv32_add

#define MANY 100000
#define LONG_NAME 200

/* --- what the cursors need of the tree --------------------------------------------------------*/

void lock_assert_held(const struct lock *lock)
{
	(void)lock;
}

uint32_t tree_number_of(const struct node *dir, const char *name)
{
	uint32_t number = 0;

	while (number < dir->dir.child_count && strcmp(dir->dir.children[number]->name, name) < 0)
		number++;
	return number;
}

static struct tree tree;

static struct node *make_child(struct node *dir, unsigned number)
{
	struct node *node = calloc(1, sizeof(*node) + LONG_NAME);

	snprintf(node->name, LONG_NAME, "name%0100u", number);
	node->parent = dir;
	return node;
}

/* A directory of the names from `first` on, every `step`th. */
static struct node *make_dir(unsigned first, unsigned step, uint32_t count)
{
	struct node *dir = calloc(1, sizeof(*dir));

	dir->type = 0040000 >> 12;
	dir->dir.child_count = count;
	dir->dir.children = malloc(tree_children_bytes(count));
	for (uint32_t i = 0; i < count; i++)
		dir->dir.children[i] = make_child(dir, first + i * step);
	cr_assert_eq(tree_index_children(dir->dir.children, count), 0);
	return dir;
}

static void free_dir(struct node *dir)
{
	for (uint32_t i = 0; i < dir->dir.child_count; i++)
		free(dir->dir.children[i]);
	free(dir->dir.children);
	free(dir);
}

/* As it was before there was an index: outwards from where the child was. */
static uint32_t find_outwards(const struct node *dir, uint32_t tag, uint32_t index)
{
	uint32_t count = dir->dir.child_count;

	for (uint32_t far = 0; far < count; far++) {
		if (far <= index && tag_of(dir->dir.children[index - far]->name) == tag)
			return index - far + 1;
		if (index + far < count && tag_of(dir->dir.children[index + far]->name) == tag)
			return index + far + 1;
	}
	return index;
}

/* --- tests ------------------------------------------------------------------------------------*/

Test(cursors, find_their_child)
{
	static const uint32_t counts[] = { 1, 2, FEW, FEW + 1, 5000 };

	for (unsigned i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		struct node *dir = make_dir(0, 1, counts[i]);

		for (uint32_t at = 0; at < counts[i]; at++) {
			uint64_t cursor = tree_cursor_after(dir->dir.children[at], at);

			cr_assert_eq(tree_find_cursor_locked(&tree, dir, cursor), at + 1);
		}
		cr_assert_eq(tree_find_cursor_locked(&tree, dir, TREE_BEGIN), 0);
		free_dir(dir);
	}
}

/* All others came or went meanwhile, however far that has moved the child. */
Test(cursors, find_their_child_when_it_has_moved)
{
	struct node *few = make_dir(100, 10, 500), *all = make_dir(0, 1, 5100);

	for (uint32_t at = 0; at < 500; at++) {
		uint64_t cursor = tree_cursor_after(few->dir.children[at], at);
		uint32_t then = 100 + 10 * at;

		cr_assert_eq(tree_find_cursor_locked(&tree, all, cursor), then + 1);
		cursor = tree_cursor_after(all->dir.children[then], then);
		cr_assert_eq(tree_find_cursor_locked(&tree, few, cursor), at + 1);
	}
	free_dir(few);
	free_dir(all);
}

Test(cursors, go_on_where_a_name_was)
{
	struct node *before = make_dir(0, 1, 1000), *after = make_dir(0, 2, 500);

	for (uint32_t at = 1; at < 1000; at += 2) {
		struct node *gone = before->dir.children[at];

		gone->parent = after;
		tree_remember_name_locked(&tree, gone);
		cr_assert_eq(tree_find_cursor_locked(&tree, after, tree_cursor_after(gone, at)),
			     at / 2 + 1);
	}
	tree_forget_names(&tree);
	tree.gone = NULL;
	free_dir(before);
	free_dir(after);
}

static void check_steps(const struct node *dir, unsigned most)
{
	uint64_t cursor = 88172645463325252;

	for (unsigned i = 0; i < 2000; i++) {
		cursor ^= cursor << 13;
		cursor ^= cursor >> 7;
		cursor ^= cursor << 17;
		steps = 0;
		(void)tree_find_cursor_locked(&tree, dir, cursor >> 1);
		cr_assert_leq(steps, most, "%u steps for the cursor %llu", steps,
			      (unsigned long long)cursor >> 1);
	}
}

/* Whoever seeks to any place makes nobody wait: 17 steps of the search, and three names more. */
Test(cursors, that_never_were_take_few_steps)
{
	struct node *dir = make_dir(0, 1, MANY);
	uint64_t last = tree_cursor_after(dir->dir.children[0], MANY - 1);

	check_steps(dir, 20);
	steps = 0;
	cr_assert_eq(tree_find_cursor_locked(&tree, dir, last), 1);
	cr_assert_leq(steps, 20);
	free_dir(dir);
}

/* Names can be chosen so that their tags are equal. */
Test(cursors, of_equal_tags_take_few_steps)
{
	struct node *dir;

	tags_mask = 0x70;
	dir = make_dir(0, 1, MANY);
	check_steps(dir, 20);
	tags_mask = 0;
	check_steps(dir, 20);
	free_dir(dir);
	tags_mask = UINT32_MAX;
}

/* Among equal tags it is the nearest child, as if all were looked at. */
Test(cursors, are_found_as_by_looking_at_all)
{
	static const uint32_t counts[] = { 3, FEW, 300 };

	tags_mask = 0x1fc;
	for (unsigned i = 0; i < 3; i++) {
		struct node *dir = make_dir(7, 3, counts[i]);

		for (uint32_t tag = 0; tag < 128; tag++)
			for (uint32_t index = 0; index < counts[i]; index++)
				cr_assert_eq(tree_find_cursor_locked(&tree, dir,
								     (uint64_t)tag << 32 | index),
					     find_outwards(dir, tag, index), "tag %u, index %u",
					     tag, index);
		free_dir(dir);
	}
	tags_mask = UINT32_MAX;
}
