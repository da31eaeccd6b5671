/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The policy core: which samples stay in memory.
 *
 * A `struct sched` is told what happens (a sample was read, its score changed,
 * the next epoch's order is known) and answers with decisions: serve, fetch and
 * keep, fetch and pass through, and which residents leave. It moves no byte, keeps
 * no clock, starts no thread and takes no lock: one caller at a time. The mount,
 * the simulator and the tests all drive this same code.
 *
 * Samples are dense ids, 0 to n-1, made known by sched_grow(). Calls that can fail
 * return 0 or a negative errno, and on failure change nothing:
 *   -ERANGE  an id, a job or an epoch that is not known here
 *   -EINVAL  a value that makes no sense (NaN, a negative score, an unknown policy)
 *   -ENOSPC  one order or one job too many
 *   -ENOMEM  out of memory
 */
#ifndef SHADE_SCHED_H
#define SHADE_SCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCHED_SAMPLES_MAX (1u << 30)	 /* sample ids are below this */
#define SCHED_ORDER_MAX ((1u << 30) - 1) /* entries of one order, at most */
#define SCHED_ORDERS_MAX 4		 /* orders of one job that wait or run */
#define SCHED_JOBS_MAX 16
#define SCHED_VICTIMS_MAX 1024 /* samples that one admission may push out */

#define SCHED_JOB_ANY UINT32_MAX /* the job that expects the sample soonest */

struct sched;

enum sched_action {
	SCHED_HIT,    /* resident: serve it from memory */
	SCHED_ADMIT,  /* bytes are reserved: fetch, then commit or cancel */
	SCHED_JOIN,   /* somebody else's fetch is under way: wait for that one */
	SCHED_BYPASS, /* fetch, serve, do not keep */
};

/* A decision. The victims have already left; drop their bytes, whatever the action: where
 * more than SCHED_VICTIMS_MAX would have to leave, that many do, and the newcomer bypasses. The
 * array belongs to the handle and holds until the next call. */
struct sched_verdict {
	enum sched_action action;
	uint32_t victim_count;
	const uint32_t *victims;
	/* Of sched_access(): whose access it was, and whether that job's orders had it. Of
	 * sched_prefetch(): whose orders have it. */
	uint32_t job;
	bool expected;
	bool prefetched; /* of a hit: it was brought in ahead, and this is its first use */
};

struct sched_stats {
	uint64_t accesses;
	uint64_t hits;		  /* resident when asked for */
	uint64_t hits_prefetched; /* of these: brought in by prefetch, first use */
	uint64_t joins;		  /* found a fetch under way */
	uint64_t admissions;	  /* missed and reserved */
	uint64_t bypasses;	  /* missed and passed through */
	uint64_t prefetches;	  /* reserved by sched_prefetch() or sched_warm() */
	uint64_t evictions;	  /* residents that left to make room */
	uint64_t cancels;	  /* reservations given back */
	uint64_t bytes_missed;	  /* bytes of admissions and bypasses */
	uint64_t capacity_bytes;
	uint64_t resident_bytes;
	uint64_t reserved_bytes;   /* admitted, not committed */
	uint64_t pinned_bytes;	   /* part of resident and reserved */
	uint64_t prefetched_bytes; /* brought in ahead and not used yet */
	uint32_t samples;	   /* known ids */
	uint32_t resident_samples;
};

struct sched_job_stats {
	uint64_t epoch;	      /* the one that was begun last */
	uint64_t order_ahead; /* entries announced and not consumed */
	uint32_t order_read;  /* entries of that epoch's order that were consumed */
	uint64_t order_bytes; /* memory that the announced orders take, consumed or not */
	uint32_t covered;     /* distinct samples read since the epoch began */
	uint32_t named; /* samples that it has said to read, see sched_name(); 0: it has not */
	uint32_t covered_named; /* of these: read since the epoch began */
	uint32_t scored;	/* samples that have a score */
	bool ended;		/* since sched_abandon() it has said nothing */
};

/* How they are laid out there: another number, another layout. */
#define SCHED_ORDER_FORMAT 1

/* Where orders are kept, for whoever wants them to outlive the handle: blocks of zeros, which count
 * from when they are kept on. A block that is kept may be adopted by another handle. */
struct sched_memory {
	void *(*get)(void *context, size_t bytes); /* NULL: there is none */
	void (*keep)(void *context, void *block);
	void (*give_back)(void *context, void *block); /* kept or not; NULL is fine */
	void *context;
};

/* `policy` is a name of sched_policy_name(), or NULL for the default. */
int sched_create(struct sched **out, uint64_t capacity_bytes, const char *policy);
void sched_destroy(struct sched *s);

/* Makes the ids below `samples` known; a smaller number changes nothing. */
int sched_grow(struct sched *s, uint32_t samples);

/* Tells a size before the first access, so that the sample can be prefetched. */
int sched_size(struct sched *s, uint32_t id, uint64_t size);

/* A reader wants the sample, now. Counts it, consumes the earliest occurrence ahead in
 * the orders of `job`, and decides. */
int sched_access(struct sched *s, uint32_t job, uint32_t id, uint64_t size,
		 struct sched_verdict *verdict);

/* The end of an SCHED_ADMIT: the bytes have arrived, or never will. */
int sched_commit(struct sched *s, uint32_t id);
int sched_cancel(struct sched *s, uint32_t id);

/* Asks for a sample that no reader waits for: HIT, JOIN, ADMIT or BYPASS (no room that
 * it deserves). Counts as no access. */
int sched_warm(struct sched *s, uint32_t id, uint64_t size, struct sched_verdict *verdict);

/* What to fetch ahead of the readers: the next sample of the known orders that is
 * absent, as long as prefetched and unused bytes stay within `budget_bytes` and nothing
 * that is needed sooner must leave for it. Returns 1 and an SCHED_ADMIT for `*id`, or 0;
 * victims may have left in both cases.
 * Looks at a bounded number of entries a call and goes on from there at the next. */
int sched_prefetch(struct sched *s, uint64_t budget_bytes, uint32_t *id, uint64_t *size,
		   struct sched_verdict *verdict);

/* Jobs: trainings that share the cache, each with scores and orders of its own. Job 0
 * is always there. Ending a job forgets both. */
int sched_job_begin(struct sched *s, uint32_t *job);
int sched_job_end(struct sched *s, uint32_t job);

/* What the job announces is guessed, not told: an access that nobody says whose it is goes to it
 * only if no other job expects the sample. */
int sched_job_guess(struct sched *s, uint32_t job);

/* The importance of a sample to a job: finite, not negative; the last one counts. Scores of
 * different jobs need not be comparable. */
int sched_score(struct sched *s, uint32_t job, uint32_t id, float score);

/* What was measured of a job: the seconds from one of its accesses to the next, 0 if they are not
 * known, and what having a sample at hand saves it, as a multiple of that: (t_miss - t_hit) /
 * t_step, not below 0. Expected uses in different jobs are compared in time from then on. The
 * importance of a sample to several jobs that all have scores is the mean of its percentiles in
 * each, by what a hit is worth to them; new figures count there when the next epoch of a job
 * begins. */
int sched_pace(struct sched *s, uint32_t job, double seconds, double benefit);
/* That importance, from 0 to 1, for `jobs` alone, a bit for each, as it is now: `out` has room for
 * all samples. Below 0: none of them has scored it. */
int sched_importance(const struct sched *s, uint32_t jobs, float *out);

/* Announces which samples `epoch` will read; once more for the same epoch replaces it, and what was
 * read of the beginning that both share stays read, unless the epoch was begun once more between.
 */
int sched_order(struct sched *s, uint32_t job, uint64_t epoch, const uint32_t *ids, uint32_t count);

/* The job reads these samples, and no others, as far as is known: coverage is of them. What its
 * orders have is added. */
int sched_name(struct sched *s, uint32_t job, const uint32_t *ids, uint32_t count);
/* The sample was read before its order was known: its earliest entry is consumed, and nothing is
 * counted. */
int sched_skip(struct sched *s, uint32_t job, uint32_t id);

/* `epoch` begins: what is left of earlier orders will not come. An epoch before the present
 * one means that a training has begun anew: no order counts any more. */
int sched_epoch(struct sched *s, uint32_t job, uint64_t epoch);

/* From now on orders are kept there; without it they are on the heap. Before any is announced. */
void sched_set_memory(struct sched *s, const struct sched_memory *memory);
/* An order that another handle has kept, and what was read of it. Its job and its samples are
 * known here. Of two for one epoch the one that was announced last counts. If it fails, or the
 * order does not count, the block is given back. */
int sched_adopt_order(struct sched *s, void *block);

/* The training of the job has ended: its orders, read or not, go, and their memory with them. Its
 * scores and its epoch stay. */
int sched_drop_orders(struct sched *s, uint32_t job);

/* The same, and what the job has used and no other wants leaves before a newcomer is refused: no
 * other job expects it, nor, unless that has ended as well, has scored it or used it in its epoch.
 * Whatever is used, expected or scored from now on is somebody's again. */
int sched_abandon(struct sched *s, uint32_t job);
/* The same, and its scores go, too. */
int sched_forget_job(struct sched *s, uint32_t job);

/* A pinned sample does not leave. An absent one stays once it is fetched. */
int sched_pin(struct sched *s, uint32_t id);
int sched_unpin(struct sched *s, uint32_t id);

/* Drops a resident, pinned or not. -ENOENT: not resident. */
int sched_evict(struct sched *s, uint32_t id);

/* The sample is gone from the data set: drops it, its pin, its scores and its count.
 * -EBUSY: a fetch is under way; cancel it first. */
int sched_remove(struct sched *s, uint32_t id);

/* Takes effect at once for admissions. Residents leave through sched_trim(), which
 * fills `victims` and returns how many; 0: nothing more has to leave, or can. */
int sched_set_capacity(struct sched *s, uint64_t capacity_bytes);
uint32_t sched_trim(struct sched *s, uint32_t *victims, uint32_t max);

/* Changes the policy while warm: every resident stays. */
int sched_set_policy(struct sched *s, const char *policy);

bool sched_resident(const struct sched *s, uint32_t id);
/* The first resident id from `from` on, or UINT32_MAX. */
uint32_t sched_next_resident(const struct sched *s, uint32_t from);
/* The resident samples as a bitmap of (samples+63)/64 words, for PADS. */
const uint64_t *sched_resident_bitmap(const struct sched *s);
/* The score in `job`; below 0: none yet. */
float sched_get_score(const struct sched *s, uint32_t job, uint32_t id);
uint32_t sched_get_frequency(const struct sched *s, uint32_t id);
/* How much it is worth to have the sample at hand, from 0 to 1, by what jobs have said: 2/3 or more
 * if a job's first order expects it, the sooner the more; 1/3 or more if a later order does; else
 * less, the higher its score the more. Below 0: nobody has said anything. `served`: its next use is
 * provided for, so the one after that counts. Of several jobs the one that gives most counts. */
float sched_worth(const struct sched *s, uint32_t id, bool served);
/* Copies up to `max` ids that the job's orders still expect, soonest first. */
uint32_t sched_get_ahead(const struct sched *s, uint32_t job, uint32_t *ids, uint32_t max);

void sched_get_stats(const struct sched *s, struct sched_stats *stats);
int sched_get_job_stats(const struct sched *s, uint32_t job, struct sched_job_stats *stats);
const char *sched_policy(const struct sched *s);

/* The policies that a mount may name, in the order of --help; NULL past the last. */
const char *sched_policy_name(unsigned index);
const char *sched_policy_summary(unsigned index);

/* Goes through everything and returns the first broken invariant, or NULL. Costly: for
 * tests. */
const char *sched_check(const struct sched *s);

#endif
