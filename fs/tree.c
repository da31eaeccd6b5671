/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tree.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct tree {
	struct store *store;
	uint64_t staleness_ms;
	const struct tree_events *events;
	void *context;
	struct node *root;
	pthread_mutex_t lock; /* children, names, lookups, detached, life and death of nodes */
	pthread_mutex_t release_lock; /* a leaf: held for a moment */
	struct node *released;	      /* release_lock */
};

/* --- nodes --------------------------------------------------------------------------------- */

static struct node *node_new(struct node *parent, const char *name, const struct store_attr *attr,
			     uint64_t now_ms)
{
	size_t length = strlen(name);
	struct node *node = calloc(1, sizeof(*node) + length + 1);

	if (!node)
		return NULL;
	memcpy(node->name, name, length + 1);
	node->parent = parent;
	node->attr = *attr;
	node->checked_ms = now_ms;
	node->slot = SLOT_NONE;
	if (parent)
		node_hold(parent);
	return node;
}

void node_hold(struct node *node)
{
	atomic_fetch_add(&node->holders, 1);
}

/* Frees nodes that have no name and that nobody knows, up to the root. Tree lock held. */
static void free_if_unused_locked(struct tree *tree, struct node *node)
{
	while (node && node->detached && !node->lookups && !atomic_load(&node->holders)) {
		struct node *parent = node->parent;

		assert(node != tree->root);
		free(node->children);
		free(node);
		if (parent)
			atomic_fetch_sub(&parent->holders, 1);
		node = parent;
	}
}

void tree_release(struct tree *tree, struct node *node)
{
	if (atomic_fetch_add(&node->released, 1) > 0)
		return; /* it is in the list already */
	pthread_mutex_lock(&tree->release_lock);
	node->next_released = tree->released;
	tree->released = node;
	pthread_mutex_unlock(&tree->release_lock);
}

void tree_reap(struct tree *tree)
{
	struct node *node;

	pthread_mutex_lock(&tree->release_lock);
	node = tree->released;
	tree->released = NULL;
	pthread_mutex_unlock(&tree->release_lock);
	if (!node)
		return;
	pthread_mutex_lock(&tree->lock);
	for (struct node *next; node; node = next) {
		next = node->next_released;
		atomic_fetch_sub(&node->holders, atomic_exchange(&node->released, 0));
		free_if_unused_locked(tree, node);
	}
	pthread_mutex_unlock(&tree->lock);
}

/* A node loses its name, and with a directory all below. */
static void detach_locked(struct tree *tree, struct node *node)
{
	for (uint32_t i = 0; i < node->child_count; i++)
		detach_locked(tree, node->children[i]);
	node->child_count = 0;
	node->detached = true;
	if (node_is_file(node))
		tree->events->file_removed(tree->context, node);
	free_if_unused_locked(tree, node);
}

/* --- directories ----------------------------------------------------------------------------- */

struct listing {
	struct tree *tree;
	struct node *dir;
	uint64_t now_ms;
	struct node **children;
	uint32_t count, room;
};

static int by_name(const void *a, const void *b)
{
	return strcmp((*(struct node *const *)a)->name, (*(struct node *const *)b)->name);
}

static struct node *find_child(const struct node *dir, const char *name)
{
	uint32_t from = 0, to = dir->child_count;

	while (from < to) {
		uint32_t middle = from + (to - from) / 2;
		int order = strcmp(name, dir->children[middle]->name);

		if (!order)
			return dir->children[middle];
		if (order < 0)
			to = middle;
		else
			from = middle + 1;
	}
	return NULL;
}

static int add_entry(void *context, const char *name, const struct store_attr *attr)
{
	struct listing *listing = context;
	struct node *old = find_child(listing->dir, name);
	struct node *node;

	if (listing->count == listing->room) {
		uint32_t room = listing->room ? listing->room * 2 : 16;
		struct node **grown = realloc(listing->children, room * sizeof(struct node *));

		if (!grown)
			return -ENOMEM;
		listing->children = grown;
		listing->room = room;
	}
	if (old && !old->stale &&
	    (node_is_dir(old) ? old->attr.ino == attr->ino
			      : store_same_version(&old->attr, attr))) {
		__atomic_store_n(&old->checked_ms, listing->now_ms, __ATOMIC_RELAXED);
		node = old;
	} else {
		node = node_new(listing->dir, name, attr, listing->now_ms);
		if (!node)
			return -ENOMEM;
	}
	listing->children[listing->count++] = node;
	return 0;
}

static void drop_listing(struct listing *listing)
{
	for (uint32_t i = 0; i < listing->count; i++)
		if (listing->children[i] != find_child(listing->dir, listing->children[i]->name)) {
			listing->children[i]->detached = true;
			free_if_unused_locked(listing->tree, listing->children[i]);
		}
	free(listing->children);
}

/* Tells of what is new, replaced and gone, and puts the new children in place. */
static void settle_listing(struct listing *listing)
{
	struct tree *tree = listing->tree;
	struct node *dir = listing->dir;
	struct node **old = dir->children;
	uint32_t old_count = dir->child_count, at = 0;

	for (uint32_t i = 0; i < listing->count; i++) {
		struct node *node = listing->children[i], *before = find_child(dir, node->name);

		if (node == before || !node_is_file(node))
			continue;
		if (before && node_is_file(before)) {
			node->slot = before->slot;
			tree->events->file_replaced(tree->context, before, node);
		} else {
			node->slot = tree->events->file_added(tree->context, node);
		}
	}
	dir->children = listing->children;
	dir->child_count = listing->count;
	for (uint32_t i = 0; i < old_count; i++) {
		while (at < listing->count && strcmp(dir->children[at]->name, old[i]->name) < 0)
			at++;
		if (at < listing->count && dir->children[at] == old[i])
			continue;
		if (at < listing->count && !strcmp(dir->children[at]->name, old[i]->name) &&
		    node_is_file(old[i]) && node_is_file(dir->children[at])) {
			old[i]->detached = true; /* replaced: it has been told */
			atomic_store(&old[i]->stale, true);
			free_if_unused_locked(tree, old[i]);
		} else {
			detach_locked(tree, old[i]);
		}
	}
	free(old);
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

static int read_dir_locked(struct tree *tree, struct node *dir, uint64_t now_ms)
{
	struct listing listing = { .tree = tree, .dir = dir, .now_ms = now_ms };
	char *path = node_path(dir);
	int rc;

	if (!path)
		return -ENOMEM;
	rc = store_list(tree->store, path, add_entry, &listing);
	free(path);
	if (!rc && !listing.children) {
		listing.children = malloc(sizeof(struct node *)); /* empty, but read */
		rc = listing.children ? 0 : -ENOMEM;
	}
	if (rc) {
		drop_listing(&listing);
		return rc;
	}
	qsort(listing.children, listing.count, sizeof(struct node *), by_name);
	settle_listing(&listing);
	dir->checked_ms = now_ms;
	return 0;
}

/* Makes sure that the children are known, and not too old. */
static int fresh_dir_locked(struct tree *tree, struct node *dir, uint64_t now_ms)
{
	struct store_attr attr;
	char *path;
	int rc;

	if (!node_is_dir(dir))
		return -ENOTDIR;
	if (dir->detached)
		return -ENOENT;
	if (dir->children && now_ms - dir->checked_ms <= tree->staleness_ms)
		return 0;
	if (!dir->children)
		return read_dir_locked(tree, dir, now_ms);
	path = node_path(dir);
	if (!path)
		return -ENOMEM;
	rc = store_stat(tree->store, path, &attr);
	free(path);
	if (rc)
		return rc;
	dir->attr = attr;
	/* Files may have changed without the directory's noticing: look at all. */
	return read_dir_locked(tree, dir, now_ms);
}

int tree_lookup(struct tree *tree, struct node *parent, const char *name, uint64_t now_ms,
		struct node **out)
{
	int rc;

	pthread_mutex_lock(&tree->lock);
	rc = fresh_dir_locked(tree, parent, now_ms);
	if (!rc) {
		struct node *node = find_child(parent, name);

		if (node && atomic_load(&node->stale)) {
			rc = read_dir_locked(tree, parent, now_ms);
			node = rc ? NULL : find_child(parent, name);
		}
		if (node) {
			node->lookups++;
			*out = node;
		} else if (!rc) {
			rc = -ENOENT;
		}
	}
	pthread_mutex_unlock(&tree->lock);
	return rc;
}

void tree_forget(struct tree *tree, struct node *node, uint64_t count,
		 void (*last)(void *context, struct node *node), void *context)
{
	pthread_mutex_lock(&tree->lock);
	assert(node->lookups >= count);
	node->lookups -= count;
	if (!node->lookups) {
		last(context, node);
		free_if_unused_locked(tree, node);
	}
	pthread_mutex_unlock(&tree->lock);
}

int tree_children(struct tree *tree, struct node *dir, uint32_t from, uint64_t now_ms, bool counts,
		  bool (*entry)(void *context, struct node *child, uint32_t index), void *context)
{
	int rc = 0;

	pthread_mutex_lock(&tree->lock);
	if (from == 0 || !dir->children)
		rc = fresh_dir_locked(tree, dir, now_ms);
	for (uint32_t i = from; !rc && i < dir->child_count; i++) {
		if (!entry(context, dir->children[i], i))
			break;
		dir->children[i]->lookups += counts;
	}
	pthread_mutex_unlock(&tree->lock);
	return rc;
}

static int step_down_locked(struct tree *tree, struct node **at, const char *name, uint64_t now_ms)
{
	int rc = fresh_dir_locked(tree, *at, now_ms);

	if (rc)
		return rc;
	*at = find_child(*at, name);
	return *at ? 0 : -ENOENT;
}

int tree_find(struct tree *tree, const char *path, uint64_t now_ms, struct node **out)
{
	char *copy = strdup(path), *rest = copy, *name;
	struct node *at = tree->root;
	int rc = copy ? 0 : -ENOMEM;

	pthread_mutex_lock(&tree->lock);
	while (!rc && (name = strsep(&rest, "/")))
		if (*name && strcmp(name, "."))
			rc = step_down_locked(tree, &at, name, now_ms);
	if (!rc) {
		node_hold(at);
		*out = at;
	}
	pthread_mutex_unlock(&tree->lock);
	free(copy);
	return rc;
}

void tree_mark_stale(struct tree *tree, struct node *node)
{
	(void)tree;
	atomic_store(&node->stale, true);
}

/* --- begin and end ------------------------------------------------------------------------------
 */

int tree_open(struct tree **out, struct store *store, uint64_t staleness_ms,
	      const struct tree_events *events, void *context)
{
	struct tree *tree = calloc(1, sizeof(*tree));
	struct store_attr attr;
	int rc;

	if (!tree)
		return -ENOMEM;
	*tree = (struct tree){
		.store = store, .staleness_ms = staleness_ms, .events = events, .context = context
	};
	pthread_mutex_init(&tree->lock, NULL);
	pthread_mutex_init(&tree->release_lock, NULL);
	rc = store_stat(store, "", &attr);
	if (!rc) {
		tree->root = node_new(NULL, "", &attr, 0);
		rc = tree->root ? 0 : -ENOMEM;
	}
	if (rc) {
		pthread_mutex_destroy(&tree->lock);
		free(tree);
		return rc;
	}
	tree->root->lookups = 1; /* the kernel's, as long as it is mounted */
	*out = tree;
	return 0;
}

static void free_all(struct node *node)
{
	for (uint32_t i = 0; i < node->child_count; i++)
		free_all(node->children[i]);
	free(node->children);
	free(node);
}

void tree_close(struct tree *tree)
{
	tree_reap(tree);
	free_all(tree->root);
	pthread_mutex_destroy(&tree->lock);
	free(tree);
}

struct node *tree_root(struct tree *tree)
{
	return tree->root;
}
