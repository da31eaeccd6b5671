/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Figures, and copies of what is known of all samples: each shows one moment. */
#include <stdlib.h>

#include "base/threads.h"
#include "cache/internal.h"

/* What is only set aside needs no memory yet. */
uint64_t report_memory_locked(const struct cache *cache)
{
	struct sched_stats stats;

	lock_assert_held(&cache->lock);
	sched_get_stats(cache->sched, &stats);
	return stats.resident_bytes + budget_used(&cache->budget) + cache->storing_bytes;
}

static void get_waits_locked(struct cache *cache, struct cache_stats *stats, uint64_t now_ms)
{
	lock_assert_held(&cache->lock);
	waits_count(&cache->waits, now_ms);
	stats->waits = cache->waits.count;
	stats->wait_ms = cache->waits.wait_ms;
	stats->waiting_ms = cache->waits.waiting_ms;
	stats->limited_ms = cache->waits.limited_ms;
	stats->limited_bytes = cache->waits.limited_bytes;
}

void cache_get_stats(struct cache *cache, struct cache_stats *stats)
{
	uint64_t now_ms = clock_now_ms();

	lock_acquire(&cache->lock);
	*stats = cache->stats;
	get_waits_locked(cache, stats, now_ms);
	sched_get_stats(cache->sched, &stats->sched);
	(void)sched_get_job_stats(cache->sched, 0, &stats->job);
	stats->policy = sched_policy(cache->sched);
	stats->capacity_bytes = cache->options.capacity_bytes;
	stats->inflight_bytes = budget_used(&cache->budget);
	stats->memory_bytes = report_memory_locked(cache);
	lock_release(&cache->lock);
}

static struct cache_sample sample_locked(const struct cache *cache, uint32_t job, uint32_t slot)
{
	const struct node *node = cache_node_locked(cache, slot);

	lock_assert_held(&cache->lock);
	return (struct cache_sample){
		.score = sched_get_score(cache->sched, job, slot),
		.frequency = sched_get_frequency(cache->sched, slot),
		.resident = sched_resident(cache->sched, slot),
		.size = node ? node->attr.size : 0,
	};
}

int cache_get_sample(struct cache *cache, uint32_t job, uint32_t id, struct cache_sample *sample)
{
	uint32_t slot;
	int rc;

	lock_acquire(&cache->lock);
	rc = numbering_slot(&cache->numbering, id, &slot);
	if (!rc)
		*sample = sample_locked(cache, job, slot);
	lock_release(&cache->lock);
	return rc;
}

int cache_copy_samples(struct cache *cache, uint32_t job, struct cache_sample **samples,
		       uint32_t *count)
{
	const struct numbering *numbering = &cache->numbering;
	int rc = 0;

	lock_acquire(&cache->lock);
	*count = numbering->id_count;
	*samples = NULL;
	if (!numbering_is_complete(numbering))
		rc = -EAGAIN;
	else if (!(*samples = malloc((*count + 1) * sizeof(**samples))))
		rc = -ENOMEM;
	for (uint32_t id = 0; !rc && id < *count; id++)
		(*samples)[id] = sample_locked(cache, job, numbering->slots[id]);
	lock_release(&cache->lock);
	return rc;
}

#define NAMES_AT_A_TIME 16384 /* that the lock is held for */
#define NAMES_TRIES 4	      /* before it is held for all of them */

static struct cache_names *names_new_locked(const struct cache *cache)
{
	uint32_t count = cache->numbering.id_count;
	struct cache_names *names = malloc(sizeof(*names) + count * sizeof(*names->nodes));

	lock_assert_held(&cache->lock);
	if (names) {
		names->version = cache->slots.version;
		names->count = count;
	}
	return names;
}

/* Up to `most` of them from `first` on. Returns where it got to. */
static uint32_t hold_some_locked(const struct cache *cache, struct cache_names *names,
				 uint32_t first, uint32_t most)
{
	uint32_t end = names->count - first > most ? first + most : names->count;

	lock_assert_held(&cache->lock);
	for (uint32_t id = first; id < end; id++) {
		names->nodes[id] = cache_node_locked(cache, cache->numbering.slots[id]);
		if (names->nodes[id])
			node_hold(names->nodes[id]);
	}
	return end;
}

/* -ESTALE: names have changed meanwhile. */
static int hold_all(struct cache *cache, uint32_t most, struct cache_names **out)
{
	struct cache_names *names = NULL;
	uint32_t held = 0;
	int rc = 0;

	do {
		lock_acquire(&cache->lock);
		if (!numbering_is_complete(&cache->numbering))
			rc = -EAGAIN;
		else if (!names && !(names = names_new_locked(cache)))
			rc = -ENOMEM;
		else if (names->version != cache->slots.version)
			rc = -ESTALE;
		else
			held = hold_some_locked(cache, names, held, most);
		lock_release(&cache->lock);
	} while (!rc && held < names->count);
	if (rc && names) {
		names->count = held;
		cache_release_names(cache, names);
		names = NULL;
	}
	*out = names;
	return rc;
}

/* Readers wait for the lock, so it is released between; where names change all the time, it is
 * not. */
int cache_hold_names(struct cache *cache, struct cache_names **out)
{
	int rc = -ESTALE;

	for (unsigned try = 0; rc == -ESTALE && try <= NAMES_TRIES; try++)
		rc = hold_all(cache, try < NAMES_TRIES ? NAMES_AT_A_TIME : UINT32_MAX, out);
	return rc;
}

void cache_hold_slots(struct cache *cache, const uint32_t *slots, uint32_t count,
		      struct node **nodes)
{
	lock_acquire(&cache->lock);
	for (uint32_t i = 0; i < count; i++) {
		nodes[i] = cache_node_locked(cache, slots[i]);
		if (nodes[i])
			node_hold(nodes[i]);
	}
	lock_release(&cache->lock);
}

void cache_release_names(struct cache *cache, struct cache_names *names)
{
	for (uint32_t id = 0; id < names->count; id++)
		if (names->nodes[id])
			tree_release(cache->tree, names->nodes[id]);
	free(names);
}

uint64_t cache_names_version(struct cache *cache)
{
	uint64_t version;

	lock_acquire(&cache->lock);
	version = cache->slots.version;
	lock_release(&cache->lock);
	return version;
}

uint32_t cache_ahead(struct cache *cache, uint32_t job, uint32_t *ids, uint32_t max)
{
	uint32_t count;

	lock_acquire(&cache->lock);
	count = sched_get_ahead(cache->sched, job, ids, max);
	for (uint32_t i = 0; i < count; i++)
		ids[i] = numbering_id(&cache->numbering, ids[i]);
	lock_release(&cache->lock);
	return count;
}

uint64_t cache_trace_begin(struct cache *cache)
{
	uint64_t at;

	lock_acquire(&cache->lock);
	at = access_log_begin(&cache->log);
	lock_release(&cache->lock);
	return at;
}

void cache_trace_end(struct cache *cache)
{
	lock_acquire(&cache->lock);
	access_log_end(&cache->log);
	lock_release(&cache->lock);
}

uint32_t cache_trace(struct cache *cache, uint64_t *at, struct cache_access *accesses, uint32_t max,
		     uint64_t *lost)
{
	uint32_t count;

	lock_acquire(&cache->lock);
	count = access_log_read(&cache->log, at, accesses, max, lost);
	lock_release(&cache->lock);
	return count;
}

int cache_watch_begin(struct cache *cache)
{
	int rc;

	lock_acquire(&cache->lock);
	rc = watch_begin(&cache->watch);
	lock_release(&cache->lock);
	return rc;
}

uint32_t cache_watch(struct cache *cache, uint64_t *at, struct cache_seen *seen, uint32_t max,
		     uint64_t *lost)
{
	uint32_t count;

	lock_acquire(&cache->lock);
	count = watch_read(&cache->watch, at, seen, max, lost);
	lock_release(&cache->lock);
	return count;
}

#define REACH_SIZES 256 /* samples whose sizes stand for all */

uint32_t cache_reach(struct cache *cache, const uint32_t *slots, uint32_t count)
{
	uint32_t step = count / REACH_SIZES + 1, known = 0;
	uint64_t bytes = 0, reach;
	struct sched_stats stats;

	lock_acquire(&cache->lock);
	sched_get_stats(cache->sched, &stats);
	for (uint32_t i = 0; i < count; i += step, known++)
		bytes += sample_locked(cache, 0, slots[i]).size;
	lock_release(&cache->lock);
	reach = bytes ? (uint64_t)((double)stats.capacity_bytes * known / (double)bytes) : count;
	return reach < UINT32_MAX ? (uint32_t)reach : UINT32_MAX;
}

int cache_importance(struct cache *cache, uint32_t jobs, float **importance, uint32_t *count)
{
	struct sched_stats stats;
	int rc = -ENOMEM;

	lock_acquire(&cache->lock);
	sched_get_stats(cache->sched, &stats);
	*count = stats.samples;
	*importance = malloc(((size_t)*count + 1) * sizeof(**importance));
	if (*importance)
		rc = sched_importance(cache->sched, jobs, *importance);
	lock_release(&cache->lock);
	if (rc) {
		free(*importance);
		*importance = NULL;
	}
	return rc;
}
