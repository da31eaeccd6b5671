/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Random sequences. shade and its naive reference must decide the same, step by step, and
 * every policy must keep every invariant. Told the whole future, shade must be as good as
 * the best that there is.
 *
 * A failing case names its seed: put it alone into the loop to replay it.
 */
#include <stdlib.h>
#include <string.h>

#include "helpers.h"

#define SAMPLES 12
#define STEPS 150

/* Two handles that are told the same. */
struct pair {
	struct sched *one, *other; /* `other` may be NULL */
	struct dice dice;
	uint64_t epoch[3];
	uint32_t jobs; /* 1 to 3; ids are 0, 1, ... */
	uint64_t seed;
};

#define BOTH(pair, call, ...)                                                                      \
	do {                                                                                       \
		int rc_ = call((pair)->one, __VA_ARGS__);                                          \
		if ((pair)->other)                                                                 \
			cr_assert_eq(call((pair)->other, __VA_ARGS__), rc_,                        \
				     "seed %lu: " #call " differs", (unsigned long)(pair)->seed);  \
	} while (0)

static void compare_verdicts(const struct pair *p, struct sched_verdict a, struct sched_verdict b)
{
	cr_assert_eq(a.action, b.action, "seed %lu: actions %d and %d", (unsigned long)p->seed,
		     a.action, b.action);
	cr_assert_eq(a.victim_count, b.victim_count, "seed %lu: %u and %u victims",
		     (unsigned long)p->seed, a.victim_count, b.victim_count);
	for (uint32_t i = 0; i < a.victim_count; i++)
		cr_assert_eq(a.victims[i], b.victims[i], "seed %lu: victims %u and %u",
			     (unsigned long)p->seed, a.victims[i], b.victims[i]);
}

static void step_access(struct pair *p)
{
	uint32_t id = roll(&p->dice, SAMPLES), job = roll(&p->dice, p->jobs + 1);
	struct sched_verdict a = { 0 }, b = { 0 };

	if (job == p->jobs)
		job = SCHED_JOB_ANY;
	cr_assert_eq(sched_access(p->one, job, id, 1 + id % 3, &a), 0);
	if (p->other) {
		cr_assert_eq(sched_access(p->other, job, id, 1 + id % 3, &b), 0);
		compare_verdicts(p, a, b);
	}
	/* Some fetches take a while, some fail. */
	if (a.action == SCHED_ADMIT && roll(&p->dice, 4)) {
		if (roll(&p->dice, 8))
			BOTH(p, sched_commit, id);
		else
			BOTH(p, sched_cancel, id);
	}
}

static void step_prefetch(struct pair *p)
{
	uint32_t a_id = 0, b_id = 0, budget = roll(&p->dice, 8);
	struct sched_verdict a, b;
	uint64_t size;
	int found = sched_prefetch(p->one, budget, &a_id, &size, &a);

	if (p->other) {
		cr_assert_eq(sched_prefetch(p->other, budget, &b_id, &size, &b), found,
			     "seed %lu: prefetch differs", (unsigned long)p->seed);
		if (found) {
			cr_assert_eq(a_id, b_id);
			compare_verdicts(p, a, b);
		}
	}
	if (found && roll(&p->dice, 2))
		BOTH(p, sched_commit, a_id);
}

static void step_order(struct pair *p)
{
	uint32_t ids[20], count = roll(&p->dice, 21), job = roll(&p->dice, p->jobs);
	uint64_t epoch = p->epoch[job] + roll(&p->dice, 3);

	for (uint32_t i = 0; i < count; i++)
		ids[i] = roll(&p->dice, SAMPLES);
	BOTH(p, sched_order, job, epoch, ids, count);
}

static void step_epoch(struct pair *p)
{
	uint32_t job = roll(&p->dice, p->jobs);

	p->epoch[job] += roll(&p->dice, 2);
	BOTH(p, sched_epoch, job, p->epoch[job]);
}

static void trim_both(struct pair *p)
{
	uint32_t a[4], b[4], count;

	while ((count = sched_trim(p->one, a, 4)) > 0) {
		if (!p->other)
			continue;
		cr_assert_eq(sched_trim(p->other, b, 4), count);
		cr_assert_arr_eq(a, b, count * sizeof(*a), "seed %lu: trims differ",
				 (unsigned long)p->seed);
	}
}

/* With several jobs, equal scores make ties that may be settled either way: no two
 * samples have the same. */
static float score_of(const struct pair *p, uint32_t id, uint32_t level)
{
	return p->jobs == 1 ? (float)level : (float)level + (float)(id + 1) / 64;
}

/* The policy changes while it is warm, and jobs of nobody's come and go. */
static void step_upheaval(struct pair *p)
{
	uint32_t job;

	if (roll(&p->dice, 2))
		cr_assert_eq(sched_set_policy(p->one, sched_policy_name(roll(&p->dice, 7))), 0);
	else if (roll(&p->dice, 2))
		(void)sched_job_begin(p->one, &job);
	else if (roll(&p->dice, 2))
		(void)sched_abandon(p->one, roll(&p->dice, p->jobs));
	else if (roll(&p->dice, 2))
		(void)sched_forget_job(p->one, roll(&p->dice, p->jobs));
	else
		(void)sched_job_end(p->one, p->jobs + roll(&p->dice, 3));
}

static void step_any(struct pair *p)
{
	uint32_t id = roll(&p->dice, SAMPLES), job = roll(&p->dice, p->jobs);
	uint64_t capacity = 1 + roll(&p->dice, 12);
	float score = score_of(p, id, roll(&p->dice, 5));
	double pace = 0.37 * roll(&p->dice, 4);

	if (!p->other && !roll(&p->dice, 16)) {
		step_upheaval(p);
		return;
	}
	switch (roll(&p->dice, 20)) {
	case 0:
		step_order(p);
		break;
	case 1:
		step_epoch(p);
		break;
	case 2:
		BOTH(p, sched_pin, id);
		break;
	case 3:
		BOTH(p, sched_unpin, id);
		break;
	case 4:
		BOTH(p, sched_set_capacity, capacity);
		trim_both(p);
		break;
	case 5:
		BOTH(p, sched_commit, id);
		break;
	case 6:
		BOTH(p, sched_evict, id);
		break;
	case 7:
		if (p->jobs == 1) /* it would forget the scores */
			BOTH(p, sched_remove, id);
		break;
	case 8:
		step_prefetch(p);
		break;
	case 9:
		if (p->jobs > 1)
			BOTH(p, sched_pace, job, pace, 1);
		break;
	case 10:
	case 11:
	case 12:
		BOTH(p, sched_score, job, id, score);
		break;
	default:
		step_access(p);
	}
}

static void play(const char *one, const char *other, uint32_t jobs, uint64_t seed)
{
	struct pair p = { .dice = { seed * 2 + 1 }, .jobs = jobs, .seed = seed };
	uint32_t job;

	p.one = make_sched(6, one, SAMPLES);
	p.other = other ? make_sched(6, other, SAMPLES) : NULL;
	for (uint32_t i = 1; i < jobs; i++)
		BOTH(&p, sched_job_begin, &job);
	for (uint32_t id = 0; id < SAMPLES; id++)
		BOTH(&p, sched_size, id, 1 + id % 3);
	for (uint32_t i = 0; jobs > 1 && i < jobs * SAMPLES; i++)
		BOTH(&p, sched_score, i / SAMPLES, i % SAMPLES, score_of(&p, i % SAMPLES, 1));
	for (int step = 0; step < STEPS; step++) {
		const char *wrong;

		step_any(&p);
		wrong = sched_check(p.one);
		cr_assert(!wrong, "%s, seed %lu, step %d: %s", one, (unsigned long)seed, step,
			  wrong ? wrong : "");
	}
	sched_destroy(p.one);
	sched_destroy(p.other);
}

Test(random, shade_is_its_naive_reference)
{
	for (uint64_t seed = 0; seed < 400; seed++)
		play("shade", "shade-naive", 1, seed);
}

Test(random, shade_is_its_naive_reference_with_jobs)
{
	for (uint64_t seed = 0; seed < 400; seed++)
		play("shade", "shade-naive", 3, seed);
}

Test(random, every_policy_keeps_its_invariants)
{
	for (unsigned i = 0; sched_policy_name(i); i++)
		for (uint64_t seed = 0; seed < 60; seed++)
			play(sched_policy_name(i), NULL, 1 + seed % 3, seed);
}

/* --- min ------------------------------------------------------------------------------- */

#define SHORT_SAMPLES 6
#define SHORT_TRACE 14

/* The most hits that any sequence of admissions and evictions gets from here on. */
static int best_hits(const uint32_t *trace, int at, unsigned cache, int capacity, int8_t *memo)
{
	int8_t *known = &memo[at << SHORT_SAMPLES | cache];
	unsigned wanted;
	int best;

	if (at == SHORT_TRACE)
		return 0;
	if (*known >= 0)
		return *known;
	wanted = 1u << trace[at];
	if (cache & wanted)
		return *known = (int8_t)(1 + best_hits(trace, at + 1, cache, capacity, memo));
	best = best_hits(trace, at + 1, cache, capacity, memo); /* bypass */
	if (__builtin_popcount(cache) < capacity) {
		int hits = best_hits(trace, at + 1, cache | wanted, capacity, memo);

		best = hits > best ? hits : best;
	}
	for (unsigned victim = 0; victim < SHORT_SAMPLES; victim++) {
		int hits;

		if (!(cache >> victim & 1))
			continue;
		hits = best_hits(trace, at + 1, (cache & ~(1u << victim)) | wanted, capacity, memo);
		best = hits > best ? hits : best;
	}
	return *known = (int8_t)best;
}

static int told_all(const uint32_t *trace, int capacity, const char *policy)
{
	struct sched *s = make_sched((uint64_t)capacity, policy, SHORT_SAMPLES);
	int hits = 0;

	cr_assert_eq(sched_order(s, 0, 0, trace, SHORT_TRACE), 0);
	for (int i = 0; i < SHORT_TRACE; i++)
		hits += read_one(s, trace[i]) == SCHED_HIT;
	sched_destroy(s);
	return hits;
}

Test(min, is_the_best_there_is)
{
	int8_t memo[SHORT_TRACE << SHORT_SAMPLES];
	struct dice dice = { 7 };
	int lru_lost = 0;

	for (int round = 0; round < 300; round++) {
		uint32_t trace[SHORT_TRACE];
		int capacity = 1 + (int)roll(&dice, 4), best;

		for (int i = 0; i < SHORT_TRACE; i++)
			trace[i] = roll(&dice, SHORT_SAMPLES);
		memset(memo, -1, sizeof(memo));
		best = best_hits(trace, 0, 0, capacity, memo);
		cr_assert_eq(told_all(trace, capacity, "shade"), best, "round %d", round);
		cr_assert_leq(told_all(trace, capacity, "lru"), best);
		lru_lost += told_all(trace, capacity, "lru") < best;
	}
	cr_assert_gt(lru_lost, 100); /* the comparison means something */
}
