/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A node: one version of one file, a directory, or a symbolic link.
 *
 * If the source has another version of a file, the name gets a new node, and the old one lives on
 * without a name for those who still have it open. So whatever is cached for a node is right for
 * ever. Nodes stay where they are in memory until they are forgotten: fuse/numbers.h makes the
 * inode number of the FUSE protocol from the address.
 *
 * Nodes are blocks of the estate, so they outlive the daemon: a successor finds them at the same
 * addresses, and heirs.c says what it makes of their fields. A node is kept when it gets its name,
 * before the kernel can hear of it.
 *
 * Fields belong to rooms: each says who changes it. There are millions of nodes, so
 * they are packed: with a name of 17 characters one takes 136 bytes, and 8 for the block's head.
 */
#ifndef SHADE_NODE_H
#define SHADE_NODE_H

#include <stdatomic.h>

#include "source/store.h"

#define SLOT_NONE UINT32_MAX

struct fetch;
struct range_file;

/* Directories: names/ alone, tree lock. */
struct node_dir {
	struct node *
		*children; /* sorted by name, and an index: tree_cursor.c; NULL: not read yet */
	uint64_t listed_ms : 48; /* `checked_ms` when the kernel last listed it */
	uint64_t left_out : 16;	 /* names that the source fails to tell of */
	uint32_t child_count;
	bool reading;	      /* tree->readings has it: it is to be read, or a thread does that */
	_Atomic bool is_torn; /* `attr` is being changed, and the kernel has not been told */
	_Atomic uint8_t closings; /* how often fewer may enter than before; written with the lock */
};

/* Files: cache/ alone, cache lock. */
struct node_cache {
	struct fetch *fetch; /* NULL: none is under way */
	union {
		uint64_t late_ms;	   /* when the source last missed the deadline; 0: never */
		struct range_file *ranges; /* of a file that is read by ranges; NULL: none */
	};
	uint32_t slot; /* the id in the policy core; SLOT_NONE: none (atomic access) */
	uint32_t opens : 23;
	uint32_t charges : 2; /* drops under way that count its pages as leaving */
	bool counted : 1;     /* observed: a READ counted as the access of an open not yet seen */
	bool early : 1;	      /* observed: a READ told of an open that was not yet seen */
	bool in_passing : 1;  /* the ring of passing files has an entry for it */
	bool is_meant : 1;    /* a client's table may name its slot */
	bool is_pinned : 1;   /* somebody has pinned its sample */
	bool young : 1;	      /* this version is too young to be kept */
	bool is_passing : 1;  /* the kernel has pages of it that the policy has not admitted */
};

/* page_cache.c has the table of transitions. */
enum drop_state {
	DROP_NONE,
	DROP_QUEUED,
	DROP_KEPT,
	DROP_RUNNING,
	DROP_AGAIN
} __attribute__((packed));

/* Whether its name is to be invalidated. */
enum telling {
	TELLING_NOTHING,
	TELLING_QUEUED, /* it waits for its turn */
	TELLING_NOW,	/* the kernel is being told */
	TELLING_OWED,	/* a daemon died before that; the successor has not queued it yet */
} __attribute__((packed));

/* What pages of it the kernel may have, for a successor. */
enum pages {
	PAGES_NONE,
	PAGES_STRAY,   /* some, perhaps of a version that was too young: they are to be dropped */
	PAGES_WHOLE,   /* all, unless it has reclaimed them: they may stay */
	PAGES_LEAVING, /* some, but none have come since a drop of them began */
};

/* What the kernel has, and has still to be told. */
struct node_pages {
	enum drop_state drop;  /* cache/ alone: lock of the page cache's drops */
	enum telling name;     /* cache/ alone: lock of the page cache's names */
	_Atomic uint8_t there; /* enum pages; cache/, and whoever answers READs */
};

struct node {
	struct node *parent; /* constant; NULL: the root */

	/* names/ */
	struct store_attr attr; /* files: constant; directories: tree lock */
	uint64_t checked_ms;	/* when the source was last asked; 0: long ago (atomic access) */
	/* Tree lock: how often the kernel was told of it; and, since fewer may enter this
	 * directory, how many of the lookups from before that may still be in use. */
	uint64_t lookups : 40;
	uint64_t closed_lookups : 24;
	struct node *next_released; /* release lock */
	_Atomic uint32_t holders;   /* opens, fetches and notifications that need it */
	_Atomic uint32_t released;  /* of these, how many tree_reap() is to take back */

	union {
		struct node_dir dir;
		struct node_cache cache;
	};
	struct node_pages pages;

	/* names/ */
	_Atomic bool stale; /* the source has another version */
	bool detached;	    /* tree lock: it has lost its name */
	uint8_t type;	    /* constant: that of `attr.mode`, without the zeros */
	char name[];	    /* constant */
};

void node_hold(struct node *node);

/* The path below the root; the caller frees it. NULL: no memory. Needs no lock: names and
 * parents of nodes never change. */
char *node_path(const struct node *node);

static inline bool attr_is_dir(const struct store_attr *attr)
{
	return (attr->mode & 0170000) == 0040000;
}

static inline bool node_is_dir(const struct node *node)
{
	return node->type == 0040000 >> 12;
}

/* The kernel must not use what it was told of a directory with another number than this. */
static inline uint8_t node_closings(const struct node *node)
{
	return node_is_dir(node) ? atomic_load(&node->dir.closings) : 0;
}

static inline bool node_is_file(const struct node *node)
{
	return node->type == 0100000 >> 12;
}

/* The kernel is about to get bytes of the file. */
static inline void node_gives_pages(struct node *node)
{
	if (atomic_load(&node->pages.there) != PAGES_WHOLE)
		atomic_store(&node->pages.there, PAGES_STRAY);
}

static inline uint64_t node_checked_ms(const struct node *node)
{
	return __atomic_load_n(&node->checked_ms, __ATOMIC_RELAXED);
}

static inline void node_set_checked_ms(struct node *node, uint64_t ms)
{
	__atomic_store_n(&node->checked_ms, ms, __ATOMIC_RELAXED);
}

/* For callers without the cache's lock: a file may lose its slot at any moment. */
static inline uint32_t node_slot(const struct node *node)
{
	return node_is_file(node) ? __atomic_load_n(&node->cache.slot, __ATOMIC_RELAXED)
				  : SLOT_NONE;
}

#endif
