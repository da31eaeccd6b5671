/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Accesses as they happen: a ring that is kept while there is anybody who wants it. The caller
 * holds the cache's lock.
 */
#ifndef SHADE_ACCESS_LOG_H
#define SHADE_ACCESS_LOG_H

#include "shade/sched.h"

#define ACCESS_LOG_ROOM 65536

struct cache_access {
	uint32_t id; /* UINT32_MAX: the file has no number yet */
	enum sched_action action;
	int32_t thread; /* who reads; 0: it cannot be seen */
	uint64_t size;
};

struct access_log {
	struct cache_access *ring; /* of ACCESS_LOG_ROOM; NULL: nobody wants it, or no memory */
	unsigned readers;
	uint64_t count; /* so many, ever */
};

/* One reader more; it begins where the log is now. */
uint64_t access_log_begin(struct access_log *log);
void access_log_end(struct access_log *log);
void access_log_add(struct access_log *log, const struct cache_access *access);
/* As cache_trace(). */
uint32_t access_log_read(const struct access_log *log, uint64_t *at, struct cache_access *accesses,
			 uint32_t max, uint64_t *lost);

#endif
