/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What trainings tell (jobs, scores, orders, epochs), and what people set (pins, evictions,
 * capacity, policy). */
#include <stdlib.h>

#include "base/threads.h"
#include "cache/internal.h"

#define TRIM_PATIENCE_MS 5000

/* --- jobs ---------------------------------------------------------------------------------------
 */

/* What the job expects is worth something else from now on. */
static void rerate_ahead_locked(struct cache *cache, uint32_t job)
{
	struct sched_job_stats stats;
	uint32_t *ahead, count;

	lock_assert_held(&cache->lock);
	if (!store_takes_ratings(cache->store) || sched_get_job_stats(cache->sched, job, &stats))
		return;
	ahead = malloc((stats.order_ahead + 1) * sizeof(*ahead));
	count = ahead ? sched_get_ahead(cache->sched, job, ahead, (uint32_t)stats.order_ahead) : 0;
	for (uint32_t i = 0; i < count; i++)
		ratings_change_locked(cache, ahead[i]);
	free(ahead);
}

int cache_job_begin(struct cache *cache, uint32_t *job)
{
	uint64_t now_ms = clock_now_ms();
	int rc;

	lock_acquire(&cache->lock);
	rc = sched_job_begin(cache->sched, job);
	if (!rc) {
		history_job_locked(cache, *job, now_ms);
		said_begin_locked(cache, *job);
	}
	lock_release(&cache->lock);
	return rc;
}

int cache_job_end(struct cache *cache, uint32_t job)
{
	int rc;

	lock_acquire(&cache->lock);
	rerate_ahead_locked(cache, job);
	if (job)
		said_end_locked(cache, job);
	if (job)
		(void)sched_abandon(cache->sched, job);
	rc = sched_job_end(cache->sched, job);
	if (!rc)
		start_soon_locked(cache);
	lock_release(&cache->lock);
	return rc;
}

int cache_job_guess(struct cache *cache, uint32_t job)
{
	int rc;

	lock_acquire(&cache->lock);
	rc = sched_job_guess(cache->sched, job);
	if (!rc)
		said_guess_locked(cache, job);
	lock_release(&cache->lock);
	return rc;
}

void cache_job_rest(struct cache *cache, uint32_t job, uint64_t since_ms)
{
	struct pace *pace = &cache->jobs[job].pace;
	struct sched_job_stats stats;

	lock_acquire(&cache->lock);
	if (!sched_get_job_stats(cache->sched, job, &stats) && !stats.ended &&
	    (stats.order_bytes || stats.scored)) {
		rerate_ahead_locked(cache, job);
		(void)sched_abandon(cache->sched, job);
		start_soon_locked(cache);
	}
	if (pace->begun && pace->last_ms <= since_ms) {
		*pace = (struct pace){ .last_ms = pace->last_ms };
		(void)sched_pace(cache->sched, job, 0, 0);
	}
	lock_release(&cache->lock);
}

int cache_job_forget(struct cache *cache, uint32_t job)
{
	int rc;

	lock_acquire(&cache->lock);
	rerate_ahead_locked(cache, job);
	rc = sched_forget_job(cache->sched, job);
	said_forget_scores_locked(cache, job);
	start_soon_locked(cache);
	lock_release(&cache->lock);
	return rc;
}

uint64_t cache_job_read_ms(struct cache *cache, uint32_t job)
{
	uint64_t read_ms;

	lock_acquire(&cache->lock);
	read_ms = job < SCHED_JOBS_MAX ? cache->jobs[job].read_ms : 0;
	lock_release(&cache->lock);
	return read_ms;
}

int cache_job_stats(struct cache *cache, uint32_t job, struct sched_job_stats *stats)
{
	int rc;

	lock_acquire(&cache->lock);
	rc = sched_get_job_stats(cache->sched, job, stats);
	lock_release(&cache->lock);
	return rc;
}

/* --- hints --------------------------------------------------------------------------------------
 */

int cache_score(struct cache *cache, uint32_t job, const uint32_t *ids, const float *scores,
		uint32_t count)
{
	int rc = 0;

	lock_acquire(&cache->lock);
	for (uint32_t i = 0; !rc && i < count; i++) {
		uint32_t slot;

		rc = numbering_slot(&cache->numbering, ids[i], &slot);
		if (!rc)
			rc = sched_score(cache->sched, job, slot, scores[i]);
		if (!rc) {
			said_score_locked(cache, job, slot, scores[i]);
			ratings_change_locked(cache, slot);
		}
	}
	lock_release(&cache->lock);
	return rc;
}

static int find_slots_locked(struct cache *cache, const uint32_t *ids, uint32_t count,
			     uint32_t *slots)
{
	int rc = 0;

	lock_assert_held(&cache->lock);
	for (uint32_t i = 0; !rc && i < count; i++)
		rc = numbering_slot(&cache->numbering, ids[i], &slots[i]);
	return rc;
}

/* What was read before the order was known. */
static void skip_seen_locked(struct cache *cache, uint32_t job, uint64_t at)
{
	struct cache_seen seen;
	uint64_t lost;

	lock_assert_held(&cache->lock);
	while (watch_read(&cache->watch, &at, &seen, 1, &lost))
		if (!seen.claimed || seen.job == job)
			(void)sched_skip(cache->sched, job, seen.slot);
}

int cache_order_since(struct cache *cache, uint32_t job, uint64_t epoch, const uint32_t *ids,
		      uint32_t count, uint64_t at)
{
	uint32_t *slots = malloc((count + 1) * sizeof(*slots));
	int rc;

	if (!slots)
		return -ENOMEM;
	lock_acquire(&cache->lock);
	rc = find_slots_locked(cache, ids, count, slots);
	if (!rc)
		rc = sched_order(cache->sched, job, epoch, slots, count);
	if (!rc) {
		skip_seen_locked(cache, job, at);
		history_order_locked(cache, job, epoch);
		start_soon_locked(cache);
	}
	for (uint32_t i = 0; !rc && i < count; i++)
		ratings_change_locked(cache, slots[i]);
	lock_release(&cache->lock);
	free(slots);
	return rc;
}

int cache_name(struct cache *cache, uint32_t job, const uint32_t *ids, uint32_t count)
{
	uint32_t *slots = malloc((count + 1) * sizeof(*slots));
	int rc;

	if (!slots)
		return -ENOMEM;
	lock_acquire(&cache->lock);
	rc = find_slots_locked(cache, ids, count, slots);
	if (!rc)
		rc = sched_name(cache->sched, job, slots, count);
	lock_release(&cache->lock);
	free(slots);
	return rc;
}

int cache_order(struct cache *cache, uint32_t job, uint64_t epoch, const uint32_t *ids,
		uint32_t count)
{
	return cache_order_since(cache, job, epoch, ids, count, UINT64_MAX);
}

int cache_epoch(struct cache *cache, uint32_t job, uint64_t epoch)
{
	uint64_t now_ms = clock_now_ms();
	int rc;

	lock_acquire(&cache->lock);
	rc = sched_epoch(cache->sched, job, epoch);
	start_soon_locked(cache);
	if (!rc) {
		said_epoch_locked(cache, job, epoch);
		history_epoch_locked(cache, job, epoch, now_ms);
		rerate_ahead_locked(cache, job);
	}
	lock_release(&cache->lock);
	return rc;
}

int cache_drop_orders(struct cache *cache, uint32_t job)
{
	int rc;

	lock_acquire(&cache->lock);
	rerate_ahead_locked(cache, job);
	rc = sched_drop_orders(cache->sched, job);
	start_soon_locked(cache);
	lock_release(&cache->lock);
	return rc;
}

void cache_set_uses(struct cache *cache, uint32_t job, double uses)
{
	lock_acquire(&cache->lock);
	if (job < SCHED_JOBS_MAX)
		cache->jobs[job].uses = uses;
	said_uses_locked(cache, job, uses);
	lock_release(&cache->lock);
}

double cache_get_uses(struct cache *cache, uint32_t job)
{
	double uses;

	lock_acquire(&cache->lock);
	uses = job < SCHED_JOBS_MAX ? cache->jobs[job].uses : 0;
	lock_release(&cache->lock);
	return uses;
}

/* --- settings -----------------------------------------------------------------------------------
 */

/* Waits until what left is gone, for a while at most: a drop may wait for a reader. */
static void wait_for_drops_locked(struct cache *cache, uint64_t now_ms)
{
	uint64_t until_ms = now_ms + TRIM_PATIENCE_MS;

	lock_assert_held(&cache->lock);
	passing_make_room_locked(
		cache, (struct need){ .bytes = cache->budget.leaving_bytes, .is_big = true },
		now_ms);
	while (budget_used(&cache->budget) > cache->budget.limit_bytes && !cache->stopping)
		if (!cond_wait_until(&cache->changed, &cache->lock, until_ms))
			break;
}

static struct sched_stats policy_stats_locked(const struct cache *cache)
{
	struct sched_stats stats;

	lock_assert_held(&cache->lock);
	sched_get_stats(cache->sched, &stats);
	return stats;
}

/* The new capacity is shown when memory is below it. Meanwhile somebody may have set another one,
 * which is then shown by whoever set it. */
static void lower_or_raise_locked(struct cache *cache, uint64_t bytes, uint64_t now_ms)
{
	uint64_t for_policy = bytes - cache->options.inflight_bytes;

	lock_assert_held(&cache->lock);
	if (bytes > cache->ceiling_bytes)
		cache->ceiling_bytes = bytes;
	(void)sched_set_capacity(cache->sched, for_policy);
	said_capacity_locked(cache, bytes);
	drop_excess_locked(cache, now_ms);
	wait_for_drops_locked(cache, now_ms);
	if (policy_stats_locked(cache).capacity_bytes == for_policy)
		cache->options.capacity_bytes = bytes;
	start_soon_locked(cache);
}

int cache_set_capacity(struct cache *cache, uint64_t bytes)
{
	int rc = 0;

	if (bytes <= cache->options.inflight_bytes)
		return -EINVAL;
	lock_acquire(&cache->lock);
	if (policy_stats_locked(cache).pinned_bytes > bytes - cache->options.inflight_bytes)
		rc = -EBUSY;
	else
		lower_or_raise_locked(cache, bytes, clock_now_ms());
	lock_release(&cache->lock);
	return rc;
}

int cache_set_policy(struct cache *cache, const char *policy)
{
	int rc;

	lock_acquire(&cache->lock);
	rc = sched_set_policy(cache->sched, policy);
	if (!rc)
		said_policy_locked(cache);
	lock_release(&cache->lock);
	return rc;
}

int cache_evict(struct cache *cache, const char *path)
{
	uint32_t *slots, count;
	int rc = numbering_below(cache, path, &slots, &count);

	if (rc)
		return rc;
	lock_acquire(&cache->lock);
	for (uint32_t i = 0; i < count; i++) {
		struct sched_verdict verdict = { .victim_count = 1, .victims = &slots[i] };

		if (!sched_evict(cache->sched, slots[i]))
			drop_victims_locked(cache, &verdict, clock_now_ms());
	}
	lock_release(&cache->lock);
	free(slots);
	return 0;
}

int cache_pin(struct cache *cache, const char *path, bool pin)
{
	uint32_t *slots, count;
	int rc = numbering_below(cache, path, &slots, &count);

	if (rc)
		return rc;
	lock_acquire(&cache->lock);
	for (uint32_t i = 0; i < count; i++) {
		struct node *node = cache_node_locked(cache, slots[i]);

		(void)(pin ? sched_pin : sched_unpin)(cache->sched, slots[i]);
		if (node)
			node->cache.is_pinned = pin;
	}
	lock_release(&cache->lock);
	free(slots);
	return 0;
}
