/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The inside of the cache, for cache.c (accesses), flight.c (fetches) and cache_hand.c (what
 * is done by hand).
 *
 * Lock order: the tree's lock, then the cache's. Nothing is answered, fetched, stored or
 * dropped with the cache's lock held.
 */
#ifndef SHADE_CACHE_INTERNAL_H
#define SHADE_CACHE_INTERNAL_H

#include <pthread.h>

#include "cache.h"

enum flight_state {
	FLIGHT_WAITING, /* for room */
	FLIGHT_RUNNING,
	FLIGHT_READY, /* the bytes are in the buffer */
};

/* One fetch of one whole file, however many wait for it. All fields: cache lock, but what
 * the store and residency use between their call and their answer. */
struct flight {
	struct cache *cache;
	struct node *node; /* held */
	enum flight_state state;
	bool admitted;	/* the policy has reserved its bytes: store and commit */
	bool restoring; /* was resident and lost its pages: store */
	bool storing;	/* residency has it */
	bool warming;	/* was asked for by hand */
	bool abandoned; /* its deadline has passed: nobody waits, only the store has it */
	unsigned users; /* who reads the buffer right now */
	uint64_t delivered;
	uint64_t deadline_ms;
	char *path;
	void *buffer;
	size_t size;
	struct store_attr expected;
	struct store_read read;
	struct residency_store store;
	struct waiter *waiters;
	struct flight *next, *before; /* in cache->flights */
};

struct cache {
	struct cache_options options; /* constant, but for capacity_bytes */
	struct store *store;
	struct tree *tree;
	struct residency *residency;
	pthread_t clock;      /* watches deadlines */
	uint64_t range_bytes; /* files larger than this are read by ranges */

	pthread_mutex_t lock;
	pthread_cond_t changed; /* lock: a flight has ended, or `stopping` */
	struct sched *sched;
	struct node **nodes; /* by slot; NULL: the name is gone */
	uint32_t slot_count, slot_room;
	uint32_t *numbering; /* from ids to slots; NULL: not yet */
	uint32_t *ids;	     /* from slots to ids */
	uint32_t numbered;
	struct flight *flights, **flights_end;
	unsigned running; /* flights and ranges that the store has */
	uint64_t inflight_bytes;
	uint32_t *warm_queue; /* slots */
	uint32_t warm_first, warm_count, warm_room;
	struct cache_stats stats; /* the counters of its own */
	bool stopping;
};

/* --- flight.c: cache lock held ---------------------------------------------------------------- */

/* The flight of a node, a new one if it has none. NULL: no memory. */
struct flight *flight_get_locked(struct cache *cache, struct node *node);
/* If it is ready and nobody needs the buffer any more, it ends. */
void flight_end_if_done_locked(struct flight *flight);
/* Asks residency to take it, if it is ready and should be kept. */
void flight_store_locked(struct flight *flight);

/* --- without the lock
 * ----------------------------------------------------------------------------- */

/* Starts whatever there is room for: what readers wait for, then what is fetched ahead. */
void flight_start_all(struct cache *cache);
void *flight_watch(void *cache);
/* One range of a large file, for one reader. */
void flight_read_range(struct cache *cache, struct node *node, struct waiter *waiter);
void waiter_answer_all(struct waiter *waiters, int rc);

/* Drops the pages of the samples that have left. */
void cache_drop_victims_locked(struct cache *cache, const struct sched_verdict *verdict);

#endif
