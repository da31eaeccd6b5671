/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which fetches start next. What readers wait for goes before what is fetched ahead of a known
 * order, and that before what was asked for by hand. Memory is bounded by the budget, reads at a
 * time by its depth; what nobody waits for yet leaves room for the largest file that somebody might
 * want.
 */
#include <assert.h>

#include "base/threads.h"
#include "cache/internal.h"

bool start_has_room_locked(struct cache *cache, struct need need, uint64_t now_ms)
{
	lock_assert_held(&cache->lock);
	if (budget_fits(&cache->budget, need))
		return true;
	passing_make_room_locked(cache, need, now_ms);
	return budget_fits(&cache->budget, need);
}

/* Big files may push memory up to its bound; what their drops wait for must not wait for them in
 * turn. So while there is one, reads may begin above the bound, by as much as `inflight`. */
static bool may_exceed_locked(const struct cache *cache, struct need need, uint64_t above_bytes)
{
	const struct budget *budget = &cache->budget;

	lock_assert_held(&cache->lock);
	return (need.is_big || budget->big_bytes) && above_bytes <= budget->limit_bytes;
}

/* What leaves for a lower capacity may be stuck, too: until it is gone, the old one is the bound.
 */
bool start_use_spare_locked(struct cache *cache, struct need need, uint64_t now_ms)
{
	uint64_t memory;

	lock_assert_held(&cache->lock);
	if (!budget_may_use_spare(&cache->budget, now_ms))
		return false;
	memory = report_memory_locked(cache);
	if (memory <= cache->options.capacity_bytes)
		cache->ceiling_bytes = cache->options.capacity_bytes;
	if (memory + need.bytes > cache->ceiling_bytes &&
	    !may_exceed_locked(cache, need, memory + need.bytes - cache->ceiling_bytes))
		return false;
	cache->budget.spare_running++;
	cache->budget.spare_ms = now_ms;
	return true;
}

/* What somebody waits for. Nothing is fetched ahead while it does not fit, or it might never. */
static struct fetch *next_wanted_locked(struct cache *cache, uint64_t now_ms)
{
	struct fetch *fetch = cache->waiting;

	lock_assert_held(&cache->lock);
	if (!fetch || start_has_room_locked(cache, fetch_need_locked(fetch), now_ms))
		return fetch;
	fetch->spare = start_use_spare_locked(cache, fetch_need_locked(fetch), now_ms);
	return fetch->spare ? fetch : NULL;
}

struct fetch *start_ahead_locked(struct cache *cache, uint32_t slot, enum fetch_purpose purpose,
				 uint32_t job, uint64_t now_ms)
{
	struct node *node = cache_node_locked(cache, slot);
	struct fetch *fetch = node ? fetch_get_locked(cache, node, purpose, job, now_ms) : NULL;

	lock_assert_held(&cache->lock);
	if (!fetch) {
		(void)sched_cancel(cache->sched, slot);
		return NULL;
	}
	fetch_reserve_locked(fetch);
	return fetch->state == FETCH_WAITING ? fetch : NULL;
}

static struct fetch *next_ahead_locked(struct cache *cache, uint64_t now_ms)
{
	struct sched_verdict verdict;
	uint64_t size;
	uint32_t slot;

	lock_assert_held(&cache->lock);
	if (!budget_fits_ahead(&cache->budget))
		return NULL;
	while (sched_prefetch(cache->sched, cache->options.prefetch_bytes, &slot, &size,
			      &verdict) == 1) {
		struct fetch *fetch;

		drop_victims_locked(cache, &verdict, now_ms);
		fetch = start_ahead_locked(cache, slot, FETCH_AHEAD, verdict.job, now_ms);
		if (fetch)
			return fetch;
	}
	drop_victims_locked(cache, &verdict, now_ms); /* some may have left for nothing */
	return warm_next_locked(cache, now_ms);
}

struct starts start_pick_locked(struct cache *cache, uint64_t now_ms)
{
	struct starts starts = { 0 };
	struct fetch *fetch, **end = &starts.fetches;

	lock_assert_held(&cache->lock);
	if (cache->stopping || !cache->is_settled)
		return starts;
	starts.ranges = range_pick_locked(cache, now_ms);
	while ((fetch = next_wanted_locked(cache, now_ms)) ||
	       (!cache->waiting && (fetch = next_ahead_locked(cache, now_ms)))) {
		fetch_start_locked(fetch, now_ms);
		fetch->next_start = NULL;
		*end = fetch;
		end = &fetch->next_start;
	}
	waits_set_full(&cache->waits, cache->waiting || !budget_fits_ahead(&cache->budget), now_ms);
	return starts;
}

/* A fetch may end while it is submitted, so the list is read before. */
void start_submit(struct cache *cache, struct starts starts)
{
	(void)cache;
	range_submit_all(starts.ranges);
	for (struct fetch *next, *fetch = starts.fetches; fetch; fetch = next) {
		next = fetch->next_start;
		fetch_submit(fetch);
	}
}

void start_all(struct cache *cache)
{
	struct starts starts;

	lock_acquire(&cache->lock);
	starts = start_pick_locked(cache, clock_now_ms());
	lock_release(&cache->lock);
	start_submit(cache, starts);
}

void start_soon_locked(struct cache *cache)
{
	lock_assert_held(&cache->lock);
	if (!cache->start_wanted)
		cond_wake_all(&cache->changed);
	cache->start_wanted = true;
}

/* Without memory the next start would fail in the same way, one inside the other: `by_clock` leaves
 * it to the clock's thread. */
void start_landed(struct cache *cache, bool by_clock)
{
	struct starts starts = { 0 };

	lock_acquire(&cache->lock);
	budget_finish_read(&cache->budget);
	if (cache->stopping)
		cond_wake_all(&cache->changed);
	if (by_clock)
		start_soon_locked(cache);
	else
		starts = start_pick_locked(cache, clock_now_ms());
	lock_release(&cache->lock);
	start_submit(cache, starts);
}
