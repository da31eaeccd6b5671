/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Versions that are too young to be kept.
 *
 * A file system dates a file when write() begins, and copies the bytes after that. A fetch in
 * between sees the same version before and after it, and bytes of two. Where dates are coarse, two
 * writes may have the same one. So what a fetch brings of a version that has come into being
 * recently passes through: its readers get it, and the policy is told that it fits nowhere. When
 * the version has come of age, its pages are dropped, and from then on it is like any other.
 *
 * How long ago a version came into being is told by its date, if it was there when its directory
 * was first read. If it replaced another one, or its name is new, that was just now, whatever the
 * source's clock says.
 */
#include <stdlib.h>

#include "base/threads.h"
#include "cache/internal.h"

/* A writer that is interrupted in the middle of write() has ROUND_MS to go on, and copies at least
 * 10 MB/s. */
#define ROUND_MS 250
#define ROUND_BYTES (ROUND_MS * (uint64_t)10000)
#define COARSE_ROUNDS 8 /* for dates in whole seconds: FAT's have two */

static unsigned rounds_of(const struct store_attr *attr)
{
	uint64_t rounds = 1 + attr->size / ROUND_BYTES;

	if (store_is_coarse(attr))
		rounds += COARSE_ROUNDS;
	return rounds < UINT32_MAX ? (unsigned)rounds : UINT32_MAX;
}

/* By its date; a date in the future tells nothing. */
static bool is_old(const struct store_attr *attr)
{
	int64_t age_ms = clock_date_ms() - store_changed_ms(attr);

	return age_ms > (int64_t)rounds_of(attr) * ROUND_MS;
}

/* At the end: all wait equally long, so the first is always the next. */
static void append_locked(struct cache *cache, struct young *young, uint64_t now_ms)
{
	lock_assert_held(&cache->lock);
	young->until_ms = now_ms + ROUND_MS;
	young->next = NULL;
	*cache->young_end = young;
	cache->young_end = &young->next;
}

static struct young *take_first_locked(struct cache *cache)
{
	struct young *young = cache->young;

	lock_assert_held(&cache->lock);
	cache->young = young->next;
	if (!cache->young)
		cache->young_end = &cache->young;
	return young;
}

/* Without memory it stays young for ever: slow, but right. */
void young_add_locked(struct cache *cache, struct node *node, bool changed, uint64_t now_ms)
{
	struct young *young;

	lock_assert_held(&cache->lock);
	if (!node->attr.size || (!changed && is_old(&node->attr)))
		return;
	node->cache.young = true;
	cache->stats.young++;
	young = malloc(sizeof(*young));
	if (!young)
		return;
	*young = (struct young){ .node = node, .rounds = rounds_of(&node->attr) };
	node_hold(node);
	append_locked(cache, young, now_ms);
}

/* What the kernel has of it, or gets of ranges under way, may be of two versions. A fetch that has
 * begun knows it by itself. */
static void come_of_age_locked(struct cache *cache, struct node *node, uint64_t now_ms)
{
	lock_assert_held(&cache->lock);
	node->cache.young = false;
	cache->stats.young--;
	if (node->cache.is_passing || (cache_is_large(cache, node) && node->cache.ranges)) {
		passing_remove_locked(cache, node);
		drop_locked(cache, node, now_ms);
	}
	if (node->cache.slot != SLOT_NONE)
		(void)sched_size(cache->sched, node->cache.slot, cache_policy_size(cache, node));
}

void young_expire_locked(struct cache *cache, uint64_t now_ms)
{
	lock_assert_held(&cache->lock);
	while (cache->young && cache->young->until_ms <= now_ms) {
		struct young *young = take_first_locked(cache);

		if (--young->rounds) {
			append_locked(cache, young, now_ms);
			continue;
		}
		come_of_age_locked(cache, young->node, now_ms);
		tree_release(cache->tree, young->node);
		free(young);
	}
}

void young_release_all(struct cache *cache)
{
	for (struct young *next, *young = cache->young; young; young = next) {
		next = young->next;
		tree_release(cache->tree, young->node);
		free(young);
	}
	cache->young = NULL;
}
