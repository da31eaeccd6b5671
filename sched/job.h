/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A job: one training's scores, and the horizon, which is what its announced orders
 * still expect.
 *
 * A `place` names one entry of one order: the order's slot in the upper two bits, the
 * index below. All entries of one sample that are still ahead form a chain through
 * `next`, soonest first, across orders; `head` is the sample's next use. Consuming an
 * access is one step along the chain, wherever in the order it stands, so readers that
 * overtake each other cost nothing extra.
 */
#ifndef SHADE_JOB_H
#define SHADE_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "percentiles.h"
#include "posset.h"
#include "shade/sched.h"

#define PLACE_NONE UINT32_MAX
#define SCORE_NONE (-1.0f)

/* All of an order that is not computed from the rest: one block of memory, which may outlive the
 * job. `words` are the bitmap of what was consumed, then the ids. */
struct order_block {
	uint64_t number; /* of a job's orders the later one has the higher */
	uint64_t epoch;
	uint32_t job;
	uint32_t count;
	uint32_t is_anew; /* its epoch has begun once more: if it is announced again, it is read
			   * from its start */
	uint32_t unused;
	uint64_t words[];
};

struct order {
	struct order_block *block; /* NULL: the slot is free */
	uint64_t epoch;
	uint32_t count;		/* 0: the slot is free */
	uint32_t left;		/* not consumed yet */
	uint32_t *ids;		/* in the block */
	uint32_t *next;		/* place of the same sample's following entry */
	uint64_t *consumed;	/* bitmap, in the block */
	struct posset resident; /* kept by the policy: entries that are next uses of residents */
};

struct job_sample {
	float score;
	uint32_t head;	    /* place of the first entry ahead */
	uint32_t tail;	    /* place of the last; garbage while head is PLACE_NONE */
	uint32_t seen : 31; /* the period of the last access; 0: none */
	uint32_t named : 1; /* the job has said that it reads it */
};

struct job {
	void *samples; /* struct job_sample, `stride` bytes apart: see job_sample() */
	size_t stride;
	bool owns_samples;
	uint32_t number;		   /* the handle's */
	const struct sched_memory *memory; /* of its orders */
	uint64_t announced;		   /* orders, ever */
	bool guessed;			   /* its orders are: see sched_job_guess() */
	bool ended;			   /* its training has, and has said nothing since */
	uint32_t sample_count;
	uint32_t period;	/* one more with each epoch that begins; from 1 */
	uint32_t covered;	/* samples seen in this period */
	uint32_t named;		/* samples that it has said to read */
	uint32_t covered_named; /* of these: seen in this period */
	uint32_t scored;
	uint64_t score_sum; /* of score_weight(): exact, whatever the sequence of updates */
	struct percentiles percentiles; /* of the scores */
	double seconds;			/* from one access to the next; 0: not measured */
	double benefit;			/* of a hit, as a multiple of that; below 0: not measured */
	double pace; /* what distances are multiplied by to compare them with others' */
	uint64_t epoch;
	struct order orders[SCHED_ORDERS_MAX];
	uint8_t sequence[SCHED_ORDERS_MAX]; /* slots, by epoch */
	uint8_t rank[SCHED_ORDERS_MAX];	    /* inverse of sequence */
	uint8_t order_count;
	uint64_t prefetched_bytes; /* brought in ahead for it and not used yet */
	uint32_t scan; /* prefetch: first place not looked at; PLACE_NONE: from the start */
};

static inline uint32_t place_slot(uint32_t place)
{
	return place >> 30;
}

static inline uint32_t place_index(uint32_t place)
{
	return place & ((1u << 30) - 1);
}

static inline uint32_t place_make(uint32_t slot, uint32_t index)
{
	return slot << 30 | index;
}

/* The sample that the order of `place` has `ahead` entries later, or UINT32_MAX. */
static inline uint32_t job_later(const struct job *job, uint32_t place, uint32_t ahead)
{
	const struct order *order = &job->orders[place_slot(place)];
	uint32_t index = place_index(place) + ahead;

	return index < order->count ? order->ids[index] : UINT32_MAX;
}

static inline struct job_sample *job_sample(const struct job *job, uint32_t id)
{
	return (struct job_sample *)((char *)job->samples + (size_t)id * job->stride);
}

/* A job that knows no samples yet. With a stride of 0 it has an array of its own for
 * them, else the caller keeps them somewhere and calls job_attach(). 0 or -ENOMEM. */
int job_init(struct job *job, uint32_t number, size_t stride, const struct sched_memory *memory);
void job_free(struct job *job);
/* Makes room for `samples`, without making them known. 0 or -ENOMEM. */
int job_reserve(struct job *job, uint32_t samples);
/* The caller's array has moved. */
void job_attach(struct job *job, void *samples);
/* There is room: the ids below `samples` are known. */
void job_grow(struct job *job, uint32_t samples);

void job_score(struct job *job, uint32_t id, float score);
/* Takes an order, whole. The ids are valid. If the epoch has one already, what was consumed of the
 * beginning that both share stays consumed: a training may think better of the rest.
 * -ENOMEM, -ENOSPC, -ERANGE (a past epoch). */
int job_order(struct job *job, uint64_t epoch, const uint32_t *ids, uint32_t count);
/* Takes an order from the memory of another handle: see sched_adopt_order(). */
int job_adopt(struct job *job, struct order_block *block);
/* The job reads this sample; those that an order names are named by it. */
void job_name(struct job *job, uint32_t id);
/* Nothing is known of what it reads. */
void job_unname(struct job *job);
/* An epoch before the present one begins anew. `*dropped`: unconsumed entries went away. */
void job_epoch(struct job *job, uint64_t epoch, bool *dropped);
/* All orders go. Whether unconsumed entries went away with them. */
bool job_drop_orders(struct job *job);
/* One access: marks the sample as seen and steps along its chain. Returns the place of
 * the entry that this was, or PLACE_NONE. */
uint32_t job_consume(struct job *job, uint32_t id);
/* Whether readers can have got as far as the order at `place`. */
bool job_within_reach(const struct job *job, uint32_t place);
/* Forgets the score. Its entries in orders stay: whether they come is not known. */
void job_forget(struct job *job, uint32_t id);

/* Whether entry `a` comes after entry `b`. */
bool job_place_after(const struct job *job, uint32_t a, uint32_t b);
/* Accesses of this job, times its pace, until its entry at `place`, or with PLACE_NONE until a
 * sample is expected beyond the horizon that has this share of all importance. */
double job_distance(const struct job *job, uint32_t place, double share);
/* The score as a share of the sum of all. */
double job_score_share(const struct job *job, float score);
/* The score as a multiple of the mean of all that are scored. */
float job_score_ratio(const struct job *job, float score);
/* The sample is absent, or can be fetched by now: if prefetch has passed it, it comes back. */
void job_look_again(struct job *job, uint32_t id);
uint64_t job_ahead(const struct job *job);
/* Entries of the present epoch's order that were consumed. */
uint32_t job_read(const struct job *job);
/* Memory of its orders. */
uint64_t job_order_bytes(const struct job *job);
/* The next entry that was not consumed, from place `*scan` on (PLACE_NONE: the start).
 * Looks at `*steps` entries at most and counts them down. Returns its place and sets
 * `*scan` to it, or PLACE_NONE with `*scan` where to go on. */
uint32_t job_scan(const struct job *job, uint32_t *scan, uint32_t *steps);

const char *job_check(const struct job *job);

#endif
