/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A node has one drop at a time, in a state of its own:
 *
 *	state		event				next state
 *	-----		-----				----------
 *	NONE		a drop is asked for		QUEUED
 *	QUEUED		the pages are stored anew	KEPT
 *	KEPT		a drop is asked for		QUEUED
 *	QUEUED		its turn			RUNNING
 *	KEPT		its turn			NONE, done
 *	RUNNING		a drop is asked for		AGAIN
 *	AGAIN		the pages are stored anew	RUNNING
 *	RUNNING		the kernel has dropped them	NONE, done
 *	AGAIN		the kernel has dropped them	QUEUED, once more
 *
 * Pages that are stored while a drop is RUNNING may be lost; that counts as reclaimed when somebody
 * asks for them.
 */
#include "cache/page_cache.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/threads.h"

/* A drop may wait for the folios of a READ whose file hangs, and a name for a LOOKUP whose
 * directory hangs: the others go on. */
#ifndef DROP_THREADS
#define DROP_THREADS 4
#endif

/* A queue and the threads that work on it. */
struct lane {
	struct page_cache *page_cache;
	struct thread threads[DROP_THREADS];
	unsigned thread_count;
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
	struct lane stores;
	struct lane drops; /* its lock: node->pages.drop, too */
	struct lane names; /* its lock: node->pages.name_queued, too */
};

/* --- queues -------------------------------------------------------------------------------------
 */

static void append_locked(struct lane *lane, struct page_store *store)
{
	lock_assert_held(&lane->lock);
	store->next = NULL;
	*lane->end = store;
	lane->end = &store->next;
	cond_wake_one(&lane->changed);
}

/* Waits for the next. NULL: the lane is closed and empty. */
static struct page_store *take_locked(struct lane *lane)
{
	struct page_store *store;

	lock_assert_held(&lane->lock);
	while (!lane->first && !lane->closing)
		cond_wait(&lane->changed, &lane->lock);
	store = lane->first;
	if (store) {
		lane->first = store->next;
		if (!lane->first)
			lane->end = &lane->first;
	}
	return store;
}

/* --- stores -------------------------------------------------------------------------------------
 */

static int store_one(struct page_cache *r, const struct page_store *store)
{
	int rc;

	node_gives_pages(store->node);
	rc = r->kernel->store(r->context, store->node, store->data, store->size, store->offset);

	if (rc != -ENOENT)
		return rc;
	rc = r->kernel->introduce(r->context, store->node);
	return rc ? rc
		  : r->kernel->store(r->context, store->node, store->data, store->size,
				     store->offset);
}

/* When the lane closes, what is queued ends without the kernel. */
static void serve_stores(void *argument)
{
	struct lane *lane = argument;
	struct page_cache *r = lane->page_cache;
	struct page_store *store;

	lock_acquire(&lane->lock);
	while ((store = take_locked(lane))) {
		struct node *node = store->node;
		int rc = -ESHUTDOWN;
		bool closing = lane->closing;

		lock_release(&lane->lock);
		if (!closing)
			rc = store_one(r, store);
		if (rc && !closing)
			log_say(LOG_DETAILS, "storing %s: error %d", node->name, -rc);
		store->done(store, rc);
		tree_release(r->tree, node);
		lock_acquire(&lane->lock);
	}
	lock_release(&lane->lock);
}

int page_cache_store_now(struct page_cache *r, struct page_store *store)
{
	page_cache_keep(r, store->node);
	node_gives_pages(store->node);
	return r->kernel->store(r->context, store->node, store->data, store->size, store->offset);
}

void page_cache_store(struct page_cache *r, struct page_store *store)
{
	struct lane *lane = &r->stores;
	bool open;

	page_cache_keep(r, store->node);
	lock_acquire(&lane->lock);
	open = !lane->closing;
	if (open) {
		node_hold(store->node);
		append_locked(lane, store);
	}
	lock_release(&lane->lock);
	if (!open)
		store->done(store, -ESHUTDOWN);
}

/* --- drops: a drop is a store without data ------------------------------------------------------
 */

/* True: it is over, and `drop` is free. */
static bool end_drop_locked(struct page_cache *r, struct page_store *drop)
{
	struct node *node = drop->node;

	lock_assert_held(&r->drops.lock);
	if (node->pages.drop == DROP_AGAIN && !r->drops.closing) {
		node->pages.drop = DROP_QUEUED;
		append_locked(&r->drops, drop);
		return false;
	}
	node->pages.drop = DROP_NONE;
	return true;
}

/* Pages that come while the kernel drops others stay what they are. A directory's `there` has no
 * meaning. */
static void drop_one(struct page_cache *r, const struct page_store *drop)
{
	uint8_t leaving = PAGES_LEAVING;
	int rc;

	atomic_store(&drop->node->pages.there, leaving);
	rc = r->kernel->drop(r->context, drop->node);
	atomic_compare_exchange_strong(&drop->node->pages.there, &leaving, PAGES_NONE);
	if (rc == -ENOENT && drop->audits)
		tree_is_forgotten(r->tree, drop->node);
}

static void serve_drops(void *argument)
{
	struct lane *lane = argument;
	struct page_cache *r = lane->page_cache;
	struct page_store *drop;

	lock_acquire(&lane->lock);
	while ((drop = take_locked(lane))) {
		struct node *node = drop->node;
		bool wanted = node->pages.drop == DROP_QUEUED && !lane->closing, over;

		node->pages.drop = DROP_RUNNING;
		lock_release(&lane->lock);
		if (wanted)
			drop_one(r, drop);
		lock_acquire(&lane->lock);
		over = end_drop_locked(r, drop);
		lock_release(&lane->lock);
		if (over) {
			free(drop);
			r->dropped(r->dropped_context, node);
			tree_release(r->tree, node);
		}
		lock_acquire(&lane->lock);
	}
	lock_release(&lane->lock);
}

void page_cache_keep(struct page_cache *r, struct node *node)
{
	lock_acquire(&r->drops.lock);
	if (node->pages.drop == DROP_QUEUED)
		node->pages.drop = DROP_KEPT;
	else if (node->pages.drop == DROP_AGAIN)
		node->pages.drop = DROP_RUNNING;
	lock_release(&r->drops.lock);
}

static int begin_drop_locked(struct page_cache *r, struct node *node, bool audits)
{
	struct page_store *drop;

	lock_assert_held(&r->drops.lock);
	if (r->drops.closing)
		return -ESHUTDOWN;
	drop = calloc(1, sizeof(*drop));
	if (!drop)
		return -ENOMEM;
	drop->node = node;
	drop->audits = audits;
	node_hold(node);
	node->pages.drop = DROP_QUEUED;
	append_locked(&r->drops, drop);
	return 1;
}

int page_cache_drop(struct page_cache *r, struct node *node)
{
	int rc = 0;

	lock_acquire(&r->drops.lock);
	if (node->pages.drop == DROP_NONE)
		rc = begin_drop_locked(r, node, false);
	else if (node->pages.drop == DROP_KEPT)
		node->pages.drop = DROP_QUEUED;
	else if (node->pages.drop == DROP_RUNNING)
		node->pages.drop = DROP_AGAIN;
	lock_release(&r->drops.lock);
	return rc;
}

void page_cache_audit(struct page_cache *r, struct node *node)
{
	lock_acquire(&r->drops.lock);
	if (node->pages.drop == DROP_NONE)
		(void)begin_drop_locked(r, node, true);
	lock_release(&r->drops.lock);
}

int page_cache_probe(struct page_cache *r, struct node *node, uint64_t offset, struct probe *probe)
{
	return r->kernel->probe(r->context, node, offset, probe);
}

/* --- names: the invalidation of a name is a store without data, too -----------------------------
 */

static void serve_names(void *argument)
{
	struct lane *lane = argument;
	struct page_cache *r = lane->page_cache;
	struct page_store *name;

	lock_acquire(&lane->lock);
	while ((name = take_locked(lane))) {
		struct node *node = name->node;
		bool closing = lane->closing;

		node->pages.name = TELLING_NOW; /* what changes meanwhile is queued once more */
		lock_release(&lane->lock);
		if (!closing)
			(void)r->kernel->forget_name(r->context, node);
		free(name);
		lock_acquire(&lane->lock);
		if (node->pages.name == TELLING_NOW)
			node->pages.name = TELLING_NOTHING;
		lock_release(&lane->lock);
		tree_release(r->tree, node);
		lock_acquire(&lane->lock);
	}
	lock_release(&lane->lock);
}

void page_cache_forget_name(struct page_cache *r, struct node *node)
{
	struct lane *lane = &r->names;
	struct page_store *name;

	if (!node->parent)
		return;
	lock_acquire(&lane->lock);
	name = node->pages.name == TELLING_QUEUED || lane->closing ? NULL
								   : calloc(1, sizeof(*name));
	if (name) {
		name->node = node;
		node_hold(node);
		node->pages.name = TELLING_QUEUED;
		append_locked(lane, name);
	}
	lock_release(&lane->lock);
}

bool page_cache_take_owed(struct page_cache *r, struct node *node)
{
	bool is_owed;

	lock_acquire(&r->names.lock);
	is_owed = node->pages.name == TELLING_OWED;
	if (is_owed)
		node->pages.name = TELLING_NOTHING;
	lock_release(&r->names.lock);
	return is_owed;
}

/* --- begin and end ------------------------------------------------------------------------------
 */

static void lane_init(struct lane *lane, struct page_cache *r)
{
	lane->page_cache = r;
	lane->end = &lane->first;
	lock_init(&lane->lock, LOCK_PAGE_CACHE);
	cond_init(&lane->changed);
}

static int lane_start(struct lane *lane, const char *name, void (*serve)(void *lane),
		      unsigned threads)
{
	int rc = 0;

	while (!rc && lane->thread_count < threads) {
		rc = thread_start(&lane->threads[lane->thread_count], name, serve, lane);
		lane->thread_count += !rc;
	}
	return lane->thread_count ? 0 : rc;
}

static void lane_stop(struct lane *lane)
{
	lock_acquire(&lane->lock);
	lane->closing = true;
	cond_wake_all(&lane->changed);
	lock_release(&lane->lock);
	while (lane->thread_count)
		thread_join(&lane->threads[--lane->thread_count]);
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
	lane_init(&r->stores, r);
	lane_init(&r->drops, r);
	lane_init(&r->names, r);
	rc = lane_start(&r->stores, "shade-stores", serve_stores, 1);
	if (!rc)
		rc = lane_start(&r->drops, "shade-drops", serve_drops, DROP_THREADS);
	if (!rc)
		rc = lane_start(&r->names, "shade-entries", serve_names, DROP_THREADS);
	if (rc) {
		page_cache_stop(r);
		page_cache_close(r);
		return rc;
	}
	*out = r;
	return 0;
}

void page_cache_stop(struct page_cache *r)
{
	lane_stop(&r->stores);
	lane_stop(&r->drops);
	lane_stop(&r->names);
}

void page_cache_close(struct page_cache *r)
{
	lane_close(&r->stores);
	lane_close(&r->drops);
	lane_close(&r->names);
	free(r);
}
