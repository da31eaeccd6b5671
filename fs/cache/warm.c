/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Files that somebody wants to be resident: a queue that is worked on when nothing else is to be
 * fetched, and counters by which `shadectl warm` sees how far it is. */
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "cache/internal.h"

#define LOOK_AHEAD 64

static int queue_locked(struct cache *cache, const uint32_t *slots, uint32_t count)
{
	struct warm_queue *queue = &cache->warm;
	uint32_t left = queue->end - queue->first;
	struct warm *grown;

	lock_assert_held(&cache->lock);
	if (left)
		memmove(queue->list, queue->list + queue->first, left * sizeof(*grown));
	queue->first = 0;
	queue->end = left;
	grown = realloc(queue->list, ((size_t)left + count + 1) * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	queue->list = grown;
	queue->end += count;
	cache->stats.warm_pending += count;
	for (uint32_t i = 0; i < count; i++) {
		const struct node *node = cache_node_locked(cache, slots[i]);

		grown[left + i] = (struct warm){ node ? node->attr.size : 0, slots[i] };
		cache->stats.warm_pending_bytes += grown[left + i].size;
	}
	return 0;
}

int cache_warm(struct cache *cache, const char *path)
{
	uint32_t *slots, count;
	int rc = numbering_below(cache, path, &slots, &count);

	if (rc)
		return rc;
	lock_acquire(&cache->lock);
	rc = queue_locked(cache, slots, count);
	start_soon_locked(cache);
	lock_release(&cache->lock);
	free(slots);
	return rc;
}

static void count_locked(struct cache *cache, uint64_t bytes, uint64_t *number, uint64_t *sum)
{
	lock_assert_held(&cache->lock);
	cache->stats.warm_pending--;
	cache->stats.warm_pending_bytes -= bytes;
	(*number)++;
	if (sum)
		*sum += bytes;
}

void warm_done_locked(struct cache *cache, uint64_t bytes, int rc)
{
	struct cache_stats *stats = &cache->stats;

	lock_assert_held(&cache->lock);
	if (rc)
		count_locked(cache, bytes, &stats->warm_failed, NULL);
	else
		count_locked(cache, bytes, &stats->warm_done, &stats->warm_done_bytes);
}

/* Asks the policy for one of them. Its fetch; or NULL, and then it is counted. */
static struct fetch *begin_locked(struct cache *cache, const struct warm *warm, uint64_t now_ms)
{
	struct node *node = cache_node_locked(cache, warm->slot);
	struct sched_verdict verdict = { .action = SCHED_BYPASS };
	struct fetch *fetch = NULL;

	lock_assert_held(&cache->lock);
	if (node && !cache_is_large(cache, node))
		(void)sched_warm(cache->sched, warm->slot, cache_memory_of(cache, node), &verdict);
	drop_victims_locked(cache, &verdict, now_ms);
	if (verdict.action == SCHED_ADMIT && node->attr.size)
		fetch = start_ahead_locked(cache, warm->slot, FETCH_WARM, 0, now_ms);
	else if (verdict.action == SCHED_ADMIT)
		(void)sched_commit(cache->sched, warm->slot);
	if (fetch) {
		fetch->warms = true;
		fetch->warm_bytes = warm->size;
	} else if (verdict.action == SCHED_BYPASS) {
		count_locked(cache, warm->size, &cache->stats.warm_refused,
			     &cache->stats.warm_refused_bytes);
	} else {
		warm_done_locked(cache, warm->size, 0);
	}
	return fetch;
}

/* Those that are too young wait for their time behind others. False: all that were looked at are.
 */
static bool bring_grown_forward_locked(struct cache *cache)
{
	struct warm_queue *queue = &cache->warm;
	uint32_t at = queue->first;
	struct warm found;

	lock_assert_held(&cache->lock);
	for (; at < queue->end && at - queue->first < LOOK_AHEAD; at++) {
		const struct node *node = cache_node_locked(cache, queue->list[at].slot);

		if (node && node->cache.young)
			continue;
		found = queue->list[at];
		queue->list[at] = queue->list[queue->first];
		queue->list[queue->first] = found;
		return true;
	}
	return false;
}

struct fetch *warm_next_locked(struct cache *cache, uint64_t now_ms)
{
	struct warm_queue *queue = &cache->warm;
	struct fetch *fetch = NULL;

	lock_assert_held(&cache->lock);
	while (!fetch && bring_grown_forward_locked(cache))
		fetch = begin_locked(cache, &queue->list[queue->first++], now_ms);
	return fetch;
}
