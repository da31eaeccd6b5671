/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The inside of the tree, for node.c, tree.c (finding names), tree_read.c (directories),
 * tree_wait.c (who reads them, and who waits for that), tree_cursor.c (positions in listings) and
 * tree_walk.c (all directories). */
#ifndef SHADE_TREE_INTERNAL_H
#define SHADE_TREE_INTERNAL_H

#include "base/estate.h"
#include "base/threads.h"
#include "names/tree.h"

#define GONE_MAX 4096

/* A name that was removed. */
struct gone {
	const struct node *dir; /* only to be compared */
	uint32_t tag;
	char *name;
};

/* tree_wait.c has the table of transitions. */
enum reading_state { READING_QUEUED, READING_RUNNING, READING_OVER };

/* A directory that is to be read, or is being read. */
struct reading {
	struct keyed keyed;	/* in tree->reading_of */
	struct node *dir;	/* held */
	bool attr_only;		/* its children are not wanted, */
	struct store_attr attr; /* but this is, when it is over */
	enum reading_state state;
	uint64_t began_ms;
	_Atomic uint64_t progress_ms; /* when the source last answered */
	bool told;		      /* the log has been told that it is late */
	int rc;			      /* OVER: what came of it */
	unsigned users;		      /* the tree until it is over, and threads that wait */
	struct tree_wait *waits;
	struct reading *next, **before;
};

struct tree {
	struct store *store;
	struct tree_options options;
	struct estate *estate;
	struct node *root;
	struct manifest *manifest; /* lock; held; NULL: none */
	bool closes;		   /* lock: see tree_set_closing() */
	struct lock lock;	   /* children, names, lookups, detached, life and death of nodes */
	struct cond read;	   /* lock: a reading is over, or the tree stops */
	struct cond wanted;	   /* lock: a reading is queued, or the tree stops */
	struct reading *readings; /* lock: that are not over, the oldest first; their fields, too */
	struct reading **readings_end; /* lock */
	unsigned queued;	       /* lock: readings that no reader has begun */
	struct keyed_table reading_of; /* lock: readings by directory */
	struct keyed_table waits;      /* lock: the requests that wait for them */
	struct thread *readers;	       /* of options.readers */
	unsigned reader_count;	       /* lock */
	unsigned idle;		       /* lock: readers without a reading */
	unsigned answering;	       /* lock: readers that answer those who waited */
	bool stopping;		       /* lock */
	struct lock replies_lock;      /* held by the one that waits for replies */
	struct lock release_lock;      /* a leaf: held for a moment */
	struct node *released;	       /* release_lock */
	_Atomic bool doubted;	       /* a node was marked stale */
	_Atomic bool *news; /* in the estate: names have come, or permissions have changed */
	uint64_t orphans;   /* lock: nodes without a name that the kernel knows, and closed */
	uint64_t left_out;  /* lock: the sum of the directories' */
	unsigned phase;	    /* lock: 0 or 1 */
	_Atomic unsigned replying[2]; /* answers on their way, by the phase they began in */
	struct gone *gone;	      /* lock: a ring of GONE_MAX, made when it is needed */
	uint32_t gone_next;	      /* lock */
};

/* --- node.c */

/* Holds its parent. NULL: no memory. It has no name yet: estate_keep() gives it one. */
struct node *node_new(struct tree *tree, struct node *parent, const char *name,
		      const struct store_attr *attr, uint64_t now_ms);
/* Only this node; nobody may know it any more. */
void node_free(struct tree *tree, struct node *node);
/* The same for one that never got its name. */
void node_discard(struct tree *tree, struct node *node);
/* Frees nodes that have no name and that nobody knows, up to the root. */
void node_free_if_unused_locked(struct tree *tree, struct node *node);
void node_lose_name_locked(struct tree *tree, struct node *node);
/* A node loses its name, and with a directory all below; the cache is told. */
void node_detach_locked(struct tree *tree, struct node *node);

/* Fewer may enter a directory than before: see tree_set_closing(). */
void node_close_locked(struct tree *tree, struct node *dir);
/* The kernel has forgotten some lookups. */
void node_forget_locked(struct tree *tree, struct node *node, uint64_t count);

/* --- tree_read.c */

/* Reads a directory, for a reader's thread. The lock is released meanwhile. */
int tree_read_dir_locked(struct tree *tree, struct reading *reading);

void tree_set_left_out_locked(struct tree *tree, struct node *dir, uint32_t count);

/* Where a name is among the children, or would be. */
uint32_t tree_number_of(const struct node *dir, const char *name);
/* NULL: there is none. */
struct node *tree_find_child(const struct node *dir, const char *name);
/* Whether the source was asked about a directory longer ago than that. */
bool tree_is_older(const struct node *dir, uint64_t now_ms, uint64_t age_ms);

/* For qsort() of pointers to nodes. */
int tree_by_name(const void *a, const void *b);

/* --- heirs.c */

/* A successor begins: makes the tree from what there is in the estate. 0 or -ENOMEM. */
int tree_inherit(struct tree *tree);

/* --- tree_wait.c */

/* 0: what is known of the directory is the answer; -EAGAIN: it has to be read; or another negative
 * errno. Without `fresh` it need not be read. */
int tree_check_dir_locked(const struct tree *tree, const struct node *dir, uint64_t now_ms,
			  bool fresh);
int tree_await_here_locked(struct tree *tree, struct node *dir, uint64_t now_ms);
/* Has a directory read, however old it is, and waits for that, but no longer than until it is late
 * or was begun `patience_ms` ago. 0 or a negative errno. */
int tree_read_again_locked(struct tree *tree, struct node *dir, uint64_t now_ms,
			   uint64_t patience_ms);

/* --- tree_cursor.c */

/* How much memory an array of children needs, with the index that may follow them. */
size_t tree_children_bytes(uint32_t count);
/* Makes the index of an array of that size, whose children are sorted by name. Which node has a
 * name may change after that, but not the names. 0 or -ENOMEM. */
int tree_index_children(struct node **children, uint32_t count);
/* The number of the first child after a cursor. */
uint32_t tree_find_cursor_locked(struct tree *tree, const struct node *dir, uint64_t cursor);
/* A cursor may point after a name that is no more. */
void tree_remember_name_locked(struct tree *tree, const struct node *node);
void tree_forget_names(struct tree *tree);

#endif
