/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "posset.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "bits.h"

int posset_init(struct posset *set, uint32_t positions)
{
	size_t words = positions;

	*set = (struct posset){ .positions = positions };
	do {
		words = bits_words(words ? words : 1);
		set->level[set->levels] = array_new(words, sizeof(uint64_t));
		if (!set->level[set->levels]) {
			posset_free(set);
			return -ENOMEM;
		}
		set->levels++;
	} while (words > 1);
	return 0;
}

void posset_free(struct posset *set)
{
	for (unsigned i = 0; i < set->levels; i++)
		free(set->level[i]);
	memset(set, 0, sizeof(*set));
}

uint64_t posset_bytes(const struct posset *set)
{
	size_t words = set->positions;
	uint64_t bytes = 0;

	for (unsigned i = 0; i < set->levels; i++) {
		words = bits_words(words ? words : 1);
		bytes += words * sizeof(uint64_t);
	}
	return bytes;
}

void posset_clear(struct posset *set)
{
	size_t words = set->positions;

	for (unsigned i = 0; i < set->levels; i++) {
		words = bits_words(words ? words : 1);
		memset(set->level[i], 0, words * sizeof(uint64_t));
	}
}

void posset_add(struct posset *set, uint32_t position)
{
	for (unsigned i = 0; i < set->levels; i++) {
		bits_set(set->level[i], position);
		position >>= 6;
	}
}

void posset_remove(struct posset *set, uint32_t position)
{
	for (unsigned i = 0; i < set->levels; i++) {
		bits_clear(set->level[i], position);
		position >>= 6;
		if (set->level[i][position])
			return;
	}
}

bool posset_has(const struct posset *set, uint32_t position)
{
	return bits_test(set->level[0], position);
}

uint32_t posset_max(const struct posset *set)
{
	uint32_t position = 0;

	for (unsigned i = set->levels; i-- > 0;) {
		uint64_t word = set->level[i][position];

		if (!word)
			return POSSET_NONE;
		position = position << 6 | (63u - (uint32_t)__builtin_clzll(word));
	}
	return position;
}

uint32_t posset_near_below(const struct posset *set, uint32_t position)
{
	uint64_t word = set->level[0][position >> 6] & (((uint64_t)1 << (position & 63)) - 1);

	if (!word)
		return POSSET_NONE;
	return (position & ~63u) | (63u - (uint32_t)__builtin_clzll(word));
}
