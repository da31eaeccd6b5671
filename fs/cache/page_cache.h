/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The kernel's page cache: whole samples are put into it and dropped from it, by threads that no
 * request waits for. Storing and dropping wait for folio locks that a READ in flight holds, so the
 * thread that answers READs must do neither.
 *
 * Stores and drops have threads of their own. A drop may wait for a READ that waits for a fetch
 * that waits for a buffer, and buffers are given back by stores: in one queue they would wait for
 * each other for ever. Storing a sample takes back a drop of it that has not begun; page_cache.c
 * has the states of a drop.
 *
 * Names have threads of their own, too. To invalidate a name waits for the kernel's lock of its
 * directory, which a LOOKUP has that waits for the source: pages are dropped all the same.
 */
#ifndef SHADE_PAGE_CACHE_H
#define SHADE_PAGE_CACHE_H

#include "names/tree.h"

struct page_cache;
struct probe;

/* How to reach the kernel: the front end's. Each returns 0 or a negative errno, -ENOENT if
 * the kernel does not know the node. */
struct page_cache_kernel {
	int (*store)(void *context, struct node *node, const void *data, size_t size,
		     uint64_t offset);
	int (*drop)(void *context, struct node *node);
	/* Asks whether the kernel has this byte of the file; the answer goes to cache_probed(). */
	int (*probe)(void *context, struct node *node, uint64_t offset, struct probe *probe);
	/* The kernel is to look the name of the node up again. */
	int (*forget_name)(void *context, struct node *node);
	/* Makes the kernel look the node up. */
	int (*introduce)(void *context, struct node *node);
};

/* `dropped` is called for each drop that was queued, when it is done. */
int page_cache_open(struct page_cache **out, struct tree *tree,
		    const struct page_cache_kernel *kernel, void *context,
		    void (*dropped)(void *context, struct node *node), void *dropped_context);
/* Does what is queued, without the kernel, and ends its threads. What is asked for after that is
 * refused: requests still come, and let go of what they had. */
void page_cache_stop(struct page_cache *page_cache);
void page_cache_close(struct page_cache *page_cache);

/* One store: `done` is called once, from the page cache's thread. The node is held until
 * then. */
struct page_store {
	struct node *node;
	const void *data;
	size_t size;
	uint64_t offset; /* in the file, of the first byte of data */
	void (*done)(struct page_store *store, int rc);
	void *context; /* the caller's */
	bool audits;   /* the page cache's own */
	struct page_store *next;
};

void page_cache_store(struct page_cache *page_cache, struct page_store *store);
/* The same at once, by the caller, whom no READ of this node may wait for; `done` is not
 * called. 0, or a negative errno: -ENOENT if the kernel does not know the node. */
int page_cache_store_now(struct page_cache *page_cache, struct page_store *store);
/* The kernel has got the bytes in another way: takes back a drop, like a store. */
void page_cache_keep(struct page_cache *page_cache, struct node *node);
/* 0, and an answer will come; or a negative errno. */
int page_cache_probe(struct page_cache *page_cache, struct node *node, uint64_t offset,
		     struct probe *probe);
/* 1: queued, and `dropped` will be called; 0: it was already; or -ENOMEM or -ESHUTDOWN, and then
 * the node keeps its pages until the kernel reclaims them. */
int page_cache_drop(struct page_cache *page_cache, struct node *node);
/* The same for a successor, and for a node without a name: if the kernel does not know it, whatever
 * lookups were counted, it is freed. */
void page_cache_audit(struct page_cache *page_cache, struct node *node);
/* Has the kernel look up the name of a node again; the root has none. Without memory, or at the
 * end, the kernel keeps the name until it times out. */
void page_cache_forget_name(struct page_cache *page_cache, struct node *node);
/* Whether a dead daemon owed the kernel that; from now on nobody does. */
bool page_cache_take_owed(struct page_cache *page_cache, struct node *node);

#endif
