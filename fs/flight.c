/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Fetches. A flight brings one file, whole, for however many wait; it ends when its bytes
 * are where they should be and nobody reads the buffer any more. Buffers in flight are
 * bounded by `inflight_bytes`, fetches at a time by `depth`; what readers wait for goes
 * before what is fetched ahead.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cache_internal.h"
#include "log.h"

#define WATCH_MS 50

/* --- flights: cache lock held ----------------------------------------------------------------- */

struct flight *flight_get_locked(struct cache *cache, struct node *node)
{
	struct flight *flight = node->flight;

	if (flight)
		return flight;
	flight = calloc(1, sizeof(*flight));
	if (!flight)
		return NULL;
	flight->cache = cache;
	flight->node = node;
	flight->size = node->attr.size;
	flight->expected = node->attr;
	node_hold(node);
	node->flight = flight;
	flight->next = NULL;
	flight->before = cache->flights ? cache->flights->before : flight;
	if (cache->flights) {
		cache->flights->before->next = flight;
		cache->flights->before = flight;
	} else {
		cache->flights = flight;
	}
	return flight;
}

/* Out of the list; `before` of the first is the last. */
static void unlink_locked(struct flight *flight)
{
	struct cache *cache = flight->cache;

	if (flight == cache->flights) {
		cache->flights = flight->next;
		if (cache->flights)
			cache->flights->before = flight->before;
	} else {
		flight->before->next = flight->next;
		if (flight->next)
			flight->next->before = flight->before;
		else
			cache->flights->before = flight->before;
	}
	if (flight->node->flight == flight)
		flight->node->flight = NULL;
}

static void end_locked(struct flight *flight)
{
	struct cache *cache = flight->cache;

	assert(!flight->waiters && !flight->users && !flight->storing);
	unlink_locked(flight);
	if (flight->state != FLIGHT_WAITING)
		cache->inflight_bytes -= flight->size;
	tree_release(cache->tree, flight->node);
	free(flight->buffer);
	free(flight->path);
	free(flight);
	if (cache->stopping)
		pthread_cond_broadcast(&cache->changed);
}

void flight_end_if_done_locked(struct flight *flight)
{
	if (flight->state != FLIGHT_READY || flight->users || flight->storing)
		return;
	/* Readers that have the file open will ask for what they did not get yet. */
	if (flight->node->opens && flight->delivered < flight->size && !flight->restoring)
		return;
	end_locked(flight);
}

static void stored(struct residency_store *store, int rc);

void flight_store_locked(struct flight *flight)
{
	if (flight->state != FLIGHT_READY || flight->storing ||
	    (!flight->admitted && !flight->restoring))
		return;
	flight->storing = true;
	flight->store = (struct residency_store){
		.node = flight->node, .data = flight->buffer, .size = flight->size, .done = stored
	};
	residency_store(flight->cache->residency, &flight->store);
}

static void count_warm_locked(struct flight *flight, int rc)
{
	struct cache_stats *stats = &flight->cache->stats;

	if (!flight->warming)
		return;
	flight->warming = false;
	stats->warm_pending--;
	stats->warm_pending_bytes -= flight->size;
	if (rc) {
		stats->warm_failed++;
	} else {
		stats->warm_done++;
		stats->warm_done_bytes += flight->size;
	}
}

/* The kernel has the bytes, or will not take them. */
static void stored(struct residency_store *store, int rc)
{
	struct flight *flight = (struct flight *)((char *)store - offsetof(struct flight, store));
	struct cache *cache = flight->cache;
	struct node *node = flight->node;

	pthread_mutex_lock(&cache->lock);
	flight->storing = false;
	if (flight->admitted && node->slot != SLOT_NONE) {
		(void)(rc ? sched_cancel : sched_commit)(cache->sched, node->slot);
		node->dirty = false;
		flight->admitted = false;
		/* Whoever opens now finds it resident; whoever has it open reads it there. */
		flight->delivered = flight->size;
	}
	flight->restoring = false;
	count_warm_locked(flight, rc);
	flight_end_if_done_locked(flight);
	pthread_mutex_unlock(&cache->lock);
	flight_start_all(cache);
}

/* --- what comes from the store -------------------------------------------------------------------
 */

static void succeed_locked(struct flight *flight)
{
	struct cache *cache = flight->cache;

	flight->state = FLIGHT_READY;
	cache->stats.backend_reads++;
	cache->stats.backend_bytes += flight->size;
	__atomic_store_n(&flight->node->checked_ms, cache_now_ms(), __ATOMIC_RELAXED);
	for (struct waiter *waiter = flight->waiters; waiter; waiter = waiter->next) {
		flight->node->opens += waiter->opens;
		if (!waiter->opens)
			flight->delivered += waiter->size;
	}
	flight_store_locked(flight);
}

static void fail_locked(struct flight *flight, int rc)
{
	struct cache *cache = flight->cache;

	cache->stats.fetch_errors++;
	if (rc == -ESTALE || rc == -ENOENT) {
		cache->stats.stale_drops++;
		tree_mark_stale(cache->tree, flight->node);
	}
	if (flight->admitted && flight->node->slot != SLOT_NONE)
		(void)sched_cancel(cache->sched, flight->node->slot);
	flight->admitted = false;
	count_warm_locked(flight, rc);
}

static void answer_one(const struct flight *flight, struct waiter *waiter)
{
	size_t left = waiter->offset < flight->size ? flight->size - waiter->offset : 0;

	if (waiter->opens)
		waiter->answer(waiter, 0, NULL, 0);
	else
		waiter->answer(waiter, 0,
			       (const char *)flight->buffer + (left ? waiter->offset : 0),
			       left < waiter->size ? left : waiter->size);
}

static void answer_all(const struct flight *flight, struct waiter *waiters)
{
	for (struct waiter *next; waiters; waiters = next) {
		next = waiters->next;
		answer_one(flight, waiters);
	}
}

static void fetched(struct store_read *read, int rc)
{
	struct flight *flight = (struct flight *)((char *)read - offsetof(struct flight, read));
	struct cache *cache = flight->cache;
	struct waiter *waiters;

	pthread_mutex_lock(&cache->lock);
	cache->running--;
	if (!flight->abandoned && !rc)
		succeed_locked(flight);
	else if (!flight->abandoned)
		fail_locked(flight, rc);
	waiters = flight->waiters;
	flight->waiters = NULL;
	if (rc || flight->abandoned) {
		end_locked(flight);
		pthread_mutex_unlock(&cache->lock);
		waiter_answer_all(waiters, rc);
	} else {
		flight->users++;
		pthread_mutex_unlock(&cache->lock);
		answer_all(flight, waiters);
		pthread_mutex_lock(&cache->lock);
		flight->users--;
		flight_end_if_done_locked(flight);
		pthread_mutex_unlock(&cache->lock);
	}
	flight_start_all(cache);
}

/* --- starting
 * --------------------------------------------------------------------------------------- */

static bool has_room_locked(const struct cache *cache, uint64_t size, uint64_t limit)
{
	return cache->running < cache->options.depth &&
	       (cache->inflight_bytes + size <= limit || !cache->inflight_bytes);
}

/* Buffers that are kept only in case that a reader comes back give way. */
static void free_idle_locked(struct cache *cache)
{
	for (struct flight *next, *flight = cache->flights; flight; flight = next) {
		next = flight->next;
		if (flight->state == FLIGHT_READY && !flight->users && !flight->storing)
			end_locked(flight);
	}
}

/* What somebody waits for. */
static struct flight *next_wanted_locked(struct cache *cache)
{
	uint64_t limit = cache->options.inflight_bytes;
	struct flight *flight = cache->flights;

	while (flight && flight->state != FLIGHT_WAITING)
		flight = flight->next;
	if (!flight)
		return NULL;
	if (!has_room_locked(cache, flight->size, limit))
		free_idle_locked(cache);
	return has_room_locked(cache, flight->size, limit) ? flight : NULL;
}

/* A sample that the policy has admitted, with nobody waiting for it. */
static struct flight *begin_ahead_locked(struct cache *cache, uint32_t slot)
{
	struct node *node = cache->nodes[slot];
	struct flight *flight;

	flight = node ? flight_get_locked(cache, node) : NULL;
	if (!flight) {
		(void)sched_cancel(cache->sched, slot);
		return NULL;
	}
	flight->admitted = true;
	flight_store_locked(flight); /* a reader's flight may be there already */
	return flight->state == FLIGHT_WAITING ? flight : NULL;
}

static struct flight *next_warm_locked(struct cache *cache)
{
	while (cache->warm_first < cache->warm_count) {
		uint32_t slot = cache->warm_queue[cache->warm_first++];
		struct node *node = cache->nodes[slot];
		struct sched_verdict verdict = { .action = SCHED_BYPASS };
		struct flight *flight = NULL;

		if (node && node->attr.size <= cache->range_bytes)
			(void)sched_warm(cache->sched, slot, node->attr.size, &verdict);
		cache_drop_victims_locked(cache, &verdict);
		if (verdict.action == SCHED_ADMIT && node->attr.size)
			flight = begin_ahead_locked(cache, slot);
		if (flight) {
			flight->warming = true;
			return flight;
		}
		if (verdict.action == SCHED_ADMIT && !node->attr.size)
			(void)sched_commit(cache->sched, slot);
		cache->stats.warm_pending--;
		cache->stats.warm_pending_bytes -= node ? node->attr.size : 0;
		if (verdict.action == SCHED_BYPASS) {
			cache->stats.warm_refused++;
			cache->stats.warm_refused_bytes += node ? node->attr.size : 0;
		} else {
			cache->stats.warm_done++;
			cache->stats.warm_done_bytes += node->attr.size;
		}
	}
	return NULL;
}

/* What nobody waits for yet may take half of the buffers. */
static struct flight *next_ahead_locked(struct cache *cache)
{
	struct sched_verdict verdict;
	uint64_t size;
	uint32_t slot;

	if (!has_room_locked(cache, cache->range_bytes, cache->options.inflight_bytes))
		return NULL;
	while (sched_prefetch(cache->sched, cache->options.prefetch_bytes, &slot, &size,
			      &verdict) == 1) {
		struct flight *flight;

		cache_drop_victims_locked(cache, &verdict);
		flight = begin_ahead_locked(cache, slot);
		if (flight)
			return flight;
	}
	cache_drop_victims_locked(cache, &verdict); /* some may have left for nothing */
	return next_warm_locked(cache);
}

static struct flight *take_next(struct cache *cache)
{
	struct flight *flight = NULL;

	pthread_mutex_lock(&cache->lock);
	if (!cache->stopping) {
		flight = next_wanted_locked(cache);
		if (!flight)
			flight = next_ahead_locked(cache);
	}
	if (flight) {
		flight->state = FLIGHT_RUNNING;
		flight->deadline_ms = cache_now_ms() + cache->options.deadline_ms;
		cache->running++;
		cache->inflight_bytes += flight->size;
	}
	pthread_mutex_unlock(&cache->lock);
	return flight;
}

void flight_start_all(struct cache *cache)
{
	struct flight *flight;

	while ((flight = take_next(cache))) {
		flight->path = node_path(flight->node);
		flight->buffer = malloc(flight->size);
		flight->read = (struct store_read){ .path = flight->path,
						    .expected = &flight->expected,
						    .buffer = flight->buffer,
						    .size = flight->size,
						    .done = fetched };
		if (flight->path && flight->buffer)
			store_read(cache->store, &flight->read);
		else
			fetched(&flight->read, -ENOMEM);
	}
}

/* --- deadlines
 * ------------------------------------------------------------------------------------------ */

/* Gives up on a flight: nobody waits for it any more; the store ends it some time. */
static struct waiter *abandon_locked(struct flight *flight)
{
	struct waiter *waiters = flight->waiters;

	flight->waiters = NULL;
	fail_locked(flight, -ETIMEDOUT);
	flight->abandoned = true;
	flight->node->flight = NULL;
	store_cancel(flight->cache->store, &flight->read);
	return waiters;
}

static struct waiter *take_late(struct cache *cache)
{
	uint64_t now = cache_now_ms();
	struct waiter *waiters = NULL;

	pthread_mutex_lock(&cache->lock);
	for (struct flight *flight = cache->flights; flight && !waiters; flight = flight->next)
		if (flight->state == FLIGHT_RUNNING && !flight->abandoned &&
		    flight->deadline_ms <= now) {
			log_say(LOG_WARNINGS, "no answer for %s within %llu s", flight->path,
				(unsigned long long)cache->options.deadline_ms / 1000);
			waiters = abandon_locked(flight);
		}
	pthread_mutex_unlock(&cache->lock);
	return waiters;
}

void *flight_watch(void *argument)
{
	struct cache *cache = argument;
	struct waiter *late;
	bool stopping = false;

	while (!stopping) {
		struct timespec until;

		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += WATCH_MS * 1000000;
		if (until.tv_nsec >= 1000000000) {
			until.tv_nsec -= 1000000000;
			until.tv_sec++;
		}
		pthread_mutex_lock(&cache->lock);
		if (!cache->stopping)
			pthread_cond_timedwait(&cache->changed, &cache->lock, &until);
		stopping = cache->stopping;
		pthread_mutex_unlock(&cache->lock);
		while ((late = take_late(cache)))
			waiter_answer_all(late, -ETIMEDOUT);
		tree_reap(cache->tree);
	}
	return NULL;
}

/* --- ranges
 * --------------------------------------------------------------------------------------------------
 */

struct range {
	struct cache *cache;
	struct node *node;
	struct waiter *waiter;
	struct store_read read;
	struct store_attr expected;
	char *path;
};

static void range_done(struct store_read *read, int rc)
{
	struct range *range = (struct range *)((char *)read - offsetof(struct range, read));
	struct cache *cache = range->cache;

	range->waiter->answer(range->waiter, rc, read->buffer, rc ? 0 : read->got);
	pthread_mutex_lock(&cache->lock);
	cache->running--;
	cache->inflight_bytes -= read->size;
	cache->stats.backend_reads++;
	cache->stats.backend_bytes += read->got;
	cache->stats.fetch_errors += rc != 0;
	if (rc == -ESTALE)
		tree_mark_stale(cache->tree, range->node);
	range->node->dirty = true;
	if (cache->stopping)
		pthread_cond_broadcast(&cache->changed);
	pthread_mutex_unlock(&cache->lock);
	tree_release(cache->tree, range->node);
	free(read->buffer);
	free(range->path);
	free(range);
}

void flight_read_range(struct cache *cache, struct node *node, struct waiter *waiter)
{
	struct range *range = calloc(1, sizeof(*range));
	uint64_t left = waiter->offset < node->attr.size ? node->attr.size - waiter->offset : 0;

	if (!range) {
		waiter->answer(waiter, -ENOMEM, NULL, 0);
		return;
	}
	*range = (struct range){ .cache = cache,
				 .node = node,
				 .waiter = waiter,
				 .expected = node->attr,
				 .path = node_path(node) };
	range->read = (struct store_read){ .path = range->path,
					   .expected = &range->expected,
					   .offset = waiter->offset,
					   .size = waiter->size < left ? waiter->size : left,
					   .done = range_done };
	range->read.buffer = malloc(range->read.size + 1);
	node_hold(node);
	pthread_mutex_lock(&cache->lock);
	cache->running++;
	cache->inflight_bytes += range->read.size;
	pthread_mutex_unlock(&cache->lock);
	if (range->path && range->read.buffer)
		store_read(cache->store, &range->read);
	else
		range_done(&range->read, -ENOMEM);
}
