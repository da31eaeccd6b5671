/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The attributes of a file at the source. */
#ifndef SHADE_ATTR_H
#define SHADE_ATTR_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * What tells one version of a file from another, and what stat() shows. There is one for each of
 * millions of files, so it is packed.
 *
 * Nanoseconds since 1970 take more than 64 bits in the year 9999. `mtime_ns` and `ctime_ns` are the
 * low 64 bits, and the era is what is above them. From 1677 to 2262 the era is 0, and the low bits
 * are the whole number.
 */
struct store_attr {
	uint64_t ino;
	uint64_t size;
	int64_t mtime_ns;
	int64_t ctime_ns;
	uint32_t mode : 16;
	int32_t mtime_era : 5;
	int32_t ctime_era : 5;
	uint32_t uid;
	uint32_t gid;
	uint32_t nlink;
};

static_assert(sizeof(struct store_attr) == 48, "struct node has room for no more");

/* Whole times, in nanoseconds since 1970. Those that are more than 9000 years away become the
 * first or the last that an era can tell. */
__int128 store_mtime(const struct store_attr *attr);
__int128 store_ctime(const struct store_attr *attr);
void store_set_mtime(struct store_attr *attr, __int128 ns);
void store_set_ctime(struct store_attr *attr, __int128 ns);

/* When this version came into being, by the source's clock. */
int64_t store_changed_ms(const struct store_attr *attr);
/* Whether the source dates files by whole seconds, as far as this one tells. */
bool store_is_coarse(const struct store_attr *attr);

#define STORE_TIME_MAX ((((__int128)15) << 64) + INT64_MAX)

static inline bool store_same_version(const struct store_attr *a, const struct store_attr *b)
{
	return a->ino == b->ino && a->size == b->size && a->mtime_ns == b->mtime_ns &&
	       a->ctime_ns == b->ctime_ns && a->mtime_era == b->mtime_era &&
	       a->ctime_era == b->ctime_era;
}

static inline bool store_same_attr(const struct store_attr *a, const struct store_attr *b)
{
	return store_same_version(a, b) && a->mode == b->mode && a->uid == b->uid &&
	       a->gid == b->gid && a->nlink == b->nlink;
}

#endif
