/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What independent studies of the samplers have found: each of these was wrong once. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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
