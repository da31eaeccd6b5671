/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Direct reads need memory, offset and size in multiples of this. */
#ifndef SHADE_ALIGN_H
#define SHADE_ALIGN_H

#include <stddef.h>

#define STORE_ALIGN ((size_t)4096)

static inline size_t store_round_up(size_t size)
{
	return (size + STORE_ALIGN - 1) & ~(STORE_ALIGN - 1);
}

#endif
