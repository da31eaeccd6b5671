/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The inside of the tree, for tree.c (names) and tree_walk.c (all of it). */
#ifndef SHADE_TREE_INTERNAL_H
#define SHADE_TREE_INTERNAL_H

#include <pthread.h>

#include "tree.h"

struct tree {
	struct store *store;
	uint64_t staleness_ms;
	const struct tree_events *events;
	void *context;
	struct node *root;
	struct manifest *manifest; /* lock; held; NULL: none */
	pthread_mutex_t lock;	   /* children, names, lookups, detached, life and death of nodes */
	pthread_cond_t read;	   /* lock: a directory has been read */
	pthread_mutex_t release_lock; /* a leaf: held for a moment */
	struct node *released;	      /* release_lock */
	_Atomic bool doubted;	      /* a node was marked stale */
	_Atomic bool news;	      /* names have come, or permissions have changed */
	uint64_t ghosts;	      /* lock: nodes without a name that the kernel knows */
	unsigned phase;		      /* lock: 0 or 1 */
	_Atomic unsigned replying[2]; /* answers on their way, by the phase they began in */
};

/* Reads a directory. The lock is given up meanwhile, so that a source that hangs here keeps
 * only those who need this directory; a second reader waits for the first. */
int tree_read_dir_locked(struct tree *tree, struct node *dir, uint64_t now_ms);

#endif
