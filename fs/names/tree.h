/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The namespace in RAM: what the source has, as nodes.
 *
 * A directory is read completely when it is first used, and again when it is older than
 * `staleness` and has changed. A node stands for one version of one file: if the source has
 * another, the name gets a new node, and the old one lives on without a name for those
 * who still have it open. So whatever is cached for a node is right for ever.
 *
 * One lock, of the tree's own, guards all of this; it is never held while the source is asked,
 * so a source that hangs keeps only those who need what hangs. Nodes stay where they are in memory
 * until they are forgotten, so their address is the inode number of the FUSE protocol.
 */
#ifndef SHADE_TREE_H
#define SHADE_TREE_H

#include <stdatomic.h>

#include "source/store.h"

#define SLOT_NONE UINT32_MAX
#define TREE_TAKEN ".shade" /* a name at the top that is not the source's to give */

struct tree;
struct fetch;
struct manifest;

/* There are millions of them: for 20 characters of a name, 151 bytes, as much as malloc() can put
 * into 160. */
struct node {
	struct node *parent;	/* NULL: the root */
	struct node **children; /* directories: sorted by name; NULL: not read yet */
	union {
		uint32_t child_count; /* directories; tree lock */
		uint32_t opens;	      /* files; cache lock */
	};
	uint32_t slot; /* files, cache lock: the id in the policy core; SLOT_NONE: none */
	struct store_attr attr;
	uint64_t checked_ms; /* when the source was last asked; 0: long ago (atomic access) */
	union {
		uint64_t listed_ms; /* directories: `checked_ms` when the kernel last listed it */
		uint64_t late_ms;   /* files, cache lock: when the source last did not answer */
	};
	uint64_t lookups;	    /* how often the kernel was told of it; tree lock */
	_Atomic uint32_t holders;   /* who else needs it: opens, fetches, notifications */
	_Atomic uint32_t released;  /* holds that wait for tree_reap() */
	struct node *next_released; /* release lock */
	struct fetch *fetch;	    /* cache lock: see cache.c */
	uint16_t type;		    /* that of `attr.mode`; constant, so it needs no lock */
	int16_t read_rc;	    /* directories: what came of reading it; tree lock */
	bool detached;		    /* has lost its name; tree lock */
	bool reading;		    /* directories: somebody reads it; tree lock */
	_Atomic bool stale;	    /* the source has another version */
	_Atomic bool drop_wanted;   /* residency is to drop its pages */
	_Atomic bool entry_changed; /* directories: other permissions; residency is to tell */

	/* Cache lock. */
	bool counted : 1;    /* a READ was an access before its open was seen */
	bool early : 1;	     /* a READ has told of an open before it was seen */
	bool in_passing : 1; /* in the ring of what passes through */
	bool passing : 1;    /* has pages in the kernel that nobody admitted */

	char name[];
};

/* What the tree tells as files come and go. Called with the tree's lock held. */
struct tree_events {
	void (*file_added)(void *context, struct node *node);
	void (*file_replaced)(void *context, struct node *old, struct node *fresh);
	void (*file_removed)(void *context, struct node *node);
	/* A directory that was known has other names, or other versions behind them. */
	void (*dir_changed)(void *context, struct node *dir);
};

int tree_open(struct tree **out, struct store *store, uint64_t staleness_ms,
	      const struct tree_events *events, void *context);
void tree_close(struct tree *tree);
struct node *tree_root(struct tree *tree);

/* Whether a directory's children are known and not too old: the source need not be asked. */
bool tree_is_current(struct tree *tree, const struct node *dir, uint64_t now_ms);

/* Finds a name; on success the kernel's count of lookups is one more. `now_ms` decides
 * whether the directory is looked at again; who may not wait gets what is known. */
int tree_lookup(struct tree *tree, struct node *parent, const char *name, uint64_t now_ms,
		bool may_wait, struct node **out, unsigned *turn);
/* The kernel forgets `count` lookups. True: it does not know the node any more, which may
 * be gone from memory, too. `last` is called before that, with the tree's lock held. */
void tree_forget(struct tree *tree, struct node *node, uint64_t count,
		 void (*last)(void *context, struct node *node), void *context);

/* Those of a file never change; those of a directory do when it is read again. */
void tree_get_attr(struct tree *tree, const struct node *node, struct store_attr *attr);

/* Whether there are names that were not there, or directories with other permissions, since the
 * last call: who remembers the contrary should be told. */
bool tree_has_news(struct tree *tree);
/* How many nodes have lost their names and are still known to the kernel. */
uint64_t tree_ghosts(struct tree *tree);

/* A place in a listing: after a child. It holds if the directory is read again meanwhile, and
 * others come or go: nobody is left out or told twice. Below 2^63 - 3. */
#define TREE_BEGIN UINT64_MAX
uint64_t tree_place_after(const struct node *child, uint32_t index);

/* The kernel is about to list a directory. True: what it remembers of it still holds. */
bool tree_begin_listing(struct tree *tree, struct node *dir, uint64_t now_ms);
/* Reads a directory if need be, and calls `entry` for its children, from TREE_BEGIN or a place
 * after a child on, until that returns false. With `counts`, each child that `entry` took counts as
 * a lookup. */
int tree_children(struct tree *tree, struct node *dir, uint64_t from, uint64_t now_ms,
		  bool may_wait, bool counts,
		  bool (*entry)(void *context, struct node *child, uint32_t index), void *context,
		  unsigned *turn);
/* Whoever got a `turn` from these says when the kernel has the answer: what the kernel is told of a
 * name later must not be overtaken by an older answer. tree_children() takes NULL. */
void tree_replied(struct tree *tree, unsigned turn);
/* Until all answers have arrived that were begun before. By one thread at a time. */
void tree_wait_for_replies(struct tree *tree);

/* Finds a node by its path below the root, without the kernel's knowing. Held. */
int tree_find(struct tree *tree, const char *path, uint64_t now_ms, struct node **out);

void node_hold(struct node *node);
/* Takes back a hold, without waiting for the tree's lock: tree_reap() does the rest. */
void tree_release(struct tree *tree, struct node *node);
/* Frees what was released and is not needed any more. Call it now and then. */
void tree_reap(struct tree *tree);

/* The source seems to have another version than this node: its directory is read again at the
 * next lookup. */
void tree_mark_stale(struct tree *tree, struct node *node);
/* Whether that happened since the last call. */
bool tree_is_doubted(struct tree *tree);

/* Directories whose version is in the manifest are taken from there instead of being read,
 * the first time that they are used. The tree holds it. NULL: no more. */
void tree_set_manifest(struct tree *tree, struct manifest *manifest);

/* For tree_visit(): a directory that is known, when the source was asked about it, and, if that
 * returns true, each of its children. Called with the tree's lock held. */
struct tree_visitor {
	bool (*dir)(void *context, const char *path, const struct store_attr *attr,
		    uint64_t checked_ms);
	void (*entry)(void *context, const char *name, const struct store_attr *attr);
};

/* Shows all directories as they are known, without asking the source; parents first, then sorted
 * by name. Directories of which something is known to have changed are left out. */
int tree_visit(struct tree *tree, const struct tree_visitor *visitor, void *context,
	       const _Atomic bool *stop);

/* Reads all known directories again that were last read more than `age_ms` ago; 0: all. Nobody
 * waits for it who would not wait anyway. `stop` ends it early. */
int tree_refresh(struct tree *tree, uint64_t now_ms, uint64_t age_ms, const _Atomic bool *stop);

/* The path below the root; the caller frees it. NULL: no memory. Needs no lock: names and
 * parents of nodes never change. */
char *node_path(const struct node *node);

static inline bool attr_is_dir(const struct store_attr *attr)
{
	return (attr->mode & 0170000) == 0040000;
}

static inline uint64_t node_checked_ms(const struct node *node)
{
	return __atomic_load_n(&node->checked_ms, __ATOMIC_RELAXED);
}

/* For who has not the cache's lock: it may lose its slot at any moment. */
static inline uint32_t node_slot(const struct node *node)
{
	return __atomic_load_n(&node->slot, __ATOMIC_RELAXED);
}

static inline bool node_is_dir(const struct node *node)
{
	return node->type == 0040000;
}

static inline bool node_is_file(const struct node *node)
{
	return node->type == 0100000;
}

static inline bool node_is_link(const struct node *node)
{
	return node->type == 0120000;
}

#endif
