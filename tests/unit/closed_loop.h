/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A training in a closed loop: what is resident shapes the order, what is read is scored. */
#ifndef SHADE_TEST_CLOSED_LOOP_H
#define SHADE_TEST_CLOSED_LOOP_H

#include <math.h>
#include <string.h>

#include "helpers.h"
#include "shade/pads.h"

#define LOOP_SAMPLES 2000
#define LOOP_BATCH 64

struct loop {
	struct pads_request request;
	struct sched *cache;
	float scores[LOOP_SAMPLES], weights[LOOP_SAMPLES];
	float difficulty[LOOP_SAMPLES]; /* what a loss is on the mean */
	uint64_t resident[(LOOP_SAMPLES + 63) / 64];
	uint32_t order[LOOP_SAMPLES];
	struct dice dice;
	/* Sums over epochs: weight times entries, and samples, of others and residents. */
	double weighted[2], samples[2];
};

/* Roughly lognormal: the product of uniform numbers. */
static inline float loop_chance(struct dice *dice)
{
	double value = 1;

	for (int i = 0; i < 4; i++)
		value *= 0.4 + roll(dice, 1000) / 800.0;
	return (float)value;
}

static inline void loop_init(struct loop *loop, const char *policy, double share, double rep)
{
	*loop = (struct loop){ .dice = { 17 } };
	loop->request = (struct pads_request){ .mode = PADS_PADS,
					       .samples = LOOP_SAMPLES,
					       .scores = loop->scores,
					       .resident = loop->resident,
					       .seed = 3,
					       .rep = rep };
	loop->cache = make_sched((uint64_t)(share * LOOP_SAMPLES), policy, LOOP_SAMPLES);
	for (uint32_t id = 0; id < LOOP_SAMPLES; id++) {
		loop->scores[id] = -1;
		loop->difficulty[id] = loop_chance(&loop->dice);
	}
}

static inline void loop_batch(struct loop *loop, const uint32_t *ids, uint32_t count)
{
	float losses[LOOP_BATCH], scores[LOOP_BATCH];

	for (uint32_t i = 0; i < count; i++) {
		struct sched_verdict verdict;

		cr_assert_eq(sched_access(loop->cache, 0, ids[i], 1, &verdict), 0);
		if (verdict.action == SCHED_ADMIT)
			cr_assert_eq(sched_commit(loop->cache, ids[i]), 0);
		losses[i] = loop->difficulty[ids[i]] * loop_chance(&loop->dice);
	}
	cr_assert_eq(pads_rank_batch(losses, count, scores), 0);
	for (uint32_t i = 0; i < count; i++) {
		loop->scores[ids[i]] = scores[i];
		cr_assert_eq(sched_score(loop->cache, 0, ids[i], scores[i]), 0);
	}
}

static inline bool loop_is_resident(const struct loop *loop, uint32_t id)
{
	return loop->resident[id / 64] >> id % 64 & 1;
}

/* An epoch; its order is announced when it begins. */
static inline void loop_epoch(struct loop *loop, uint64_t epoch, bool measured)
{
	loop->request.epoch = epoch;
	memcpy(loop->resident, sched_resident_bitmap(loop->cache), sizeof(loop->resident));
	cr_assert_eq(pads_draw(&loop->request, loop->order), 0);
	cr_assert_eq(pads_weights(&loop->request, loop->weights), 0);
	cr_assert_eq(sched_order(loop->cache, 0, epoch, loop->order, LOOP_SAMPLES), 0);
	cr_assert_eq(sched_epoch(loop->cache, 0, epoch), 0);
	for (uint32_t id = 0; measured && id < LOOP_SAMPLES; id++)
		loop->samples[loop_is_resident(loop, id)]++;
	for (uint32_t i = 0; measured && i < LOOP_SAMPLES; i++)
		loop->weighted[loop_is_resident(loop, loop->order[i])] +=
			loop->weights[loop->order[i]];
	for (uint32_t from = 0; from < LOOP_SAMPLES; from += LOOP_BATCH)
		loop_batch(loop, loop->order + from,
			   LOOP_SAMPLES - from < LOOP_BATCH ? LOOP_SAMPLES - from : LOOP_BATCH);
}

#endif
