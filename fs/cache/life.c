/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The cache begins and ends; and its clock: a thread that watches deadlines, frees nodes and starts
 * fetches for threads that may not. */
#include <assert.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "cache/internal.h"

#define CLOCK_MS 20
#define STORE_MAX ((uint64_t)1 << 30) /* the kernel takes less than 4 GiB at once */

struct tree *cache_tree(struct cache *cache)
{
	return cache->tree;
}

/* --- the clock ----------------------------------------------------------------------------------
 */

static void answer_late_ranges(struct cache *cache)
{
	struct waiter *waiters;

	lock_acquire(&cache->lock);
	waiters = range_take_late_locked(cache, clock_now_ms());
	lock_release(&cache->lock);
	waiter_answer_all(waiters, -ETIMEDOUT);
}

/* Gives up on one fetch that is late. False: none is. */
static bool answer_late(struct cache *cache)
{
	uint64_t now_ms = clock_now_ms();
	struct waiter *waiters;
	struct node *late;

	lock_acquire(&cache->lock);
	waiters = fetch_take_late_locked(cache, now_ms, &late);
	lock_release(&cache->lock);
	waiter_answer_all(waiters, -ETIMEDOUT);
	if (!late)
		return false;
	log_say(LOG_WARNINGS, "no answer for %s within %llu s", late->name,
		(unsigned long long)cache->options.deadline_ms / 1000);
	tree_release(cache->tree, late);
	return true;
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

static void expire(struct cache *cache)
{
	uint64_t now_ms = clock_now_ms();

	lock_acquire(&cache->lock);
	passing_expire_locked(cache, now_ms);
	young_expire_locked(cache, now_ms);
	lock_release(&cache->lock);
}

static void run_clock(void *argument)
{
	struct cache *cache = argument;
	bool stopping = false;

	while (!stopping) {
		uint64_t until_ms = clock_now_ms() + CLOCK_MS;

		while (rest(cache, until_ms, &stopping))
			start_all(cache);
		answer_late_ranges(cache);
		while (answer_late(cache))
			;
		tree_answer_late(cache->tree, clock_now_ms());
		tree_reap(cache->tree);
		expire(cache);
		probe_some(cache);
		ratings_tell(cache);
		start_all(cache); /* if drops make no progress, there is the spare third */
		cache->options.tick(cache->options.tick_context);
	}
}

/* --- begin and end ------------------------------------------------------------------------------
 */

/* Files larger than an eighth of the capacity, or half of `inflight`, are read by ranges. */
static uint64_t range_bytes(const struct cache_options *options, const struct budget *budget)
{
	uint64_t bytes = options->capacity_bytes / 8;

	if (bytes > budget_largest(budget))
		bytes = budget_largest(budget);
	return bytes < STORE_MAX ? bytes : STORE_MAX;
}

int cache_create(struct cache **out, struct store *store, const struct cache_options *options)
{
	struct cache *cache = calloc(1, sizeof(*cache));
	struct tree_options names = { .staleness_ms = options->staleness_ms,
				      .deadline_ms = options->deadline_ms,
				      .readers = options->readers,
				      .events = &cache_tree_events,
				      .context = cache,
				      .estate = options->estate,
				      .is_successor = options->is_successor };
	int rc;

	assert(options->capacity_bytes > options->inflight_bytes && options->tick);
	if (!cache)
		return -ENOMEM;
	cache->options = *options;
	cache->store = store;
	cache->page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	cache->ceiling_bytes = options->capacity_bytes;
	cache->young_end = &cache->young;
	cache->is_settled = !options->is_successor;
	cache->ranges.files_end = &cache->ranges.files;
	cache->waiting_end = &cache->waiting;
	cache->budget.limit_bytes = options->inflight_bytes;
	cache->budget.depth = options->depth;
	cache->range_bytes = range_bytes(options, &cache->budget);
	lock_init(&cache->lock, LOCK_CACHE);
	cond_init(&cache->changed);
	cache->created_ms = clock_now_ms();
	rc = epochs_open(&cache->jobs[0].epochs);
	if (!rc)
		rc = sched_create(&cache->sched, options->capacity_bytes - options->inflight_bytes,
				  options->policy);
	if (!rc)
		rc = said_open(cache);
	if (!rc)
		rc = tree_open(&cache->tree, store, &names);
	if (!rc && options->is_successor)
		rc = heirs_inherit(cache);
	if (rc) {
		sched_destroy(cache->sched);
		history_free(cache);
		free(cache);
		return rc;
	}
	*out = cache;
	return 0;
}

int cache_start(struct cache *cache, const struct page_cache_kernel *kernel, void *context)
{
	int rc =
		page_cache_open(&cache->page_cache, cache->tree, kernel, context, drop_done, cache);

	if (rc)
		return rc;
	if (cache->options.is_successor)
		heirs_take_pages(cache);
	rc = thread_start(&cache->clock, "shade-clock", run_clock, cache);
	if (rc) {
		page_cache_stop(cache->page_cache);
		page_cache_close(cache->page_cache);
	}
	return rc;
}

void cache_stop(struct cache *cache)
{
	uint64_t now_ms = clock_now_ms();
	struct waiter *waiters;

	lock_acquire(&cache->lock);
	cache->stopping = true;
	waiters = waiter_join(fetch_take_all_locked(cache, now_ms),
			      range_take_all_locked(cache, now_ms));
	cond_wake_all(&cache->changed);
	lock_release(&cache->lock);
	waiter_answer_all(waiters, -ESHUTDOWN);
	tree_stop(cache->tree);
	thread_join(&cache->clock);
	lock_acquire(&cache->lock);
	while (cache->budget.running)
		cond_wait(&cache->changed, &cache->lock);
	lock_release(&cache->lock);
	page_cache_stop(cache->page_cache);
}

void cache_join(struct cache *cache)
{
	tree_join(cache->tree);
}

void cache_destroy(struct cache *cache)
{
	page_cache_close(cache->page_cache);
	fetch_free_all(cache);
	probe_free_all(cache);
	passing_release_all(cache);
	young_release_all(cache);
	tree_close(cache->tree);
	sched_destroy(cache->sched);
	numbering_free(&cache->numbering);
	slots_free(&cache->slots);
	ratings_free(&cache->ratings);
	history_free(cache);
	free(cache->warm.list);
	free(cache->log.ring);
	watch_free(&cache->watch);
	lock_destroy(&cache->lock);
	cond_destroy(&cache->changed);
	free(cache);
}
