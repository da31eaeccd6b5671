/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What passes through: pages of files that the policy has not admitted, or that it evicted while
 * they were open. They are dropped when the last reader closes the file, or when room is needed.
 */
#include <assert.h>

#include "base/threads.h"
#include "cache/internal.h"

#define PASSING_OLD_MS 5000
#define TRIM_AT_A_TIME 64

/* --- drops --------------------------------------------------------------------------------------
 */

/* What a file counts for while it passes through or leaves. What the kernel keeps of a large one
 * is its reader's, as of any file: nobody knows how much that is. */
static uint64_t charge_of(const struct cache *cache, const struct node *node)
{
	return node_is_file(node) && !cache_is_large(cache, node) ? cache_memory_of(cache, node)
								  : 0;
}

void drop_locked(struct cache *cache, struct node *node, uint64_t now_ms)
{
	int rc = page_cache_drop(cache->page_cache, node);

	lock_assert_held(&cache->lock);
	/* The one before may be over and drop_done() not called yet: then there are two. */
	if (rc < 0 || (!rc && node->cache.charges))
		return;
	node->cache.charges++;
	budget_leave(&cache->budget, charge_of(cache, node), now_ms);
}

/* A name or a directory has no pages that count. */
static uint64_t take_charge_locked(struct cache *cache, struct node *node)
{
	lock_assert_held(&cache->lock);
	if (!node_is_file(node) || !node->cache.charges)
		return 0;
	node->cache.charges--;
	return charge_of(cache, node);
}

void drop_done(void *context, struct node *node)
{
	struct cache *cache = context;

	lock_acquire(&cache->lock);
	budget_gone(&cache->budget, take_charge_locked(cache, node), clock_now_ms());
	if (!cache->budget.leaving_bytes)
		cond_wake_all(&cache->changed);
	start_soon_locked(cache);
	lock_release(&cache->lock);
}

void drop_victims_locked(struct cache *cache, const struct sched_verdict *verdict, uint64_t now_ms)
{
	lock_assert_held(&cache->lock);
	for (uint32_t i = 0; i < verdict->victim_count; i++) {
		struct node *node = cache_node_locked(cache, verdict->victims[i]);

		if (!node)
			continue;
		ratings_change_locked(cache, verdict->victims[i]);
		if (node->cache.fetch)
			fetch_recount_locked(node->cache.fetch);
		/* Whoever has it open has hardly read it yet. */
		if (node->cache.opens)
			passing_add_locked(cache, node, now_ms);
		else
			drop_locked(cache, node, now_ms);
	}
}

void drop_excess_locked(struct cache *cache, uint64_t now_ms)
{
	uint32_t victims[TRIM_AT_A_TIME], count;

	lock_assert_held(&cache->lock);
	while ((count = sched_trim(cache->sched, victims, TRIM_AT_A_TIME)) > 0) {
		struct sched_verdict verdict = { .victim_count = count, .victims = victims };

		drop_victims_locked(cache, &verdict, now_ms);
	}
}

/* --- the ring -----------------------------------------------------------------------------------
 */

void passing_remove_locked(struct cache *cache, struct node *node)
{
	lock_assert_held(&cache->lock);
	if (!node->cache.is_passing)
		return;
	node->cache.is_passing = false;
	budget_unpass(&cache->budget, charge_of(cache, node));
}

void passing_closed_locked(struct cache *cache, struct node *node, uint64_t now_ms)
{
	lock_assert_held(&cache->lock);
	if (!node->cache.is_passing)
		return;
	passing_remove_locked(cache, node);
	if (!cache_is_resident_locked(cache, node))
		drop_locked(cache, node, now_ms);
}

/* The oldest entry; its file may have been dropped long ago. */
static void drop_oldest_locked(struct cache *cache, uint64_t now_ms)
{
	struct passing *passing = &cache->passing;
	struct node *node = passing->nodes[passing->first];

	lock_assert_held(&cache->lock);
	passing->first = (passing->first + 1) % PASSING_MAX;
	passing->count--;
	node->cache.in_passing = false;
	passing_closed_locked(cache, node, now_ms);
	tree_release(cache->tree, node);
}

void passing_make_room_locked(struct cache *cache, struct need need, uint64_t now_ms)
{
	const struct budget *budget = &cache->budget;

	lock_assert_held(&cache->lock);
	while (cache->passing.count && budget_used(budget) - budget->leaving_bytes + need.bytes >
					       budget_limit(budget, need))
		drop_oldest_locked(cache, now_ms);
}

void passing_expire_locked(struct cache *cache, uint64_t now_ms)
{
	const struct passing *passing = &cache->passing;

	lock_assert_held(&cache->lock);
	while (cache->options.observed && passing->count &&
	       now_ms > passing->since_ms[passing->first] + PASSING_OLD_MS)
		drop_oldest_locked(cache, now_ms);
}

void passing_add_locked(struct cache *cache, struct node *node, uint64_t now_ms)
{
	struct passing *passing = &cache->passing;
	uint32_t at;

	lock_assert_held(&cache->lock);
	if (node->cache.is_passing)
		return;
	if (!node->cache.opens) {
		drop_locked(cache, node, now_ms); /* closed already */
		return;
	}
	node->cache.is_passing = true;
	budget_pass(&cache->budget, charge_of(cache, node));
	if (node->cache.in_passing)
		return;
	if (passing->count == PASSING_MAX)
		drop_oldest_locked(cache, now_ms);
	assert(passing->count < PASSING_MAX);
	node_hold(node);
	node->cache.in_passing = true;
	at = (passing->first + passing->count++) % PASSING_MAX;
	passing->nodes[at] = node;
	passing->since_ms[at] = now_ms;
}

void passing_release_all(struct cache *cache)
{
	struct passing *passing = &cache->passing;

	while (passing->count) {
		tree_release(cache->tree, passing->nodes[passing->first]);
		passing->first = (passing->first + 1) % PASSING_MAX;
		passing->count--;
	}
}
