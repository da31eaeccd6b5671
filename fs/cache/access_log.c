/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cache/access_log.h"

#include <assert.h>
#include <stdlib.h>

uint64_t access_log_begin(struct access_log *log)
{
	if (!log->readers++)
		log->ring = calloc(ACCESS_LOG_ROOM, sizeof(*log->ring));
	return log->count;
}

void access_log_end(struct access_log *log)
{
	assert(log->readers > 0);
	if (--log->readers)
		return;
	free(log->ring);
	log->ring = NULL;
}

void access_log_add(struct access_log *log, const struct cache_access *access)
{
	if (log->ring)
		log->ring[log->count++ % ACCESS_LOG_ROOM] = *access;
}

uint32_t access_log_read(const struct access_log *log, uint64_t *at, struct cache_access *accesses,
			 uint32_t max, uint64_t *lost)
{
	uint32_t count = 0;

	*lost = log->ring && log->count - *at > ACCESS_LOG_ROOM ? log->count - *at - ACCESS_LOG_ROOM
								: 0;
	*at += *lost;
	for (; log->ring && count < max && *at < log->count; count++)
		accesses[count] = log->ring[(*at)++ % ACCESS_LOG_ROOM];
	return count;
}
