/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Files that are too large to be fetched whole: each READ is a read of the source.
 *
 * Ranges leave half of the store and two thirds of the budget to whole files, so that neither can
 * starve the other, and one large file that hangs leaves room for the next. What does not fit
 * waits.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/threads.h"
#include "cache/internal.h"

#define OF_ONE_FILE 8 /* reads at a time */

struct range {
	struct range *next,
		**before; /* cache lock: in cache->ranges.started or in cache->ranges.waiting */
	struct cache *cache;
	struct node *node;     /* held */
	struct waiter *waiter; /* cache lock; NULL: it has its answer */
	bool late;	       /* cache lock: the store was asked to give it up */
	bool spare;	       /* it began in the spare third of the budget */
	uint64_t deadline_ms;
	struct store_read read;
	struct store_attr expected;
	char *path;
	struct range *next_start; /* between range_pick_locked() and range_submit_all() */
};

static void link_locked(struct range **list, struct range *range)
{
	lock_assert_held(&range->cache->lock);
	while (*list)
		list = &(*list)->next;
	range->next = NULL;
	range->before = list;
	*list = range;
}

static void unlink_locked(struct range *range)
{
	lock_assert_held(&range->cache->lock);
	*range->before = range->next;
	if (range->next)
		range->next->before = range->before;
}

static void leave_locked(struct range *range, int rc, uint64_t now_ms)
{
	struct cache *cache = range->cache;

	lock_assert_held(&range->cache->lock);
	unlink_locked(range);
	cache->ranges.running--;
	cache->ranges.bytes -= range->read.size;
	budget_free_buffer(&cache->budget, range->read.size);
	cache->budget.spare_running -= range->spare;
	cache->stats.backend_reads++;
	cache->stats.backend_bytes += range->read.got;
	cache->stats.fetch_errors += rc != 0;
	if (rc == -ESTALE)
		tree_mark_stale(cache->tree, range->node);
	if (!rc)
		passing_add_locked(cache, range->node, now_ms);
}

static struct waiter *take_waiter_locked(struct range *range)
{
	struct waiter *waiter = range->waiter;

	lock_assert_held(&range->cache->lock);
	range->waiter = NULL;
	if (waiter)
		waiter->next = NULL;
	return waiter;
}

/* In no list. */
static void discard(struct range *range)
{
	tree_release(range->cache->tree, range->node);
	free(range->read.buffer);
	free(range->path);
	free(range);
}

static void range_done(struct store_read *read, int rc)
{
	struct range *range = read->context;
	struct cache *cache = range->cache;
	struct waiter *waiter;

	lock_acquire(&cache->lock);
	waiter = take_waiter_locked(range);
	lock_release(&cache->lock);
	if (waiter)
		waiter->answer(waiter, rc, read->buffer, rc ? 0 : read->got);
	lock_acquire(&cache->lock);
	leave_locked(range, rc, clock_now_ms());
	lock_release(&cache->lock);
	discard(range);
	start_landed(cache, rc == -ENOMEM);
}

static struct range *range_new(struct cache *cache, struct node *node, struct waiter *waiter,
			       uint64_t now_ms)
{
	uint64_t left = waiter->offset < node->attr.size ? node->attr.size - waiter->offset : 0;
	struct range *range = calloc(1, sizeof(*range));
	char *path = node_path(node);

	if (!range || !path) {
		free(range);
		free(path);
		return NULL;
	}
	*range = (struct range){ .cache = cache,
				 .node = node,
				 .waiter = waiter,
				 .deadline_ms = now_ms + cache->options.deadline_ms,
				 .expected = node->attr,
				 .path = path };
	range->read = (struct store_read){ .path = path,
					   .expected = &range->expected,
					   .offset = waiter->offset,
					   .size = waiter->size < left ? waiter->size : left,
					   .done = range_done,
					   .context = range };
	node_hold(node);
	return range;
}

/* What the store has of one file, or of all. */
struct share {
	unsigned count;
	uint64_t bytes;
	bool late; /* it was asked to give one up, which is not counted */
};

/* NULL: of all files. */
static struct share share_of_locked(const struct cache *cache, const struct node *node)
{
	struct share share = { 0 };

	lock_assert_held(&cache->lock);
	for (const struct range *range = cache->ranges.started; range; range = range->next)
		if (node && range->node != node) {
			continue;
		} else if (range->late) {
			share.late = true;
		} else {
			share.count++;
			share.bytes += range->read.size;
		}
	return share;
}

/* Ranges leave half of the store and two thirds of the budget to whole files, and one file leaves
 * half of that to others. What the store was asked to give up does not count: it may never end. One
 * range is always possible, however large the READ is. */
static bool is_within_share_locked(struct cache *cache, const struct range *range)
{
	const struct budget *budget = &cache->budget;
	uint64_t size = range->read.size;
	struct share own = share_of_locked(cache, range->node);
	struct share all = share_of_locked(cache, NULL);

	lock_assert_held(&cache->lock);
	if (!all.count)
		return true;
	if (all.count >= budget->depth / 2 || all.bytes + size > budget->limit_bytes / 3)
		return false;
	return !own.count || (own.count < OF_ONE_FILE && own.count < budget->depth / 4 &&
			      own.bytes + size <= budget->limit_bytes / 6);
}

static bool may_start_locked(struct cache *cache, struct range *range, uint64_t now_ms)
{
	struct need need = { .bytes = range->read.size };

	lock_assert_held(&cache->lock);
	if (!is_within_share_locked(cache, range))
		return false;
	if (start_has_room_locked(cache, need, now_ms))
		return true;
	range->spare = start_use_spare_locked(cache, need, now_ms);
	/* A READ may be larger than all that a tiny `inflight` allows. */
	return range->spare ||
	       (!budget_used(&cache->budget) && cache->budget.running < cache->budget.depth);
}

static void start_locked(struct range *range, uint64_t now_ms)
{
	struct cache *cache = range->cache;

	lock_assert_held(&cache->lock);
	unlink_locked(range);
	link_locked(&cache->ranges.started, range);
	range->deadline_ms = now_ms + cache->options.deadline_ms;
	cache->ranges.running++;
	cache->ranges.bytes += range->read.size;
	budget_start(&cache->budget, range->read.size, now_ms);
}

struct range *range_pick_locked(struct cache *cache, uint64_t now_ms)
{
	struct range *first = NULL, **end = &first;

	lock_assert_held(&cache->lock);
	for (struct range *next, *range = cache->ranges.waiting; range; range = next) {
		next = range->next;
		if (!may_start_locked(cache, range, now_ms))
			continue;
		start_locked(range, now_ms);
		range->next_start = NULL;
		*end = range;
		end = &range->next_start;
	}
	return first;
}

void range_submit_all(struct range *ranges)
{
	for (struct range *next, *range = ranges; range; range = next) {
		next = range->next_start;
		range->read.buffer = store_buffer(range->read.size);
		if (range->read.buffer)
			store_read(range->cache->store, &range->read);
		else
			range_done(&range->read, -ENOMEM);
	}
}

/* What was given up and has not ended would not fare better a second time. */
static int enter_locked(struct range *range)
{
	struct cache *cache = range->cache;

	lock_assert_held(&cache->lock);
	if (cache->stopping)
		return -ESHUTDOWN;
	if (share_of_locked(cache, range->node).late)
		return -ETIMEDOUT;
	link_locked(&cache->ranges.waiting, range);
	return 0;
}

void range_read(struct cache *cache, struct node *node, struct waiter *waiter, uint64_t now_ms)
{
	struct range *range = range_new(cache, node, waiter, now_ms);
	struct starts starts = { 0 };
	int rc = -ENOMEM;

	if (range) {
		lock_acquire(&cache->lock);
		rc = enter_locked(range);
		if (!rc)
			starts = start_pick_locked(cache, now_ms);
		lock_release(&cache->lock);
	}
	start_submit(cache, starts);
	if (!rc)
		return;
	waiter->answer(waiter, rc, NULL, 0);
	if (range)
		discard(range);
}

/* Its reader may have been interrupted, and then nobody waits. */
static struct waiter *give_up_locked(struct range *range, struct waiter *waiters)
{
	lock_assert_held(&range->cache->lock);
	range->late = true;
	store_cancel(range->cache->store, &range->read);
	return waiter_join(take_waiter_locked(range), waiters);
}

/* What waits for its turn is late only while nothing moves. */
struct waiter *range_take_late_locked(struct cache *cache, uint64_t now_ms)
{
	bool stuck = cache->budget.started_ms + cache->options.deadline_ms <= now_ms;
	struct waiter *waiters = NULL;

	lock_assert_held(&cache->lock);
	for (struct range *range = cache->ranges.started; range; range = range->next)
		if (range->deadline_ms <= now_ms && !range->late)
			waiters = give_up_locked(range, waiters);
	for (struct range *next, *range = cache->ranges.waiting; range && stuck; range = next) {
		next = range->next;
		if (range->deadline_ms > now_ms)
			continue;
		waiters = waiter_join(take_waiter_locked(range), waiters);
		unlink_locked(range);
		discard(range);
	}
	return waiters;
}

struct waiter *range_take_waiter_locked(struct cache *cache, waiter_match *is, void *context)
{
	struct waiter *waiter;

	lock_assert_held(&cache->lock);
	for (struct range *range = cache->ranges.started; range; range = range->next)
		if (range->waiter && is(range->waiter, context))
			return take_waiter_locked(range);
	for (struct range *range = cache->ranges.waiting; range; range = range->next)
		if (is(range->waiter, context)) {
			waiter = take_waiter_locked(range);
			unlink_locked(range);
			discard(range);
			return waiter;
		}
	return NULL;
}
