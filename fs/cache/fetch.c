/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Fetches. A flight brings one file, whole, for however many wait; it ends when its bytes
 * are where they should be and nobody reads the buffer any more. Buffers in flight are
 * bounded by `inflight_bytes`, fetches at a time by `depth`; what readers wait for goes
 * before what is fetched ahead.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/threads.h"
#include "cache/internal.h"

#define WATCH_MS 20
#define DROP_PATIENCE_MS 100

/* --- flights: cache lock held ----------------------------------------------------------------- */

struct flight *flight_get_locked(struct cache *cache, struct node *node)
{
	struct flight *flight = node->flight;

	if (flight)
		return flight->abandoned ? NULL : flight;
	flight = calloc(1, sizeof(*flight));
	if (!flight)
		return NULL;
	flight->cache = cache;
	flight->node = node;
	flight->size = node->attr.size;
	flight->expected = node->attr;
	flight->deadline_ms = clock_now_ms() + cache->options.deadline_ms;
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

	assert(!flight->waiters && !flight->users);
	unlink_locked(flight);
	cache->inflight_bytes -= flight->accounted;
	tree_release(cache->tree, flight->node);
	free(flight->buffer);
	free(flight->path);
	free(flight);
}

/* Somebody is done with the buffer. */
void flight_put_locked(struct flight *flight)
{
	if (--flight->users == 0)
		end_locked(flight);
}

static void count_warm_locked(struct flight *flight, int rc)
{
	struct cache_stats *stats = &flight->cache->stats;

	if (!flight->warming)
		return;
	flight->warming = false;
	stats->warm_pending--;
	stats->warm_pending_bytes -= flight->warm_bytes;
	if (rc) {
		stats->warm_failed++;
	} else {
		stats->warm_done++;
		stats->warm_done_bytes += flight->warm_bytes;
	}
}

/* The kernel has the bytes, or would not take them. What was not admitted only passes
 * through. */
static void settle_locked(struct flight *flight, int rc)
{
	struct cache *cache = flight->cache;
	struct node *node = flight->node;

	if (flight->admitted && node->slot != SLOT_NONE)
		(void)(rc ? sched_cancel : sched_commit)(cache->sched, node->slot);
	else if (!rc && !(flight->restoring && cache_is_resident_locked(cache, node)))
		cache_pass_locked(cache, node); /* or it has left while it was restored */
	flight->admitted = flight->restoring = false;
	node->flight = NULL; /* from now on the kernel has it, or has to be given it anew */
	count_warm_locked(flight, rc);
}

/* Answers those who open it. */
static void finish_store(struct residency_store *store, int rc)
{
	struct flight *flight = (struct flight *)((char *)store - offsetof(struct flight, store));
	struct cache *cache = flight->cache;
	struct waiter *opens;

	lock_acquire(&cache->lock);
	opens = flight->waiters; /* they came while it was stored, or before */
	flight->waiters = NULL;
	for (struct waiter *waiter = opens; waiter; waiter = waiter->next)
		flight->node->opens++;
	settle_locked(flight, rc);
	flight_put_locked(flight);
	lock_release(&cache->lock);
	waiter_answer_all(opens, 0);
}

/* Called by residency's thread. */
static void stored(struct residency_store *store, int rc)
{
	struct cache *cache =
		((struct flight *)((char *)store - offsetof(struct flight, store)))->cache;

	finish_store(store, rc);
	flight_start_soon(cache);
}

/* --- what comes from the store -------------------------------------------------------------------
 */

static void succeed_locked(struct flight *flight)
{
	struct cache *cache = flight->cache;

	flight->state = FLIGHT_READY;
	flight->users = 1; /* who stores it */
	cache->stats.backend_reads++;
	cache->stats.backend_bytes += flight->size;
	__atomic_store_n(&flight->node->checked_ms, clock_now_ms(), __ATOMIC_RELAXED);
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

void flight_answer(const struct flight *flight, struct waiter *waiter)
{
	size_t left = waiter->offset < flight->size ? flight->size - waiter->offset : 0;

	waiter->answer(waiter, 0, (const char *)flight->buffer + (left ? waiter->offset : 0),
		       left < waiter->size ? left : waiter->size);
}

static struct flight *flight_of(struct store_read *read)
{
	return (struct flight *)((char *)read - offsetof(struct flight, read));
}

/* Takes out those who want bytes; opens stay. */
static struct waiter *take_reads_locked(struct flight *flight)
{
	struct waiter *reads = NULL, **at = &flight->waiters;

	while (*at) {
		struct waiter *waiter = *at;

		if (waiter->opens) {
			at = &waiter->next;
			continue;
		}
		*at = waiter->next;
		waiter->next = reads;
		reads = waiter;
	}
	return reads;
}

/* Whoever reads gets the bytes at once, since storing waits for the locks that a READ holds.
 * Whoever opens is answered when the kernel has all bytes, and need not ask for them. If
 * somebody waits, the kernel knows the file, so it is stored here; else it may have
 * to be told of it, which may wait for the source: that is for residency's own thread. */
static void deliver(struct flight *flight, struct waiter *reads, bool waited_for)
{
	struct residency *residency = flight->cache->residency;
	size_t given = 0;

	for (struct waiter *next; reads; reads = next) {
		next = reads->next;
		/* What a READ brings from the beginning need not be stored once more. */
		if (reads->offset == 0 && !reads->direct && reads->size > given)
			given = reads->size;
		flight_answer(flight, reads);
	}
	if (given > flight->size)
		given = flight->size;
	flight->store = (struct residency_store){ .node = flight->node,
						  .data = (char *)flight->buffer + given,
						  .size = flight->size - given,
						  .offset = given,
						  .done = stored };
	if (given == flight->size) {
		residency_keep(flight->node);
		finish_store(&flight->store, 0);
	} else if (waited_for) {
		finish_store(&flight->store, residency_store_now(residency, &flight->store));
	} else {
		residency_store(residency, &flight->store);
	}
}

/* The store has one less, and whoever waited for it is answered. */
void flight_landed(struct cache *cache)
{
	lock_acquire(&cache->lock);
	cache->running--;
	if (cache->stopping)
		cond_wake_all(&cache->changed);
	lock_release(&cache->lock);
	flight_start_all(cache);
}

static void fetched(struct store_read *read, int rc)
{
	struct flight *flight = flight_of(read);
	struct cache *cache = flight->cache;
	struct waiter *waiters;
	bool waited_for;

	lock_acquire(&cache->lock);
	if (rc || flight->abandoned) {
		if (!flight->abandoned)
			fail_locked(flight, rc);
		waiters = flight->waiters;
		flight->waiters = NULL;
		end_locked(flight);
		lock_release(&cache->lock);
		waiter_answer_all(waiters, rc);
	} else {
		waited_for = flight->waiters != NULL;
		succeed_locked(flight);
		flight->queued = !waited_for;
		waiters = take_reads_locked(flight);
		lock_release(&cache->lock);
		deliver(flight, waiters, waited_for);
	}
	flight_landed(cache);
}

/* Takes out those who only waited for the check. */
static struct waiter *take_retries_locked(struct flight *flight)
{
	struct waiter *retries = NULL, **at = &flight->waiters;

	while (*at) {
		struct waiter *waiter = *at;

		if (!waiter->retries) {
			at = &waiter->next;
			continue;
		}
		*at = waiter->next;
		waiter->next = retries;
		retries = waiter;
	}
	return retries;
}

/* The version is still there. If somebody wants the bytes by now, they are fetched. */
static void checked(struct store_read *read, int rc)
{
	struct flight *flight = flight_of(read);
	struct cache *cache = flight->cache;
	struct node *node = flight->node;
	struct waiter *retries;

	lock_acquire(&cache->lock);
	if (rc || flight->abandoned) {
		lock_release(&cache->lock);
		fetched(read, rc);
		return;
	}
	node_hold(node);
	__atomic_store_n(&node->checked_ms, clock_now_ms(), __ATOMIC_RELAXED);
	retries = take_retries_locked(flight);
	flight->checking = false;
	if (flight->waiters || flight->admitted || flight->restoring)
		flight->state = FLIGHT_WAITING;
	else
		end_locked(flight);
	lock_release(&cache->lock);
	for (struct waiter *next; retries; retries = next) {
		next = retries->next;
		cache_open(cache, node, retries);
	}
	tree_release(cache->tree, node);
	/* Only now: who waits for the end closes what the answers went through. */
	flight_landed(cache);
}

/* --- starting
 * --------------------------------------------------------------------------------------- */

static uint64_t buffer_memory(const struct flight *flight)
{
	return flight->checking ? 0 : cache_memory_of(flight->node);
}

/* A drop may wait for a READ that waits for a fetch: then one is possible all the same. */
static bool drops_are_stuck_locked(const struct cache *cache)
{
	return !cache->leaving_bytes || clock_now_ms() > cache->dropped_ms + DROP_PATIENCE_MS;
}

/* What passes through and what is on its way out count, too. */
static bool fits_locked(const struct cache *cache, uint64_t size)
{
	uint64_t used = cache->inflight_bytes + cache->passing_bytes + cache->leaving_bytes;

	return cache->running < cache->options.depth &&
	       used + size <= cache->options.inflight_bytes;
}

bool flight_room_locked(struct cache *cache, uint64_t bytes)
{
	if (!fits_locked(cache, bytes))
		cache_hurry_locked(cache, bytes);
	return fits_locked(cache, bytes);
}

static bool has_room_locked(struct cache *cache, uint64_t size)
{
	return flight_room_locked(cache, size) ||
	       (cache->running < cache->options.depth && !cache->inflight_bytes &&
		drops_are_stuck_locked(cache));
}

/* What somebody waits for. */
static struct flight *next_wanted_locked(struct cache *cache)
{
	struct flight *flight = cache->flights;

	while (flight && flight->state != FLIGHT_WAITING)
		flight = flight->next;
	if (!flight)
		return NULL;
	return has_room_locked(cache, buffer_memory(flight)) ? flight : NULL;
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
	flight->admitted = true; /* a reader's flight may be there already */
	return flight->state == FLIGHT_WAITING ? flight : NULL;
}

static struct flight *next_warm_locked(struct cache *cache)
{
	while (cache->warm_first < cache->warm_count) {
		struct warm warm = cache->warm_queue[cache->warm_first++];
		uint32_t slot = warm.slot;
		struct node *node = cache->nodes[slot];
		struct sched_verdict verdict = { .action = SCHED_BYPASS };
		struct flight *flight = NULL;

		if (node && node->attr.size <= cache->range_bytes)
			(void)sched_warm(cache->sched, slot, cache_memory_of(node), &verdict);
		cache_drop_victims_locked(cache, &verdict);
		if (verdict.action == SCHED_ADMIT && node->attr.size)
			flight = begin_ahead_locked(cache, slot);
		if (flight) {
			flight->warming = true;
			flight->warm_bytes = warm.size;
			return flight;
		}
		if (verdict.action == SCHED_ADMIT && !node->attr.size)
			(void)sched_commit(cache->sched, slot);
		cache->stats.warm_pending--;
		cache->stats.warm_pending_bytes -= warm.size;
		if (verdict.action == SCHED_BYPASS) {
			cache->stats.warm_refused++;
			cache->stats.warm_refused_bytes += warm.size;
		} else {
			cache->stats.warm_done++;
			cache->stats.warm_done_bytes += warm.size;
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

	if (!fits_locked(cache, cache->range_bytes))
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

	lock_acquire(&cache->lock);
	if (!cache->stopping) {
		flight = next_wanted_locked(cache);
		if (!flight)
			flight = next_ahead_locked(cache);
	}
	if (flight) {
		flight->state = FLIGHT_RUNNING;
		cache->started_ms = clock_now_ms();
		flight->deadline_ms = cache->started_ms + cache->options.deadline_ms;
		cache->running++;
		flight->accounted = buffer_memory(flight);
		cache->inflight_bytes += flight->accounted;
	}
	lock_release(&cache->lock);
	return flight;
}

void flight_start_all(struct cache *cache)
{
	struct flight *flight;

	range_start_all(cache);
	while ((flight = take_next(cache))) {
		if (!flight->path)
			flight->path = node_path(flight->node);
		flight->buffer = flight->checking ? NULL : store_buffer(flight->size);
		flight->read = (struct store_read){ .path = flight->path,
						    .expected = &flight->expected,
						    .buffer = flight->buffer,
						    .size = flight->checking ? 0 : flight->size,
						    .done = flight->checking ? checked : fetched };
		if (flight->path && (flight->buffer || flight->checking))
			store_read(cache->store, &flight->read);
		else
			flight->read.done(&flight->read, -ENOMEM);
	}
}

/* What the store has to do for a read is done by the thread that began it, whenever that is out
 * of the kernel. A thread that waits in there for the folios of a READ must not have begun what
 * that READ waits for. */
void flight_start_soon(struct cache *cache)
{
	lock_acquire(&cache->lock);
	if (!cache->start_wanted)
		cond_wake_all(&cache->changed);
	cache->start_wanted = true;
	lock_release(&cache->lock);
}

/* --- deadlines
 * ------------------------------------------------------------------------------------------ */

/* Gives up on a flight: nobody waits for it any more. If the store has it, it ends it some time. */
static struct waiter *abandon_locked(struct flight *flight)
{
	struct waiter *waiters = flight->waiters;

	flight->waiters = NULL;
	fail_locked(flight, -ETIMEDOUT);
	flight->node->late_ms = clock_now_ms();
	if (flight->state == FLIGHT_WAITING) {
		end_locked(flight);
		return waiters;
	}
	flight->abandoned = true; /* and stays the node's: a second one would hang, too */
	store_cancel(flight->cache->store, &flight->read);
	return waiters;
}

/* A fetch has its deadline; what waits for its turn has it, too, while nothing moves: all that
 * the store has may hang. */
static bool is_late_locked(const struct flight *flight, uint64_t now)
{
	const struct cache *cache = flight->cache;

	if (flight->state == FLIGHT_READY || flight->abandoned || flight->deadline_ms > now)
		return false;
	return flight->state == FLIGHT_RUNNING ||
	       cache->started_ms + cache->options.deadline_ms <= now;
}

/* Those who wait for the first flight that is late, and what it is. */
static struct waiter *take_late(struct cache *cache, char *name, size_t room, bool *found)
{
	uint64_t now = clock_now_ms();
	struct waiter *waiters;
	struct flight *flight;

	lock_acquire(&cache->lock);
	waiters = range_take_late_locked(cache, now);
	flight = cache->flights;
	while (flight && !is_late_locked(flight, now))
		flight = flight->next;
	*found = flight;
	if (flight) {
		struct waiter **end = &waiters;

		snprintf(name, room, "%s", flight->node->name);
		while (*end)
			end = &(*end)->next;
		*end = abandon_locked(flight);
	}
	lock_release(&cache->lock);
	return waiters;
}

static void answer_late(struct cache *cache)
{
	bool found = true;

	while (found) {
		char name[256];

		waiter_answer_all(take_late(cache, name, sizeof(name), &found), -ETIMEDOUT);
		if (found)
			log_say(LOG_WARNINGS, "no answer for %s within %llu s", name,
				(unsigned long long)cache->options.deadline_ms / 1000);
	}
}

/* Waits until then at most. True: something may be started. */
static bool rest(struct cache *cache, uint64_t until_ms, bool *stopping)
{
	bool wanted, on_time = true;

	lock_acquire(&cache->lock);
	while (!cache->stopping && !cache->start_wanted && on_time)
		on_time = cond_wait_until(&cache->changed, &cache->lock, until_ms);
	wanted = cache->start_wanted;
	cache->start_wanted = false;
	*stopping = cache->stopping;
	lock_release(&cache->lock);
	return wanted;
}

void flight_watch(void *argument)
{
	struct cache *cache = argument;
	bool stopping = false;

	while (!stopping) {
		uint64_t until_ms = clock_now_ms() + WATCH_MS;

		while (rest(cache, until_ms, &stopping))
			flight_start_all(cache);
		answer_late(cache);
		tree_reap(cache->tree);
		cache_drop_old_passing(cache);
		flight_start_all(cache); /* if drops are stuck */
		cache->options.tick(cache->options.tick_context);
	}
}
