/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Draws of ids in proportion to integer weights. Sums of integers do not depend on the
 * sequence of additions, so a parallel implementation gets the same table.
 */
#ifndef SHADE_MULTINOMIAL_H
#define SHADE_MULTINOMIAL_H

#include <stdint.h>

#include "philox.h"

struct multinomial {
	uint64_t *ends;	 /* running sums of the weights */
	uint32_t *guide; /* by the upper bits of a draw: where to begin to look */
	uint32_t count;
	uint64_t total;
};

/* The weights of scores: in proportion, 2^20 for the largest. `unseen` stands in for a
 * negative score; below 0 it means the largest. `scores` NULL: all are unseen. */
int multinomial_init(struct multinomial *m, const float *scores, uint32_t count, float unseen);
void multinomial_free(struct multinomial *m);

#define MULTINOMIAL_BATCH 32

/* The ids that draws `first` to first + MULTINOMIAL_BATCH - 1 of a stream fall on. Many
 * at a time, because each waits for memory twice, and they can wait together. */
void multinomial_pick(const struct multinomial *m, struct philox_stream stream, uint64_t first,
		      uint32_t ids[MULTINOMIAL_BATCH]);
/* The probability of an id. */
double multinomial_share(const struct multinomial *m, uint32_t id);

#endif
