/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How long readers wait for the source, and how much it gives while it is the limit. Pure
 * arithmetic: the caller holds the cache's lock and says what time it is.
 *
 * The source is the limit while a reader waits for it, or while as much as may be under way is
 * fetched ahead of a known order: then the training, or what it will read soon, goes as fast as the
 * source does.
 */
#ifndef SHADE_WAITS_H
#define SHADE_WAITS_H

#include <stdbool.h>
#include <stdint.h>

struct waits {
	unsigned waiting;    /* readers, now */
	bool is_full;	     /* no more can be fetched ahead, now */
	uint64_t counted_ms; /* the sums below are complete up to this time */
	/* Since the start: */
	uint64_t count;		/* readers that had to wait */
	uint64_t wait_ms;	/* the time that they waited, of all of them together */
	uint64_t waiting_ms;	/* the time in which at least one waited */
	uint64_t limited_ms;	/* the time in which the source was the limit, */
	uint64_t limited_bytes; /* and what it gave in that time */
};

void waits_begin(struct waits *waits, uint64_t now_ms);
void waits_end(struct waits *waits, uint64_t now_ms);
/* Whether something more could be fetched ahead has been found out. */
void waits_set_full(struct waits *waits, bool is_full, uint64_t now_ms);
/* The source has given so many bytes. */
void waits_add_bytes(struct waits *waits, uint64_t bytes);
/* Brings the sums up to date. */
void waits_count(struct waits *waits, uint64_t now_ms);

#endif
