/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "predict/lists.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "grow.h"

#define DEPTH_MAX 16 /* folders above a file that are looked at */

/* --- folders ------------------------------------------------------------------------------------
 */

/* Folders above what is read, and how much is read below each. */
struct folders {
	const struct node *nodes[SHUFFLE_READS * DEPTH_MAX];
	unsigned reads[SHUFFLE_READS * DEPTH_MAX];
	unsigned count;
};

static void count_folder(struct folders *folders, const struct node *node)
{
	unsigned i = 0;

	while (i < folders->count && folders->nodes[i] != node)
		i++;
	if (i == folders->count) {
		folders->nodes[i] = node;
		folders->reads[i] = 0;
		folders->count++;
	}
	folders->reads[i]++;
}

static unsigned depth_of(const struct node *node)
{
	unsigned depth = 0;

	for (; node->parent; node = node->parent)
		depth++;
	return depth;
}

/* Fills in up to LISTS_ROOTS folders with a third of the reads below each, the deepest first. */
static unsigned choose_roots(const struct folders *folders, unsigned reads,
			     const struct node **roots)
{
	unsigned count = 0;

	for (unsigned i = 0; i < folders->count; i++) {
		unsigned depth = depth_of(folders->nodes[i]), at = count;

		if (folders->reads[i] * 3 < reads)
			continue;
		for (; at > 0 && depth_of(roots[at - 1]) < depth; at--)
			if (at < LISTS_ROOTS)
				roots[at] = roots[at - 1];
		if (at < LISTS_ROOTS)
			roots[at] = folders->nodes[i];
		count += count < LISTS_ROOTS;
	}
	return count;
}

static unsigned find_roots(struct node *const *nodes, unsigned count, const struct node **roots)
{
	struct folders folders = { .count = 0 };

	for (unsigned i = 0; i < count; i++) {
		const struct node *node = nodes[i];

		for (unsigned depth = 0; node && node->parent && depth < DEPTH_MAX; depth++) {
			node = node->parent;
			count_folder(&folders, node);
		}
	}
	return choose_roots(&folders, count, roots);
}

/* --- the files below a folder
 * --------------------------------------------------------------------- */

/* Ids are sorted by path, so that the files below a folder have successive ones. */
struct below {
	const struct cache_names *names;
	uint32_t first, count;
	uint32_t *dir_of;
	char **dirs;
	uint32_t dir_count, dir_room;
};

static const char *name_of(const void *context, uint32_t file)
{
	const struct below *below = context;
	const struct node *node = below->names->nodes[below->first + file];

	return node ? node->name : ""; /* nobody takes that */
}

static bool is_below(const struct node *dir, const struct node *root)
{
	while (dir && dir != root)
		dir = dir->parent;
	return dir;
}

/* The path of a directory below the root, with a slash after each name. */
static char *path_below(const struct node *dir, const struct node *root)
{
	size_t length = 0;
	char *path, *at;

	for (const struct node *node = dir; node != root; node = node->parent)
		length += strlen(node->name) + 1;
	path = malloc(length + 1);
	if (!path)
		return NULL;
	at = path + length;
	*at = 0;
	for (const struct node *node = dir; node != root; node = node->parent) {
		size_t part = strlen(node->name);

		*--at = '/';
		at -= part;
		memcpy(at, node->name, part);
	}
	return path;
}

static void below_free(struct below *below)
{
	for (uint32_t i = 0; i < below->dir_count; i++)
		free(below->dirs[i]);
	free(below->dirs);
	free(below->dir_of);
}

static int add_dir(struct below *below, const struct node *dir, const struct node *root)
{
	if (grow(below->dirs, below->dir_room, below->dir_count, 1))
		return -ENOMEM;
	below->dirs[below->dir_count] = path_below(dir, root);
	if (!below->dirs[below->dir_count])
		return -ENOMEM;
	below->dir_count++;
	return 0;
}

static void find_range(struct below *below, const struct node *root)
{
	const struct cache_names *names = below->names;
	const struct node *last = NULL;
	bool is_last_below = false;

	for (uint32_t id = 0; id < names->count; id++) {
		const struct node *node = names->nodes[id];

		if (!node)
			continue;
		if (node->parent != last) {
			last = node->parent;
			is_last_below = is_below(last, root);
		}
		if (!is_last_below)
			continue;
		if (!below->count)
			below->first = id;
		below->count = id - below->first + 1;
	}
}

/* A file that is gone, or not below the root after all, counts as one of the directory before. */
static int collect(struct below *below, const struct node *root, const _Atomic bool *stop)
{
	const struct node *last = NULL;
	int rc = 0;

	find_range(below, root);
	if (!below->count || below->count > SHUFFLE_FILES_MAX)
		return 0;
	below->dir_of = malloc((size_t)below->count * sizeof(*below->dir_of));
	if (!below->dir_of)
		return -ENOMEM;
	for (uint32_t i = 0; !rc && i < below->count; i++) {
		const struct node *node = below->names->nodes[below->first + i];

		if (node && node->parent != last && is_below(node->parent, root)) {
			last = node->parent;
			rc = atomic_load(stop) ? -ECANCELED : add_dir(below, last, root);
		}
		if (!rc)
			below->dir_of[i] = below->dir_count - 1;
	}
	return rc;
}

/* --- lists
 * ---------------------------------------------------------------------------------------- */

void list_free(struct list *list)
{
	free(list->root);
	free(list->slots);
	free(list->index_of);
	*list = (struct list){ 0 };
}

void lists_free(struct lists *lists)
{
	for (unsigned i = 0; i < lists->count; i++)
		list_free(&lists->all[i]);
	for (unsigned i = 0; i < lists->tried_count; i++)
		free(lists->tried[i]);
	lists->count = lists->tried_count = 0;
}

/* From numbers of files to slots, and back. */
static int finish_list(struct list *list, const struct below *below)
{
	uint32_t kept = 0, most = 0;

	for (uint32_t i = 0; i < list->count; i++) {
		const struct node *node = below->names->nodes[below->first + list->slots[i]];
		uint32_t slot = node_slot(node);

		if (slot == SLOT_NONE)
			continue; /* it has gone this moment */
		list->slots[kept++] = slot;
		most = slot >= most ? slot + 1 : most;
	}
	list->count = kept;
	list->slot_count = most;
	list->index_of = malloc(((size_t)most + 1) * sizeof(*list->index_of));
	if (!list->index_of)
		return -ENOMEM;
	memset(list->index_of, 0xff, ((size_t)most + 1) * sizeof(*list->index_of));
	for (uint32_t i = 0; i < kept; i++)
		list->index_of[list->slots[i]] = i;
	return 0;
}

static int make_list(struct list *list, const struct below *below)
{
	struct shuffle_files files = { .dirs = (const char *const *)below->dirs,
				       .dir_count = below->dir_count,
				       .dir_of = below->dir_of,
				       .count = below->count,
				       .name = name_of,
				       .context = below };
	int64_t count;

	list->slots = malloc(((size_t)below->count + 1) * sizeof(*list->slots));
	if (!list->slots)
		return -ENOMEM;
	count = shuffle_list(&files, list->listing, list->slots);
	if (count < 0)
		return (int)count;
	list->count = (uint32_t)count;
	return finish_list(list, below);
}

/* Whether one of the lists before is the same: folders that have only one folder in them. */
static bool is_known(const struct lists *lists, const struct list *list)
{
	for (unsigned i = 0; i < lists->count; i++) {
		const struct list *other = &lists->all[i];

		if (other->count == list->count && list->count &&
		    !memcmp(other->slots, list->slots, list->count * sizeof(*list->slots)))
			return true;
	}
	return false;
}

static bool has_tried(const struct lists *lists, const char *root)
{
	for (unsigned i = 0; i < lists->tried_count; i++)
		if (!strcmp(lists->tried[i], root))
			return true;
	return false;
}

/* All lists of one folder. What is too short, or there already, is not kept. */
static int add_root(struct lists *lists, const struct cache_names *names, const struct node *root,
		    const char *path, const _Atomic bool *stop)
{
	struct below below = { .names = names };
	int rc = collect(&below, root, stop);

	for (unsigned i = 0; !rc && below.dir_of && i < SHUFFLE_LISTINGS; i++) {
		struct list *list = &lists->all[lists->count];

		if (lists->count == LISTS_MAX)
			break;
		*list = (struct list){ .listing = (enum shuffle_listing)i, .root = strdup(path) };
		rc = list->root ? make_list(list, &below) : -ENOMEM;
		if (!rc && atomic_load(stop))
			rc = -ECANCELED;
		if (rc || list->count < SHUFFLE_FILES_MIN || is_known(lists, list))
			list_free(list);
		else
			lists->count++;
	}
	below_free(&below);
	if (!rc && (lists->tried[lists->tried_count] = strdup(path)))
		lists->tried_count++;
	return rc;
}

/* Makes what is missing of the lists for these folders. */
static int make_all(struct lists *lists, struct cache *cache, const struct node *const *roots,
		    unsigned count, const _Atomic bool *stop)
{
	struct cache_names *names = NULL;
	int rc = 0;

	for (unsigned i = 0; !rc && i < count; i++) {
		char *path = node_path(roots[i]);

		if (!path)
			rc = -ENOMEM;
		else if (has_tried(lists, path))
			rc = 0;
		else if (!names)
			rc = cache_hold_names(cache, &names);
		if (!rc && names && !has_tried(lists, path)) {
			lists->version = names->version;
			rc = add_root(lists, names, roots[i], path, stop);
		}
		free(path);
	}
	if (names)
		cache_release_names(cache, names);
	return rc;
}

int lists_make(struct lists *lists, struct cache *cache, const struct shuffle_window *window,
	       const _Atomic bool *stop)
{
	const struct node *roots[LISTS_ROOTS];
	struct node *nodes[SHUFFLE_READS];
	uint32_t slots[SHUFFLE_READS];
	unsigned count;
	int rc;

	if (cache_names_version(cache) != lists->version ||
	    lists->tried_count + LISTS_ROOTS > LISTS_TRIED || lists->count > LISTS_MAX / 2)
		lists_free(lists);
	for (unsigned i = 0; i < window->count; i++)
		slots[i] = window->reads[i].index;
	cache_hold_slots(cache, slots, window->count, nodes);
	count = find_roots(nodes, window->count, roots);
	rc = make_all(lists, cache, roots, count, stop);
	for (unsigned i = 0; i < window->count; i++)
		if (nodes[i])
			tree_release(cache_tree(cache), nodes[i]);
	return rc;
}
