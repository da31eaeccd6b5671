/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How important a sample is to all trainings together.
 *
 * If one of them has scores, its score says it. If several have, their scores cannot be compared:
 * one may have losses of 0.1, another of 7. Then the rank is iCACHE's aggregate, the mean of the
 * percentiles within each training, weighted by what a hit is worth to it (sched_pace()).
 *
 * Percentiles and weights hold until ranking_refresh(): ranks of samples whose scores do not change
 * stay what they are between, and policies may sort by them.
 */
#ifndef SHADE_RANKING_H
#define SHADE_RANKING_H

#include <stdbool.h>

#include "job.h"

struct sched;

struct ranking {
	uint32_t scored_jobs;	       /* jobs that have scores */
	uint32_t only;		       /* the job, if it is one; 0 if there is none */
	uint32_t samples;	       /* that have scores in the one that has most */
	double weight[SCHED_JOBS_MAX]; /* of each that has some; their sum is 1 */
};

/* Which jobs have scores, and how these are distributed. Who has sorted by ranks sorts anew. */
void ranking_refresh(struct sched *s);
/* A score of the job has come or gone: whether the ranking must be refreshed at once. */
bool ranking_is_old(const struct sched *s, const struct job *job);

/* SCORE_NONE: nobody has scored the sample. */
float ranking_of(const struct sched *s, uint32_t id);
/* The rank as a multiple of the mean of all samples that have one, */
double ranking_ratio(const struct sched *s, float rank);
/* and as a share of the sum of all. */
double ranking_share(const struct sched *s, float rank);

#endif
