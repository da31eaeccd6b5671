/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What independent studies of the samplers have found: each of these was wrong once. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "closed_loop.h"
#include "helpers.h"
#include "shade/pads.h"

/* Scores of samples that come in batches of 64, each at another rank. */
static void fill_scores(float *scores, uint32_t count)
{
	for (uint32_t id = 0; id < count; id++)
		scores[id] = pads_rank_score(id * 29 % 64);
}

static uint32_t distinct(const uint32_t *order, uint32_t length, uint32_t samples)
{
	bool *seen = calloc(samples, sizeof(*seen));
	uint32_t count = 0;

	cr_assert(seen);
	for (uint32_t i = 0; i < length; i++) {
		count += !seen[order[i]];
		seen[order[i]] = true;
	}
	free(seen);
	return count;
}

/* --- paper ---------------------------------------------------------------------------- */

/* SHADE's rank draws a whole epoch and keeps what came most often. With these scores that
 * makes 39.5 distinct samples in a part of 100, by a computation in numpy, where a draw of 100
 * has 78.5. */
Test(paper, a_rank_keeps_the_head_of_its_draw)
{
	float scores[200];
	uint32_t order[100];
	double head = 0, first = 0;

	fill_scores(scores, 200);
	for (uint64_t epoch = 0; epoch < 400; epoch++) {
		struct pads_request request = { .mode = PADS_PAPER,
						.samples = 200,
						.scores = scores,
						.seed = 7,
						.epoch = epoch,
						.rank = epoch % 2,
						.world = 2 };

		cr_assert_eq(pads_draw(&request, order), 0);
		head += distinct(order, 100, 200) / 400.0;
		/* Nothing was scored yet: any half of the draw. */
		request.seed = epoch;
		request.epoch = 0;
		request.scores = NULL;
		cr_assert_eq(pads_draw(&request, order), 0);
		first += distinct(order, 100, 200) / 400.0;
	}
	cr_assert_float_eq(head, 39.5, 0.7, "%f", head);
	cr_assert_float_eq(first, 200 * (1 - pow(1 - 1.0 / 200, 100)), 0.7, "%f", first);
}

/* At equal counts the smaller ids come, and repetition and the cut are as on one rank. */
Test(paper, the_head_is_whole)
{
	float scores[1000];
	uint32_t order[250], counts[1000] = { 0 }, fewest = UINT32_MAX, last = 0;
	struct pads_request request = { .mode = PADS_PAPER,
					.samples = 1000,
					.scores = scores,
					.epoch = 1,
					.rank = 3,
					.world = 4 };

	fill_scores(scores, 1000);
	cr_assert_eq(pads_draw(&request, order), 0);
	for (uint32_t i = 0; i < 250; i++)
		counts[order[i]]++;
	for (uint32_t id = 0; id < 1000; id++)
		if (counts[id] && counts[id] <= fewest) {
			fewest = counts[id];
			last = id;
		}
	cr_assert_geq(fewest, 1);
	/* Samples of the smallest count that came are among the smaller ids. */
	for (uint32_t id = 0; id < 1000; id++)
		cr_assert(counts[id] != fewest || id <= last);
	cr_assert_lt(last, 900);
}

/* --- scores --------------------------------------------------------------------------- */

/* 64 equal losses scored from 2.30 to 4.29 by their positions. */
Test(scores, equal_losses_share_a_rank)
{
	float losses[64], found[64];

	for (int i = 0; i < 64; i++)
		losses[i] = i % 2 ? 0.0f : -0.0f;
	cr_assert_eq(pads_rank_batch(losses, 64, found), 0);
	for (int i = 0; i < 64; i++)
		cr_assert_float_eq(found[i], log(31.5 + 10), 1e-6, "%d: %f", i, found[i]);
	losses[7] = 1;
	cr_assert_eq(pads_rank_batch(losses, 64, found), 0);
	cr_assert_float_eq(found[7], log(73), 1e-6);
	cr_assert_float_eq(found[8], log(41), 1e-6);
}

Test(scores, a_batch_of_one_is_not_the_least_important)
{
	float found;

	cr_assert_eq(pads_rank_batch((const float[]){ 0.25f }, 1, &found), 0);
	cr_assert_float_eq(found, log(31.5 + 10), 1e-6);
}

/* --- echo ----------------------------------------------------------------------------- */

static struct pads_request echo_request(struct pads_echo *echo, uint32_t samples, uint32_t capacity)
{
	return (struct pads_request){ .mode = PADS_ECHO,
				      .samples = samples,
				      .capacity = capacity,
				      .seed = 11,
				      .echo = echo };
}

/* The distinct samples of batches of 256 over ten epochs of 5000, and the least distance from one
 * use of a sample to the next. */
static double play_batches(uint32_t capacity, uint32_t batch, uint32_t *least)
{
	static uint32_t order[50000];
	static int64_t last[5000];
	struct pads_echo echo = { 0 };
	struct pads_request request = echo_request(&echo, 5000, capacity);
	double sum = 0;

	request.batch = batch;
	for (request.epoch = 0; request.epoch < 10; request.epoch++)
		cr_assert_eq(pads_draw(&request, order + request.epoch * 5000), 0);
	for (uint32_t i = 0; i + 256 <= 50000; i += 256)
		sum += distinct(order + i, 256, 5000) / 256.0 / (50000.0 / 256 - 0.3125);
	for (uint32_t id = 0; id < 5000; id++)
		last[id] = -50000;
	*least = UINT32_MAX;
	for (uint32_t i = 0; i < 50000; i++) {
		if (i - last[order[i]] < *least)
			*least = (uint32_t)(i - last[order[i]]);
		last[order[i]] = i;
	}
	pads_echo_free(&echo);
	return sum;
}

/* Of a batch of 256 with 4 uses 32 % (C = 50), 54 % (200) and 86 % (1000) were distinct. The cache
 * holds the samples between two uses, C * 4/3 accesses at most. Less must not be distinct than the
 * capacity allows, and it must not go beyond that, or hits become misses. */
Test(echo_gaps, a_batch_has_a_sample_once)
{
	uint32_t least;
	double found = play_batches(50, 256, &least);

	cr_assert_geq(found, 0.40, "%f", found);
	cr_assert_geq(least, 50);
	cr_assert_leq(least, 67);
	found = play_batches(200, 256, &least);
	cr_assert_float_eq(found, 1, 1e-9, "%f", found);
	cr_assert_geq(least, 256);
	found = play_batches(1000, 256, &least);
	cr_assert_float_eq(found, 1, 1e-9, "%f", found);
	cr_assert_geq(least, 256);
	(void)play_batches(1000, 0, &least);
	cr_assert_geq(least, 1024, "%u", least);
}

/* Where a batch needs it, the samples between their uses fill the cache, but they do fit. */
Test(echo_gaps, what_is_owed_fits_the_cache)
{
	static uint32_t order[5000];

	for (uint32_t capacity = 25; capacity <= 1600; capacity *= 4)
		for (int strength = 0; strength < 2; strength++) {
			float scores[5000];
			struct pads_echo echo = { 0 };
			struct pads_request request = echo_request(&echo, 5000, capacity);
			double owed = 0;

			fill_scores(scores, 5000);
			request.scores = scores;
			request.strength = strength;
			for (request.epoch = 0; request.epoch < 30; request.epoch++) {
				cr_assert_eq(pads_draw(&request, order), 0);
				for (uint32_t i = 0; request.epoch >= 10 && i < echo.use_count; i++)
					owed += echo.uses[i].left > 0;
			}
			cr_assert_leq(owed / 20, 1.02 * capacity, "%u: %f", capacity, owed / 20);
			cr_assert_geq(owed / 20, 0.3 * capacity, "%u: %f", capacity, owed / 20);
			pads_echo_free(&echo);
		}
}

/* Every state that draws lead to is sound, and so are those after another capacity, other uses and
 * another length. The check once refused what small capacities led to. */
Test(echo_states, all_that_are_reached_are_sound)
{
	static const double uses[] = { 1, 1.5, 4, 8, 20, 100, 1000 };
	static uint32_t order[3000];
	struct dice dice = { 5 };

	for (int i = 0; i < 400; i++) {
		uint32_t samples = 1 + roll(&dice, i % 2 ? 1000 : 20);
		struct pads_echo echo = { 0 };
		struct pads_request request = echo_request(&echo, samples, 1);
		float *scores = malloc(samples * sizeof(*scores));

		fill_scores(scores, samples);
		request.scores = roll(&dice, 2) ? scores : NULL;
		request.seed = (uint64_t)i;
		for (request.epoch = 0; request.epoch < 8; request.epoch++) {
			if (request.epoch % 4 == 0) {
				request.capacity = 1 + roll(&dice, roll(&dice, 2) ? samples : 1);
				request.uses = uses[roll(&dice, 7)];
				request.strength = roll(&dice, 2);
				request.draws = 1 + roll(&dice, 3 * samples);
				request.batch = roll(&dice, 2) ? 0 : 1 + roll(&dice, 300);
			}
			cr_assert_eq(pads_draw(&request, order), 0);
			cr_assert(pads_echo_is_sound(&echo, samples), "round %d, epoch %d", i,
				  (int)request.epoch);
		}
		free(scores);
		pads_echo_free(&echo);
	}
}

Test(echo_states, others_are_not)
{
	struct pads_echo_use uses[2] = { { 3, 5, 1, 1 }, { 7, 0, 2, 0.5f } };
	struct pads_echo echo = { .use_count = 2, .uses = uses };

#define UNSOUND(field, value)                                                                      \
	do {                                                                                       \
		struct pads_echo_use before = uses[1];                                             \
		uses[1].field = value;                                                             \
		cr_assert_not(pads_echo_is_sound(&echo, 10), #field " " #value);                   \
		uses[1] = before;                                                                  \
	} while (0)
	cr_assert(pads_echo_is_sound(&echo, 10));
	UNSOUND(id, 10);
	UNSOUND(id, 3); /* twice */
	UNSOUND(id, 2);
	UNSOUND(due, 22);
	UNSOUND(left, 0); /* and not due later: nothing is owed */
	UNSOUND(left, UINT32_MAX);
	UNSOUND(weight, 0);
	UNSOUND(weight, NAN);
	UNSOUND(weight, INFINITY);
#undef UNSOUND
}

/* Of few samples that all fit nearly all wait for their next use, and the stream brings only such.
 * It must not run ahead for that. */
Test(echo_states, few_samples_keep_the_pace)
{
	static const uint32_t counts[] = { 1, 2, 3, 10, 20, 70 };
	uint32_t order[70];

	for (int i = 0; i < 6 * 3; i++) {
		struct pads_echo echo = { 0 };
		struct pads_request request = echo_request(&echo, counts[i % 6], counts[i % 6]);
		double accesses = 500.0 * counts[i % 6], owed = 0;

		request.uses = i < 6 ? 1 : i < 12 ? 1.5 : 4;
		for (request.epoch = 0; request.epoch < 500; request.epoch++)
			cr_assert_eq(pads_draw(&request, order), 0);
		for (uint32_t k = 0; k < echo.use_count; k++)
			owed += echo.uses[k].left;
		cr_assert_leq(owed, 6 * counts[i % 6] + 8, "case %d: %f", i, owed);
		cr_assert_float_eq((accesses + owed) / (double)echo.introduced, request.uses, 0.1);
		pads_echo_free(&echo);
	}
}

/* Long epochs over few samples: 32 bits held a due that was counted in uses. */
Test(echo_states, dues_do_not_wrap)
{
	uint32_t draws = 3000000, *order = malloc(draws * sizeof(*order));
	uint32_t counts[100] = { 0 };
	struct pads_echo echo = { 0 };
	struct pads_request request = echo_request(&echo, 100, 50);

	cr_assert(order);
	request.draws = draws;
	request.uses = 1000;
	cr_assert_eq(pads_draw(&request, order), 0);
	for (uint32_t i = 0; i < draws; i++)
		counts[order[i]]++;
	for (uint32_t id = 0; id < 100; id++)
		cr_assert_float_eq(counts[id], draws / 100.0, 1100, "%u: %u", id, counts[id]);
	for (uint32_t i = 0; i < echo.use_count; i++)
		cr_assert_leq(echo.uses[i].due, 201);
	free(order);
	pads_echo_free(&echo);
}

/* A sample's uses times their weight are `uses` in each pass, though scores change all the time and
 * uses go on beyond the epoch. */
Test(echo_weights, make_it_unbiased)
{
	static uint32_t order[2000];
	static float scores[2000], weights[2000];
	static double weighted[2000];
	double groups[5] = { 0 };
	struct pads_echo echo = { 0 };
	struct pads_request request = echo_request(&echo, 2000, 300);

	request.scores = scores;
	request.strength = 1;
	for (request.epoch = 0; request.epoch < 400; request.epoch++) {
		for (uint32_t id = 0; id < 2000; id++)
			scores[id] =
				pads_rank_score((id % 5 * 13 + (uint32_t)request.epoch * 7) % 64);
		cr_assert_eq(pads_weights(&request, weights), 0);
		cr_assert_eq(pads_draw(&request, order), 0);
		for (uint32_t i = 0; i < 2000; i++)
			weighted[order[i]] += weights[order[i]];
	}
	for (uint32_t id = 0; id < 2000; id++)
		groups[id % 5] += weighted[id] / 400 / 400;
	for (int i = 0; i < 5; i++)
		cr_assert_float_eq(groups[i], 1, 0.02, "scores of kind %d: %f", i, groups[i]);
	request.strength = 0;
	pads_echo_free(&echo);
	cr_assert_eq(pads_weights(&request, weights), 0);
	for (uint32_t id = 0; id < 2000; id++)
		cr_assert_eq(weights[id], 1);
}

/* --- pads ----------------------------------------------------------------------------- */

/* Distinct samples of an epoch in which everything is resident, by `rep`. */
static double coverage(double rep, double share)
{
	static float scores[1000];
	uint32_t order[1000];
	uint64_t resident[16] = { 0 };
	double sum = 0;

	fill_scores(scores, 1000);
	for (uint32_t id = 0; id < share * 1000; id++)
		resident[id / 64] |= (uint64_t)1 << id % 64;
	for (uint64_t epoch = 0; epoch < 100; epoch++) {
		struct pads_request request = { .mode = PADS_PADS,
						.samples = 1000,
						.scores = scores,
						.resident = resident,
						.epoch = epoch,
						.rep = rep };

		cr_assert_eq(pads_draw(&request, order), 0);
		sum += distinct(order, 1000, 1000) / 1000.0 / 100;
	}
	return sum;
}

/* Repeats make room for hits in place of misses. Where there are no misses they gain nothing, and
 * cost coverage: it was .639 at rep 1, and .555 at rep 3. */
Test(pads_rep, costs_nothing_where_everything_fits)
{
	double once = coverage(1, 1), few = coverage(3, 0.9);

	cr_assert_float_eq(coverage(3, 1), once, 0.004);
	cr_assert_float_eq(coverage(2.5, 1), once, 0.004);
	cr_assert_gt(few, once - 0.05, "%f, %f", few, once);
	cr_assert_lt(coverage(3, 0.3), once - 0.1); /* where there are misses it has its price */
}

/* Residents are drawn for all entries that are not a must: no other one comes. */
Test(pads_rep, hits_are_what_they_were)
{
	static float scores[1000];
	uint32_t order[1000], hits = 0;
	uint64_t resident[16];
	struct pads_request request = {
		.mode = PADS_PADS, .samples = 1000, .scores = scores, .resident = resident, .rep = 3
	};

	fill_scores(scores, 1000);
	memset(resident, 0x55, sizeof(resident));
	cr_assert_eq(pads_draw(&request, order), 0);
	for (uint32_t i = 0; i < 1000; i++)
		hits += order[i] % 2 == 0;
	cr_assert_geq(hits, 800);
}

static struct loop loop;

/* Weights take the chance of a turn by class: as 1/K for all they were off by as much as is said.
 * The mean of weight times entries is 1 for all, for residents and for others. */
Test(pads_weights, in_a_closed_loop)
{
	static const struct {
		const char *policy;
		double share, rep;
	} cases[] = {
		{ "lru", 0.35, 3 },   /* 1.144 */
		{ "fifo", 0.35, 3 },  /* 1.166 */
		{ "lru", 0.5, 2 },    /* 1.088 */
		{ "lru", 0.2, 3 },    /* 1.009 */
		{ "lru", 0.4, 2.5 },  /* 1.103 */
		{ "lru", 0.9, 3 },    /* 1.137 */
		{ "shade", 0.35, 3 }, /* 1.080 */
		{ "shade", 0.5, 2 },  /* 1.063 */
		{ "shade", 0.2, 3 },  /* 1.013 */
		{ "shade", 0.1, 1 },
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		double mean, by_class[2];

		loop_init(&loop, cases[i].policy, cases[i].share, cases[i].rep);
		for (uint64_t epoch = 0; epoch < 60; epoch++)
			loop_epoch(&loop, epoch, epoch >= 10);
		mean = (loop.weighted[0] + loop.weighted[1]) / (loop.samples[0] + loop.samples[1]);
		by_class[0] = loop.weighted[0] / loop.samples[0];
		by_class[1] = loop.weighted[1] / loop.samples[1];
		cr_assert_float_eq(mean, 1, 0.012, "case %u: %f", i, mean);
		cr_assert_float_eq(by_class[0], 1, 0.025, "case %u: others %f", i, by_class[0]);
		cr_assert_float_eq(by_class[1], 1, 0.025, "case %u: residents %f", i, by_class[1]);
		sched_destroy(loop.cache);
	}
}

struct frozen {
	uint32_t samples, draws, cover_epochs;
	double rep, share; /* of residents */
	bool pareto;	   /* scores that few samples have most of */
	int epochs;
	double tolerance;
};

static float frozen_score(struct dice *dice, bool pareto)
{
	if (!pareto)
		return pads_rank_score(roll(dice, 64));
	return (float)pow((roll(dice, 1000000) + 1) / 1000001.0, -1 / 1.5);
}

/* Resident or not, with a high score or not. */
static int kind_of(const struct frozen *f, uint32_t id, const float *scores)
{
	return 2 * (id >= f->share * f->samples) + (scores[id] > (f->pareto ? 1.6f : 3.7f));
}

/* The mean of weight times entries by kind. */
static void play_frozen(const struct frozen *f, double mean[4])
{
	static float scores[1000], weights[1000];
	static uint32_t order[3000];
	uint64_t resident[16] = { 0 };
	struct dice dice = { 29 };
	double samples[4] = { 0 }, draws = f->draws;
	struct pads_request request = { .mode = PADS_PADS,
					.samples = f->samples,
					.scores = scores,
					.resident = resident,
					.draws = f->draws,
					.rep = f->rep,
					.cover_epochs = f->cover_epochs };

	for (uint32_t id = 0; id < f->samples; id++) {
		scores[id] = frozen_score(&dice, f->pareto);
		if (id < f->share * f->samples)
			resident[id / 64] |= (uint64_t)1 << id % 64;
	}
	memset(mean, 0, 4 * sizeof(*mean));
	for (request.epoch = 0; request.epoch < (uint64_t)f->epochs; request.epoch++) {
		request.seed = request.epoch / f->cover_epochs; /* other groups have their turns */
		cr_assert_eq(pads_draw(&request, order), 0);
		cr_assert_eq(pads_weights(&request, weights), 0);
		for (uint32_t i = 0; i < f->draws; i++)
			mean[kind_of(f, order[i], scores)] += weights[order[i]];
	}
	for (uint32_t id = 0; id < f->samples; id++)
		samples[kind_of(f, id, scores)] += f->epochs * draws / f->samples;
	for (int kind = 0; kind < 4; kind++)
		mean[kind] = samples[kind] > 0 ? mean[kind] / samples[kind] : 1;
}

/* Scores and residency that stay as they are. */
Test(pads_weights, of_frozen_scores)
{
	static const struct frozen cases[] = {
		/* Residents that just fill the epoch: the others were off by 5 %, and 13 times. */
		{ 1000, 1000, 5, 3, 0.36, false, 600, 0.015 },
		{ 1000, 1000, 5, 3, 0.33, false, 600, 0.015 },
		{ 1000, 1000, 5, 2.5, 0.42, false, 600, 0.015 },
		{ 1000, 1000, 5, 3, 1, false, 300, 0.015 },
		{ 5, 5, 50, 3, 0.4, false, 20000, 0.06 },
		{ 5, 5, 50, 2, 0.6, false, 20000, 0.06 },
		{ 5, 5, 50, 2.5, 0.4, false, 20000, 0.1 },
		{ 20, 20, 5, 3, 0.35, false, 10000, 0.05 },
		/* Several rounds of filling up: off by -6.7 and +3.7 %. */
		{ 1000, 3000, 5, 1, 0, true, 300, 0.01 },
		{ 1000, 2000, 5, 1, 0.3, true, 300, 0.01 },
		{ 1000, 2000, 5, 2, 0.3, true, 300, 0.01 },
		{ 1000, 300, 5, 3, 0.3, false, 1500, 0.015 },
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		double mean[4];

		play_frozen(&cases[i], mean);
		for (int kind = 0; kind < 4; kind++)
			cr_assert_float_eq(mean[kind], 1, cases[i].tolerance,
					   "case %u, kind %d: %f", i, kind, mean[kind]);
	}
}

/* More samples are unseen than an epoch has entries: no others come. The weighted mean is that of
 * the unseen ones, and not less. */
Test(pads_weights, of_more_unseen_than_entries)
{
	static float scores[1000], weights[1000];
	uint32_t order[300];
	double sum = 0;
	struct pads_request request = {
		.mode = PADS_PADS, .samples = 1000, .scores = scores, .draws = 300
	};

	fill_scores(scores, 1000);
	for (uint32_t id = 0; id < 600; id++)
		scores[id] = -1;
	cr_assert_eq(pads_draw(&request, order), 0);
	cr_assert_eq(pads_weights(&request, weights), 0);
	for (uint32_t i = 0; i < 300; i++)
		sum += weights[order[i]];
	cr_assert_float_eq(sum, 300, 0.01, "%f", sum);
	for (uint32_t id = 600; id < 1000; id++)
		cr_assert_eq(weights[id], 0);
}
