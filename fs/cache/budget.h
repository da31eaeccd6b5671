/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The bytes that `inflight` bounds, and the reads that the store may have at a time. Pure
 * arithmetic: the caller holds the cache's lock and says what time it is.
 *
 * A fetch begins when its buffer fits beside everything else that is counted here. What passes
 * through and what is leaving are pages of the kernel; buffers are the daemon's own memory.
 */
#ifndef SHADE_BUDGET_H
#define SHADE_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

struct budget {
	uint64_t limit_bytes;	/* of the three below, together; constant */
	uint64_t buffer_bytes;	/* of fetches and ranges under way */
	uint64_t passing_bytes; /* pages of files that the policy has not admitted */
	uint64_t leaving_bytes; /* pages that are to be dropped */
	unsigned depth;		/* reads that the store may have at a time; constant */
	unsigned running;	/* reads that the store has */
	uint64_t started_ms;	/* when the store last got one */
	uint64_t dropped_ms;	/* when a drop last ended, or the first of several was queued */
};

static inline uint64_t budget_used(const struct budget *budget)
{
	return budget->buffer_bytes + budget->passing_bytes + budget->leaving_bytes;
}

/* Whether the store can take one more read, with a buffer of so many bytes. */
bool budget_fits(const struct budget *budget, uint64_t bytes);
/* Deadlock escape: a drop may wait for a READ that waits for a fetch that waits for room. If no
 * buffer is in use and no drop has ended for a while, one fetch may begin over budget. */
bool budget_may_exceed(const struct budget *budget, uint64_t now_ms);

/* The store gets a read with a buffer of so many bytes; and it is done. */
void budget_start(struct budget *budget, uint64_t bytes, uint64_t now_ms);
void budget_finish_read(struct budget *budget);
/* A buffer is freed. */
void budget_free_buffer(struct budget *budget, uint64_t bytes);
void budget_pass(struct budget *budget, uint64_t bytes);
void budget_unpass(struct budget *budget, uint64_t bytes);
void budget_leave(struct budget *budget, uint64_t bytes, uint64_t now_ms);
/* A drop has ended. */
void budget_gone(struct budget *budget, uint64_t bytes, uint64_t now_ms);

#endif
