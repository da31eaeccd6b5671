/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Files that are too large to be fetched whole: each READ is a read of the source.
 *
 * Half of the store and half of the buffers are left to whole files, and one large file gets no
 * more than a few reads at a time: what hangs there keeps nobody else. What does not fit waits.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/threads.h"
#include "cache/internal.h"

#define OF_ONE_FILE 8 /* reads at a time */

struct range {
	struct range *next, **before; /* cache lock: in cache->ranges or cache->ranges_waiting */
	struct cache *cache;
	struct node *node;     /* held */
	struct waiter *waiter; /* cache lock; NULL: it has its answer */
	bool late;	       /* cache lock: the store was asked to give it up */
	uint64_t deadline_ms;
	struct store_read read;
	struct store_attr expected;
	char *path;
};

static void link_locked(struct range **list, struct range *range)
{
	while (*list)
		list = &(*list)->next;
	range->next = NULL;
	range->before = list;
	*list = range;
}

static void unlink_locked(struct range *range)
{
	*range->before = range->next;
	if (range->next)
		range->next->before = range->before;
}

static void leave_locked(struct range *range, int rc)
{
	struct cache *cache = range->cache;

	unlink_locked(range);
	cache->ranges_running--;
	cache->ranges_bytes -= range->read.size;
	cache->inflight_bytes -= range->read.size;
	cache->stats.backend_reads++;
	cache->stats.backend_bytes += range->read.got;
	cache->stats.fetch_errors += rc != 0;
	if (rc == -ESTALE)
		tree_mark_stale(cache->tree, range->node);
	if (!rc)
		cache_pass_locked(cache, range->node);
}

static struct waiter *take_waiter_locked(struct range *range)
{
	struct waiter *waiter = range->waiter;

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
	struct range *range = (struct range *)((char *)read - offsetof(struct range, read));
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
	fetch_landed(cache);
}

static struct range *range_new(struct cache *cache, struct node *node, struct waiter *waiter)
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
				 .deadline_ms = clock_now_ms() + cache->options.deadline_ms,
				 .expected = node->attr,
				 .path = path };
	range->read = (struct store_read){ .path = path,
					   .expected = &range->expected,
					   .offset = waiter->offset,
					   .size = waiter->size < left ? waiter->size : left,
					   .done = range_done };
	node_hold(node);
	return range;
}

/* How many reads of a file the store has; `*late`: whether it was asked to give one up. */
static unsigned running_locked(const struct cache *cache, const struct node *node, bool *late)
{
	unsigned count = 0;

	*late = false;
	for (const struct range *range = cache->ranges; range; range = range->next) {
		count += range->node == node;
		*late |= range->node == node && range->late;
	}
	return count;
}

static bool may_start_locked(struct cache *cache, const struct range *range)
{
	bool late;

	if (!cache->ranges_running)
		return true;
	return cache->ranges_running < cache->options.depth / 2 &&
	       cache->ranges_bytes + range->read.size <= cache->options.inflight_bytes / 2 &&
	       running_locked(cache, range->node, &late) < OF_ONE_FILE &&
	       fetch_room_locked(cache, range->read.size);
}

static struct range *take_next(struct cache *cache)
{
	struct range *range;

	lock_acquire(&cache->lock);
	range = cache->ranges_waiting;
	while (range && !may_start_locked(cache, range))
		range = range->next;
	if (range) {
		unlink_locked(range);
		link_locked(&cache->ranges, range);
		cache->started_ms = clock_now_ms();
		range->deadline_ms = cache->started_ms + cache->options.deadline_ms;
		cache->running++;
		cache->ranges_running++;
		cache->ranges_bytes += range->read.size;
		cache->inflight_bytes += range->read.size;
	}
	lock_release(&cache->lock);
	return range;
}

void range_start_all(struct cache *cache)
{
	struct range *range;

	while ((range = take_next(cache))) {
		range->read.buffer = store_buffer(range->read.size);
		if (range->read.buffer)
			store_read(cache->store, &range->read);
		else
			range_done(&range->read, -ENOMEM);
	}
}

/* What was given up and has not ended would not fare better a second time. */
static int enter_locked(struct range *range)
{
	struct cache *cache = range->cache;
	bool late;

	if (cache->stopping)
		return -ESHUTDOWN;
	(void)running_locked(cache, range->node, &late);
	if (late)
		return -ETIMEDOUT;
	link_locked(&cache->ranges_waiting, range);
	return 0;
}

void range_read(struct cache *cache, struct node *node, struct waiter *waiter)
{
	struct range *range = range_new(cache, node, waiter);
	int rc = -ENOMEM;

	if (range) {
		lock_acquire(&cache->lock);
		rc = enter_locked(range);
		lock_release(&cache->lock);
	}
	if (!rc) {
		fetch_start_all(cache);
		return;
	}
	waiter->answer(waiter, rc, NULL, 0);
	if (range)
		discard(range);
}

static struct waiter *give_up_locked(struct range *range, struct waiter *waiters)
{
	struct waiter *waiter = take_waiter_locked(range);

	waiter->next = waiters;
	range->late = true;
	store_cancel(range->cache->store, &range->read);
	return waiter;
}

/* What waits for its turn is late only while nothing moves. */
struct waiter *range_take_late_locked(struct cache *cache, uint64_t now_ms)
{
	bool stuck = cache->started_ms + cache->options.deadline_ms <= now_ms;
	struct waiter *waiters = NULL;

	for (struct range *range = cache->ranges; range; range = range->next)
		if (range->deadline_ms <= now_ms && range->waiter)
			waiters = give_up_locked(range, waiters);
	for (struct range *next, *range = cache->ranges_waiting; range && stuck; range = next) {
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

struct waiter *range_take_waiter_locked(struct cache *cache,
					bool (*is)(const struct waiter *waiter, void *context),
					void *context)
{
	struct waiter *waiter;

	for (struct range *range = cache->ranges; range; range = range->next)
		if (range->waiter && is(range->waiter, context))
			return take_waiter_locked(range);
	for (struct range *range = cache->ranges_waiting; range; range = range->next)
		if (is(range->waiter, context)) {
			waiter = take_waiter_locked(range);
			unlink_locked(range);
			discard(range);
			return waiter;
		}
	return NULL;
}
