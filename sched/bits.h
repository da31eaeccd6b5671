/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Plain bitmaps of 64-bit words. */
#ifndef SHADE_BITS_H
#define SHADE_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline size_t bits_words(size_t bits)
{
	return (bits + 63) / 64;
}

static inline bool bits_test(const uint64_t *map, size_t bit)
{
	return map[bit >> 6] >> (bit & 63) & 1;
}

static inline void bits_set(uint64_t *map, size_t bit)
{
	map[bit >> 6] |= (uint64_t)1 << (bit & 63);
}

static inline void bits_clear(uint64_t *map, size_t bit)
{
	map[bit >> 6] &= ~((uint64_t)1 << (bit & 63));
}

#endif
