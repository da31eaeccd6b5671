/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Several trainings on one cache: whose scores count how much, and distances in time. */
#include <errno.h>
#include <math.h>

#include "core.h"
#include "helpers.h"

#define SAMPLES 200

static uint32_t add_job(struct sched *s)
{
	uint32_t job;

	cr_assert_eq(sched_job_begin(s, &job), 0);
	return job;
}

static void score(struct sched *s, uint32_t job, uint32_t id, float value)
{
	cr_assert_eq(sched_score(s, job, id, value), 0);
	cr_assert_sound(s);
}

/* The share of scores below, and half of those that are equal: by looking at all of them. */
static double percentile(const float *scores, uint32_t count, float of)
{
	double below = 0, known = 0;

	for (uint32_t i = 0; i < count; i++) {
		below += scores[i] >= 0 && scores[i] < of ? 1 : 0;
		below += scores[i] >= 0 && scores[i] == of ? 0.5 : 0;
		known += scores[i] >= 0;
	}
	return below / known;
}

/* Losses of one training are a hundred times those of the other: neither outvotes the other. */
Test(jobs, importance_is_the_mean_of_percentiles)
{
	struct sched *s = make_sched(10, "app", SAMPLES);
	uint32_t other = add_job(s);
	float small[SAMPLES], large[SAMPLES], found[SAMPLES];
	struct dice dice = { 1 };

	for (uint32_t id = 0; id < SAMPLES; id++) {
		/* Apart by more than the classes are wide. */
		small[id] = id % 7 ? powf(1.02f, (float)roll(&dice, 100)) / 100 : -1;
		large[id] = id % 5 ? powf(1.02f, (float)roll(&dice, 100)) : -1;
		if (small[id] >= 0)
			cr_assert_eq(sched_score(s, 0, id, small[id]), 0);
		if (large[id] >= 0)
			cr_assert_eq(sched_score(s, other, id, large[id]), 0);
	}
	cr_assert_eq(sched_pace(s, 0, 0.1, 3), 0);
	cr_assert_eq(sched_pace(s, other, 0.1, 1), 0);
	cr_assert_eq(sched_importance(s, 1u | 1u << other, found), 0);
	for (uint32_t id = 0; id < SAMPLES; id++) {
		double due = 0;

		if (small[id] >= 0)
			due += 0.75 * percentile(small, SAMPLES, small[id]);
		if (large[id] >= 0)
			due += 0.25 * percentile(large, SAMPLES, large[id]);
		if (small[id] < 0 && large[id] < 0)
			cr_assert(found[id] < 0);
		else
			cr_assert_float_eq(found[id], due, 1e-6, "%u: %f, not %f", id,
					   (double)found[id], due);
	}
	/* One of them alone. */
	cr_assert_eq(sched_importance(s, 1u << other, found), 0);
	for (uint32_t id = 0; id < SAMPLES; id++)
		cr_assert_float_eq(found[id],
				   large[id] < 0 ? -1 : percentile(large, SAMPLES, large[id]),
				   1e-6);
	sched_destroy(s);
}

/* Job 0 finds 0 to 3 more and more important, the other one less and less. Who has more to lose
 * decides. */
static struct sched *disagree(const char *policy, double benefit, double other_benefit)
{
	struct sched *s = make_sched(3, policy, 4);
	uint32_t other = add_job(s);

	cr_assert_eq(sched_pace(s, 0, 1, benefit), 0);
	cr_assert_eq(sched_pace(s, other, 1, other_benefit), 0);
	for (uint32_t id = 0; id < 4; id++) {
		score(s, 0, id, (float)(1 + id));
		score(s, other, id, 100.0f * (float)(4 - id));
	}
	cr_assert_eq(sched_epoch(s, 0, 1), 0);
	cr_assert_sound(s);
	for (uint32_t id = 0; id < 4; id++)
		read_one(s, id);
	return s;
}

Test(jobs, the_one_that_gains_more_decides)
{
	static const char *const policies[] = { "app", "icache", "shade", "shade-naive" };

	for (unsigned i = 0; i < 4; i++) {
		struct sched *s = disagree(policies[i], 5, 1);

		cr_assert(!sched_resident(s, 0) && sched_resident(s, 3), "%s", policies[i]);
		sched_destroy(s);
		s = disagree(policies[i], 1, 5);
		cr_assert(sched_resident(s, 0) && !sched_resident(s, 3), "%s", policies[i]);
		sched_destroy(s);
	}
}

Test(jobs, who_is_alone_goes_by_its_scores_again)
{
	struct sched *s = disagree("app", 1, 5);

	cr_assert_eq(sched_job_end(s, 1), 0);
	cr_assert_sound(s);
	cr_assert_eq(read_one(s, 3), SCHED_ADMIT);
	cr_assert(!sched_resident(s, 0));
	sched_destroy(s);
}

/* All are ranked anew only when it changes much: a folder of files that is gone would take as long
 * for each of them. Job 0 is always there, and has no scores if all trainings have names. */
Test(jobs, a_file_that_goes_does_not_rank_all_anew)
{
	struct sched *s = make_sched(3, "app", 8);
	uint32_t first = add_job(s), second = add_job(s);

	for (uint32_t id = 0; id < 3; id++) {
		score(s, second, id, (float)id);
		score(s, first, id, (float)id);
	}
	cr_assert_eq(s->jobs[first]->percentiles.total, 2, "it was ranked before the third");
	cr_assert_eq(sched_remove(s, 7), 0);
	cr_assert_eq(s->jobs[first]->percentiles.total, 2);
	sched_destroy(s);
}

/* What nobody has measured counts as the mean of the others. */
Test(jobs, benefits_that_are_not_known)
{
	struct sched *s = make_sched(3, "app", 3);
	uint32_t second = add_job(s), third = add_job(s);
	float found[3];

	for (uint32_t id = 0; id < 3; id++) {
		score(s, 0, id, (float)id);
		score(s, second, id, (float)id);
		score(s, third, id, 2.0f - (float)id);
	}
	cr_assert_eq(sched_importance(s, 7, found), 0);
	cr_assert_float_eq(found[2], (5.0 + 5.0 + 1.0) / 6 / 3, 1e-6);
	cr_assert_eq(sched_pace(s, 0, 1, 1), 0);
	cr_assert_eq(sched_pace(s, second, 1, 3), 0);
	cr_assert_eq(sched_importance(s, 7, found), 0);
	cr_assert_float_eq(found[2], (1 * 5.0 + 3 * 5.0 + 2 * 1.0) / 6 / 6, 1e-6);
	/* Nobody gains by a hit: all count the same. */
	for (uint32_t job = 0; job < 3; job++)
		cr_assert_eq(sched_pace(s, job, 1, 0), 0);
	cr_assert_eq(sched_importance(s, 7, found), 0);
	cr_assert_float_eq(found[2], (5.0 + 5.0 + 1.0) / 6 / 3, 1e-6);
	sched_destroy(s);
}

/* Sample 0 is the 4th entry of a training that reads one a second, 1 the 7th of another one. */
static bool keeps_the_seventh(const char *policy, double seconds, double other_seconds)
{
	static const uint32_t first[] = { 3, 3, 3, 0 }, second[] = { 3, 3, 3, 3, 3, 3, 1 };
	struct sched *s = make_sched(2, policy, 4);
	uint32_t other = add_job(s);
	bool kept;

	read_one(s, 0);
	read_one(s, 1);
	cr_assert_eq(sched_order(s, 0, 0, first, 4), 0);
	cr_assert_eq(sched_order(s, other, 0, second, 7), 0);
	cr_assert_eq(sched_pace(s, 0, seconds, 0), 0);
	cr_assert_eq(sched_pace(s, other, other_seconds, 0), 0);
	cr_assert_eq(read_one(s, 3), SCHED_ADMIT);
	kept = sched_resident(s, 1);
	cr_assert_neq(kept, sched_resident(s, 0));
	sched_destroy(s);
	return kept;
}

Test(jobs, distances_are_compared_in_time)
{
	static const char *const policies[] = { "shade", "shade-naive" };

	for (unsigned i = 0; i < 2; i++) {
		cr_assert(!keeps_the_seventh(policies[i], 0, 0));
		cr_assert(!keeps_the_seventh(policies[i], 1, 1));
		cr_assert(keeps_the_seventh(policies[i], 1, 0.2));
		/* Who is not measured goes as fast as the other. */
		cr_assert(!keeps_the_seventh(policies[i], 100, 0));
	}
}

/* Whose access it is, if nobody knows: the fast one's, which expects the sample sooner. */
Test(jobs, the_soonest_is_the_soonest_in_time)
{
	static const uint32_t first[] = { 1, 0 }, second[] = { 1, 1, 1, 0 };
	struct sched *s = make_sched(2, "shade", 2);
	struct sched_job_stats stats;
	struct sched_verdict verdict;
	uint32_t other = add_job(s);

	cr_assert_eq(sched_order(s, 0, 0, first, 2), 0);
	cr_assert_eq(sched_order(s, other, 0, second, 4), 0);
	cr_assert_eq(sched_pace(s, 0, 1, 0), 0);
	cr_assert_eq(sched_pace(s, other, 0.1, 0), 0);
	cr_assert_eq(sched_access(s, SCHED_JOB_ANY, 0, 1, &verdict), 0);
	cr_assert_eq(sched_get_job_stats(s, other, &stats), 0);
	cr_assert_eq(stats.order_ahead, 3);
	sched_destroy(s);
}

Test(jobs, figures_that_make_no_sense)
{
	struct sched *s = make_sched(2, "shade", 2);

	cr_assert_eq(sched_pace(s, 1, 1, 1), -ERANGE);
	cr_assert_eq(sched_pace(s, 0, -1, 1), -EINVAL);
	cr_assert_eq(sched_pace(s, 0, NAN, 1), -EINVAL);
	cr_assert_eq(sched_pace(s, 0, 1, -1), -EINVAL);
	cr_assert_eq(sched_pace(s, 0, 1, INFINITY), -EINVAL);
	sched_destroy(s);
}

/* --- what a training leaves behind --------------------------------------------------------------
 */

static enum sched_action warm(struct sched *s, uint32_t id)
{
	struct sched_verdict verdict;

	cr_assert_eq(sched_warm(s, id, 1, &verdict), 0);
	if (verdict.action == SCHED_ADMIT)
		cr_assert_eq(sched_commit(s, id), 0);
	cr_assert_sound(s);
	return verdict.action;
}

static enum sched_action read_for(struct sched *s, uint32_t job, uint32_t id)
{
	struct sched_verdict verdict;

	cr_assert_eq(sched_access(s, job, id, 1, &verdict), 0);
	if (verdict.action == SCHED_ADMIT)
		cr_assert_eq(sched_commit(s, id), 0);
	cr_assert_sound(s);
	return verdict.action;
}

static const char *const keepers[] = { "shade", "shade-naive", "app", "icache", "minio" };

/* A full cache of scored samples has no room for others, until their training has ended; and then
 * as much as it left, and no more. */
Test(jobs, what_an_ended_training_leaves_makes_room)
{
	for (unsigned i = 0; i < 5; i++) {
		struct sched *s = make_sched(4, keepers[i], 20);
		uint32_t job = add_job(s);
		struct sched_job_stats stats;

		for (uint32_t id = 0; id < 4; id++) {
			score(s, job, id, 3);
			read_for(s, job, id);
		}
		cr_assert_eq(warm(s, 10), SCHED_BYPASS, "%s", keepers[i]);
		cr_assert_eq(sched_abandon(s, job), 0);
		cr_assert_sound(s);
		cr_assert_eq(sched_get_job_stats(s, job, &stats), 0);
		cr_assert(stats.ended && stats.scored == 4);
		for (uint32_t id = 10; id < 14; id++)
			cr_assert_eq(warm(s, id), SCHED_ADMIT, "%s: %u", keepers[i], id);
		cr_assert_eq(warm(s, 14), SCHED_BYPASS, "%s: those that were warmed", keepers[i]);
		cr_assert_eq(sched_job_end(s, job), 0);
		cr_assert_sound(s);
		sched_destroy(s);
	}
}

/* What others use, expect, have scored or pinned stays; what is used again does, too. */
Test(jobs, what_others_want_is_not_left_behind)
{
	struct sched *s = make_sched(8, "shade", 20);
	uint32_t ends = add_job(s), lives = add_job(s);
	const uint32_t ahead[] = { 1 };

	for (uint32_t id = 0; id < 8; id++)
		read_for(s, ends, id);
	read_for(s, lives, 0);
	cr_assert_eq(sched_order(s, lives, 1, ahead, 1), 0);
	score(s, lives, 2, 1);
	cr_assert_eq(sched_pin(s, 3), 0);
	cr_assert_eq(sched_abandon(s, ends), 0);
	cr_assert_sound(s);
	cr_assert_eq(read_for(s, lives, 4), SCHED_HIT);
	cr_assert_eq(sched_pin(s, 5), 0);
	score(s, lives, 6, 1);
	cr_assert_eq(warm(s, 10), SCHED_ADMIT);
	cr_assert(!sched_resident(s, 7));
	cr_assert_eq(warm(s, 11), SCHED_BYPASS);
	sched_destroy(s);
}

/* An order that is announced afterwards claims what was left. */
Test(jobs, what_is_expected_again_stays)
{
	struct sched *s = make_sched(2, "shade", 20);
	uint32_t job = add_job(s);
	const uint32_t ahead[] = { 0, 1 };

	read_for(s, job, 0);
	read_for(s, job, 1);
	cr_assert_eq(sched_abandon(s, job), 0);
	cr_assert_eq(sched_order(s, 0, 1, ahead, 2), 0);
	cr_assert_eq(warm(s, 10), SCHED_BYPASS);
	cr_assert(sched_resident(s, 0) && sched_resident(s, 1));
	sched_destroy(s);
}

/* Too large a newcomer takes nobody's place. */
Test(jobs, what_was_left_is_put_back_if_it_is_not_enough)
{
	struct sched *s = make_sched(4, "shade", 20);
	uint32_t job = add_job(s);
	struct sched_verdict verdict;

	for (uint32_t id = 0; id < 4; id++)
		read_for(s, job, id);
	cr_assert_eq(sched_pin(s, 0), 0);
	cr_assert_eq(sched_abandon(s, job), 0);
	cr_assert_eq(sched_warm(s, 10, 4, &verdict), 0);
	cr_assert_eq(verdict.action, SCHED_BYPASS);
	cr_assert_sound(s);
	cr_assert_eq(sched_warm(s, 11, 3, &verdict), 0);
	cr_assert_eq(verdict.action, SCHED_ADMIT);
	cr_assert_eq(verdict.victim_count, 3);
	sched_destroy(s);
}

Test(jobs, forgetting_takes_scores_too)
{
	struct sched *s = make_sched(4, "shade", 20);
	struct sched_job_stats stats;
	const uint32_t ahead[] = { 5, 6 };

	score(s, 0, 0, 1);
	cr_assert_eq(sched_order(s, 0, 1, ahead, 2), 0);
	cr_assert_eq(sched_forget_job(s, 0), 0);
	cr_assert_sound(s);
	cr_assert_eq(sched_get_job_stats(s, 0, &stats), 0);
	cr_assert(stats.scored == 0 && stats.order_ahead == 0 && stats.order_bytes == 0);
	cr_assert_eq(sched_forget_job(s, 7), -ERANGE);
	sched_destroy(s);
}

/* --- coverage -----------------------------------------------------------------------------------
 */

static struct sched_job_stats stats_of(const struct sched *s, uint32_t job)
{
	struct sched_job_stats stats;

	cr_assert_eq(sched_get_job_stats(s, job, &stats), 0);
	return stats;
}

Test(jobs, coverage_is_of_what_a_job_says_to_read)
{
	struct sched *s = make_sched(4, "shade", 20);
	uint32_t job = add_job(s);
	const uint32_t table[] = { 0, 1, 2, 3, 3 }, order[] = { 3, 4 }, wrong[] = { 20 };

	cr_assert_eq(stats_of(s, job).named, 0);
	read_for(s, job, 0);
	read_for(s, job, 9);
	cr_assert_eq(sched_name(s, job, table, 5), 0);
	cr_assert(stats_of(s, job).named == 4 && stats_of(s, job).covered_named == 1);
	cr_assert_eq(stats_of(s, job).covered, 2);
	cr_assert_eq(sched_order(s, job, 1, order, 2), 0);
	cr_assert_eq(stats_of(s, job).named, 5);
	read_for(s, job, 4);
	read_for(s, job, 4);
	cr_assert_eq(stats_of(s, job).covered_named, 2);
	cr_assert_eq(sched_epoch(s, job, 1), 0);
	cr_assert(stats_of(s, job).named == 5 && stats_of(s, job).covered_named == 0);
	cr_assert_eq(sched_name(s, job, wrong, 1), -ERANGE);
	cr_assert_sound(s);
	/* The next training of the job reads something else. */
	cr_assert_eq(sched_abandon(s, job), 0);
	cr_assert_eq(stats_of(s, job).named, 5);
	cr_assert_eq(sched_name(s, job, order, 1), 0);
	cr_assert_eq(stats_of(s, job).named, 1);
	cr_assert_sound(s);
	sched_destroy(s);
}

/* --- jobs that only guess ------------------------------------------------------------------------
 */

static uint64_t ahead_of(const struct sched *s, uint32_t job)
{
	struct sched_job_stats stats;

	cr_assert_eq(sched_get_job_stats(s, job, &stats), 0);
	return stats.order_ahead;
}

/* Whoever has announced it gets the access, however far away it is there. */
Test(jobs, an_announced_order_wins_over_a_guess)
{
	static const uint32_t announced[] = { 1, 1, 1, 0 }, guessed[] = { 0, 1, 2 };
	struct sched *s = make_sched(3, "shade", 3);
	struct sched_verdict verdict;
	uint32_t guess = add_job(s), other = add_job(s);

	cr_assert_eq(sched_job_guess(s, guess), 0);
	cr_assert_eq(sched_job_guess(s, 9), -ERANGE);
	cr_assert_eq(sched_order(s, guess, 0, guessed, 3), 0);
	cr_assert_eq(sched_order(s, other, 0, announced, 4), 0);
	cr_assert_eq(sched_access(s, SCHED_JOB_ANY, 0, 1, &verdict), 0);
	cr_assert_eq(verdict.job, other);
	cr_assert_eq(sched_access(s, SCHED_JOB_ANY, 0, 1, &verdict), 0); /* nobody else has it */
	cr_assert_eq(verdict.job, guess);
	cr_assert_eq(sched_access(s, SCHED_JOB_ANY, 2, 1, &verdict), 0);
	cr_assert_eq(verdict.job, guess);
	cr_assert_eq(ahead_of(s, other), 3);
	cr_assert_eq(ahead_of(s, guess), 1);
	cr_assert_null(sched_check(s));
	sched_destroy(s);
}

/* What was read before the order was known is not expected any more, and nothing is counted. */
Test(jobs, reads_before_an_order_are_skipped)
{
	static const uint32_t order[] = { 0, 1, 2, 3, 0 };
	struct sched *s = make_sched(2, "shade", 4);
	struct sched_verdict verdict;
	struct sched_stats stats;
	uint64_t size;
	uint32_t id;

	cr_assert_eq(sched_access(s, 0, 1, 1, &verdict), 0);
	cr_assert_eq(verdict.action, SCHED_ADMIT);
	cr_assert_eq(sched_commit(s, 1), 0);
	cr_assert_eq(sched_order(s, 0, 0, order, 5), 0);
	cr_assert_eq(sched_skip(s, 0, 0), 0);
	cr_assert_eq(sched_skip(s, 0, 1), 0);
	cr_assert_eq(sched_skip(s, 0, 1), 0); /* it has no further entry */
	cr_assert_eq(sched_skip(s, 0, 9), -ERANGE);
	cr_assert_eq(sched_skip(s, 9, 0), -ERANGE);
	cr_assert_eq(ahead_of(s, 0), 3);
	cr_assert_null(sched_check(s));
	for (uint32_t i = 0; i < 4; i++)
		cr_assert_eq(sched_size(s, i, 1), 0);
	/* 2 is next, and takes the place of 1, which nobody needs. */
	cr_assert_eq(sched_prefetch(s, 10, &id, &size, &verdict), 1);
	cr_assert_eq(id, 2);
	sched_get_stats(s, &stats);
	cr_assert_eq(stats.accesses, 1);
	sched_destroy(s);
}

/* A sample that was fetched ahead, and not read when its epoch ended, stays for the next one; but
 * there it may be the last, and others must come before it. */
Test(jobs, what_is_left_of_an_epoch_does_not_block_the_next)
{
	static const uint32_t first[] = { 0, 1, 2, 3 }, second[] = { 4, 5, 6, 7, 3, 2, 1, 0 };
	struct sched *s = make_sched(4, "shade", 8);
	struct sched_verdict verdict;
	struct sched_stats stats;
	uint64_t size;
	uint32_t id;

	for (uint32_t i = 0; i < 8; i++)
		cr_assert_eq(sched_size(s, i, 1), 0);
	cr_assert_eq(sched_order(s, 0, 0, first, 4), 0);
	cr_assert_eq(sched_order(s, 0, 1, second, 8), 0);
	for (unsigned i = 0; i < 2; i++) {
		cr_assert_eq(sched_prefetch(s, 2, &id, &size, &verdict), 1);
		cr_assert_eq(sched_commit(s, id), 0);
	}
	cr_assert_eq(sched_prefetch(s, 2, &id, &size, &verdict), 0); /* the budget is used up */
	cr_assert_eq(sched_epoch(s, 0, 1), 0);
	sched_get_stats(s, &stats);
	cr_assert_eq(stats.prefetched_bytes, 0);
	cr_assert_eq(sched_prefetch(s, 2, &id, &size, &verdict), 1);
	cr_assert_eq(id, 4);
	cr_assert_null(sched_check(s));
	sched_destroy(s);
}
