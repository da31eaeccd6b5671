/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The Mersenne Twister of Matsumoto and Nishimura, as torch's CPU generator seeds and uses it: the
 * low 32 bits of the seed, one output for each number. Made a block at a time, which is faster. */
#ifndef SHADE_MT19937_H
#define SHADE_MT19937_H

#include <stdint.h>

#define MT_WORDS 624
#define MT_MIDDLE 397

struct mt19937 {
	uint32_t state[MT_WORDS];
	uint32_t out[MT_WORDS];
	unsigned used; /* of `out` */
};

static inline uint32_t mt_mix(uint32_t high, uint32_t low)
{
	uint32_t both = (high & 0x80000000u) | (low & 0x7fffffffu);

	return both >> 1 ^ (-(low & 1) & 0x9908b0dfu);
}

static inline void mt_refill(struct mt19937 *mt)
{
	uint32_t *s = mt->state;
	unsigned i;

	for (i = 0; i < MT_WORDS - MT_MIDDLE; i++)
		s[i] = s[i + MT_MIDDLE] ^ mt_mix(s[i], s[i + 1]);
	for (; i < MT_WORDS - 1; i++)
		s[i] = s[i + MT_MIDDLE - MT_WORDS] ^ mt_mix(s[i], s[i + 1]);
	s[i] = s[MT_MIDDLE - 1] ^ mt_mix(s[i], s[0]);
	for (i = 0; i < MT_WORDS; i++) {
		uint32_t y = s[i];

		y ^= y >> 11;
		y ^= y << 7 & 0x9d2c5680u;
		y ^= y << 15 & 0xefc60000u;
		mt->out[i] = y ^ y >> 18;
	}
	mt->used = 0;
}

static inline void mt_seed(struct mt19937 *mt, uint32_t seed)
{
	mt->state[0] = seed;
	for (uint32_t i = 1; i < MT_WORDS; i++)
		mt->state[i] = 1812433253u * (mt->state[i - 1] ^ mt->state[i - 1] >> 30) + i;
	mt->used = MT_WORDS;
}

static inline uint32_t mt_next(struct mt19937 *mt)
{
	if (mt->used == MT_WORDS)
		mt_refill(mt);
	return mt->out[mt->used++];
}

#endif
