/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A node holds a name and its parent, not a descriptor: a data set of any size fits under
 * any limit of open files. Paths are put together from the parents on each request.
 *
 * A node stands for one file of the source, known by device and inode number. Once the
 * name belongs to another file, the old node is stale for good, as an NFS handle is.
 * A node lives as long as the kernel remembers it or a child of it.
 */
#include "node.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>
#include <utlist.h>

struct node {
	UT_hash_handle hh;	  /* table.lock; while it is not stale */
	struct node *prev, *next; /* table.lock; while it is stale */
	uint64_t lookups;	  /* table.lock */
	uint64_t children;	  /* table.lock; nodes, stale or not, that name it as parent */
	bool stale;		  /* table.lock */
	dev_t dev;
	ino_t ino;
	struct node *parent; /* from here on: the key */
	char name[];
};

struct node_key {
	struct node *parent;
	char name[NAME_MAX + 1];
};

_Static_assert(offsetof(struct node, name) - offsetof(struct node, parent) ==
		       offsetof(struct node_key, name),
	       "a key looks the same inside and outside of a node");

static struct {
	pthread_mutex_t lock;
	struct node *nodes; /* lock; the hash by parent and name, without the root */
	struct node *stale; /* lock; the list of those whose name went to another file */
} table = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
};

static struct node root = {
	.lookups = 1,
};

void node_init(const struct stat *st)
{
	root.dev = st->st_dev;
	root.ino = st->st_ino;
}

void node_destroy(void)
{
	struct node *node, *next;

	/* The analyzer loses track of uthash's list and believes that `node` was freed before. */
	HASH_ITER (hh, table.nodes, node, next) {
		HASH_DEL(table.nodes, node); /* NOLINT(clang-analyzer-unix.Malloc) */
		free(node);
	}
	while ((node = table.stale)) {
		DL_DELETE(table.stale, node);
		free(node);
	}
}

struct node *node_root(void)
{
	return &root;
}

static size_t key_size(const char *name)
{
	return sizeof(struct node *) + strlen(name);
}

static struct node *find_locked(struct node *parent, const char *name)
{
	struct node_key key = { .parent = parent };
	struct node *node;

	assert(strlen(name) <= NAME_MAX);
	strcpy(key.name, name);
	HASH_FIND(hh, table.nodes, &key, key_size(name), node);
	return node;
}

/* Frees the name for another node. */
static void retire_locked(struct node *node)
{
	HASH_DEL(table.nodes, node);
	DL_APPEND(table.stale, node);
	node->stale = true;
}

static void remove_locked(struct node *node)
{
	if (node->stale) {
		DL_DELETE(table.stale, node);
	} else {
		assert(table.nodes);
		HASH_DEL(table.nodes, node);
	}
	free(node);
}

static struct node *add_locked(struct node *parent, const char *name, const struct stat *st)
{
	size_t length = strlen(name);
	struct node *node = calloc(1, sizeof(*node) + length + 1);

	if (!node)
		return NULL;
	node->dev = st->st_dev;
	node->ino = st->st_ino;
	node->parent = parent;
	memcpy(node->name, name, length);
	HASH_ADD_KEYPTR(hh, table.nodes, &node->parent, key_size(name), node);
	if (!node->hh.tbl) {
		free(node);
		return NULL;
	}
	parent->children++;
	return node;
}

struct node *node_get(struct node *parent, const char *name, const struct stat *st)
{
	struct node *node;

	pthread_mutex_lock(&table.lock);
	node = find_locked(parent, name);
	if (node && !node_is(node, st)) {
		retire_locked(node);
		node = NULL;
	}
	if (!node)
		node = add_locked(parent, name, st);
	if (node)
		node->lookups++;
	pthread_mutex_unlock(&table.lock);
	return node;
}

void node_forget(struct node *node, uint64_t lookups)
{
	if (node == &root)
		return;
	pthread_mutex_lock(&table.lock);
	assert(node->lookups >= lookups);
	node->lookups -= lookups;
	while (node != &root && !node->lookups && !node->children) {
		struct node *parent = node->parent;

		remove_locked(node);
		assert(parent->children);
		parent->children--;
		node = parent;
	}
	pthread_mutex_unlock(&table.lock);
}

int node_is(const struct node *node, const struct stat *st)
{
	return node->dev == st->st_dev && node->ino == st->st_ino;
}

/* Writes from the end of the buffer to its front, since the walk goes upwards. */
static int path_locked(const struct node *node, char *path, size_t size)
{
	char *start = path + size;
	bool first = true;

	for (; node != &root; node = node->parent, first = false) {
		size_t length = strlen(node->name);

		if (node->stale)
			return -ESTALE;
		if ((size_t)(start - path) <= length)
			return -ENAMETOOLONG;
		*--start = first ? '\0' : '/';
		start -= length;
		memcpy(start, node->name, length);
	}
	memmove(path, start, (size_t)(path + size - start));
	return 0;
}

int node_path(const struct node *node, char *path, size_t size)
{
	int ret;

	assert(size >= 2);
	if (node == &root) {
		strcpy(path, ".");
		return 0;
	}
	pthread_mutex_lock(&table.lock);
	ret = path_locked(node, path, size);
	pthread_mutex_unlock(&table.lock);
	return ret;
}
