/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The cache brings together what is asked for (the front end), what is worth keeping (the
 * policy core), where it comes from (the store) and where it is kept (the kernel's page cache).
 *
 * Accesses come in through cache_open(), cache_read() and cache_release(); that is all that a
 * front end has to call. Requests that must wait are `struct waiter`s, answered exactly once,
 * from any thread.
 */
#ifndef SHADE_CACHE_H
#define SHADE_CACHE_H

#include "base/format.h"
#include "base/keyed.h"
#include "cache/access_log.h"
#include "cache/epochs.h"
#include "cache/page_cache.h"
#include "cache/watch.h"
#include "names/tree.h"
#include "shade/sched.h"

struct cache;
struct range;

struct waiter {
	struct keyed keyed; /* the cache's own */
	/* Called once, with no lock held. `data` belongs to the cache and holds for the call. */
	void (*answer)(struct waiter *waiter, int rc, const void *data, size_t size);
	bool opens;	/* an open: no data is wanted */
	bool direct;	/* around the kernel's cache: what it gets does not stay there */
	bool retries;	/* the cache's own: waits until the version was checked */
	uint32_t job;	/* whose access it is, or SCHED_JOB_ANY; the cache says then what it is */
	int32_t thread; /* who reads; 0: it cannot be seen */
	uint64_t offset;
	size_t size;
	uint64_t key; /* what cache_take_waiter() finds it by */
	/* The cache's own: in its fetch, if it waits for one. */
	struct waiter *next, **before;
	struct range *range; /* the cache's own; NULL: it waits for a fetch */
	uint32_t counts_for; /* the cache's own: whose wait it is */
	uint64_t since_ns;   /* the cache's own: it waits for a miss; 0: its time does not count */
};

struct cache_options {
	uint64_t capacity_bytes; /* all of it, buffers included */
	uint64_t inflight_bytes; /* the part of it for what is on its way in or out */
	uint64_t prefetch_bytes; /* fetched ahead and not used yet, at most */
	uint64_t staleness_ms;
	uint64_t deadline_ms; /* of one fetch, or of the source's next answer about a directory */
	unsigned readers;     /* directories that are read at a time */
	bool observed;	      /* opens are seen, not waited for */
	unsigned depth;	      /* fetches at a time */
	const char *policy;
	struct estate *estate; /* where nodes are; NULL: in one of the cache's own */
	bool is_successor;     /* they are there already */
	/* Called by the cache's clock every few milliseconds, with no lock held. */
	void (*tick)(void *context);
	void *tick_context;
};

struct cache_stats {
	struct sched_stats sched;
	struct sched_job_stats job; /* of job 0 */
	const char *policy;
	uint64_t capacity_bytes, inflight_bytes, memory_bytes;
	uint64_t slotless_opens; /* that the policy knows nothing of */
	uint64_t young;		 /* versions that are too young to be kept */
	/* How long readers waited for the source, and what it gave while it was the limit: waits.h
	 * says when it is. */
	uint64_t waits, wait_ms, waiting_ms, limited_ms, limited_bytes;
	uint64_t reclaimed, backend_reads, backend_bytes, fetch_errors, stale_drops;
	uint64_t warm_pending, warm_done, warm_refused, warm_failed;
	uint64_t warm_pending_bytes, warm_done_bytes, warm_refused_bytes;
};

int cache_create(struct cache **out, struct store *store, const struct cache_options *options);
/* Before the first access. */
void cache_set_observed(struct cache *cache, bool observed);
/* After this the cache can be used. A successor takes what the kernel has as resident, as far as
 * there is room for it. */
int cache_start(struct cache *cache, const struct page_cache_kernel *kernel, void *context);
/* A successor is mounted: tells the kernel what the dead daemon may not have told it, and has it
 * drop what is not resident. */
void cache_settle(struct cache *cache);
/* The end begins: answers all that wait with an error, and waits for the cache's own threads. */
void cache_stop(struct cache *cache);
/* No more requests come: waits for threads that read directories. The source may keep them. */
void cache_join(struct cache *cache);
void cache_destroy(struct cache *cache);

struct tree *cache_tree(struct cache *cache);

/* --- accesses ------------------------------------------------------------------------------ */

/* A front end tells of accesses in one of two ways: by cache_open() and cache_release(), which an
 * open waits for; or, if the options say `observed`, by cache_saw_open() and cache_saw_close(),
 * some time after the fact, and then a cache_read() of what is not there is an access, too. */

void cache_open(struct cache *cache, struct node *node, struct waiter *waiter);
void cache_read(struct cache *cache, struct node *node, struct waiter *waiter);
void cache_release(struct cache *cache, struct node *node);
/* The node may be gone: it counts only if it is what `slot` stands for. `job`: whose access it is,
 * or SCHED_JOB_ANY; `thread`: who reads. */
void cache_saw_open(struct cache *cache, const struct node *node, uint32_t slot, uint32_t job,
		    int32_t thread);
void cache_saw_close(struct cache *cache, const struct node *node, uint32_t slot);
/* The kernel's answer to a probe; if it is about another node, it says nothing. */
struct probe;
void cache_probed(struct probe *probe, const struct node *node, bool present);
/* The kernel forgets a node; what it had of it is gone. */
void cache_forget(struct cache *cache, struct node *node, uint64_t count);
/* Takes a waiter with this key out that `is` recognises; it will not be answered. NULL: there is
 * none. */
typedef bool waiter_match(const struct waiter *waiter, void *context);
struct waiter *cache_take_waiter(struct cache *cache, uint64_t key, waiter_match *is,
				 void *context);

/* --- by hand --------------------------------------------------------------------------------- */

/* Ids here are positions in the numbering that the scan made, until it is complete -EAGAIN; or they
 * are of cache_find_sample(). Jobs
 * are trainings with scores and orders of their own; job 0 is always there. */
int cache_job_begin(struct cache *cache, uint32_t *job);
int cache_job_end(struct cache *cache, uint32_t job);
/* What the job announces is guessed: see sched_job_guess(). */
int cache_job_guess(struct cache *cache, uint32_t job);
/* When somebody last read what the job had announced, by clock_now_ms(). 0: never. */
uint64_t cache_job_read_ms(struct cache *cache, uint32_t job);
int cache_job_stats(struct cache *cache, uint32_t job, struct sched_job_stats *stats);
/* Figures of a job since it began. */
struct cache_job_figures {
	struct epoch_counters counters;
	double hit_s, miss_s; /* the time of one, on the mean; miss_s 0: there was none */
	double step_s;	      /* from one access to the next; 0: not known */
	double benefit;	      /* see sched_pace() */
};
void cache_get_job_figures(struct cache *cache, uint32_t job, struct cache_job_figures *figures);
/* The training of the job has ended: its orders are forgotten, and its pace if it was not read for
 * since then. Its scores stay. What it leaves in memory makes room for whatever comes. */
void cache_job_rest(struct cache *cache, uint32_t job, uint64_t since_ms);
/* The same at once, and its scores go, too. */
int cache_job_forget(struct cache *cache, uint32_t job);
/* The job reads these samples and no others, as far as it has said: coverage is of them. */
int cache_name(struct cache *cache, uint32_t job, const uint32_t *ids, uint32_t count);
int cache_score(struct cache *cache, uint32_t job, const uint32_t *ids, const float *scores,
		uint32_t count);
int cache_order(struct cache *cache, uint32_t job, uint64_t epoch, const uint32_t *ids,
		uint32_t count);
/* The same; what was read since place `at` of cache_watch() counts as read in it. */
int cache_order_since(struct cache *cache, uint32_t job, uint64_t epoch, const uint32_t *ids,
		      uint32_t count, uint64_t at);
int cache_epoch(struct cache *cache, uint32_t job, uint64_t epoch);
/* Nobody will read what the job has announced. */
int cache_drop_orders(struct cache *cache, uint32_t job);
/* What reports say of the training: how often it uses a sample that was fetched, on the mean. */
void cache_set_uses(struct cache *cache, uint32_t job, double uses);
/* 0: it has not told. */
double cache_get_uses(struct cache *cache, uint32_t job);
/* -EINVAL: not more than `inflight`; -EBUSY: pinned samples need more. Then nothing has changed. */
int cache_set_capacity(struct cache *cache, uint64_t bytes);
int cache_set_policy(struct cache *cache, const char *policy);
/* For each file at or below a path. */
int cache_warm(struct cache *cache, const char *path);
int cache_evict(struct cache *cache, const char *path);
int cache_pin(struct cache *cache, const char *path, bool pin);

void cache_get_stats(struct cache *cache, struct cache_stats *stats);

/* --- accesses as they happen ------------------------------------------------------------------ */

/* Begins to keep a record for one more reader, and returns where it is now. */
uint64_t cache_trace_begin(struct cache *cache);
void cache_trace_end(struct cache *cache);
/* Copies up to `max` accesses from `*at` on, and moves that. `*lost`: so many before them were
 * overwritten. */
uint32_t cache_trace(struct cache *cache, uint64_t *at, struct cache_access *accesses, uint32_t max,
		     uint64_t *lost);

/* Who reads what, for one who looks; from the beginning on. 0 or -ENOMEM. */
int cache_watch_begin(struct cache *cache);
/* As cache_trace(). */
uint32_t cache_watch(struct cache *cache, uint64_t *at, struct cache_seen *seen, uint32_t max,
		     uint64_t *lost);

/* --- epochs as they were --------------------------------------------------------------------- */

/* The latest, oldest first; the last one runs. The caller frees the array. 0 or -ENOMEM. */
int cache_copy_epochs(struct cache *cache, struct epoch_row **rows, uint32_t *count);

struct cache_history_access {
	uint32_t id, entry; /* entry: which one of its row it was, for struct epoch_mark */
	float score;	    /* below 0: none */
	uint64_t size;	    /* in memory, as it is now */
};

/* Sampled accesses of the very latest epochs. */
struct cache_history {
	uint64_t threshold; /* slots with hashes below this were picked */
	uint32_t samples, picked;
	uint64_t data_bytes, picked_bytes; /* of all samples; of the picked ones */
	uint64_t capacity_bytes;	   /* for residents */
	uint32_t row_count, access_count;
	struct epoch_row rows[EPOCHS_TRACED];
	uint32_t first_access[EPOCHS_TRACED + 1]; /* of each row, and the end of the last */
	struct cache_history_access accesses[EPOCHS_TRACED * EPOCHS_ENTRIES];
};

/* The caller frees it. 0 or -ENOMEM. */
int cache_copy_history(struct cache *cache, struct cache_history **out);

/* --- the numbering -----------------------------------------------------------------------------
 */

/* Numbers all files by their sorted paths: walks the whole tree. `stop` ends it early. */
int cache_scan(struct cache *cache, const _Atomic bool *stop);
bool cache_scan_complete(struct cache *cache);
uint32_t cache_samples(struct cache *cache);
/* The id of a slot, which outlives the numbering if cache_hold_samples() was called. */
uint32_t cache_id_of_slot(uint32_t slot);
/* An id of a file that outlives the numbering: it means this name until cache_release_samples(),
 * even if the name goes. -ENOENT, -EAGAIN. The caller must have called cache_hold_samples(). */
int cache_find_sample(struct cache *cache, const char *path, uint32_t *id);
void cache_hold_samples(struct cache *cache);
void cache_release_samples(struct cache *cache);
struct cache_sample {
	float score; /* below 0: none */
	uint32_t frequency;
	bool resident;
	uint64_t size;
};
int cache_get_sample(struct cache *cache, uint32_t job, uint32_t id, struct cache_sample *sample);
/* All samples as they are at one moment, by id; the caller frees the array. 0, -EAGAIN or -ENOMEM.
 */
int cache_copy_samples(struct cache *cache, uint32_t job, struct cache_sample **samples,
		       uint32_t *count);
/* All samples as they are numbered at one moment, by id. */
struct cache_names {
	uint64_t version;
	uint32_t count;
	struct node *nodes[]; /* held; NULL: the name was gone */
};
/* To be given back with cache_release_names(). 0, -EAGAIN or -ENOMEM. */
int cache_hold_names(struct cache *cache, struct cache_names **out);
void cache_release_names(struct cache *cache, struct cache_names *names);
/* The nodes of slots, held; NULL: the name is gone. */
void cache_hold_slots(struct cache *cache, const uint32_t *slots, uint32_t count,
		      struct node **nodes);
/* The version that cache_hold_names() would have now: another one if there is another numbering,
 * or if a name is gone. */
uint64_t cache_names_version(struct cache *cache);
/* Ids become slots in place: what they mean until cache_release_samples(). -EAGAIN; -ERANGE, and
 * then some have become slots. */
int cache_slots(struct cache *cache, uint32_t *ids, uint32_t count);
/* The other way; UINT32_MAX: it has no number any more. */
void cache_ids(struct cache *cache, uint32_t *slots, uint32_t count);
/* How many samples like these slots the cache holds. */
uint32_t cache_reach(struct cache *cache, const uint32_t *slots, uint32_t count);
/* The importance of all samples to some jobs, a bit for each, by slot; to be freed. 0 or -ENOMEM.
 */
int cache_importance(struct cache *cache, uint32_t jobs, float **importance, uint32_t *count);
/* Up to `max` ids that come next. */
uint32_t cache_ahead(struct cache *cache, uint32_t job, uint32_t *ids, uint32_t max);

/* What else the cache leaves. */
extern const struct format_line cache_format[], said_format[];

#endif
