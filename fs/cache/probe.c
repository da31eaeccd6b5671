/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Looks whether the kernel still has what is resident. It may reclaim pages and keep the inode,
 * which nobody is told of; a READ would show it, but too late for a sample that should have been
 * fetched ahead of its use.
 *
 * A probe asks for one byte of a page, and is answered later. As long as all is there, a few
 * probes at a time go to residents all over the place. When one page is gone, others are, too: then
 * all residents are looked at in turn, until a whole round has found nothing.
 */
#include <stdlib.h>

#include "base/threads.h"
#include "cache/internal.h"

#define CALM_PROBES 4 /* at a time, which is every CLOCK_MS */
#define ROUND_PROBES 128
#define STEP UINT32_C(2654435769) /* 2^32 / the golden ratio: spreads over everything evenly */

struct probe {
	struct probe *next, **before; /* cache lock: in cache->probing.sent */
	struct cache *cache;
	struct node *node; /* held */
	uint64_t offset;
	bool is_void; /* cache lock: the kernel has got the file since */
};

/* The next resident at or after a slot, around the end. SLOT_NONE: there is none. */
static uint32_t resident_from_locked(const struct cache *cache, uint32_t slot)
{
	uint32_t found = sched_next_resident(cache->sched, slot);

	lock_assert_held(&cache->lock);
	return found != SLOT_NONE ? found : sched_next_resident(cache->sched, 0);
}

static uint32_t next_slot_locked(struct cache *cache)
{
	struct probing *probing = &cache->probing;
	uint32_t slot;

	lock_assert_held(&cache->lock);
	probing->spread += STEP;
	if (!probing->round_left)
		return resident_from_locked(
			cache, (uint32_t)((uint64_t)probing->spread * cache->slots.count >> 32));
	probing->round_left--;
	slot = resident_from_locked(cache, probing->next);
	probing->next = slot + 1;
	return slot;
}

/* NULL: nothing is resident, or no memory. */
static struct probe *make_locked(struct cache *cache)
{
	uint32_t slot = next_slot_locked(cache);
	struct node *node = cache_node_locked(cache, slot);
	struct probe *probe = node ? malloc(sizeof(*probe)) : NULL;
	uint64_t pages;

	lock_assert_held(&cache->lock);
	if (!probe)
		return NULL;
	pages = (node->attr.size + !node->attr.size + cache->page_bytes - 1) / cache->page_bytes;
	*probe = (struct probe){ .next = cache->probing.sent,
				 .before = &cache->probing.sent,
				 .cache = cache,
				 .node = node,
				 .offset = cache->probing.spread % pages * cache->page_bytes };
	if (probe->next)
		probe->next->before = &probe->next;
	cache->probing.sent = probe;
	cache->probing.sent_count++;
	node_hold(node);
	return probe;
}

/* It lost a page, and is of no use without. Whoever has it open will show that by a READ, which
 * brings it back; if opens are only observed, some of these may have been closed long ago. */
static void lose_locked(struct cache *cache, struct node *node, uint64_t now_ms)
{
	uint32_t slot = node->cache.slot;
	struct sched_verdict verdict = { .victim_count = 1, .victims = &slot };
	struct sched_stats stats;

	lock_assert_held(&cache->lock);
	if (!cache_is_resident_locked(cache, node) || !node->attr.size || node->cache.fetch ||
	    (node->cache.opens && !cache->options.observed))
		return;
	(void)sched_evict(cache->sched, slot);
	drop_victims_locked(cache, &verdict, now_ms);
	cache->stats.reclaimed++;
	sched_get_stats(cache->sched, &stats);
	cache->probing.round_left = stats.resident_samples;
	start_soon_locked(cache);
}

static void end_locked(struct probe *probe)
{
	struct cache *cache = probe->cache;

	lock_assert_held(&cache->lock);
	*probe->before = probe->next;
	if (probe->next)
		probe->next->before = probe->before;
	cache->probing.sent_count--;
	tree_release(cache->tree, probe->node);
	free(probe);
}

/* A dead daemon counted its questions from 1, too, so this may be an answer to one of those. */
void cache_probed(struct probe *probe, const struct node *node, bool present)
{
	struct cache *cache = probe->cache;

	lock_acquire(&cache->lock);
	if (!present && node == probe->node && !probe->is_void && !cache->stopping)
		lose_locked(cache, probe->node, clock_now_ms());
	end_locked(probe);
	lock_release(&cache->lock);
}

void probe_forget_locked(struct cache *cache, const struct node *node)
{
	lock_assert_held(&cache->lock);
	for (struct probe *probe = cache->probing.sent; probe; probe = probe->next)
		if (probe->node == node)
			probe->is_void = true;
}

/* False: there is nothing to look at, or the kernel has not answered the last ones yet. */
static bool send_one(struct cache *cache)
{
	struct probe *probe = NULL;

	lock_acquire(&cache->lock);
	if (cache->probing.sent_count < ROUND_PROBES)
		probe = make_locked(cache);
	lock_release(&cache->lock);
	if (!probe)
		return false;
	if (page_cache_probe(cache->page_cache, probe->node, probe->offset, probe)) {
		lock_acquire(&cache->lock);
		end_locked(probe); /* the kernel has forgotten it just now, and will tell */
		lock_release(&cache->lock);
	}
	return true;
}

void probe_some(struct cache *cache)
{
	unsigned left;

	lock_acquire(&cache->lock);
	left = cache->probing.round_left ? ROUND_PROBES : CALM_PROBES;
	lock_release(&cache->lock);
	while (left && send_one(cache))
		left--;
}

/* Those that the kernel will not answer any more. */
void probe_free_all(struct cache *cache)
{
	lock_acquire(&cache->lock);
	for (struct probe *next, *probe = cache->probing.sent; probe; probe = next) {
		next = probe->next;
		end_locked(probe);
	}
	lock_release(&cache->lock);
}
