/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The inside of the cache, for cache.c (accesses), fetch.c (fetches) and cache_hand.c (what
 * is done by hand).
 *
 * Lock order: the tree's lock, then the cache's. Nothing is answered, fetched, stored or
 * dropped with the cache's lock held.
 */
#ifndef SHADE_CACHE_INTERNAL_H
#define SHADE_CACHE_INTERNAL_H

#include <errno.h>
#include <unistd.h>

#include "base/threads.h"
#include "cache/cache.h"

#define TRACE_ROOM 65536
#define PASSING_MAX 1024 /* files that pass through at a time */

enum fetch_state {
	FETCH_WAITING, /* for room */
	FETCH_RUNNING,
	FETCH_READY, /* the bytes are in the buffer */
};

/* A sample that was asked for by hand. Its size counts as it was then, whatever becomes of it. */
struct warm {
	uint64_t size;
	uint32_t slot;
};

/* One fetch of one whole file, however many wait for it. All fields: cache lock, but what
 * the store and residency use between their call and their answer. */
struct fetch {
	struct cache *cache;
	struct node *node; /* held */
	enum fetch_state state;
	bool admitted;	     /* the policy has reserved its bytes: store and commit */
	bool restoring;	     /* was resident and lost its pages */
	bool warming;	     /* was asked for by hand */
	bool checking;	     /* only asks whether the version is still there */
	bool abandoned;	     /* its deadline has passed: nobody waits, only the store has it */
	bool queued;	     /* ready: residency stores it some time */
	unsigned users;	     /* ready: who needs the buffer right now */
	uint64_t warm_bytes; /* warming: what it counts for */
	uint64_t deadline_ms;
	char *path;
	void *buffer;
	size_t size;
	uint64_t accounted; /* of the buffer, in cache->inflight_bytes */
	struct store_attr expected;
	struct store_read read;
	struct page_store store;
	struct waiter *waiters;
	struct fetch *next, *before; /* in cache->fetches */
};

/* What a file takes, resident or in a buffer: memory has whole pages only. */
static inline uint64_t cache_memory_of(const struct node *node)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	return (node->attr.size + page - 1) / page * page;
}

struct cache {
	struct cache_options options; /* constant, but for capacity_bytes */
	struct store *store;
	struct tree *tree;
	struct page_cache *page_cache;
	struct thread clock;  /* watches deadlines */
	uint64_t range_bytes; /* files larger than this are read by ranges */

	struct lock lock;
	struct cond changed; /* lock: a fetch has ended, or `stopping` */
	struct sched *sched;
	struct node **nodes; /* by slot; NULL: the name is gone */
	uint32_t slot_count, slot_room;
	uint32_t *numbering;	      /* from ids to slots; NULL: not yet */
	uint32_t *ids;		      /* from slots to ids */
	uint32_t numbered, ids_count; /* of `numbering` and of `ids` */
	struct fetch *fetches;
	struct range *ranges, *ranges_waiting; /* that the store has; for their turn */
	unsigned ranges_running;	       /* the store has */
	uint64_t ranges_bytes;		       /* of their buffers, in `inflight_bytes`, too */
	uint64_t started_ms;		       /* when the last fetch was */
	unsigned running;		       /* fetches and ranges that the store has */
	uint64_t inflight_bytes;	       /* buffers */
	uint64_t passing_bytes;		       /* in the kernel, not admitted */
	uint64_t dropped_ms; /* when residency last dropped something, or got the first to drop */
	uint64_t leaving_bytes;		     /* residency is to drop them */
	struct node *passing[PASSING_MAX];   /* a ring, held */
	uint64_t passing_since[PASSING_MAX]; /* ms */
	uint32_t passing_first, passing_count;
	struct warm *warm_queue;
	uint32_t warm_first, warm_count;
	struct cache_stats stats;   /* the counters of its own */
	struct cache_access *trace; /* a ring of TRACE_ROOM; NULL: nobody wants it */
	unsigned trace_readers;
	uint64_t traced;   /* so many, ever */
	bool start_wanted; /* the clock is to start what there is room for */
	bool stopping;
};

/* Keeps a record of an access. */
void cache_trace_locked(struct cache *cache, const struct node *node, enum sched_action action);

/* --- fetch.c: cache lock held ---------------------------------------------------------------- */

/* The fetch of a node, a new one if it has none. NULL: no memory, or what was given up has not
 * ended; fetch_error() says which. */
struct fetch *fetch_get_locked(struct cache *cache, struct node *node);
static inline int fetch_error(const struct node *node)
{
	return node->fetch ? -ETIMEDOUT : -ENOMEM;
}
/* Whether there is room for a buffer; what passes through makes way. */
bool fetch_room_locked(struct cache *cache, uint64_t bytes);
/* One user less; without any it ends. */
void fetch_put_locked(struct fetch *fetch);

/* --- without the lock
 * ----------------------------------------------------------------------------- */

/* Starts whatever there is room for: what readers wait for, then what is fetched ahead. */
void fetch_start_all(struct cache *cache);
/* Has the clock do that: for threads that wait in the kernel. */
void fetch_start_soon(struct cache *cache);
void cache_clock(void *cache);
/* The store has one less, and whoever waited for it is answered. */
void fetch_landed(struct cache *cache);
/* Gives a reader its bytes from a fetch that is ready and has a user. */
void fetch_answer(const struct fetch *fetch, struct waiter *waiter);
void waiter_answer_all(struct waiter *waiters, int rc);

/* --- range.c */

/* Starts what there is room for; for fetch_start_all(). */
void range_start_all(struct cache *cache);
/* One range of a large file, for one reader. */
void range_read(struct cache *cache, struct node *node, struct waiter *waiter);
/* Those whose deadline has passed; the store is asked to give up. */
struct waiter *range_take_late_locked(struct cache *cache, uint64_t now_ms);
/* As cache_take_waiter(). */
struct waiter *range_take_waiter_locked(struct cache *cache,
					bool (*is)(const struct waiter *waiter, void *context),
					void *context);

/* The kernel has bytes of a file that was not admitted: until its readers close it, or until
 * room is needed. */
void cache_pass_locked(struct cache *cache, struct node *node);
/* Observed closes may be missed; what passes through for long is dropped without. */
void cache_drop_old_passing(struct cache *cache);
/* Makes room for so many bytes by dropping what passes through, the oldest first. */
void cache_hurry_locked(struct cache *cache, uint64_t bytes);
bool cache_is_resident_locked(const struct cache *cache, const struct node *node);
/* Drops the pages of the samples that have left. */
void cache_drop_victims_locked(struct cache *cache, const struct sched_verdict *verdict);

#endif
