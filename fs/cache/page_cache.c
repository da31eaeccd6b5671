/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cache/page_cache.h"
#include "base/threads.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"

/* A queue and the thread that works on it. */
struct lane {
	struct page_cache *page_cache;
	struct thread thread;
	struct lock lock;
	struct cond changed;
	struct page_store *first, **end; /* lock */
	bool closing;			 /* lock */
};

struct page_cache {
	struct tree *tree;
	const struct page_cache_kernel *kernel;
	void *context;
	void (*dropped)(void *context, struct node *node);
	void *dropped_context;
	struct lane stores, drops;
};

static int store_one(struct page_cache *r, const struct page_store *store)
{
	int rc = r->kernel->store(r->context, store->node, store->data, store->size, store->offset);

	if (rc != -ENOENT)
		return rc;
	rc = r->kernel->introduce(r->context, store->node);
	return rc ? rc
		  : r->kernel->store(r->context, store->node, store->data, store->size,
				     store->offset);
}

/* A drop is a store without data. One that was overtaken by a store is none any more. */
static void do_one(struct page_cache *r, struct page_store *store, bool closing)
{
	struct node *node = store->node;
	int rc = -ESHUTDOWN;

	if (!store->done) {
		if (!closing && atomic_exchange(&node->pages.drop_wanted, false))
			(void)r->kernel->drop(r->context, node);
		free(store);
		r->dropped(r->dropped_context, node);
	} else {
		if (!closing)
			rc = store_one(r, store);
		if (rc && rc != -ESHUTDOWN)
			log_say(LOG_DETAILS, "storing %s: error %d", node->name, -rc);
		store->done(store, rc);
	}
	tree_release(r->tree, node);
}

static void serve(void *argument)
{
	struct lane *lane = argument;

	lock_acquire(&lane->lock);
	for (;;) {
		struct page_store *store = lane->first;
		bool closing = lane->closing;

		if (!store && closing)
			break;
		if (!store) {
			cond_wait(&lane->changed, &lane->lock);
			continue;
		}
		lane->first = store->next;
		if (!lane->first)
			lane->end = &lane->first;
		lock_release(&lane->lock);
		do_one(lane->page_cache, store, closing);
		lock_acquire(&lane->lock);
	}
	lock_release(&lane->lock);
}

/* False: the lane is closed. */
static bool queue(struct lane *lane, struct page_store *store)
{
	bool open;

	store->next = NULL;
	lock_acquire(&lane->lock);
	open = !lane->closing;
	if (open) {
		node_hold(store->node);
		*lane->end = store;
		lane->end = &store->next;
		cond_wake_one(&lane->changed);
	}
	lock_release(&lane->lock);
	return open;
}

void page_cache_keep(struct node *node)
{
	atomic_store(&node->pages.drop_wanted, false);
}

int page_cache_store_now(struct page_cache *r, struct page_store *store)
{
	page_cache_keep(store->node);
	return r->kernel->store(r->context, store->node, store->data, store->size, store->offset);
}

void page_cache_store(struct page_cache *r, struct page_store *store)
{
	page_cache_keep(store->node);
	if (!queue(&r->stores, store))
		store->done(store, -ESHUTDOWN);
}

int page_cache_drop(struct page_cache *r, struct node *node)
{
	struct page_store *drop;

	if (atomic_exchange(&node->pages.drop_wanted, true))
		return 0;
	drop = calloc(1, sizeof(*drop));
	if (!drop) {
		atomic_store(&node->pages.drop_wanted, false);
		return -ENOMEM;
	}
	drop->node = node;
	if (queue(&r->drops, drop))
		return 1;
	free(drop);
	atomic_store(&node->pages.drop_wanted, false);
	return -ESHUTDOWN;
}

static int lane_open(struct lane *lane, struct page_cache *r, const char *name)
{
	lane->page_cache = r;
	lane->end = &lane->first;
	lock_init(&lane->lock, LOCK_PAGE_CACHE);
	cond_init(&lane->changed);
	return thread_start(&lane->thread, name, serve, lane);
}

static void lane_stop(struct lane *lane)
{
	lock_acquire(&lane->lock);
	lane->closing = true;
	cond_wake_one(&lane->changed);
	lock_release(&lane->lock);
	thread_join(&lane->thread);
}

static void lane_close(struct lane *lane)
{
	lock_destroy(&lane->lock);
	cond_destroy(&lane->changed);
}

int page_cache_open(struct page_cache **out, struct tree *tree,
		    const struct page_cache_kernel *kernel, void *context,
		    void (*dropped)(void *context, struct node *node), void *dropped_context)
{
	struct page_cache *r = calloc(1, sizeof(*r));
	int rc;

	if (!r)
		return -ENOMEM;
	r->tree = tree;
	r->kernel = kernel;
	r->context = context;
	r->dropped = dropped;
	r->dropped_context = dropped_context;
	rc = lane_open(&r->stores, r, "shade-stores");
	if (!rc) {
		rc = lane_open(&r->drops, r, "shade-drops");
		if (rc) {
			lane_stop(&r->stores);
			lane_close(&r->stores);
		}
	}
	if (rc) {
		free(r);
		return rc;
	}
	*out = r;
	return 0;
}

void page_cache_stop(struct page_cache *r)
{
	lane_stop(&r->stores);
	lane_stop(&r->drops);
}

void page_cache_close(struct page_cache *r)
{
	lane_close(&r->stores);
	lane_close(&r->drops);
	free(r);
}
