/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The one key of `shade`: when a sample is expected to be used next.
 *
 * Inside a job's horizon that is exact, an entry of an order. Beyond it is an estimate
 * from the rank: a higher one means sooner. With several jobs the nearest counts.
 * Two uses in the same job compare exactly, by place or by rank; uses in different
 * jobs by how many accesses of their own job are in between, and how long these take.
 */
#ifndef SHADE_USE_H
#define SHADE_USE_H

#include "core.h"

struct use {
	uint32_t job;
	uint32_t place; /* PLACE_NONE: beyond the horizon */
	float rank;	/* not below 0 */
};

static inline struct use use_in_job(const struct sched *s, uint32_t job, uint32_t id)
{
	uint32_t place = job_sample(s->jobs[job], id)->head;
	float rank = place == PLACE_NONE ? ranking_of(s, id) : 0;

	return (struct use){ job, place, rank > 0 ? rank : 0 };
}

/* Strictly. */
bool use_before(const struct sched *s, struct use a, struct use b);
/* Whether the use `a` of one sample is farther than the use `b` of another; of two that
 * are as far, the smaller id counts as farther, whatever jobs they are in. */
bool use_after(const struct sched *s, struct use a, uint32_t a_id, struct use b, uint32_t b_id);
/* The nearest over all jobs. */
struct use use_nearest(const struct sched *s, uint32_t id);

#endif
