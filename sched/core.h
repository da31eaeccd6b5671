/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The inside of a `struct sched`, for the core and the policies. */
#ifndef SHADE_CORE_H
#define SHADE_CORE_H

#include "heap.h"
#include "job.h"
#include "policy.h"
#include "ranking.h"
#include "shade/sched.h"

enum sample_state {
	SAMPLE_ABSENT,
	SAMPLE_RESERVED, /* a fetch is under way, its bytes are set aside */
	SAMPLE_RESIDENT,
};

#define SAMPLE_SIZED 1u	     /* the size is known */
#define SAMPLE_PINNED 2u     /* never a victim */
#define SAMPLE_PREFETCHED 4u /* brought in ahead, not used yet */
#define SAMPLE_ABANDONED 8u  /* resident, and of a training that has ended; never pinned */

/* All that an access touches of a sample, side by side: with millions of samples each
 * further place in memory costs more than everything that is computed with it. */
struct sample {
	uint64_t size;
	uint32_t frequency; /* accesses ever; survives eviction */
	uint8_t state;
	uint8_t flags;
	uint8_t prefetcher;	/* the job that it was brought in ahead for */
	struct job_sample job0; /* what job 0 knows; other jobs have arrays of their own */
	_Alignas(8) unsigned char policy[POLICY_SAMPLE_BYTES]; /* the policy's own */
};

struct sched {
	const struct policy *policy;
	void *policy_state;
	struct sched_memory memory; /* of orders */

	struct sample *samples;
	uint64_t *resident; /* bitmap */
	uint32_t sample_count;
	uint32_t sample_room;

	struct job *jobs[SCHED_JOBS_MAX]; /* NULL: no such job */
	uint32_t job_end;		  /* one past the last job */
	uint32_t next_job;		  /* whose turn it is to prefetch */
	uint32_t turn_samples;		  /* what that job has had of its turn */
	struct ranking ranking;

	struct sched_stats stats;
	uint32_t reserved_count;
	uint32_t abandoned_count; /* samples with SAMPLE_ABANDONED */
	uint32_t abandoned_from;  /* where to look for the next one */
	uint32_t victims[SCHED_VICTIMS_MAX];
};

/* --- sched.c, for others of the core */

/* Resident and reserved. */
uint32_t core_held_samples(const struct sched *s);
/* The policy has room for so many. 0 or -ENOMEM. */
int core_policy_reserve(struct sched *s, uint32_t held);
/* Uses have changed: the policy files all residents anew. */
void core_rebuild(struct sched *s);
void core_set_flag(struct sched *s, uint32_t id, uint8_t flag);
void core_clear_flag(struct sched *s, uint32_t id, uint8_t flag);

/* --- abandoned.c */

/* A sample that nobody wants any more, or SAMPLE_NONE. It is not among them any more. */
uint32_t abandoned_next(struct sched *s);

/* --- jobs.c */

extern const struct sched_memory core_heap;
/* Scores of several jobs have changed, or whose they are. */
void core_rank_anew(struct sched *s);

/* NULL: there is no such job. */
static inline struct job *sched_job(const struct sched *s, uint32_t job)
{
	return job < SCHED_JOBS_MAX ? s->jobs[job] : NULL;
}

static inline bool sample_may_leave(const struct sample *sample)
{
	return sample->state == SAMPLE_RESIDENT && !(sample->flags & SAMPLE_PINNED);
}

/* The policy's own data of a sample. */
static inline void *sched_policy_sample(const struct sched *s, uint32_t id)
{
	return s->samples[id].policy;
}

/* Where a heap finds its slots: they come first in the policy's own data. */
static inline struct heap_slots sched_slots(const struct sched *s)
{
	return (struct heap_slots){ s->samples ? s->samples->policy : NULL, sizeof(struct sample) };
}

/* Has what is known of a sample fetched from memory. */
static inline void sched_prefetch_sample(const struct sched *s, uint32_t id)
{
	__builtin_prefetch(&s->samples[id]);
	__builtin_prefetch(s->samples[id].policy);
	__builtin_prefetch(&s->resident[id / 64]);
}

#endif
