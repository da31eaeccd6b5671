/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* FNV-1a, a hash against accidents. It is no protection against people who choose the bytes. */
#ifndef SHADE_FNV_H
#define SHADE_FNV_H

#include <stddef.h>
#include <stdint.h>

/* The hash of no bytes. */
#define FNV32_BEGIN 0x811c9dc5u
#define FNV64_BEGIN 0xcbf29ce484222325u

/* The hash of what `hash` is of, and these bytes after it. */
static inline uint32_t fnv32_add(uint32_t hash, const void *bytes, size_t size)
{
	const unsigned char *at = bytes;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ at[i]) * 0x01000193u;
	return hash;
}

static inline uint64_t fnv64_add(uint64_t hash, const void *bytes, size_t size)
{
	const unsigned char *at = bytes;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ at[i]) * 0x100000001b3u;
	return hash;
}

#endif
