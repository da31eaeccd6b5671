/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Fetches. A fetch brings one file, whole, for however many wait; it ends when its bytes
 * are where they should be and nobody reads the buffer any more. Buffers in fetch are
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

/* --- fetches: cache lock held ----------------------------------------------------------------- */

struct fetch *fetch_get_locked(struct cache *cache, struct node *node)
{
	struct fetch *fetch = node->fetch;

	if (fetch)
		return fetch->abandoned ? NULL : fetch;
	fetch = calloc(1, sizeof(*fetch));
	if (!fetch)
		return NULL;
	fetch->cache = cache;
	fetch->node = node;
	fetch->size = node->attr.size;
	fetch->expected = node->attr;
	fetch->deadline_ms = clock_now_ms() + cache->options.deadline_ms;
	node_hold(node);
	node->fetch = fetch;
	fetch->next = NULL;
	fetch->before = cache->fetches ? cache->fetches->before : fetch;
	if (cache->fetches) {
		cache->fetches->before->next = fetch;
		cache->fetches->before = fetch;
	} else {
		cache->fetches = fetch;
	}
	return fetch;
}

/* Out of the list; `before` of the first is the last. */
static void unlink_locked(struct fetch *fetch)
{
	struct cache *cache = fetch->cache;

	if (fetch == cache->fetches) {
		cache->fetches = fetch->next;
		if (cache->fetches)
			cache->fetches->before = fetch->before;
	} else {
		fetch->before->next = fetch->next;
		if (fetch->next)
			fetch->next->before = fetch->before;
		else
			cache->fetches->before = fetch->before;
	}
	if (fetch->node->fetch == fetch)
		fetch->node->fetch = NULL;
}

static void end_locked(struct fetch *fetch)
{
	struct cache *cache = fetch->cache;

	assert(!fetch->waiters && !fetch->users);
	unlink_locked(fetch);
	cache->inflight_bytes -= fetch->accounted;
	tree_release(cache->tree, fetch->node);
	free(fetch->buffer);
	free(fetch->path);
	free(fetch);
}

/* Somebody is done with the buffer. */
void fetch_put_locked(struct fetch *fetch)
{
	if (--fetch->users == 0)
		end_locked(fetch);
}

static void count_warm_locked(struct fetch *fetch, int rc)
{
	struct cache_stats *stats = &fetch->cache->stats;

	if (!fetch->warming)
		return;
	fetch->warming = false;
	stats->warm_pending--;
	stats->warm_pending_bytes -= fetch->warm_bytes;
	if (rc) {
		stats->warm_failed++;
	} else {
		stats->warm_done++;
		stats->warm_done_bytes += fetch->warm_bytes;
	}
}

/* The kernel has the bytes, or would not take them. What was not admitted only passes
 * through. */
static void settle_locked(struct fetch *fetch, int rc)
{
	struct cache *cache = fetch->cache;
	struct node *node = fetch->node;

	if (fetch->admitted && node->slot != SLOT_NONE)
		(void)(rc ? sched_cancel : sched_commit)(cache->sched, node->slot);
	else if (!rc && !(fetch->restoring && cache_is_resident_locked(cache, node)))
		cache_pass_locked(cache, node); /* or it has left while it was restored */
	fetch->admitted = fetch->restoring = false;
	node->fetch = NULL; /* from now on the kernel has it, or has to be given it anew */
	count_warm_locked(fetch, rc);
}

/* Answers those who open it. */
static void finish_store(struct page_store *store, int rc)
{
	struct fetch *fetch = (struct fetch *)((char *)store - offsetof(struct fetch, store));
	struct cache *cache = fetch->cache;
	struct waiter *opens;

	lock_acquire(&cache->lock);
	opens = fetch->waiters; /* they came while it was stored, or before */
	fetch->waiters = NULL;
	for (struct waiter *waiter = opens; waiter; waiter = waiter->next)
		fetch->node->opens++;
	settle_locked(fetch, rc);
	fetch_put_locked(fetch);
	lock_release(&cache->lock);
	waiter_answer_all(opens, 0);
}

/* Called by residency's thread. */
static void stored(struct page_store *store, int rc)
{
	struct cache *cache =
		((struct fetch *)((char *)store - offsetof(struct fetch, store)))->cache;

	finish_store(store, rc);
	fetch_start_soon(cache);
}

/* --- what comes from the store -------------------------------------------------------------------
 */

static void succeed_locked(struct fetch *fetch)
{
	struct cache *cache = fetch->cache;

	fetch->state = FETCH_READY;
	fetch->users = 1; /* who stores it */
	cache->stats.backend_reads++;
	cache->stats.backend_bytes += fetch->size;
	__atomic_store_n(&fetch->node->checked_ms, clock_now_ms(), __ATOMIC_RELAXED);
}

static void fail_locked(struct fetch *fetch, int rc)
{
	struct cache *cache = fetch->cache;

	cache->stats.fetch_errors++;
	if (rc == -ESTALE || rc == -ENOENT) {
		cache->stats.stale_drops++;
		tree_mark_stale(cache->tree, fetch->node);
	}
	if (fetch->admitted && fetch->node->slot != SLOT_NONE)
		(void)sched_cancel(cache->sched, fetch->node->slot);
	fetch->admitted = false;
	count_warm_locked(fetch, rc);
}

void fetch_answer(const struct fetch *fetch, struct waiter *waiter)
{
	size_t left = waiter->offset < fetch->size ? fetch->size - waiter->offset : 0;

	waiter->answer(waiter, 0, (const char *)fetch->buffer + (left ? waiter->offset : 0),
		       left < waiter->size ? left : waiter->size);
}

static struct fetch *fetch_of(struct store_read *read)
{
	return (struct fetch *)((char *)read - offsetof(struct fetch, read));
}

/* Takes out those who want bytes; opens stay. */
static struct waiter *take_reads_locked(struct fetch *fetch)
{
	struct waiter *reads = NULL, **at = &fetch->waiters;

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
static void deliver(struct fetch *fetch, struct waiter *reads, bool waited_for)
{
	struct page_cache *page_cache = fetch->cache->page_cache;
	size_t given = 0;

	for (struct waiter *next; reads; reads = next) {
		next = reads->next;
		/* What a READ brings from the beginning need not be stored once more. */
		if (reads->offset == 0 && !reads->direct && reads->size > given)
			given = reads->size;
		fetch_answer(fetch, reads);
	}
	if (given > fetch->size)
		given = fetch->size;
	fetch->store = (struct page_store){ .node = fetch->node,
					    .data = (char *)fetch->buffer + given,
					    .size = fetch->size - given,
					    .offset = given,
					    .done = stored };
	if (given == fetch->size) {
		page_cache_keep(fetch->node);
		finish_store(&fetch->store, 0);
	} else if (waited_for) {
		finish_store(&fetch->store, page_cache_store_now(page_cache, &fetch->store));
	} else {
		page_cache_store(page_cache, &fetch->store);
	}
}

/* The store has one less, and whoever waited for it is answered. */
void fetch_landed(struct cache *cache)
{
	lock_acquire(&cache->lock);
	cache->running--;
	if (cache->stopping)
		cond_wake_all(&cache->changed);
	lock_release(&cache->lock);
	fetch_start_all(cache);
}

static void fetched(struct store_read *read, int rc)
{
	struct fetch *fetch = fetch_of(read);
	struct cache *cache = fetch->cache;
	struct waiter *waiters;
	bool waited_for;

	lock_acquire(&cache->lock);
	if (rc || fetch->abandoned) {
		if (!fetch->abandoned)
			fail_locked(fetch, rc);
		waiters = fetch->waiters;
		fetch->waiters = NULL;
		end_locked(fetch);
		lock_release(&cache->lock);
		waiter_answer_all(waiters, rc);
	} else {
		waited_for = fetch->waiters != NULL;
		succeed_locked(fetch);
		fetch->queued = !waited_for;
		waiters = take_reads_locked(fetch);
		lock_release(&cache->lock);
		deliver(fetch, waiters, waited_for);
	}
	fetch_landed(cache);
}

/* Takes out those who only waited for the check. */
static struct waiter *take_retries_locked(struct fetch *fetch)
{
	struct waiter *retries = NULL, **at = &fetch->waiters;

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
	struct fetch *fetch = fetch_of(read);
	struct cache *cache = fetch->cache;
	struct node *node = fetch->node;
	struct waiter *retries;

	lock_acquire(&cache->lock);
	if (rc || fetch->abandoned) {
		lock_release(&cache->lock);
		fetched(read, rc);
		return;
	}
	node_hold(node);
	__atomic_store_n(&node->checked_ms, clock_now_ms(), __ATOMIC_RELAXED);
	retries = take_retries_locked(fetch);
	fetch->checking = false;
	if (fetch->waiters || fetch->admitted || fetch->restoring)
		fetch->state = FETCH_WAITING;
	else
		end_locked(fetch);
	lock_release(&cache->lock);
	for (struct waiter *next; retries; retries = next) {
		next = retries->next;
		cache_open(cache, node, retries);
	}
	tree_release(cache->tree, node);
	/* Only now: who waits for the end closes what the answers went through. */
	fetch_landed(cache);
}

/* --- starting
 * --------------------------------------------------------------------------------------- */

static uint64_t buffer_memory(const struct fetch *fetch)
{
	return fetch->checking ? 0 : cache_memory_of(fetch->node);
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

bool fetch_room_locked(struct cache *cache, uint64_t bytes)
{
	if (!fits_locked(cache, bytes))
		cache_hurry_locked(cache, bytes);
	return fits_locked(cache, bytes);
}

static bool has_room_locked(struct cache *cache, uint64_t size)
{
	return fetch_room_locked(cache, size) ||
	       (cache->running < cache->options.depth && !cache->inflight_bytes &&
		drops_are_stuck_locked(cache));
}

/* What somebody waits for. */
static struct fetch *next_wanted_locked(struct cache *cache)
{
	struct fetch *fetch = cache->fetches;

	while (fetch && fetch->state != FETCH_WAITING)
		fetch = fetch->next;
	if (!fetch)
		return NULL;
	return has_room_locked(cache, buffer_memory(fetch)) ? fetch : NULL;
}

/* A sample that the policy has admitted, with nobody waiting for it. */
static struct fetch *begin_ahead_locked(struct cache *cache, uint32_t slot)
{
	struct node *node = cache->nodes[slot];
	struct fetch *fetch;

	fetch = node ? fetch_get_locked(cache, node) : NULL;
	if (!fetch) {
		(void)sched_cancel(cache->sched, slot);
		return NULL;
	}
	fetch->admitted = true; /* a reader's fetch may be there already */
	return fetch->state == FETCH_WAITING ? fetch : NULL;
}

static struct fetch *next_warm_locked(struct cache *cache)
{
	while (cache->warm_first < cache->warm_count) {
		struct warm warm = cache->warm_queue[cache->warm_first++];
		uint32_t slot = warm.slot;
		struct node *node = cache->nodes[slot];
		struct sched_verdict verdict = { .action = SCHED_BYPASS };
		struct fetch *fetch = NULL;

		if (node && node->attr.size <= cache->range_bytes)
			(void)sched_warm(cache->sched, slot, cache_memory_of(node), &verdict);
		cache_drop_victims_locked(cache, &verdict);
		if (verdict.action == SCHED_ADMIT && node->attr.size)
			fetch = begin_ahead_locked(cache, slot);
		if (fetch) {
			fetch->warming = true;
			fetch->warm_bytes = warm.size;
			return fetch;
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
static struct fetch *next_ahead_locked(struct cache *cache)
{
	struct sched_verdict verdict;
	uint64_t size;
	uint32_t slot;

	if (!fits_locked(cache, cache->range_bytes))
		return NULL;
	while (sched_prefetch(cache->sched, cache->options.prefetch_bytes, &slot, &size,
			      &verdict) == 1) {
		struct fetch *fetch;

		cache_drop_victims_locked(cache, &verdict);
		fetch = begin_ahead_locked(cache, slot);
		if (fetch)
			return fetch;
	}
	cache_drop_victims_locked(cache, &verdict); /* some may have left for nothing */
	return next_warm_locked(cache);
}

static struct fetch *take_next(struct cache *cache)
{
	struct fetch *fetch = NULL;

	lock_acquire(&cache->lock);
	if (!cache->stopping) {
		fetch = next_wanted_locked(cache);
		if (!fetch)
			fetch = next_ahead_locked(cache);
	}
	if (fetch) {
		fetch->state = FETCH_RUNNING;
		cache->started_ms = clock_now_ms();
		fetch->deadline_ms = cache->started_ms + cache->options.deadline_ms;
		cache->running++;
		fetch->accounted = buffer_memory(fetch);
		cache->inflight_bytes += fetch->accounted;
	}
	lock_release(&cache->lock);
	return fetch;
}

void fetch_start_all(struct cache *cache)
{
	struct fetch *fetch;

	range_start_all(cache);
	while ((fetch = take_next(cache))) {
		if (!fetch->path)
			fetch->path = node_path(fetch->node);
		fetch->buffer = fetch->checking ? NULL : store_buffer(fetch->size);
		fetch->read = (struct store_read){ .path = fetch->path,
						   .expected = &fetch->expected,
						   .buffer = fetch->buffer,
						   .size = fetch->checking ? 0 : fetch->size,
						   .done = fetch->checking ? checked : fetched };
		if (fetch->path && (fetch->buffer || fetch->checking))
			store_read(cache->store, &fetch->read);
		else
			fetch->read.done(&fetch->read, -ENOMEM);
	}
}

/* What the store has to do for a read is done by the thread that began it, whenever that is out
 * of the kernel. A thread that waits in there for the folios of a READ must not have begun what
 * that READ waits for. */
void fetch_start_soon(struct cache *cache)
{
	lock_acquire(&cache->lock);
	if (!cache->start_wanted)
		cond_wake_all(&cache->changed);
	cache->start_wanted = true;
	lock_release(&cache->lock);
}

/* --- deadlines
 * ------------------------------------------------------------------------------------------ */

/* Gives up on a fetch: nobody waits for it any more. If the store has it, it ends it some time. */
static struct waiter *abandon_locked(struct fetch *fetch)
{
	struct waiter *waiters = fetch->waiters;

	fetch->waiters = NULL;
	fail_locked(fetch, -ETIMEDOUT);
	fetch->node->late_ms = clock_now_ms();
	if (fetch->state == FETCH_WAITING) {
		end_locked(fetch);
		return waiters;
	}
	fetch->abandoned = true; /* and stays the node's: a second one would hang, too */
	store_cancel(fetch->cache->store, &fetch->read);
	return waiters;
}

/* A fetch has its deadline; what waits for its turn has it, too, while nothing moves: all that
 * the store has may hang. */
static bool is_late_locked(const struct fetch *fetch, uint64_t now)
{
	const struct cache *cache = fetch->cache;

	if (fetch->state == FETCH_READY || fetch->abandoned || fetch->deadline_ms > now)
		return false;
	return fetch->state == FETCH_RUNNING ||
	       cache->started_ms + cache->options.deadline_ms <= now;
}

/* Those who wait for the first fetch that is late, and what it is. */
static struct waiter *take_late(struct cache *cache, char *name, size_t room, bool *found)
{
	uint64_t now = clock_now_ms();
	struct waiter *waiters;
	struct fetch *fetch;

	lock_acquire(&cache->lock);
	waiters = range_take_late_locked(cache, now);
	fetch = cache->fetches;
	while (fetch && !is_late_locked(fetch, now))
		fetch = fetch->next;
	*found = fetch;
	if (fetch) {
		struct waiter **end = &waiters;

		snprintf(name, room, "%s", fetch->node->name);
		while (*end)
			end = &(*end)->next;
		*end = abandon_locked(fetch);
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

void cache_clock(void *argument)
{
	struct cache *cache = argument;
	bool stopping = false;

	while (!stopping) {
		uint64_t until_ms = clock_now_ms() + WATCH_MS;

		while (rest(cache, until_ms, &stopping))
			fetch_start_all(cache);
		answer_late(cache);
		tree_reap(cache->tree);
		cache_drop_old_passing(cache);
		fetch_start_all(cache); /* if drops are stuck */
		cache->options.tick(cache->options.tick_context);
	}
}
