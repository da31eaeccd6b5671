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
 *
 * A source may span file systems, each of which numbers its files from 1. `dev` says which it is,
 * in numbers that hold while the daemon runs; 0 is that of the source's top.
 *
 * The size of a device node is always 0, so `size` is the number of its device instead.
 */
struct store_attr {
	uint64_t ino;
	uint64_t size;
	int64_t mtime_ns;
	int64_t ctime_ns;
	uint32_t uid;
	uint32_t gid;
	uint32_t mode : 16;
	uint32_t dev : 11;
	int32_t mtime_era : 5;
	uint32_t nlink : 27; /* at most STORE_LINKS_MAX */
	int32_t ctime_era : 5;
};

#define STORE_DEVICES 2048
#define STORE_DEV_ELSEWHERE 2047 /* in a manifest: another than the directory's */
#define STORE_LINKS_MAX ((1u << 27) - 1)

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

static inline bool store_is_device(const struct store_attr *attr)
{
	return (attr->mode & 0170000) == 0020000 || (attr->mode & 0170000) == 0060000;
}

#define STORE_TIME_MAX ((((__int128)15) << 64) + INT64_MAX)

/* Whether these are attributes of one file, or of one directory, whatever has changed in it. */
static inline bool store_same_file(const struct store_attr *a, const struct store_attr *b)
{
	return a->ino == b->ino && a->dev == b->dev;
}

static inline bool store_same_version(const struct store_attr *a, const struct store_attr *b)
{
	return store_same_file(a, b) && a->size == b->size && a->mtime_ns == b->mtime_ns &&
	       a->ctime_ns == b->ctime_ns && a->mtime_era == b->mtime_era &&
	       a->ctime_era == b->ctime_era;
}

static inline bool store_same_attr(const struct store_attr *a, const struct store_attr *b)
{
	return store_same_version(a, b) && a->mode == b->mode && a->uid == b->uid &&
	       a->gid == b->gid && a->nlink == b->nlink;
}

/* The inode number that the mount shows. The mount is one file system: what has the same number and
 * several links is one file, and a directory with the number of one above it is a loop. File
 * systems that number from 1 on leave the high bits free. */
static inline uint64_t store_shown_ino(const struct store_attr *attr)
{
	return attr->ino ^ (uint64_t)attr->dev << 53;
}

#endif
