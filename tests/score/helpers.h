/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the tests of the scorer share. */
#ifndef SHADE_TEST_SCORE_HELPERS_H
#define SHADE_TEST_SCORE_HELPERS_H

#include <criterion/criterion.h>
#include <string.h>

#include "philox.h"
#include "shade/score.h"

#define N 1000

static inline struct shade_scorer_options options_of(uint32_t mode)
{
	struct shade_scorer_options options;

	shade_scorer_defaults(&options);
	options.samples = N;
	options.seed = 7;
	options.mode = mode;
	options.rep = 2;
	options.capacity = N / 5;
	options.backend = SHADE_SCORE_CPU;
	return options;
}

static inline struct shade_scorer *create(struct shade_scorer_options options)
{
	struct shade_scorer *s = NULL;

	cr_assert_eq(shade_scorer_create(&s, &options), 0, "%s", shade_score_error());
	return s;
}

static inline struct shade_scorer *create_mode(uint32_t mode)
{
	return create(options_of(mode));
}

static inline uint32_t random_u32(uint64_t index)
{
	return philox_u32((struct philox_stream){ 99, 0, PHILOX_MODEL }, index);
}

/* The same few hundred batches of random ids and losses for everybody who asks. */
static inline void train(struct shade_scorer *s, uint32_t from, uint32_t batches)
{
	uint32_t ids[64];
	float losses[64];

	for (uint32_t b = from; b < from + batches; b++) {
		for (uint32_t i = 0; i < 64; i++) {
			ids[i] = random_u32(b * 128 + i) % N;
			losses[i] = (float)(random_u32(b * 128 + 64 + i) % 50) / 10;
		}
		cr_assert_eq(shade_scorer_update(s, ids, losses, 64, NULL), 0);
	}
}

static inline void order_of(struct shade_scorer *s, uint64_t epoch, uint32_t *ids)
{
	cr_assert_eq(shade_scorer_order(s, epoch, 0, 1, ids, N), N, "%s", shade_score_error());
}

static inline void scores_of(struct shade_scorer *s, float *scores)
{
	cr_assert_eq(shade_scorer_scores(s, scores), 0, "%s", shade_score_error());
}

static inline void cr_assert_same_order(struct shade_scorer *a, struct shade_scorer *b,
					uint64_t epoch)
{
	uint32_t one[N], other[N];

	order_of(a, epoch, one);
	order_of(b, epoch, other);
	cr_assert(!memcmp(one, other, sizeof(one)), "the orders of epoch %d differ", (int)epoch);
}

#endif
