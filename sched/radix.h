/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef SHADE_RADIX_H
#define SHADE_RADIX_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t radix_entry(uint32_t key, uint32_t value)
{
	return (uint64_t)key << 32 | value;
}

/* Sorts by the upper 32 bits; equal ones keep their sequence. `scratch` is as large as
 * `entries`. */
void radix_sort(uint64_t *entries, uint64_t *scratch, size_t count);

#endif
