/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How many uses a training is given, in a model of it: an epoch takes `own` seconds of its own, and
 * the source needs `source` seconds for all samples once. They work side by side, so an epoch takes
 * as long as the slower of the two, and the training waits for the rest.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "helpers.h"
#include "shade/reuse.h"

#define BYTES 1e9

struct model {
	double own, source;
	double noise;	     /* times and rates are off by up to this share */
	double rate;	     /* what is known of the source */
	bool is_never_limit; /* as long as it keeps up */
	struct dice dice;
	struct reuse reuse;
};

static double noisy(struct model *m, double value)
{
	return value * (1 + m->noise * (2.0 * roll(&m->dice, 10001) / 10000 - 1));
}

static struct model make_model(double own, double source)
{
	return (struct model){
		.own = own, .source = source, .dice = { 1 }, .reuse = { .uses = 1, .most = 8 }
	};
}

/* One epoch with so many uses; the share of it that the training waited. */
static double run_with(struct model *m, double used)
{
	double source = noisy(m, m->source) / used, own = noisy(m, m->own);
	double seconds = fmax(source, own);
	struct reuse_span span = { .seconds = seconds,
				   .waited = seconds - own,
				   .read = BYTES,
				   .bytes = BYTES / used,
				   .limited = source > own	  ? seconds
					      : m->is_never_limit ? 0
								  : seconds / 10 };

	span.limited_bytes = noisy(m, BYTES / m->source * span.limited);
	span.rate = m->rate = reuse_rate(m->rate, &span);
	reuse_adapt(&m->reuse, used, &span, 1);
	return span.waited / seconds;
}

static double run(struct model *m)
{
	return run_with(m, m->reuse.uses);
}

Test(reuse, stays_at_one_where_the_source_keeps_up)
{
	struct model m = make_model(100, 60);

	for (int epoch = 0; epoch < 10; epoch++) {
		cr_assert_leq(run(&m), 0);
		cr_assert_eq(m.reuse.uses, 1);
	}
}

/* The source needs so many times as long as the training: that many uses, after one epoch. */
Test(reuse, follows_the_shortage_at_once)
{
	static const double shortages[] = { 1.2, 1.5, 2, 3, 4.5, 7 };

	for (int i = 0; i < 6; i++) {
		double shortage = shortages[i];
		struct model m = make_model(100, 100 * shortage);

		run(&m);
		cr_assert_float_eq(m.reuse.uses, shortage / 0.95, 1e-3);
		cr_assert_leq(run(&m), REUSE_WAIT);
		cr_assert_float_eq(m.reuse.uses, shortage / 0.95, 1e-3);
	}
}

Test(reuse, is_bounded)
{
	struct model m = make_model(10, 1000);

	for (int epoch = 0; epoch < 5; epoch++)
		run(&m);
	cr_assert_eq(m.reuse.uses, 8);
}

/* Measurements are off by up to a tenth. It is there after three epochs, waits little from then on,
 * moves by no more than the noise makes it, and comes to rest. */
Test(reuse, does_not_swing)
{
	for (uint32_t seed = 1; seed <= 200; seed++) {
		struct model m = make_model(100, 300);
		double least = 8, most = 0, waited = 0;
		int late_moves = 0;

		m.dice.state = seed;
		m.noise = 0.1;
		for (int epoch = 0; epoch < 40; epoch++) {
			double before = m.reuse.uses, share = run(&m);

			if (epoch < 3)
				continue;
			waited += share / 37;
			least = fmin(least, m.reuse.uses);
			most = fmax(most, m.reuse.uses);
			late_moves += epoch >= 20 && fabs(m.reuse.uses - before) > 0;
		}
		cr_assert_lt(waited, REUSE_WAIT, "seed %u: waits %g", seed, waited);
		cr_assert_gt(least, 2.6, "seed %u: %g to %g", seed, least, most);
		cr_assert_lt(most, 4.6, "seed %u: %g to %g", seed, least, most);
		cr_assert_leq(late_moves, 6, "seed %u: %d moves", seed, late_moves);
	}
}

/* Orders are drawn one epoch ahead: what an epoch was like decides over the next but one. */
Test(reuse, comes_to_one_number_with_orders_drawn_ahead)
{
	for (uint32_t seed = 1; seed <= 200; seed++) {
		struct model m = make_model(100, 300);
		double used[2] = { 4.4, 3.4 }; /* in turns, and both are enough */
		int apart = 0;

		m.dice.state = seed;
		m.noise = 0.03;
		m.reuse.uses = used[1];
		for (int epoch = 0; epoch < 30; epoch++) {
			(void)run_with(&m, used[epoch % 2]);
			used[epoch % 2] = m.reuse.uses;
			apart += epoch >= 4 && fabs(used[0] - used[1]) > 0.1 * used[0];
		}
		cr_assert_leq(apart, 3, "seed %u: %d epochs", seed, apart);
	}
}

Test(reuse, follows_a_source_that_changes)
{
	struct model m = make_model(100, 200);

	for (int epoch = 0; epoch < 5; epoch++)
		run(&m);
	cr_assert_float_eq(m.reuse.uses, 2 / 0.95, 1e-3);
	m.source = 500; /* somebody else uses it, too */
	for (int epoch = 0; epoch < 3; epoch++)
		run(&m);
	cr_assert_float_eq(m.reuse.uses, 5 / 0.95, 0.6);
	cr_assert_leq(run(&m), REUSE_WAIT);
	m.source = 50; /* and no more */
	for (int epoch = 0; epoch < 3; epoch++)
		run(&m);
	cr_assert_eq(m.reuse.uses, 1);
}

/* A source that is never the limit tells nothing of its rate: uses go down step by step. */
Test(reuse, finds_out_that_a_source_has_become_fast)
{
	struct reuse reuse = { .uses = 4, .most = 8 };
	struct reuse_span span = { .seconds = 100, .bytes = 1e8, .rate = 1e6 };
	int epochs = 0;

	while (reuse.uses > 1 && epochs++ < 20) {
		span.rate = reuse_rate(span.rate, &span);
		span.bytes = 4e8 / reuse.uses;
		reuse_adapt(&reuse, reuse.uses, &span, 1);
	}
	cr_assert_lt(epochs, 15);
	span.rate = 0; /* nothing is known at all */
	reuse.uses = 2;
	reuse_adapt(&reuse, reuse.uses, &span, 1);
	cr_assert_float_eq(reuse.uses, 1.6, 1e-9);
}

/* Epochs in which the source was never the limit tell nothing of how fast it is, however many they
 * were. When it becomes the limit, that shows at once. */
Test(reuse, follows_a_source_that_was_never_the_limit)
{
	struct reuse reuse = { .uses = 1, .most = 8 };
	struct reuse_span span = { .seconds = 100, .read = 1e9, .bytes = 1e9, .rate = 2e7 };

	for (int epoch = 0; epoch < 100; epoch++) {
		span.rate = reuse_rate(span.rate, &span);
		reuse_adapt(&reuse, reuse.uses, &span, 1);
	}
	cr_assert_eq(reuse.uses, 1);
	span.waited = span.limited = 10;
	span.limited_bytes = 1e8;
	for (int epoch = 0; epoch < 3; epoch++) {
		span.rate = reuse_rate(span.rate, &span);
		reuse_adapt(&reuse, 1, &span, 1);
	}
	cr_assert_geq(reuse.uses, 1.1 - 1e-9, "%g uses at %g", reuse.uses, span.rate);
}

/* A source that has just enough to do is never the limit, and shows no more than a fast one does.
 * Fewer uses are tried, but more and more seldom. */
Test(reuse, tries_fewer_uses_more_and_more_seldom)
{
	static const double shortages[] = { 1.5, 2.25, 3.4, 5 };

	for (int i = 0; i < 4; i++) {
		struct model m = make_model(100, 100 * shortages[i]);
		int slow_early = 0, slow_late = 0;

		m.is_never_limit = true;
		for (int epoch = 0; epoch < 400; epoch++) {
			double share = run(&m);

			slow_early += epoch >= 3 && epoch < 100 && share > REUSE_WAIT;
			slow_late += epoch >= 100 && share > REUSE_WAIT;
			cr_assert_lt(epoch ? share : 0, 0.25, "epoch %d waits %g", epoch, share);
		}
		cr_assert_leq(slow_early, 6, "%d of the first 100", slow_early);
		cr_assert_leq(slow_late, 12, "%d of the others", slow_late);
		m.source = 50;
		for (int epoch = 0; epoch < 30; epoch++)
			run(&m);
		cr_assert_eq(m.reuse.uses, 1);
	}
}

/* Too few uses are not tried again and again, however much faster than it is the source seems. */
Test(reuse, remembers_what_was_too_few)
{
	struct reuse reuse = { .uses = 2, .most = 8 };
	struct reuse_span busy = { .seconds = 100, .waited = 10, .bytes = 1e9, .rate = 1.2e7 };
	struct reuse_span idle = { .seconds = 100, .waited = 1, .bytes = 1e9, .rate = 1.2e7 };
	double enough;

	reuse_adapt(&reuse, reuse.uses, &busy, 1);
	enough = reuse.uses;
	cr_assert_geq(enough, 2.2 - 1e-9);
	for (int epoch = 0; epoch < 5; epoch++)
		reuse_adapt(&reuse, reuse.uses, &idle, 1);
	cr_assert_geq(reuse.uses, 2.2 - 1e-9);
	idle.rate = 4e7;
	reuse_adapt(&reuse, reuse.uses, &idle, 1);
	cr_assert_lt(reuse.uses, 2);
}

/* The source would have had time: whoever waits waits for something that more uses do not mend. */
Test(reuse, leaves_other_waiting_alone)
{
	struct reuse reuse = { .uses = 2, .most = 8 };
	struct reuse_span span = { .seconds = 100, .waited = 20, .bytes = 1e9, .rate = 1e8 };

	for (int epoch = 0; epoch < 5; epoch++)
		reuse_adapt(&reuse, reuse.uses, &span, 1);
	cr_assert_eq(reuse.uses, 2);
}

/* While the cache fills, every sample comes from the source, however many uses it will have. */
Test(reuse, waits_for_the_cache_to_fill)
{
	struct reuse reuse = { .uses = 1, .most = 8 };
	struct reuse_span span = {
		.seconds = 10, .waited = 7.5, .read = 1e8, .bytes = 1e8, .rate = 1e7
	};

	for (int look = 0; look < 5; look++) {
		reuse_adapt(&reuse, reuse.uses, &span, 1);
		cr_assert_float_eq(reuse.uses, 4 / 0.95, 1e-9);
	}
	span.waited = 5; /* the first look was too short to know how fast the training is */
	reuse_adapt(&reuse, reuse.uses, &span, 1);
	cr_assert_float_eq(reuse.uses, 2 / 0.95, 1e-9);
}

/* All ranks wait for the one that the source serves worst. */
Test(reuse, goes_by_the_rank_that_waits_most)
{
	struct reuse one = { .uses = 1, .most = 8 }, all = one;
	struct reuse_span spans[] = {
		{ .seconds = 100, .waited = 0, .bytes = 1e8, .rate = 1e8 },
		{ .seconds = 100, .waited = 60, .bytes = 1e9, .rate = 1e7 },
		{ .seconds = 0 },
	};

	reuse_adapt(&one, one.uses, &spans[1], 1);
	reuse_adapt(&all, all.uses, spans, 3);
	cr_assert_eq(all.uses, one.uses);
	cr_assert_float_eq(one.uses, 1 / 0.4 / 0.95, 1e-9);
}

/* A worker that starts late, or a machine that is busy for a moment. */
Test(reuse, bears_a_hiccup)
{
	struct reuse reuse = { .uses = 1, .most = 8 };
	struct reuse_span span = {
		.seconds = 1.5, .waited = 0.3, .read = 1e8, .bytes = 1e8, .rate = 6e7
	};

	reuse_adapt(&reuse, reuse.uses, &span, 1);
	cr_assert_eq(reuse.uses, 1);
	span.waited = 0.6;
	reuse_adapt(&reuse, reuse.uses, &span, 1);
	cr_assert_gt(reuse.uses, 1.5);
}

Test(reuse, learns_nothing_from_nothing)
{
	struct reuse reuse = { .uses = 3, .most = 8 };
	struct reuse_span span = { .seconds = NAN, .waited = 1 };

	reuse_adapt(&reuse, reuse.uses, NULL, 0);
	reuse_adapt(&reuse, reuse.uses, &(struct reuse_span){ 0 }, 1);
	reuse_adapt(&reuse, reuse.uses, &span, 1);
	cr_assert_eq(reuse.uses, 3);
	cr_assert_eq(reuse_rate(0, &(struct reuse_span){ 0 }), 0);
}
