/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Files that are too large to be fetched whole: each READ is a read of the source.
 *
 * Ranges leave half of the store and half of the buffers to whole files, and one large file gets
 * no more than a few reads at a time: a large file that hangs leaves room for others. What does
 * not fit waits.
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

static void leave_locked(struct range *range, int rc)
{
	struct cache *cache = range->cache;

	lock_assert_held(&range->cache->lock);
	unlink_locked(range);
	cache->ranges.running--;
	cache->ranges.bytes -= range->read.size;
	budget_free_buffer(&cache->budget, range->read.size);
	cache->stats.backend_reads++;
	cache->stats.backend_bytes += range->read.got;
	cache->stats.fetch_errors += rc != 0;
	if (rc == -ESTALE)
		tree_mark_stale(cache->tree, range->node);
	if (!rc)
		passing_add_locked(cache, range->node, clock_now_ms());
}

static struct waiter *take_waiter_locked(struct range *range)
{
	struct waiter *waiter = range->waiter;

	lock_assert_held(&range->cache->lock);
	range->waiter = NULL;
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
	leave_locked(range, rc);
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

/* How many reads of a file the store has; `*late`: whether it was asked to give one up. */
static unsigned running_locked(const struct cache *cache, const struct node *node, bool *late)
{
	unsigned count = 0;

	lock_assert_held(&cache->lock);
	*late = false;
	for (const struct range *range = cache->ranges.started; range; range = range->next) {
		count += range->node == node;
		*late |= range->node == node && range->late;
	}
	return count;
}

/* Room that whole files do not need at this moment; what passes through makes way. */
static bool has_room_locked(struct cache *cache, uint64_t bytes, uint64_t now_ms)
{
	lock_assert_held(&cache->lock);
	if (!budget_fits(&cache->budget, bytes))
		passing_make_room_locked(cache, bytes, now_ms);
	return budget_fits(&cache->budget, bytes);
}

/* One range is always possible, as long as the store can take a read. */
static bool may_start_locked(struct cache *cache, const struct range *range, uint64_t now_ms)
{
	const struct budget *budget = &cache->budget;
	bool late;

	lock_assert_held(&cache->lock);
	if (!cache->ranges.running)
		return budget->running < budget->depth;
	return cache->ranges.running < budget->depth / 2 &&
	       cache->ranges.bytes + range->read.size <= budget->limit_bytes / 2 &&
	       running_locked(cache, range->node, &late) < OF_ONE_FILE &&
	       has_room_locked(cache, range->read.size, now_ms);
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
	bool late;

	lock_assert_held(&range->cache->lock);
	if (cache->stopping)
		return -ESHUTDOWN;
	(void)running_locked(cache, range->node, &late);
	if (late)
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

static struct waiter *give_up_locked(struct range *range, struct waiter *waiters)
{
	struct waiter *waiter = take_waiter_locked(range);

	lock_assert_held(&range->cache->lock);
	waiter->next = waiters;
	range->late = true;
	store_cancel(range->cache->store, &range->read);
	return waiter;
}

/* What waits for its turn is late only while nothing moves. */
struct waiter *range_take_late_locked(struct cache *cache, uint64_t now_ms)
{
	bool stuck = cache->budget.started_ms + cache->options.deadline_ms <= now_ms;
	struct waiter *waiters = NULL;

	lock_assert_held(&cache->lock);
	for (struct range *range = cache->ranges.started; range; range = range->next)
		if (range->deadline_ms <= now_ms && range->waiter)
			waiters = give_up_locked(range, waiters);
	for (struct range *next, *range = cache->ranges.waiting; range && stuck; range = next) {
		next = range->next;
		if (range->deadline_ms > now_ms)
			continue;
		range->waiter->next = waiters;
		waiters = take_waiter_locked(range);
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
