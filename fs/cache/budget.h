/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The bytes that `inflight` bounds, and the reads that the store may have at a time. Pure
 * arithmetic: the caller holds the cache's lock and says what time it is.
 *
 * A fetch begins when its buffer, and the pages that it fills, fit beside everything else that is
 * counted here, with a third to spare. The pages of a sample that the policy has admitted count in
 * the policy core instead.
 *
 * Files larger than a sixth of the limit are big. A big one needs room for its buffer alone, or one
 * that hangs would leave no room for others: if it only passes through, its pages come on top, and
 * memory may be above the capacity until its readers have closed it.
 */
#ifndef SHADE_BUDGET_H
#define SHADE_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

struct budget {
	uint64_t limit_bytes;	 /* of the four below, together; constant */
	uint64_t buffer_bytes;	 /* of fetches and ranges under way */
	uint64_t arriving_bytes; /* pages that fetches will fill and the policy has not admitted */
	uint64_t passing_bytes;	 /* pages of files that the policy has not admitted */
	uint64_t leaving_bytes;	 /* pages that are to be dropped */
	uint64_t big_bytes;	 /* of the last three: what belongs to big files */
	unsigned depth;		 /* reads that the store may have at a time; constant */
	unsigned running;	 /* reads that the store has */
	uint64_t started_ms;	 /* when the store last got one */
	uint64_t dropped_ms;	 /* when a drop last ended, or the first of several was queued */
	unsigned spare_running;	 /* reads that began in the spare third */
	uint64_t spare_ms;	 /* when the last of them did */
};

/* The largest file that is fetched whole. */
static inline uint64_t budget_largest(const struct budget *budget)
{
	return budget->limit_bytes / 2;
}

/* The buffer and the pages of a file that is not big fit beside those of another one that hangs,
 * and into the spare third. */
static inline bool budget_is_big(const struct budget *budget, uint64_t file_bytes)
{
	return file_bytes > budget->limit_bytes / 6;
}

static inline uint64_t budget_used(const struct budget *budget)
{
	return budget->buffer_bytes + budget->arriving_bytes + budget->passing_bytes +
	       budget->leaving_bytes;
}

/* What a read needs. */
struct need {
	uint64_t bytes;
	bool is_big;
};

/* A third is spared, but for big ones. */
static inline uint64_t budget_limit(const struct budget *budget, struct need need)
{
	return budget->limit_bytes - (need.is_big ? 0 : budget->limit_bytes / 3);
}

/* Whether the store can take one more read. */
bool budget_fits(const struct budget *budget, struct need need);
/* Whether something may be fetched that nobody waits for yet: that leaves half of it all alone. */
bool budget_fits_ahead(const struct budget *budget);
/* Deadlock escape: a drop may wait for a READ that waits for a fetch that waits for room. If no
 * drop has ended for 100 ms, a read may begin in the spare third; another one when it has ended, or
 * 20 ms later. The caller sees to it that memory stays below the capacity. */
bool budget_may_use_spare(const struct budget *budget, uint64_t now_ms);

/* Pages that fetches will fill: from so many to so many bytes. */
void budget_set_arriving(struct budget *budget, uint64_t before, uint64_t now);
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
