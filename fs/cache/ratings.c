/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What files are worth, for a store that keeps some of them at hand for all nodes: it keeps what is
 * worth most. Each read says it, and when scores, orders or what is resident change, the clock's
 * thread tells it for what has changed, as far as the store takes it. Of what no order here
 *expects, another node's order may, so nothing is told of samples that no change was about.
 *
 *	1/3 to 1	an order expects it, and memory has not got it; the sooner the more
 *	1/6 to 1/3	memory has not got it; the more important the more
 *	0 to 1/6	memory has it; the more important the less
 *
 * What memory has needs no other copy as long as it is there. It will need one when it has left,
 *and the least important leaves first; nobody has its bytes any more then, so the copy must be
 *there already.
 */
#include <stdlib.h>

#include "base/threads.h"
#include "cache/internal.h"

#define TOGETHER 256	     /* ratings that are told at once */
#define ROUNDS 16	     /* of these, each time that the clock's thread comes by */
#define BEYOND (1.0f / 3.0f) /* less than this: no order expects the sample */
#define TIE (1.0f / 64.0f)   /* what decides between scores that are about equal */

/* How far a sample is from leaving memory, 0 to 1: by the policy's worth of it, and by slot where
 * that is the same, as `shade` decides. Equal samples must not be equal here: with one use an epoch
 * the engine would let go of those that it has had for longest, at the price of a copy each. */
static float rank_locked(const struct cache *cache, const struct node *node, float worth)
{
	float share = worth > 0 ? worth / BEYOND : 0;

	lock_assert_held(&cache->lock);
	if (share >= 1)
		return 1;
	return share * (1 - TIE) + TIE * (float)node->cache.slot / (float)cache->slots.count;
}

float ratings_worth_locked(const struct cache *cache, const struct node *node, bool served,
			   bool kept)
{
	float worth = sched_worth(cache->sched, node->cache.slot, served);
	float rank = rank_locked(cache, node, worth);

	lock_assert_held(&cache->lock);
	if (kept)
		return (1 - rank) * BEYOND / 2;
	if (worth >= BEYOND)
		return worth < 1 ? worth : 1;
	return (1 + rank) * BEYOND / 2;
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

	lock_assert_held(&cache->lock);
	if (!node || cache_is_large(cache, node))
		return;
	batch->ratings[batch->count] = (struct store_rating){
		.attr = node->attr, .worth = ratings_worth_locked(cache, node, resident, resident)
	};
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
	/* Slots without a file are passed over, but not so many that others wait. */
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
