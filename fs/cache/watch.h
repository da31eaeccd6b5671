/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who reads what, for somebody who wants to recognise a training by it: a ring that is kept while
 * there is anybody who looks. The caller holds the cache's lock.
 */
#ifndef SHADE_WATCH_H
#define SHADE_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#define WATCH_ROOM 32768

struct cache_seen {
	uint32_t slot;
	int32_t thread;	  /* who reads; 0: it cannot be seen */
	uint16_t job;	  /* whose access it was */
	bool claimed;	  /* the reader said so; else the policy core did */
	bool expected;	  /* the job's orders had it */
	uint32_t when_ms; /* the low bits of clock_now_ms() */
};

struct watch {
	struct cache_seen *ring; /* of WATCH_ROOM; NULL: nobody looks */
	uint64_t count;		 /* so many, ever */
};

/* 0 or -ENOMEM. */
int watch_begin(struct watch *watch);
void watch_free(struct watch *watch);
void watch_add(struct watch *watch, const struct cache_seen *seen);
/* As cache_watch(). */
uint32_t watch_read(const struct watch *watch, uint64_t *at, struct cache_seen *seen, uint32_t max,
		    uint64_t *lost);

#endif
