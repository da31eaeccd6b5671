/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * shade-naive: what `shade` says, done without any of its structures, as the reference
 * that it is tested against. The next use is found by reading the orders from the
 * start, the victim by looking at every resident, each time.
 */
#include <math.h>

#include "bits.h"
#include "use.h"

/* The first entry of `id` that was not consumed, read off the orders themselves. */
static uint32_t find_place(const struct job *job, uint32_t id)
{
	for (unsigned rank = 0; rank < job->order_count; rank++) {
		const struct order *order = &job->orders[job->sequence[rank]];

		for (uint32_t i = 0; i < order->count; i++)
			if (order->ids[i] == id && !bits_test(order->consumed, i))
				return place_make(job->sequence[rank], i);
	}
	return PLACE_NONE;
}

static double pace(const struct sched *s, const struct job *of)
{
	double sum = 0, known = 0;

	for (uint32_t job = 0; job < s->job_end; job++)
		if (s->jobs[job]) {
			sum += s->jobs[job]->seconds;
			known += s->jobs[job]->seconds > 0;
		}
	if (of->seconds > 0)
		return of->seconds;
	return known > 0 ? sum / known : 1;
}

/* Percentiles hold for a while, so they cannot be counted anew here; without them the rank is the
 * score in the only job that has any. */
static float rank(const struct sched *s, uint32_t id)
{
	float best = SCORE_NONE;

	if (s->ranking.scored_jobs > 1)
		return ranking_of(s, id);
	for (uint32_t job = 0; job < s->job_end; job++)
		if (s->jobs[job] && job_sample(s->jobs[job], id)->score > best)
			best = job_sample(s->jobs[job], id)->score;
	return best;
}

static double share(const struct sched *s, float of)
{
	double sum = 0;

	if (s->ranking.scored_jobs > 1)
		return ranking_share(s, of);
	for (uint32_t id = 0; id < s->sample_count; id++) {
		float score = rank(s, id);

		sum += score > 0 ? score : 0;
	}
	return sum > 0 ? of / sum : 0;
}

/* Accesses of a job until a use, by the definition: entries up to it less what is consumed;
 * beyond the horizon N/(N p + 1) more, p being the share of the rank; all that in seconds. */
static double distance(const struct sched *s, struct use use)
{
	const struct job *job = s->jobs[use.job];
	double entries = 0, consumed = 0, draws = job->sample_count;
	bool passed = false;

	for (unsigned rank = 0; rank < job->order_count; rank++) {
		const struct order *order = &job->orders[job->sequence[rank]];

		draws = order->count;
		for (uint32_t i = 0; i < order->count; i++) {
			passed |= place_make(job->sequence[rank], i) == use.place;
			entries += !passed;
			consumed += bits_test(order->consumed, i);
		}
	}
	if (use.place != PLACE_NONE)
		return pace(s, job) * (entries - consumed);
	if (!job->order_count && !job->scored)
		return INFINITY;
	return pace(s, job) * (entries - consumed + draws / (draws * share(s, use.rank) + 1));
}

/* Strictly; within a job by place and score, which do not suffer from rounding. */
static bool before(const struct sched *s, struct use a, struct use b)
{
	return a.job == b.job ? use_before(s, a, b) : distance(s, a) < distance(s, b);
}

static struct use nearest(const struct sched *s, uint32_t id)
{
	struct use best = { 0 };

	for (uint32_t job = 0; job < s->job_end; job++) {
		struct use use;

		if (!s->jobs[job])
			continue;
		use = (struct use){ .job = job,
				    .place = find_place(s->jobs[job], id),
				    .rank = rank(s, id) };
		if (use.rank < 0)
			use.rank = 0;
		if (job == 0 || before(s, use, best))
			best = use;
	}
	return best;
}

/* Among those who are nearest in `job`, who is farthest; the smallest id at a tie. */
static uint32_t farthest_in_job(const struct sched *s, uint32_t job, struct use *farthest)
{
	uint32_t found = SAMPLE_NONE;

	for (uint32_t id = 0; id < s->sample_count; id++) {
		struct use use;

		if (!sample_may_leave(&s->samples[id]) ||
		    *(uint8_t *)sched_policy_sample(s, id) != 1)
			continue;
		use = nearest(s, id);
		if (use.job != job || (found != SAMPLE_NONE && !use_before(s, *farthest, use)))
			continue;
		found = id;
		*farthest = use;
	}
	return found;
}

static uint32_t victim(struct sched *s, uint32_t newcomer)
{
	struct use farthest = { 0 };
	uint32_t found = SAMPLE_NONE;

	for (uint32_t job = 0; job < s->job_end; job++) {
		struct use use = { 0 };
		uint32_t id = s->jobs[job] ? farthest_in_job(s, job, &use) : SAMPLE_NONE;

		if (id == SAMPLE_NONE)
			continue;
		if (found != SAMPLE_NONE && !before(s, farthest, use) &&
		    (before(s, use, farthest) || id > found))
			continue;
		found = id;
		farthest = use;
	}
	if (found != SAMPLE_NONE && newcomer != SAMPLE_NONE &&
	    !before(s, nearest(s, newcomer), farthest))
		return SAMPLE_NONE;
	return found;
}

static void enter(struct sched *s, uint32_t id)
{
	*(uint8_t *)sched_policy_sample(s, id) = 1;
}

static void leave(struct sched *s, uint32_t id)
{
	*(uint8_t *)sched_policy_sample(s, id) = 0;
}

static const char *check(const struct sched *s)
{
	for (uint32_t id = 0; id < s->sample_count; id++)
		if (sample_may_leave(&s->samples[id]) !=
		    (*(uint8_t *)sched_policy_sample(s, id) == 1))
			return "the members are not the residents";
	return NULL;
}

const struct policy policy_naive = {
	.name = "shade-naive",
	.summary = "the slow reference of shade",
	.reference = true,
	.follows_orders = true,
	.sample_bytes = 1,
	.enter = enter,
	.leave = leave,
	.victim = victim,
	.check = check,
};
