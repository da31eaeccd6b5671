/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "ranking.h"

#include "core.h"

#define PERCENTILE_MEAN 0.5
#define ALL_JOBS UINT32_MAX

static bool has_scores(const struct sched *s, uint32_t job)
{
	return s->jobs[job] && s->jobs[job]->scored;
}

static bool counts(const struct sched *s, uint32_t jobs, uint32_t job)
{
	return jobs >> job & 1 && has_scores(s, job);
}

/* What is not measured yet counts as the mean of what is. */
static double benefit_of(const struct job *job, double mean)
{
	return job->benefit >= 0 ? job->benefit : mean;
}

static double mean_benefit(const struct sched *s, uint32_t jobs)
{
	double sum = 0;
	unsigned known = 0;

	for (uint32_t job = 0; job < s->job_end; job++)
		if (counts(s, jobs, job) && s->jobs[job]->benefit >= 0) {
			sum += s->jobs[job]->benefit;
			known++;
		}
	return known ? sum / known : 1;
}

/* The weight of each of `jobs` that has scores. If a hit is worth nothing to anybody, all count the
 * same. */
static void weigh(const struct sched *s, uint32_t jobs, double *weight)
{
	double mean = mean_benefit(s, jobs), sum = 0;
	unsigned scored_jobs = 0;

	for (uint32_t job = 0; job < s->job_end; job++)
		if (counts(s, jobs, job)) {
			sum += benefit_of(s->jobs[job], mean);
			scored_jobs++;
		}
	for (uint32_t job = 0; job < s->job_end; job++)
		if (counts(s, jobs, job))
			weight[job] =
				sum > 0 ? benefit_of(s->jobs[job], mean) / sum : 1.0 / scored_jobs;
}

void ranking_refresh(struct sched *s)
{
	struct ranking *ranking = &s->ranking;

	*ranking = (struct ranking){ 0 };
	for (uint32_t job = s->job_end; job-- > 0;)
		if (has_scores(s, job)) {
			ranking->scored_jobs++;
			ranking->only = job;
			if (s->jobs[job]->scored > ranking->samples)
				ranking->samples = s->jobs[job]->scored;
		}
	if (ranking->scored_jobs < 2)
		return;
	for (uint32_t job = 0; job < s->job_end; job++)
		if (has_scores(s, job))
			percentiles_freeze(&s->jobs[job]->percentiles, &s->jobs[job]->percentiles);
	weigh(s, ALL_JOBS, ranking->weight);
}

bool ranking_is_old(const struct sched *s, const struct job *job)
{
	uint32_t scored_jobs = 0;

	for (uint32_t i = 0; i < s->job_end; i++)
		scored_jobs += has_scores(s, i);
	if (scored_jobs != s->ranking.scored_jobs)
		return true;
	/* While a training is new, its percentiles say little, and soon something else. */
	return scored_jobs > 1 && job->scored && job->scored / 2 >= job->percentiles.total;
}

static float aggregate(const struct sched *s, uint32_t id)
{
	double rank = 0;
	bool is_scored = false;

	for (uint32_t job = 0; job < s->job_end; job++) {
		float score = s->jobs[job] ? job_sample(s->jobs[job], id)->score : SCORE_NONE;

		if (score < 0)
			continue;
		is_scored = true;
		rank += s->ranking.weight[job] * percentiles_of(&s->jobs[job]->percentiles, score);
	}
	return is_scored ? (float)rank : SCORE_NONE;
}

static void add_percentiles(const struct job *job, const struct percentiles *now, double weight,
			    float *out)
{
	for (uint32_t id = 0; id < job->sample_count; id++) {
		float score = job_sample(job, id)->score;

		if (score >= 0)
			out[id] = (out[id] < 0 ? 0 : out[id]) +
				  (float)weight * percentiles_of(now, score);
	}
}

/* The percentiles are counted anew; those that policies go by stay. */
int sched_importance(const struct sched *s, uint32_t jobs, float *out)
{
	double weight[SCHED_JOBS_MAX] = { 0 };
	struct percentiles now;
	int rc = percentiles_init(&now);

	if (rc)
		return rc;
	weigh(s, jobs, weight);
	for (uint32_t id = 0; id < s->sample_count; id++)
		out[id] = SCORE_NONE;
	for (uint32_t job = 0; job < s->job_end; job++)
		if (counts(s, jobs, job)) {
			percentiles_freeze(&now, &s->jobs[job]->percentiles);
			add_percentiles(s->jobs[job], &now, weight[job], out);
		}
	percentiles_free(&now);
	return 0;
}

float ranking_of(const struct sched *s, uint32_t id)
{
	if (s->ranking.scored_jobs > 1)
		return aggregate(s, id);
	return job_sample(s->jobs[s->ranking.only], id)->score;
}

double ranking_ratio(const struct sched *s, float rank)
{
	if (s->ranking.scored_jobs > 1)
		return rank / PERCENTILE_MEAN;
	return job_score_ratio(s->jobs[s->ranking.only], rank);
}

double ranking_share(const struct sched *s, float rank)
{
	if (s->ranking.scored_jobs > 1)
		return rank / PERCENTILE_MEAN / s->ranking.samples;
	return job_score_share(s->jobs[s->ranking.only], rank);
}
