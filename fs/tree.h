/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The namespace in RAM: what the source has, as nodes.
 *
 * A directory is read completely when it is first used, and again when it is older than
 * `staleness` and has changed. A node stands for one version of one file: if the source has
 * another, the name gets a new node, and the old one lives on without a name for those
 * who still have it open. So whatever is cached for a node is right for ever.
 *
 * One lock, of the tree's own, guards all of this; it is held while a directory is read, so
 * nothing that a hit needs may wait for it. Nodes stay where they are in memory until they
 * are forgotten, so their address is the inode number of the FUSE protocol.
 */
#ifndef SHADE_TREE_H
#define SHADE_TREE_H

#include <stdatomic.h>

#include "store.h"

#define SLOT_NONE UINT32_MAX

struct tree;
struct flight;

struct node {
	struct node *parent;	/* NULL: the root */
	struct node **children; /* directories: sorted by name; NULL: not read yet */
	uint32_t child_count;
	uint32_t slot; /* files: the id in the policy core; SLOT_NONE: none */
	struct store_attr attr;
	uint64_t checked_ms;	    /* when the source was last asked (atomic access) */
	uint64_t listed_ms;	    /* directories: `checked_ms` when the kernel last listed it */
	uint64_t lookups;	    /* how often the kernel was told of it; tree lock */
	_Atomic uint32_t holders;   /* who else needs it: opens, flights, notifications */
	_Atomic uint32_t released;  /* holds that wait for tree_reap() */
	struct node *next_released; /* release lock */
	bool detached;		    /* has lost its name; tree lock */
	_Atomic bool stale;	    /* the source has another version */
	_Atomic bool drop_wanted;   /* residency is to drop its pages */

	struct flight *flight; /* cache lock: see cache.c */
	uint32_t opens;	       /* cache lock */
	bool dirty;	       /* cache lock: has pages in the kernel that nobody admitted */

	char name[];
};

/* What the tree tells as files come and go. Called with the tree's lock held. */
struct tree_events {
	/* A new name: returns the slot. A new version of a known name keeps its slot. */
	uint32_t (*file_added)(void *context, struct node *node);
	void (*file_replaced)(void *context, struct node *old, struct node *fresh);
	void (*file_removed)(void *context, struct node *node);
};

int tree_open(struct tree **out, struct store *store, uint64_t staleness_ms,
	      const struct tree_events *events, void *context);
void tree_close(struct tree *tree);
struct node *tree_root(struct tree *tree);

/* Finds a name; on success the kernel's count of lookups is one more. `now_ms` decides
 * whether the directory is looked at again. */
int tree_lookup(struct tree *tree, struct node *parent, const char *name, uint64_t now_ms,
		struct node **out);
/* The kernel forgets `count` lookups. True: it does not know the node any more, which may
 * be gone from memory, too. `last` is called before that, with the tree's lock held. */
void tree_forget(struct tree *tree, struct node *node, uint64_t count,
		 void (*last)(void *context, struct node *node), void *context);

/* Reads a directory if need be, and calls `entry` for its children from number `from` on,
 * until that returns false. With `counts`, each child that `entry` took counts as a
 * lookup. */
int tree_children(struct tree *tree, struct node *dir, uint32_t from, uint64_t now_ms, bool counts,
		  bool (*entry)(void *context, struct node *child, uint32_t index), void *context);

/* Finds a node by its path below the root, without the kernel's knowing. Held. */
int tree_find(struct tree *tree, const char *path, uint64_t now_ms, struct node **out);

void node_hold(struct node *node);
/* Takes back a hold, without waiting for the tree's lock: tree_reap() does the rest. */
void tree_release(struct tree *tree, struct node *node);
/* Frees what was released and is not needed any more. Call it now and then. */
void tree_reap(struct tree *tree);

/* The source has another version than this node: it loses its name, and the next lookup
 * finds the new one. */
void tree_mark_stale(struct tree *tree, struct node *node);

/* The path below the root; the caller frees it. NULL: no memory. Needs no lock: names and
 * parents of nodes never change. */
char *node_path(const struct node *node);

static inline bool node_is_dir(const struct node *node)
{
	return (node->attr.mode & 0170000) == 0040000;
}

static inline bool node_is_file(const struct node *node)
{
	return (node->attr.mode & 0170000) == 0100000;
}

static inline bool node_is_link(const struct node *node)
{
	return (node->attr.mode & 0170000) == 0120000;
}

#endif
