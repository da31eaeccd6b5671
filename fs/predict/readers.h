/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which thread reads for which training that was recognised, and whether its process, or the one
 * that made it, lives: a training may validate for long without a worker of its own.
 */
#ifndef SHADE_READERS_H
#define SHADE_READERS_H

#include "base/process.h"
#include "cache/watch.h"

#define READERS_MAX 1024
#define READER_OF_NOBODY (-1)
#define READER_STEPS 2	 /* that must fit before a thread counts as a training's */
#define READER_PENDING 8 /* reads that are looked at for that */

struct reader {
	int32_t thread; /* 0: none */
	int training;	/* or READER_OF_NOBODY */
	unsigned pending_count;
	struct cache_seen pending[READER_PENDING]; /* its latest reads, if it is nobody's yet */
	bool told;				   /* the claims know of it */
	struct process self, parent; /* pid 0: not known, or not a part of the training */
};

struct readers {
	struct reader all[READERS_MAX]; /* by a hash of the thread; a newcomer takes the place */
};

/* The record of a thread. One that cannot be seen shares it with others like it. */
struct reader *readers_get(struct readers *readers, int32_t thread);
/* From now on the thread reads for the training. */
void reader_assign(struct reader *reader, int training);
/* Nobody reads for the training any more. */
void readers_forget(struct readers *readers, int training);
/* Whether a process of the training lives, as far as that can be seen. */
bool readers_live(struct readers *readers, int training);

#endif
