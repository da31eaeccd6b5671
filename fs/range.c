/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Files that are too large to be fetched whole: each READ is a read of the source. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "cache_internal.h"
#include "log.h"

struct range {
	struct range *next, **before; /* cache lock: in cache->ranges */
	struct cache *cache;
	struct node *node;     /* held */
	struct waiter *waiter; /* cache lock; NULL: it has its answer */
	uint64_t deadline_ms;
	struct store_read read;
	struct store_attr expected;
	char *path;
};

static void enter_locked(struct range *range)
{
	struct cache *cache = range->cache;

	range->next = cache->ranges;
	range->before = &cache->ranges;
	if (range->next)
		range->next->before = &range->next;
	cache->ranges = range;
	cache->running++;
	cache->inflight_bytes += range->read.size;
}

static void leave_locked(struct range *range, int rc)
{
	struct cache *cache = range->cache;

	*range->before = range->next;
	if (range->next)
		range->next->before = range->before;
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

static void range_done(struct store_read *read, int rc)
{
	struct range *range = (struct range *)((char *)read - offsetof(struct range, read));
	struct cache *cache = range->cache;
	struct waiter *waiter;

	pthread_mutex_lock(&cache->lock);
	waiter = take_waiter_locked(range);
	pthread_mutex_unlock(&cache->lock);
	if (waiter)
		waiter->answer(waiter, rc, read->buffer, rc ? 0 : read->got);
	pthread_mutex_lock(&cache->lock);
	leave_locked(range, rc);
	pthread_mutex_unlock(&cache->lock);
	tree_release(cache->tree, range->node);
	free(read->buffer);
	free(range->path);
	free(range);
	flight_landed(cache);
}

static struct range *range_new(struct cache *cache, struct node *node, struct waiter *waiter)
{
	uint64_t left = waiter->offset < node->attr.size ? node->attr.size - waiter->offset : 0;
	struct range *range = calloc(1, sizeof(*range));

	if (!range)
		return NULL;
	*range = (struct range){ .cache = cache,
				 .node = node,
				 .waiter = waiter,
				 .deadline_ms = cache_now_ms() + cache->options.deadline_ms,
				 .expected = node->attr,
				 .path = node_path(node) };
	range->read = (struct store_read){ .path = range->path,
					   .expected = &range->expected,
					   .offset = waiter->offset,
					   .size = waiter->size < left ? waiter->size : left,
					   .done = range_done };
	range->read.buffer = store_buffer(range->read.size);
	if (!range->path || !range->read.buffer) {
		free(range->read.buffer);
		free(range->path);
		free(range);
		return NULL;
	}
	node_hold(node);
	return range;
}

void range_read(struct cache *cache, struct node *node, struct waiter *waiter)
{
	struct range *range = range_new(cache, node, waiter);
	bool stopping;

	if (!range) {
		waiter->answer(waiter, -ENOMEM, NULL, 0);
		return;
	}
	pthread_mutex_lock(&cache->lock);
	stopping = cache->stopping;
	if (!stopping)
		enter_locked(range);
	pthread_mutex_unlock(&cache->lock);
	if (!stopping) {
		store_read(cache->store, &range->read);
		return;
	}
	waiter->answer(waiter, -ESHUTDOWN, NULL, 0);
	tree_release(cache->tree, node);
	free(range->read.buffer);
	free(range->path);
	free(range);
}

struct waiter *range_take_late_locked(struct cache *cache, uint64_t now_ms)
{
	struct waiter *waiters = NULL;

	for (struct range *range = cache->ranges; range; range = range->next) {
		struct waiter *waiter;

		if (range->deadline_ms > now_ms || !(waiter = take_waiter_locked(range)))
			continue;
		waiter->next = waiters;
		waiters = waiter;
		store_cancel(cache->store, &range->read);
	}
	return waiters;
}

struct waiter *range_take_waiter_locked(struct cache *cache,
					bool (*is)(const struct waiter *waiter, void *context),
					void *context)
{
	for (struct range *range = cache->ranges; range; range = range->next)
		if (range->waiter && is(range->waiter, context))
			return take_waiter_locked(range);
	return NULL;
}
