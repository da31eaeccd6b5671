/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tier/ratings.h"

#include <stdlib.h>

#include "base/threads.h"

#define WAITING 8192 /* ratings; more are told later */
#define AT_A_TIME 128
#define PERIOD_MS 10 /* 12,800 a second */

struct tier_ratings {
	const char *volume;
	struct lock lock;
	struct store_rating *ring;	 /* lock: WAITING of them */
	size_t first, count;		 /* lock */
	struct engine_request *requests; /* the engine's thread: AT_A_TIME of them */
	struct engine_request *free;	 /* the engine's thread */
	uint64_t next_ms;		 /* the engine's thread */
	uint64_t done;			 /* atomic */
};

static void on_done(struct engine_request *request, enum engine_result result)
{
	struct tier_ratings *ratings = request->context;

	if (result == ENGINE_YES || result == ENGINE_NO)
		__atomic_fetch_add(&ratings->done, 1, __ATOMIC_RELAXED);
	request->next = ratings->free;
	ratings->free = request;
}

struct tier_ratings *tier_ratings_create(const char *volume)
{
	struct tier_ratings *ratings = calloc(1, sizeof(*ratings));

	if (!ratings)
		return NULL;
	ratings->volume = volume;
	lock_init(&ratings->lock, LOCK_ENGINE);
	ratings->ring = calloc(WAITING, sizeof(*ratings->ring));
	ratings->requests = calloc(AT_A_TIME, sizeof(*ratings->requests));
	if (!ratings->ring || !ratings->requests) {
		tier_ratings_destroy(ratings);
		return NULL;
	}
	for (unsigned i = 0; i < AT_A_TIME; i++) {
		ratings->requests[i].verb = ENGINE_EXPIRE;
		ratings->requests[i].done = on_done;
		ratings->requests[i].context = ratings;
		ratings->requests[i].next = ratings->free;
		ratings->free = &ratings->requests[i];
	}
	return ratings;
}

void tier_ratings_destroy(struct tier_ratings *ratings)
{
	lock_destroy(&ratings->lock);
	free(ratings->ring);
	free(ratings->requests);
	free(ratings);
}

size_t tier_ratings_add(struct tier_ratings *ratings, const struct store_rating *list, size_t count)
{
	size_t taken;

	lock_acquire(&ratings->lock);
	for (taken = 0; taken < count && ratings->count < WAITING; taken++)
		ratings->ring[(ratings->first + ratings->count++) % WAITING] = list[taken];
	lock_release(&ratings->lock);
	return taken;
}

/* False: there is none. */
static bool take(struct tier_ratings *ratings, struct store_rating *rating)
{
	bool found;

	lock_acquire(&ratings->lock);
	found = ratings->count;
	if (found) {
		*rating = ratings->ring[ratings->first];
		ratings->first = (ratings->first + 1) % WAITING;
		ratings->count--;
	}
	lock_release(&ratings->lock);
	return found;
}

uint64_t tier_ratings_tick(struct tier_ratings *ratings, struct engine *engine, uint64_t now_ms)
{
	struct store_rating rating;

	if (now_ms < ratings->next_ms)
		return ratings->next_ms;
	while (ratings->free) {
		struct engine_request *request = ratings->free;

		if (!take(ratings, &rating))
			return UINT64_MAX;
		if (!value_has_key(&rating.attr))
			continue;
		request->key_size = value_key(ratings->volume, &rating.attr, request->key);
		if (!engine_reaches(engine, request->key, request->key_size))
			continue;
		ratings->free = request->next;
		request->ttl = value_ttl(rating.worth);
		engine_submit(engine, request);
	}
	ratings->next_ms = now_ms + PERIOD_MS;
	return ratings->next_ms;
}

uint64_t tier_ratings_count(const struct tier_ratings *ratings)
{
	return __atomic_load_n(&ratings->done, __ATOMIC_RELAXED);
}
