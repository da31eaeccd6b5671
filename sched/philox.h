/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Philox4x32-10 (Salmon et al., SC '11): a random function of a counter and a key. No
 * state, so that any draw can be made by anybody, anywhere, in any sequence.
 */
#ifndef SHADE_PHILOX_H
#define SHADE_PHILOX_H

#include <stdint.h>

struct philox_block {
	uint32_t word[4];
};

/* What the numbers are for: different purposes never share a counter. */
enum philox_purpose {
	PHILOX_DRAW,	/* weighted draws */
	PHILOX_CHOOSE,	/* which entries stay */
	PHILOX_SHUFFLE, /* where they go */
	PHILOX_COVER,	/* when a sample must come */
	PHILOX_ROUND,	/* rounding of fractions */
	PHILOX_SPREAD,	/* when an echo is due */
	PHILOX_MODEL,	/* the simulator's losses */
	PHILOX_ASSIGN,	/* which entries go to any node */
};

struct philox_stream {
	uint64_t seed;
	uint64_t epoch;
	uint32_t purpose;
};

static inline struct philox_block philox_block(const uint32_t counter[4], const uint32_t key[2])
{
	struct philox_block c = { { counter[0], counter[1], counter[2], counter[3] } };
	uint32_t k0 = key[0], k1 = key[1];

	for (int round = 0; round < 10; round++) {
		uint64_t a = (uint64_t)0xD2511F53 * c.word[0];
		uint64_t b = (uint64_t)0xCD9E8D57 * c.word[2];

		c = (struct philox_block){ { (uint32_t)(b >> 32) ^ c.word[1] ^ k0, (uint32_t)b,
					     (uint32_t)(a >> 32) ^ c.word[3] ^ k1, (uint32_t)a } };
		k0 += 0x9E3779B9;
		k1 += 0xBB67AE85;
	}
	return c;
}

/* The four numbers at `index` of a stream. */
static inline struct philox_block philox_at(struct philox_stream stream, uint64_t index)
{
	uint32_t counter[4] = { (uint32_t)index, (uint32_t)(index >> 32) ^ stream.purpose << 24,
				(uint32_t)stream.epoch, (uint32_t)(stream.epoch >> 32) };
	uint32_t key[2] = { (uint32_t)stream.seed, (uint32_t)(stream.seed >> 32) };

	return philox_block(counter, key);
}

static inline uint32_t philox_u32(struct philox_stream stream, uint64_t index)
{
	return philox_at(stream, index).word[0];
}

static inline uint64_t philox_u64(struct philox_stream stream, uint64_t index)
{
	struct philox_block block = philox_at(stream, index);

	return (uint64_t)block.word[0] << 32 | block.word[1];
}

/* In [0, 1), with 53 bits. */
static inline double philox_unit(struct philox_stream stream, uint64_t index)
{
	return (double)(philox_u64(stream, index) >> 11) * 0x1p-53;
}

#endif
