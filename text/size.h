/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Sizes as people write them: "4096", "512M", "8g", or "40%" of something. */
#ifndef SHADE_SIZE_H
#define SHADE_SIZE_H

#include <stddef.h>
#include <stdint.h>

struct size {
	double share; /* above 0, at most 1; 0: `bytes` counts */
	uint64_t bytes;
};

/* 0, or -EINVAL: neither a whole number of bytes, K, M, G or T that fits into 64 bits, nor a share
 * above 0 % and up to 100 %. */
int size_parse(const char *text, size_t length, struct size *size);

#endif
