/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * torch.randperm(): for each i, swap what is at i with what is at i + random() % (n - i).
 *
 * To try a seed, nobody needs the permutation: the question is where a few samples are in it. A
 * sample moves only when i or the other end of the swap comes upon it. So the generator runs, and a
 * small filter of bits tells for each step whether it concerns one of them: no array of n entries
 * is filled and swapped, and what a step costs does not depend on n.
 */
#include <assert.h>
#include <string.h>

#include "mt19937.h"
#include "shade/shuffle.h"

void shuffle_permute(uint32_t seed, uint32_t *out, uint32_t n)
{
	struct mt19937 mt;

	for (uint32_t i = 0; i < n; i++)
		out[i] = i;
	mt_seed(&mt, seed);
	for (uint32_t i = 0; i + 1 < n; i++) {
		uint32_t other = i + mt_next(&mt) % (n - i), sample = out[other];

		out[other] = out[i];
		out[i] = sample;
	}
}

#define FILTER_BITS 16384

/* Where the samples are at the moment. */
struct tracked {
	uint64_t filter[FILTER_BITS / 64];
	uint32_t at[SHUFFLE_READS];
	unsigned count;
};

static inline bool filter_has(const struct tracked *tracked, uint32_t at)
{
	return tracked->filter[at % FILTER_BITS / 64] >> at % 64 & 1;
}

static void fill_filter(struct tracked *tracked, uint32_t done)
{
	memset(tracked->filter, 0, sizeof(tracked->filter));
	for (unsigned i = 0; i < tracked->count; i++)
		if (tracked->at[i] >= done)
			tracked->filter[tracked->at[i] % FILTER_BITS / 64] |=
				(uint64_t)1 << tracked->at[i] % 64;
}

/* The filter says that one of them may be concerned. What is before `i` stays where it is. */
static void swap_tracked(struct tracked *tracked, uint32_t i, uint32_t other)
{
	bool moved = false;

	for (unsigned k = 0; k < tracked->count; k++) {
		if (tracked->at[k] == other)
			tracked->at[k] = i;
		else if (tracked->at[k] == i)
			tracked->at[k] = other;
		else
			continue;
		moved = true;
	}
	if (moved)
		fill_filter(tracked, i + 1);
}

void shuffle_locate(uint32_t seed, uint32_t n, uint32_t limit, const uint32_t *indices,
		    unsigned count, uint32_t *places)
{
	struct tracked tracked = { .count = count };
	struct mt19937 mt;

	assert(count <= SHUFFLE_READS);
	memcpy(tracked.at, indices, count * sizeof(*indices));
	fill_filter(&tracked, 0);
	mt_seed(&mt, seed);
	for (uint32_t i = 0; i < limit && i + 1 < n; i++) {
		uint32_t other = i + mt_next(&mt) % (n - i);

		/* One branch, which is hardly ever taken. */
		if ((unsigned)filter_has(&tracked, other) | (unsigned)filter_has(&tracked, i))
			swap_tracked(&tracked, i, other);
	}
	for (unsigned k = 0; k < count; k++)
		places[k] = tracked.at[k] < limit ? tracked.at[k] : SHUFFLE_BEYOND;
}
