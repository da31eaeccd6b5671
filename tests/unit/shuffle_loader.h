/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A loader that is made up: ranks with workers that each read batches of a sampler, in a sequence
 * that a seed decides. The read of one worker may be delayed, but its own reads never overtake each
 * other.
 */
#ifndef SHADE_SHUFFLE_LOADER_H
#define SHADE_SHUFFLE_LOADER_H

#include <stdlib.h>

#include "shade/shuffle.h"

struct loader {
	uint32_t n, world, first_rank, ranks; /* ranks that are here */
	uint32_t workers, batch;
	bool drop_last;	  /* the loader leaves out what fills no batch */
	bool drops_turn;  /* the sampler leaves out what fills no turn */
	uint32_t repeats; /* RepeatAugSampler; 0: not */
	bool by_batch;	  /* accelerate */
	int32_t thread;	  /* of the first worker */
	uint64_t state;	  /* of what decides the sequence */
};

static inline uint32_t loader_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33);
}

/* The indices that a rank reads in an epoch, as its sampler says; `permutation` has n of them. */
static inline uint32_t *loader_rank(const struct loader *l, const uint32_t *permutation,
				    uint32_t rank, uint32_t *count)
{
	uint32_t *out = malloc(((size_t)l->n * 3 + (size_t)l->world * l->batch + 1) * sizeof(*out));
	uint64_t total;

	*count = 0;
	if (l->repeats) { /* timm */
		uint32_t selected = l->n / 256 * 256 / l->world;

		for (uint64_t p = rank; *count < selected; p += l->world)
			out[(*count)++] = permutation[p / l->repeats];
		return out;
	}
	if (l->by_batch) { /* whole batches, those at the end are filled up */
		uint64_t turn = (uint64_t)l->world * l->batch;

		total = (l->n + turn - 1) / turn * turn;
		for (uint64_t p = (uint64_t)rank * l->batch; p < total; p += turn)
			for (uint64_t i = p; i < p + l->batch; i++)
				out[(*count)++] = permutation[i % l->n];
		return out;
	}
	total = l->drops_turn ? l->n / l->world * l->world
			      : (l->n + l->world - 1) / l->world * l->world;
	for (uint64_t p = rank; p < total; p += l->world)
		out[(*count)++] = permutation[p % l->n];
	if (l->drop_last)
		*count -= *count % l->batch;
	return out;
}

/* All reads of an epoch, as the workers of the local ranks make them. */
static inline struct shuffle_read *loader_epoch(struct loader *l, uint32_t seed, uint32_t *count)
{
	uint32_t *permutation = malloc(l->n * sizeof(*permutation)),
		 threads = l->ranks * l->workers;
	uint32_t **order = calloc(l->ranks, sizeof(*order)),
		 *length = calloc(l->ranks, sizeof(*length));
	uint32_t *at = calloc(threads, sizeof(*at)); /* in the order of its rank */
	struct shuffle_read *out;
	uint32_t total = 0;

	shuffle_permute(seed, permutation, l->n);
	for (uint32_t r = 0; r < l->ranks; r++) {
		order[r] = loader_rank(l, permutation, l->first_rank + r, &length[r]);
		total += length[r];
	}
	for (uint32_t t = 0; t < threads; t++)
		at[t] = t % l->workers * l->batch;
	out = malloc((total + 1) * sizeof(*out));
	for (*count = 0; *count < total;) {
		uint32_t t = loader_random(&l->state) % threads, r = t / l->workers;

		/* Ranks wait for each other: nobody is ahead of all by more than two batches of
		 * each worker. */
		for (uint32_t o = 0; o < threads; o++)
			if (at[o] < length[o / l->workers] &&
			    at[o] + 2 * l->batch * l->workers < at[t])
				at[t] |= UINT32_C(1) << 31;
		if (at[t] >> 31) {
			at[t] &= ~(UINT32_C(1) << 31);
			continue;
		}
		if (at[t] >= length[r])
			continue;
		out[(*count)++] = (struct shuffle_read){ l->thread + (int32_t)t, order[r][at[t]] };
		if (++at[t] % l->batch == 0)
			at[t] += l->batch * (l->workers - 1);
	}
	for (uint32_t r = 0; r < l->ranks; r++)
		free(order[r]);
	free(order);
	free(length);
	free(at);
	free(permutation);
	return out;
}

#endif
