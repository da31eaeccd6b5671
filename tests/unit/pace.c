/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* How fast a training reads, and what a hit saves it. */
#include <criterion/criterion.h>
#include <math.h>

#include "cache/pace.h"

static struct pace pace;
static uint64_t now_ms;

static bool near(double found, double wanted, double share)
{
	return fabs(found - wanted) <= share * wanted;
}

static void reset(void)
{
	pace = (struct pace){ 0 };
	now_ms = 1000;
}

/* Reads for so long, `burst` samples at a time. Returns how often the figures changed. */
static unsigned read_for(uint64_t ms, uint64_t step_ms, unsigned burst)
{
	uint64_t end_ms = now_ms + ms;
	unsigned changes = 0;

	for (; now_ms < end_ms; now_ms += step_ms)
		for (unsigned i = 0; i < burst; i++)
			changes += pace_access(&pace, now_ms);
	return changes;
}

Test(pace, is_not_known_at_first)
{
	reset();
	cr_assert_eq(pace_step_s(&pace), 0);
	cr_assert_eq(pace_benefit(&pace), 0);
	cr_assert(!pace_access(&pace, now_ms));
	pace_miss(&pace, 0.1);
	cr_assert_eq(pace_step_s(&pace), 0);
	cr_assert_eq(pace_benefit(&pace), 0);
}

Test(pace, of_a_steady_reader)
{
	unsigned changes;

	reset();
	changes = read_for(10000, 5, 1);
	cr_assert(near(pace_step_s(&pace), 0.005, 0.01), "%g", pace_step_s(&pace));
	cr_assert(changes >= 15 && changes <= 20, "%u changes in 10 s", changes);
}

Test(pace, bursts_are_a_mean)
{
	reset();
	(void)read_for(20000, 400, 64); /* a batch, then a training step */
	cr_assert(near(pace_step_s(&pace), 0.4 / 64, 0.03), "%g", pace_step_s(&pace));
}

Test(pace, a_pause_does_not_count)
{
	double before;

	reset();
	(void)read_for(10000, 5, 1);
	before = pace_step_s(&pace);
	now_ms += 60000; /* a validation */
	(void)pace_access(&pace, now_ms);
	cr_assert(near(pace_step_s(&pace), before, 0.001));
	(void)read_for(10000, 5, 1);
	cr_assert(near(pace_step_s(&pace), before, 0.01));
}

Test(pace, follows_a_training_that_becomes_slower)
{
	reset();
	(void)read_for(60000, 5, 1);
	(void)read_for(120000, 20, 1);
	cr_assert(near(pace_step_s(&pace), 0.020, 0.05), "%g", pace_step_s(&pace));
}

Test(pace, a_clock_that_goes_back_a_little)
{
	reset();
	for (unsigned i = 0; i < 4000; i++)
		(void)pace_access(&pace, now_ms + i * 5ul - (i % 2 ? 8 : 0));
	cr_assert(near(pace_step_s(&pace), 0.005, 0.01), "%g", pace_step_s(&pace));
}

Test(pace, what_a_hit_saves)
{
	reset();
	(void)read_for(10000, 5, 1);
	cr_assert_eq(pace_benefit(&pace), 0, "nothing was missed");
	for (unsigned i = 0; i < 10; i++)
		pace_miss(&pace, i % 2 ? 0.030 : 0.010);
	cr_assert(near(pace.wait_s, 0.020, 1e-6));
	cr_assert(near(pace_benefit(&pace), 4, 0.01), "%g", pace_benefit(&pace));
	for (unsigned i = 0; i < 10 * PACE_MISSES; i++)
		pace_miss(&pace, 0.005);
	cr_assert(near(pace.wait_s, 0.005, 0.01), "%g", pace.wait_s);
}
