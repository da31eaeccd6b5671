/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What files are worth, for a store that keeps some of them at hand for all nodes: it keeps what is
 * worth most. Each read says it, and when scores or orders change, the clock's thread tells it for
 * what has changed, as far as the store takes it. Of what no order
 * here expects, another node's order may, so nothing is told of samples that no hint was about.
 *
 * What memory has, or is about to get, needs no other copy for its next use: then the use after
 * that counts.
 */
#include <stdlib.h>

#include "base/threads.h"
#include "cache/internal.h"

#define TOGETHER 256	     /* ratings that are told at once */
#define ROUNDS 16	     /* of these, each time that the clock's thread comes by */
#define BEYOND (1.0f / 3.0f) /* less than this: no order expects the sample */
#define TIE (1.0f / 64.0f)   /* what decides between scores that are about equal */

/* A number from 0 to 1 that all nodes draw alike for a file. */
static float lot(const struct store_attr *attr)
{
	uint64_t mixed = attr->ino * 0x9e3779b97f4a7c15u;

	mixed = (mixed ^ mixed >> 32) * 0xd6e8feb86659fd93u;
	return (float)(mixed >> 40) / (float)(1u << 24);
}

/* Where nothing tells two files apart, the engine would let go of the one that it has had for
 * longer, and with one use an epoch that is the wrong one as often as not, at the price of a copy
 * each time. A lot that is the same for all nodes and epochs keeps what is there. */
float ratings_worth_locked(const struct cache *cache, const struct node *node, bool served)
{
	float worth = sched_worth(cache->sched, node->cache.slot, served);

	lock_assert_held(&cache->lock);
	if (worth < 0)
		return lot(&node->attr) * BEYOND;
	if (worth >= BEYOND)
		return worth < 1 ? worth : 1;
	return worth * (1 - TIE) + lot(&node->attr) * BEYOND * TIE;
}

/* --- what has changed ---------------------------------------------------------------------------
 */

/* False: nobody wants to know, or there is no memory. Then what a read says has to do. */
static bool make_room_locked(struct cache *cache)
{
	struct ratings *ratings = &cache->ratings;
	uint32_t words = (cache->slots.count + 63) / 64;
	uint64_t *grown;

	lock_assert_held(&cache->lock);
	if (!store_takes_ratings(cache->store))
		return false;
	if (words <= ratings->words)
		return true;
	grown = realloc(ratings->changed, words * sizeof(*grown));
	if (!grown)
		return false;
	for (uint32_t i = ratings->words; i < words; i++)
		grown[i] = 0;
	ratings->changed = grown;
	ratings->words = words;
	return true;
}

static void mark_locked(struct cache *cache, uint32_t slot)
{
	lock_assert_held(&cache->lock);
	cache->ratings.changed[slot / 64] |= (uint64_t)1 << slot % 64;
	cache->ratings.left = cache->ratings.words;
}

void ratings_change_locked(struct cache *cache, uint32_t slot)
{
	lock_assert_held(&cache->lock);
	if (make_room_locked(cache) && slot < cache->slots.count)
		mark_locked(cache, slot);
}

/* --- telling ------------------------------------------------------------------------------------
 */

struct batch {
	struct store_rating ratings[TOGETHER];
	uint32_t slots[TOGETHER];
	uint32_t count;
};

static void add_locked(struct cache *cache, struct batch *batch, uint32_t slot)
{
	const struct node *node = cache_node_locked(cache, slot);
	bool resident = sched_resident(cache->sched, slot);
	float worth = sched_worth(cache->sched, slot, resident);

	lock_assert_held(&cache->lock);
	if (!node || worth < 0 || cache_is_large(cache, node))
		return;
	batch->ratings[batch->count] =
		(struct store_rating){ .attr = node->attr,
				       .worth = ratings_worth_locked(cache, node, resident) };
	batch->slots[batch->count++] = slot;
}

static void take_word_locked(struct cache *cache, struct batch *batch)
{
	struct ratings *ratings = &cache->ratings;
	uint64_t *word = &ratings->changed[ratings->next];

	lock_assert_held(&cache->lock);
	while (*word && batch->count < TOGETHER) {
		unsigned bit = (unsigned)__builtin_ctzll(*word);

		*word &= *word - 1;
		add_locked(cache, batch, ratings->next * 64 + bit);
	}
	if (*word)
		return;
	ratings->next = (ratings->next + 1) % ratings->words;
	ratings->left--;
}

static void take(struct cache *cache, struct batch *batch)
{
	batch->count = 0;
	lock_acquire(&cache->lock);
	/* Slots without a file or a score are passed over, but not so many that others wait. */
	for (unsigned i = 0; i < TOGETHER && cache->ratings.left && batch->count < TOGETHER; i++)
		take_word_locked(cache, batch);
	lock_release(&cache->lock);
}

static void give_back(struct cache *cache, const struct batch *batch, size_t taken)
{
	lock_acquire(&cache->lock);
	for (size_t i = taken; i < batch->count; i++)
		mark_locked(cache, batch->slots[i]);
	lock_release(&cache->lock);
}

void ratings_tell(struct cache *cache)
{
	struct batch *batch = cache->ratings.batch;
	size_t taken;

	if (!store_takes_ratings(cache->store))
		return;
	if (!batch)
		batch = cache->ratings.batch = malloc(sizeof(*batch));
	for (unsigned i = 0; batch && i < ROUNDS; i++) {
		take(cache, batch);
		if (!batch->count)
			return;
		taken = store_rate(cache->store, batch->ratings, batch->count);
		give_back(cache, batch, taken);
		if (taken < batch->count)
			return;
	}
}

void ratings_free(struct ratings *ratings)
{
	free(ratings->changed);
	free(ratings->batch);
}
