/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What each policy promises, on examples that can be followed by hand. */
#include <errno.h>
#include <string.h>

#include "helpers.h"

enum { A, B, C, D, E, LETTERS };

/* The worked example of the SHADE paper: capacity 2, cache {a,b}, importance
 * c > b > d > a > e, accesses c c b b d. */
static void play_the_papers_example(const char *policy, const enum sched_action expected[5])
{
	static const float importance[LETTERS] = { [C] = 5, [B] = 4, [D] = 3, [A] = 2, [E] = 1 };
	static const uint32_t accesses[5] = { C, C, B, B, D };
	struct sched *s = make_sched(2, policy, LETTERS);

	read_one(s, A);
	read_one(s, B);
	for (uint32_t id = 0; id < LETTERS; id++)
		cr_assert_eq(sched_score(s, 0, id, importance[id]), 0);
	for (int i = 0; i < 5; i++) {
		enum sched_action action = read_one(s, accesses[i]);

		cr_assert_eq(action, expected[i], "access %d of %s: %d", i, policy, action);
	}
	sched_destroy(s);
}

Test(app, the_papers_example)
{
	static const enum sched_action expected[5] = { SCHED_ADMIT, SCHED_HIT, SCHED_HIT, SCHED_HIT,
						       SCHED_BYPASS };
	struct sched_verdict verdict;
	struct sched *s = make_sched(2, "app", LETTERS);

	play_the_papers_example("app", expected);
	/* Where only scores are known, shade is app. */
	play_the_papers_example("shade", expected);

	read_one(s, A);
	read_one(s, B);
	sched_score(s, 0, C, 5);
	sched_score(s, 0, B, 4);
	sched_score(s, 0, A, 2);
	cr_assert_eq(sched_access(s, 0, C, 1, &verdict), 0);
	cr_assert_eq(verdict.action, SCHED_ADMIT);
	cr_assert_eq(verdict.victim_count, 1);
	cr_assert_eq(verdict.victims[0], A);
	cr_assert_eq(sched_commit(s, C), 0);
	cr_assert(sched_resident(s, B) && sched_resident(s, C) && !sched_resident(s, A));
	sched_destroy(s);
}

/* The negative twin: a policy that ignores importance plays it otherwise. */
Test(app, lru_plays_the_example_otherwise)
{
	static const enum sched_action expected[5] = { SCHED_ADMIT, SCHED_HIT, SCHED_HIT, SCHED_HIT,
						       SCHED_ADMIT };

	play_the_papers_example("lru", expected);
}

Test(app, frequency_decides_between_equal_scores)
{
	struct sched *s = make_sched(2, "app", 3);

	read_one(s, 0);
	read_one(s, 0);
	read_one(s, 1);
	for (uint32_t id = 0; id < 3; id++)
		sched_score(s, 0, id, 1);
	cr_assert_eq(read_one(s, 2), SCHED_BYPASS); /* (1,1) is not above (1,1) */
	cr_assert_eq(read_one(s, 2), SCHED_ADMIT);  /* (1,2) is */
	cr_assert(sched_resident(s, 0) && !sched_resident(s, 1));
	sched_destroy(s);
}

Test(app, never_scored_passes_through)
{
	struct sched *s = make_sched(1, "app", 2);

	read_one(s, 0);
	for (int i = 0; i < 5; i++)
		cr_assert_eq(read_one(s, 1), SCHED_BYPASS);
	sched_score(s, 0, 1, 0); /* the least score there is */
	cr_assert_eq(read_one(s, 1), SCHED_ADMIT);
	sched_destroy(s);
}

Test(app, minus_zero_is_zero)
{
	struct sched *s = make_sched(1, "app", 2);

	read_one(s, 0);
	sched_score(s, 0, 0, 1);
	cr_assert_eq(sched_score(s, 0, 1, -0.0f), 0);
	cr_assert_eq(read_one(s, 1), SCHED_BYPASS);
	sched_destroy(s);
}

Test(lru, the_oldest_use_leaves)
{
	struct sched *s = make_sched(2, "lru", 3);

	read_one(s, 0);
	read_one(s, 1);
	read_one(s, 0);
	cr_assert_eq(read_one(s, 2), SCHED_ADMIT);
	cr_assert(sched_resident(s, 0) && !sched_resident(s, 1));
	sched_destroy(s);
}

Test(fifo, a_hit_does_not_help)
{
	struct sched *s = make_sched(2, "fifo", 3);

	read_one(s, 0);
	read_one(s, 1);
	read_one(s, 0);
	cr_assert_eq(read_one(s, 2), SCHED_ADMIT);
	cr_assert(!sched_resident(s, 0) && sched_resident(s, 1));
	sched_destroy(s);
}

Test(lfu, the_rarest_leaves_and_then_the_oldest)
{
	struct sched *s = make_sched(3, "lfu", 5);

	read_one(s, 0);
	read_one(s, 0);
	read_one(s, 1);
	read_one(s, 2);
	cr_assert_eq(read_one(s, 3), SCHED_ADMIT); /* 1 and 2 were read once, 1 before 2 */
	cr_assert(sched_resident(s, 0) && !sched_resident(s, 1) && sched_resident(s, 2));
	sched_destroy(s);
}

Test(minio, nobody_leaves)
{
	struct sched *s = make_sched(2, "minio", 4);

	read_one(s, 0);
	read_one(s, 1);
	for (uint32_t id = 0; id < 4; id++)
		sched_score(s, 0, id, (float)id);
	cr_assert_eq(read_one(s, 2), SCHED_BYPASS);
	cr_assert_eq(read_one(s, 3), SCHED_BYPASS);
	cr_assert_eq(read_one(s, 0), SCHED_HIT);
	sched_destroy(s);
}

/* Scores of this epoch count from the next one on. */
Test(icache, importance_is_last_epochs)
{
	struct sched *s = make_sched(10, "icache", 12);

	for (uint32_t id = 0; id < 10; id++) {
		read_one(s, id);
		sched_score(s, 0, id, 5);
	}
	sched_score(s, 0, 10, 9);
	/* No snapshot yet: 10 is as unimportant as all, so it only gets into the L tenth. */
	cr_assert_eq(read_one(s, 10), SCHED_ADMIT);
	cr_assert(!sched_resident(s, 9));
	cr_assert_eq(read_one(s, 9), SCHED_ADMIT);
	cr_assert(!sched_resident(s, 10));
	sched_score(s, 0, 3, 1);
	cr_assert_eq(sched_epoch(s, 0, 1), 0);
	cr_assert_eq(read_one(s, 10), SCHED_ADMIT); /* above 3 by now */
	cr_assert(!sched_resident(s, 3) && sched_resident(s, 9));
	sched_destroy(s);
}

static void announce(struct sched *s, uint64_t epoch, const uint32_t *ids, uint32_t count)
{
	cr_assert_eq(sched_order(s, 0, epoch, ids, count), 0);
	cr_assert_sound(s);
}

Test(shade, known_order_beats_scores)
{
	static const uint32_t order[] = { 0, 1, 2, 0, 1 };
	struct sched *s = make_sched(2, "shade", 3);

	for (uint32_t id = 0; id < 3; id++)
		sched_score(s, 0, id, id == 2 ? 9 : 1);
	announce(s, 0, order, 5);
	cr_assert_eq(read_one(s, 0), SCHED_ADMIT);
	cr_assert_eq(read_one(s, 1), SCHED_ADMIT);
	cr_assert_eq(read_one(s, 2), SCHED_BYPASS); /* important, but not wanted again */
	cr_assert_eq(read_one(s, 0), SCHED_HIT);
	/* Now 0 is beyond the horizon, with a score of 1; 2 has 9. */
	cr_assert_eq(read_one(s, 2), SCHED_ADMIT);
	cr_assert(!sched_resident(s, 0));
	cr_assert_eq(read_one(s, 1), SCHED_HIT);
	sched_destroy(s);
}

Test(shade, knowing_nothing_is_minio)
{
	struct sched *s = make_sched(2, "shade", 4);

	read_one(s, 0);
	read_one(s, 1);
	cr_assert_eq(read_one(s, 2), SCHED_BYPASS);
	cr_assert_eq(read_one(s, 3), SCHED_BYPASS);
	cr_assert_eq(read_one(s, 0), SCHED_HIT);
	sched_destroy(s);
}

Test(shade, next_epochs_order_counts_while_this_one_runs)
{
	static const uint32_t now[] = { 0, 1, 2 }, then[] = { 2, 1, 0 };
	struct sched *s = make_sched(1, "shade", 3);

	announce(s, 1, then, 3); /* announced before the one that comes first */
	announce(s, 0, now, 3);
	cr_assert_eq(sched_epoch(s, 0, 0), 0);
	cr_assert_eq(read_one(s, 0), SCHED_ADMIT); /* next at 5 */
	cr_assert_eq(read_one(s, 1), SCHED_ADMIT); /* next at 4: nearer than 0 */
	cr_assert(!sched_resident(s, 0));
	cr_assert_eq(read_one(s, 2), SCHED_ADMIT); /* next at 3 */
	cr_assert_eq(sched_epoch(s, 0, 1), 0);
	cr_assert_eq(read_one(s, 2), SCHED_HIT);
	sched_destroy(s);
}

Test(shade, nearest_over_the_jobs)
{
	static const uint32_t first[] = { 3, 3, 3, 0 }, second[] = { 1 };
	struct sched *s = make_sched(2, "shade", 4);
	uint32_t job;

	cr_assert_eq(sched_job_begin(s, &job), 0);
	read_one(s, 0);
	read_one(s, 1);
	cr_assert_eq(sched_order(s, 0, 0, first, 4), 0);
	cr_assert_eq(sched_order(s, job, 0, second, 1), 0);
	/* 1 is wanted in a moment by the second job, 0 after three accesses of the first. */
	cr_assert_eq(read_one(s, 3), SCHED_ADMIT);
	cr_assert(!sched_resident(s, 0) && sched_resident(s, 1));
	/* Without the second job nobody is known to want 1. */
	cr_assert_eq(sched_job_end(s, job), 0);
	cr_assert_sound(s);
	cr_assert_eq(read_one(s, 0), SCHED_BYPASS);
	sched_destroy(s);
}

/* A job that has said nothing must not make all others' scores equal. */
Test(shade, an_idle_job_changes_nothing)
{
	struct sched *s = make_sched(2, "shade", 3);
	uint32_t job;

	cr_assert_eq(sched_job_begin(s, &job), 0);
	for (uint32_t id = 0; id < 3; id++)
		sched_score(s, 0, id, (float)(id + 1));
	read_one(s, 0);
	read_one(s, 1);
	cr_assert_eq(read_one(s, 2), SCHED_ADMIT);
	cr_assert(!sched_resident(s, 0) && sched_resident(s, 1));
	sched_destroy(s);
}

Test(policies, sequence_survives_a_change)
{
	struct sched *s = make_sched(3, "app", 4);

	for (uint32_t id = 0; id < 3; id++) {
		read_one(s, id);
		sched_score(s, 0, id, (float)(3 - id));
	}
	cr_assert_eq(sched_set_policy(s, "lru"), 0);
	read_one(s, 3); /* the least important had to be the first to leave */
	cr_assert(sched_resident(s, 0) && sched_resident(s, 1) && !sched_resident(s, 2));
	sched_destroy(s);
}

Test(policies, can_be_changed_while_warm)
{
	struct sched *s = make_sched(3, NULL, 6);

	cr_assert_str_eq(sched_policy(s), "shade");
	for (uint32_t id = 0; id < 3; id++)
		read_one(s, id);
	for (unsigned i = 0; sched_policy_name(i); i++) {
		cr_assert_eq(sched_set_policy(s, sched_policy_name(i)), 0);
		cr_assert_str_eq(sched_policy(s), sched_policy_name(i));
		cr_assert_sound(s);
		for (uint32_t id = 0; id < 3; id++)
			cr_assert(sched_resident(s, id));
	}
	cr_assert_eq(sched_set_policy(s, "nonsense"), -EINVAL);
	cr_assert_str_eq(sched_policy(s), "fifo");
	sched_destroy(s);
}
