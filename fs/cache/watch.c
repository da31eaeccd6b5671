/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cache/watch.h"

#include <errno.h>
#include <stdlib.h>

int watch_begin(struct watch *watch)
{
	if (!watch->ring)
		watch->ring = calloc(WATCH_ROOM, sizeof(*watch->ring));
	return watch->ring ? 0 : -ENOMEM;
}

void watch_free(struct watch *watch)
{
	free(watch->ring);
	watch->ring = NULL;
}

void watch_add(struct watch *watch, const struct cache_seen *seen)
{
	if (watch->ring)
		watch->ring[watch->count++ % WATCH_ROOM] = *seen;
}

uint32_t watch_read(const struct watch *watch, uint64_t *at, struct cache_seen *seen, uint32_t max,
		    uint64_t *lost)
{
	uint32_t count = 0;

	*lost = *at < watch->count && watch->count - *at > WATCH_ROOM
			? watch->count - *at - WATCH_ROOM
			: 0;
	*at += *lost;
	for (; watch->ring && count < max && *at < watch->count; count++)
		seen[count] = watch->ring[(*at)++ % WATCH_ROOM];
	return count;
}
