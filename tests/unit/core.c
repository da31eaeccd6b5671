/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The core under every policy: bytes, reservations, pins, capacity, prefetch, bad input. */
#include <errno.h>
#include <math.h>

#include "helpers.h"

static struct sched_stats stats_of(const struct sched *s)
{
	struct sched_stats stats;

	sched_get_stats(s, &stats);
	return stats;
}

Test(core, bytes_are_exact)
{
	struct sched *s = make_sched(100, "lru", 4);

	cr_assert_eq(read_sized(s, 0, 60), SCHED_ADMIT);
	cr_assert_eq(read_sized(s, 1, 40), SCHED_ADMIT);
	cr_assert_eq(stats_of(s).resident_bytes, 100);
	cr_assert_eq(read_sized(s, 2, 101), SCHED_BYPASS); /* larger than the capacity */
	cr_assert_eq(stats_of(s).resident_samples, 2);
	cr_assert_eq(read_sized(s, 3, 100), SCHED_ADMIT); /* both leave */
	cr_assert_eq(stats_of(s).resident_samples, 1);
	cr_assert_eq(stats_of(s).evictions, 2);
	sched_destroy(s);
}

Test(core, an_empty_sample_can_be_resident)
{
	struct sched *s = make_sched(1, "shade", 2);

	cr_assert_eq(read_sized(s, 0, 1), SCHED_ADMIT);
	cr_assert_eq(read_sized(s, 1, 0), SCHED_ADMIT);
	cr_assert_eq(read_sized(s, 1, 0), SCHED_HIT);
	sched_destroy(s);
}

Test(core, reservations_count_and_join)
{
	struct sched *s = make_sched(2, "lru", 4);
	struct sched_verdict verdict;

	cr_assert_eq(sched_access(s, 0, 0, 2, &verdict), 0);
	cr_assert_eq(verdict.action, SCHED_ADMIT);
	cr_assert_eq(stats_of(s).reserved_bytes, 2);
	cr_assert(!sched_resident(s, 0));
	cr_assert_eq(sched_access(s, 0, 0, 2, &verdict), 0);
	cr_assert_eq(verdict.action, SCHED_JOIN);
	/* A fetch under way is nobody's victim. */
	cr_assert_eq(sched_access(s, 0, 1, 1, &verdict), 0);
	cr_assert_eq(verdict.action, SCHED_BYPASS);
	cr_assert_eq(sched_cancel(s, 0), 0);
	cr_assert_eq(stats_of(s).reserved_bytes, 0);
	cr_assert_eq(sched_cancel(s, 0), -ERANGE);
	cr_assert_eq(sched_commit(s, 0), -ERANGE);
	cr_assert_eq(read_one(s, 1), SCHED_ADMIT);
	sched_destroy(s);
}

/* Somebody worth less in the way of several that are needed: nobody leaves. */
Test(core, victims_leave_together_or_not_at_all)
{
	struct sched *s = make_sched(3, "app", 4);

	for (uint32_t id = 0; id < 3; id++) {
		read_one(s, id);
		sched_score(s, 0, id, id == 2 ? 9 : 1);
	}
	sched_score(s, 0, 3, 5);
	cr_assert_eq(read_sized(s, 3, 3), SCHED_BYPASS); /* would need 2 as well */
	cr_assert_eq(stats_of(s).resident_samples, 3);
	cr_assert_eq(read_sized(s, 3, 2), SCHED_ADMIT);
	cr_assert(sched_resident(s, 2) && !sched_resident(s, 0) && !sched_resident(s, 1));
	sched_destroy(s);
}

Test(core, victims_of_one_admission_are_bounded)
{
	uint32_t many = SCHED_VICTIMS_MAX + 1;
	struct sched *s = make_sched(many, "lru", many + 2);

	for (uint32_t id = 0; id < many; id++) {
		struct sched_verdict verdict;

		cr_assert_eq(sched_access(s, 0, id, 1, &verdict), 0);
		cr_assert_eq(sched_commit(s, id), 0);
	}
	/* They leave, or they would be in everybody's way for ever; the next one gets in. */
	cr_assert_eq(read_sized(s, many, many), SCHED_BYPASS);
	cr_assert_eq(stats_of(s).resident_samples, 1);
	cr_assert(sched_resident(s, many - 1)); /* the most recent is the one that is left */
	cr_assert_eq(read_sized(s, many, many), SCHED_ADMIT);
	sched_destroy(s);
}

static void try_pins(const char *policy)
{
	struct sched *s = make_sched(2, policy, 4);
	uint32_t victims[4];

	read_one(s, 0);
	read_one(s, 1);
	cr_assert_eq(sched_pin(s, 0), 0);
	cr_assert_eq(sched_pin(s, 0), 0);
	cr_assert_eq(stats_of(s).pinned_bytes, 1);
	cr_assert_eq(sched_pin(s, 2), 0); /* absent: stays once it is fetched */
	cr_assert_sound(s);
	cr_assert_eq(read_one(s, 2), SCHED_ADMIT);
	cr_assert(sched_resident(s, 0) && !sched_resident(s, 1));
	cr_assert_eq(stats_of(s).pinned_bytes, 2);
	cr_assert_eq(sched_set_capacity(s, 1), 0);
	cr_assert_eq(sched_trim(s, victims, 4), 0); /* both are pinned */
	cr_assert_eq(sched_unpin(s, 2), 0);
	cr_assert_eq(sched_trim(s, victims, 4), 1);
	cr_assert_eq(victims[0], 2);
	cr_assert_sound(s);
	cr_assert_eq(sched_evict(s, 0), 0); /* by hand, pinned or not */
	cr_assert_eq(sched_evict(s, 0), -ENOENT);
	cr_assert_sound(s);
	sched_destroy(s);
}

Test(core, pins)
{
	for (unsigned i = 0; sched_policy_name(i); i++)
		try_pins(sched_policy_name(i));
}

Test(core, trim_gives_back_what_is_over)
{
	struct sched *s = make_sched(10, "shade", 10);
	uint32_t victims[3];

	for (uint32_t id = 0; id < 10; id++) {
		read_one(s, id);
		sched_score(s, 0, id, (float)id);
	}
	cr_assert_eq(sched_set_capacity(s, 5), 0);
	cr_assert_eq(sched_trim(s, victims, 3), 3);
	cr_assert(victims[0] == 0 && victims[1] == 1 && victims[2] == 2);
	cr_assert_eq(sched_trim(s, victims, 3), 2);
	cr_assert_eq(sched_trim(s, victims, 3), 0);
	cr_assert_eq(stats_of(s).resident_bytes, 5);
	cr_assert_sound(s);
	sched_destroy(s);
}

Test(core, remove_forgets)
{
	struct sched *s = make_sched(2, "app", 2);
	struct sched_verdict verdict;

	read_one(s, 0);
	sched_score(s, 0, 0, 3);
	cr_assert_eq(sched_remove(s, 0), 0);
	cr_assert_sound(s);
	cr_assert(!sched_resident(s, 0));
	cr_assert_lt(sched_get_score(s, 0, 0), 0);
	cr_assert_eq(sched_get_frequency(s, 0), 0);
	cr_assert_eq(sched_access(s, 0, 1, 1, &verdict), 0);
	cr_assert_eq(sched_remove(s, 1), -EBUSY);
	cr_assert_eq(sched_cancel(s, 1), 0);
	cr_assert_eq(sched_remove(s, 1), 0);
	sched_destroy(s);
}

Test(core, bad_input_changes_nothing)
{
	static const uint32_t bad[] = { 0, 7 }, good[] = { 0 };
	struct sched *s = make_sched(2, "shade", 2);
	struct sched_verdict verdict;
	struct sched_job_stats job;

	cr_assert_eq(sched_access(s, 0, 2, 1, &verdict), -ERANGE);
	cr_assert_eq(sched_access(s, 1, 0, 1, &verdict), -ERANGE);
	cr_assert_eq(sched_score(s, 0, 2, 1), -ERANGE);
	cr_assert_eq(sched_score(s, 9999, 0, 1), -ERANGE);
	cr_assert_eq(sched_score(s, 0, 0, NAN), -EINVAL);
	cr_assert_eq(sched_score(s, 0, 0, INFINITY), -EINVAL);
	cr_assert_eq(sched_score(s, 0, 0, -1), -EINVAL);
	cr_assert_eq(sched_order(s, 0, 0, bad, 2), -ERANGE);
	cr_assert_eq(sched_grow(s, SCHED_SAMPLES_MAX + 1), -ERANGE);
	cr_assert_eq(sched_job_end(s, 0), -ERANGE);
	cr_assert_eq(sched_epoch(s, 0, 5), 0);
	cr_assert_eq(sched_order(s, 0, 4, good, 1), -ERANGE);
	cr_assert_eq(sched_get_job_stats(s, 0, &job), 0);
	cr_assert(job.epoch == 5 && job.order_ahead == 0 && job.scored == 0);
	cr_assert_eq(stats_of(s).accesses, 0);
	cr_assert_sound(s);
	sched_destroy(s);
}

Test(core, jobs_and_orders_are_bounded)
{
	static const uint32_t order[] = { 0 };
	struct sched *s = make_sched(2, "shade", 2);
	uint32_t job;

	for (uint64_t epoch = 0; epoch < SCHED_ORDERS_MAX; epoch++)
		cr_assert_eq(sched_order(s, 0, epoch, order, 1), 0);
	cr_assert_eq(sched_order(s, 0, SCHED_ORDERS_MAX, order, 1), -ENOSPC);
	cr_assert_eq(sched_order(s, 0, 0, order, 1), 0); /* replacing is no more */
	for (unsigned i = 1; i < SCHED_JOBS_MAX; i++)
		cr_assert_eq(sched_job_begin(s, &job), 0);
	cr_assert_eq(sched_job_begin(s, &job), -ENOSPC);
	cr_assert_eq(sched_job_end(s, job), 0);
	cr_assert_eq(sched_job_begin(s, &job), 0);
	cr_assert_sound(s);
	sched_destroy(s);
}

/* --- prefetch ------------------------------------------------------------------------- */

static void make_known(struct sched *s, uint32_t samples, uint64_t size)
{
	for (uint32_t id = 0; id < samples; id++)
		cr_assert_eq(sched_size(s, id, size), 0);
}

static uint32_t prefetch_all(struct sched *s, uint64_t budget, uint32_t *ids)
{
	struct sched_verdict verdict;
	uint32_t count = 0, id;
	uint64_t size;

	while (sched_prefetch(s, budget, &id, &size, &verdict) == 1) {
		cr_assert_eq(verdict.action, SCHED_ADMIT);
		cr_assert_eq(sched_commit(s, id), 0);
		cr_assert_sound(s);
		ids[count++] = id;
	}
	return count;
}

Test(prefetch, follows_the_order_within_its_budget)
{
	static const uint32_t order[] = { 4, 2, 4, 0, 1, 3 };
	struct sched *s = make_sched(100, "shade", 5);
	uint32_t ids[8];

	make_known(s, 5, 10);
	cr_assert_eq(prefetch_all(s, 30, ids), 0); /* nothing is announced */
	cr_assert_eq(sched_order(s, 0, 0, order, 6), 0);
	cr_assert_eq(prefetch_all(s, 30, ids), 3);
	cr_assert(ids[0] == 4 && ids[1] == 2 && ids[2] == 0);
	cr_assert_eq(stats_of(s).prefetched_bytes, 30);
	cr_assert_eq(read_sized(s, 4, 10), SCHED_HIT);
	cr_assert_eq(stats_of(s).hits_prefetched, 1);
	cr_assert_eq(prefetch_all(s, 30, ids), 1);
	cr_assert_eq(ids[0], 1);
	/* Its second use is an ordinary hit, and frees no budget. */
	cr_assert_eq(read_sized(s, 4, 10), SCHED_HIT);
	cr_assert_eq(stats_of(s).hits_prefetched, 1);
	cr_assert_eq(prefetch_all(s, 30, ids), 0);
	sched_destroy(s);
}

Test(prefetch, does_not_push_out_what_is_needed_sooner)
{
	static const uint32_t order[] = { 0, 1, 2, 0, 1 };
	struct sched *s = make_sched(20, "shade", 4);
	uint32_t ids[8];

	make_known(s, 4, 10);
	read_sized(s, 3, 10);
	cr_assert_eq(sched_order(s, 0, 0, order, 5), 0);
	cr_assert_eq(prefetch_all(s, 100, ids), 2); /* 0 and 1; 3 is not wanted and leaves */
	cr_assert(!sched_resident(s, 3) && sched_resident(s, 0) && sched_resident(s, 1));
	cr_assert_eq(read_sized(s, 0, 10), SCHED_HIT);
	cr_assert_eq(prefetch_all(s, 100, ids), 1); /* 2 comes before 0 comes again */
	cr_assert(sched_resident(s, 2) && !sched_resident(s, 0) && sched_resident(s, 1));
	sched_destroy(s);
}

Test(prefetch, skips_what_cannot_be_held)
{
	static const uint32_t order[] = { 0, 1, 2 };
	struct sched *s = make_sched(20, "shade", 3);
	uint32_t ids[4];

	cr_assert_eq(sched_size(s, 1, 21), 0); /* 0 has no size yet, 1 is too large */
	cr_assert_eq(sched_size(s, 2, 5), 0);
	cr_assert_eq(sched_order(s, 0, 0, order, 3), 0);
	cr_assert_eq(prefetch_all(s, 20, ids), 1);
	cr_assert_eq(ids[0], 2);
	sched_destroy(s);
}

/* Two jobs, one with the samples from 0 on, the other with those from 200 on. */
static struct sched *make_two_jobs(uint64_t size)
{
	struct sched *s = make_sched(400 * size, "shade", 400);
	uint32_t order[200], job;

	make_known(s, 400, size);
	for (uint32_t i = 0; i < 200; i++)
		order[i] = i;
	cr_assert_eq(sched_order(s, 0, 0, order, 200), 0);
	for (uint32_t i = 0; i < 200; i++)
		order[i] = 200 + i;
	cr_assert_eq(sched_job_begin(s, &job), 0);
	cr_assert_eq(sched_order(s, job, 0, order, 200), 0);
	return s;
}

/* What is in a row in an order is fetched in a row, so that neighbours at the source are. */
Test(prefetch, jobs_take_turns_of_many)
{
	struct sched *s = make_two_jobs(1);
	uint32_t ids[400], switches = 0;

	cr_assert_eq(prefetch_all(s, 800, ids), 400);
	for (uint32_t i = 1; i < 400; i++)
		switches += ids[i] != ids[i - 1] + 1;
	cr_assert_leq(switches, 400 / 32, "%u switches", switches);
	cr_assert_geq(switches, 400 / 100, "one job had it all: %u switches", switches);
	sched_destroy(s);
}

/* Both get something of a small budget. */
Test(prefetch, each_job_has_its_share)
{
	struct sched *s = make_two_jobs(10);
	uint32_t ids[400], of_first = 0;

	cr_assert_eq(prefetch_all(s, 160, ids), 16);
	for (uint32_t i = 0; i < 16; i++)
		of_first += ids[i] < 200;
	cr_assert_eq(of_first, 8);
	sched_destroy(s);
}

/* Readers make room for a sample at a time, in turn: each job waits until there is room for some.
 */
Test(prefetch, a_turn_waits_for_room)
{
	struct sched *s = make_two_jobs(1);
	uint32_t ids[400], switches = 0, done = 0;

	cr_assert_eq(prefetch_all(s, 100, ids), 100);
	for (uint32_t i = 0; i < 120; i++) {
		cr_assert_eq(read_sized(s, i / 2 + i % 2 * 200, 1), SCHED_HIT);
		done += prefetch_all(s, 100, ids + done);
	}
	for (uint32_t i = 1; i < done; i++)
		switches += ids[i] != ids[i - 1] + 1;
	cr_assert_geq(done, 120 - 2 * 7);
	cr_assert_leq(switches, 120 / 6, "%u switches", switches);
	sched_destroy(s);
}

/* A training that pauses has its part of the budget, and keeps it. The other one goes on. */
Test(prefetch, a_pause_holds_nobody_up)
{
	struct sched *s = make_two_jobs(1);
	uint32_t ids[400];

	cr_assert_eq(prefetch_all(s, 20, ids), 20);
	for (uint32_t i = 0; i < 150; i++) {
		struct sched_verdict verdict;

		cr_assert_eq(sched_access(s, 1, 200 + i, 1, &verdict), 0);
		cr_assert_eq(verdict.action, SCHED_HIT, "%u", i);
		cr_assert_sound(s);
		(void)prefetch_all(s, 20, ids);
	}
	sched_destroy(s);
}

/* What was brought in for a job that ends does not count as fetched ahead for anybody. */
Test(prefetch, a_job_ends)
{
	struct sched *s = make_two_jobs(1);
	struct sched_stats stats;
	uint32_t ids[400];

	cr_assert_eq(prefetch_all(s, 20, ids), 20);
	cr_assert_eq(sched_job_end(s, 1), 0);
	cr_assert_sound(s);
	sched_get_stats(s, &stats);
	cr_assert_eq(stats.prefetched_bytes, 10);
	cr_assert_eq(prefetch_all(s, 20, ids), 10);
	sched_destroy(s);
}

/* What is larger than a turn does not keep the others waiting. */
Test(prefetch, a_large_sample_holds_nobody_up)
{
	static const uint32_t large[] = { 0, 1 }, small[] = { 2, 3, 4 };
	struct sched *s = make_sched(200, "shade", 5);
	uint32_t ids[8], job;

	make_known(s, 2, 60);
	for (uint32_t id = 2; id < 5; id++)
		cr_assert_eq(sched_size(s, id, 10), 0);
	cr_assert_eq(sched_order(s, 0, 0, large, 2), 0);
	cr_assert_eq(sched_job_begin(s, &job), 0);
	cr_assert_eq(sched_order(s, job, 0, small, 3), 0);
	cr_assert_eq(prefetch_all(s, 100, ids), 4);
	cr_assert(sched_resident(s, 0) && !sched_resident(s, 1));
	cr_assert(sched_resident(s, 2) && sched_resident(s, 3) && sched_resident(s, 4));
	sched_destroy(s);
}

Test(prefetch, a_reader_can_join)
{
	static const uint32_t order[] = { 0 };
	struct sched *s = make_sched(20, "shade", 1);
	struct sched_verdict verdict;
	uint64_t size;
	uint32_t id;

	make_known(s, 1, 10);
	cr_assert_eq(sched_order(s, 0, 0, order, 1), 0);
	cr_assert_eq(sched_prefetch(s, 20, &id, &size, &verdict), 1);
	cr_assert(id == 0 && size == 10);
	cr_assert_eq(sched_access(s, 0, 0, 10, &verdict), 0);
	cr_assert_eq(verdict.action, SCHED_JOIN);
	cr_assert_eq(stats_of(s).prefetched_bytes, 0);
	cr_assert_eq(sched_cancel(s, 0), 0); /* the fetch failed */
	cr_assert_sound(s);
	sched_destroy(s);
}

/* What was fetched for an order that is gone gives its part of the budget back. */
Test(prefetch, budget_of_a_dropped_order_is_free_again)
{
	static const uint32_t first[] = { 0, 1 }, second[] = { 2, 3 };
	struct sched *s = make_sched(100, "shade", 4);
	uint32_t ids[4];

	make_known(s, 4, 10);
	cr_assert_eq(sched_order(s, 0, 0, first, 2), 0);
	cr_assert_eq(prefetch_all(s, 20, ids), 2);
	cr_assert_eq(sched_epoch(s, 0, 1), 0);
	cr_assert_eq(stats_of(s).prefetched_bytes, 0);
	cr_assert_eq(sched_order(s, 0, 1, second, 2), 0);
	cr_assert_eq(prefetch_all(s, 20, ids), 2);
	/* Announced anew, without one that was fetched. */
	cr_assert_eq(sched_order(s, 0, 1, second, 1), 0);
	cr_assert_eq(stats_of(s).prefetched_bytes, 10);
	cr_assert_sound(s);
	sched_destroy(s);
}

Test(prefetch, comes_back_for_what_was_lost)
{
	static const uint32_t order[] = { 0, 1, 2, 3 };
	struct sched *s = make_sched(100, "shade", 4);
	uint32_t ids[4];

	make_known(s, 3, 10);
	cr_assert_eq(sched_order(s, 0, 0, order, 4), 0);
	cr_assert_eq(prefetch_all(s, 100, ids), 3); /* 3 has no size yet */
	cr_assert_eq(sched_evict(s, 1), 0);
	cr_assert_eq(prefetch_all(s, 100, ids), 1);
	cr_assert_eq(ids[0], 1);
	cr_assert_eq(sched_size(s, 3, 10), 0);
	cr_assert_eq(prefetch_all(s, 100, ids), 1);
	cr_assert_eq(ids[0], 3);
	sched_destroy(s);
}

Test(prefetch, only_policies_that_follow_orders)
{
	static const uint32_t order[] = { 0 };
	struct sched *s = make_sched(20, "lru", 1);
	uint32_t ids[1];

	make_known(s, 1, 10);
	cr_assert_eq(sched_order(s, 0, 0, order, 1), 0);
	cr_assert_eq(prefetch_all(s, 20, ids), 0);
	sched_destroy(s);
}

Test(warm, asks_without_reading)
{
	struct sched *s = make_sched(2, "shade", 3);
	struct sched_verdict verdict;

	cr_assert_eq(sched_warm(s, 0, 1, &verdict), 0);
	cr_assert_eq(verdict.action, SCHED_ADMIT);
	cr_assert_eq(sched_warm(s, 0, 1, &verdict), 0);
	cr_assert_eq(verdict.action, SCHED_JOIN);
	cr_assert_eq(sched_commit(s, 0), 0);
	cr_assert_eq(sched_warm(s, 0, 1, &verdict), 0);
	cr_assert_eq(verdict.action, SCHED_HIT);
	cr_assert_eq(sched_warm(s, 1, 1, &verdict), 0);
	cr_assert_eq(sched_commit(s, 1), 0);
	cr_assert_eq(sched_warm(s, 2, 1, &verdict), 0);
	cr_assert_eq(verdict.action, SCHED_BYPASS); /* full, and worth no more than they are */
	cr_assert_eq(stats_of(s).accesses, 0);
	cr_assert_eq(sched_get_frequency(s, 0), 0);
	cr_assert_sound(s);
	sched_destroy(s);
}

Test(residents, can_be_listed)
{
	struct sched *s = make_sched(200, "lru", 200);
	uint32_t seen = 0;

	for (uint32_t id = 0; id < 200; id += 63)
		read_one(s, id);
	for (uint32_t id = sched_next_resident(s, 0); id != UINT32_MAX;
	     id = sched_next_resident(s, id + 1)) {
		cr_assert_eq(id % 63, 0);
		cr_assert(sched_resident_bitmap(s)[id / 64] >> (id % 64) & 1);
		seen++;
	}
	cr_assert_eq(seen, 4);
	cr_assert_eq(sched_next_resident(s, 190), UINT32_MAX);
	sched_destroy(s);
}
