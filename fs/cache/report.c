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
	return stats.resident_bytes + budget_used(&cache->budget) +
	       fetch_storing_bytes_locked(cache);
}

void cache_get_stats(struct cache *cache, struct cache_stats *stats)
{
	lock_acquire(&cache->lock);
	*stats = cache->stats;
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

/* The nodes of all samples, held, by id; NULL where the name is gone. */
static int hold_nodes(struct cache *cache, struct node ***nodes, uint32_t *count)
{
	const struct numbering *numbering = &cache->numbering;
	int rc = 0;

	lock_acquire(&cache->lock);
	*count = numbering->id_count;
	*nodes = NULL;
	if (!numbering_is_complete(numbering))
		rc = -EAGAIN;
	else if (!(*nodes = malloc((*count + 1) * sizeof(**nodes))))
		rc = -ENOMEM;
	for (uint32_t id = 0; !rc && id < *count; id++) {
		(*nodes)[id] = cache_node_locked(cache, numbering->slots[id]);
		if ((*nodes)[id])
			node_hold((*nodes)[id]);
	}
	lock_release(&cache->lock);
	return rc;
}

int cache_copy_paths(struct cache *cache, char ***paths, uint32_t *count)
{
	struct node **nodes;
	int rc = hold_nodes(cache, &nodes, count);

	if (rc)
		return rc;
	*paths = calloc(*count + 1, sizeof(**paths));
	for (uint32_t id = 0; id < *count; id++)
		if (nodes[id]) {
			if (*paths)
				(*paths)[id] = node_path(nodes[id]);
			tree_release(cache->tree, nodes[id]);
		}
	free(nodes);
	return *paths ? 0 : -ENOMEM;
}

void cache_free_paths(char **paths, uint32_t count)
{
	for (uint32_t id = 0; paths && id < count; id++)
		free(paths[id]);
	free(paths);
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
