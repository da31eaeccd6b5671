/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Quiver (FAST '20) as one training sees it, on one machine or on many that share a cache.
 *
 * The data set is cut into chunks, at random and for good. The cache holds two of them: the
 * training uses the one while the other is loaded, a sample for each that is read. A chunk of which
 * this epoch needs nothing more makes way for the next.
 *
 * A batch takes what is resident out of the next ten batches of its epoch's permutation, and only
 * where that is too little what comes first. The others are put back to the end: so each sample
 * comes once an epoch, with its own bytes, but not where the order has it.
 */
#ifndef SHADE_SIM_QUIVER_H
#define SHADE_SIM_QUIVER_H

#include <stdbool.h>
#include <stdint.h>

#include "shade/sched.h"

#define QUIVER_WINDOW 10 /* batches that are looked at for one */

struct quiver;

/* What the machines have in common: a cache in parts, in which sample `id` is kept by
 * caches[keeper_of[id]]. Their policy must leave evictions to Quiver. */
struct quiver_cache {
	struct sched *const *caches;
	const uint32_t *keeper_of;
	uint64_t capacity; /* samples, of all parts */
};

/* Exits if there is no memory. */
struct quiver *quiver_new(struct quiver_cache cache, uint32_t samples, uint32_t ranks,
			  uint32_t batch, uint64_t seed);
void quiver_free(struct quiver *quiver);

/* An epoch begins; after that it gets to know what each rank reads in it. */
void quiver_begin(struct quiver *quiver);
void quiver_add(struct quiver *quiver, uint32_t rank, const uint32_t *ids, uint32_t count);
/* The next batch of a rank, of at most as many entries as it has left. */
void quiver_take(struct quiver *quiver, uint32_t rank, uint32_t count, uint32_t *ids);
/* Whether a sample that was missed stays. */
bool quiver_keeps(const struct quiver *quiver, uint32_t id);
/* A sample was read: another one is loaded ahead. */
void quiver_read(struct quiver *quiver, uint32_t id);

#endif
