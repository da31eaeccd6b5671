/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The tables of a large data set are hundreds of megabytes that are read at random.
 * With 4 KiB pages every read costs a page walk on top of the cache miss, so large
 * arrays ask for huge pages.
 */
#include "array.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)
#define CACHE_LINE ((size_t)64)

static void advise_huge(void *array, size_t bytes)
{
	uintptr_t start = ((uintptr_t)array + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
	uintptr_t end = ((uintptr_t)array + bytes) & ~(HUGE_PAGE - 1);

	if (end > start)
		(void)madvise((void *)start, end - start, MADV_HUGEPAGE);
}

int array_resize(void **array, size_t count, size_t size)
{
	size_t bytes;
	void *grown;

	if (__builtin_mul_overflow(count, size, &bytes))
		return -ENOMEM;
	grown = realloc(*array, bytes ? bytes : 1);
	if (!grown)
		return -ENOMEM;
	advise_huge(grown, bytes);
	*array = grown;
	return 0;
}

size_t array_room(size_t room, size_t count)
{
	size_t more = room + room / 4;

	return more > count ? more : count;
}

void *array_new(size_t count, size_t size)
{
	size_t bytes;
	void *array;

	if (__builtin_mul_overflow(count, size, &bytes))
		return NULL;
	array = calloc(1, bytes ? bytes : 1);
	if (array)
		advise_huge(array, bytes);
	return array;
}

void *array_new_aligned(size_t count, size_t size)
{
	size_t bytes;
	void *array;

	if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX - CACHE_LINE)
		return NULL;
	bytes = (bytes + CACHE_LINE - 1) & ~(CACHE_LINE - 1);
	array = aligned_alloc(CACHE_LINE, bytes ? bytes : CACHE_LINE);
	if (array)
		advise_huge(array, bytes);
	return array;
}
