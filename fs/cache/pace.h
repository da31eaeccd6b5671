/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How fast a training reads, and what a hit saves it. Pure arithmetic: the caller holds the cache's
 * lock and says what time it is.
 *
 * The step is the time from one access of the training to the next, over all its readers: loaders
 * read in bursts, so it is a mean over many seconds, and older ones count less. A gap of more than
 * PACE_PAUSE_MS is no step but a pause, such as a validation or a checkpoint, and does not count.
 *
 * A miss takes as long as a hit, and what its reader waits for the daemon besides. A hit costs what
 * the kernel costs, which nobody sees: it is a constant, measured for each mode, and cancels out of
 * what a hit saves.
 */
#ifndef SHADE_PACE_H
#define SHADE_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define PACE_WINDOW_MS 500   /* figures change at most so often */
#define PACE_MEMORY_MS 30000 /* what was that long ago counts 1/e */
#define PACE_PAUSE_MS 10000
#define PACE_MISSES 64 /* the latest so many misses make up most of their mean */

/* open, read and close of a file of 110 KB in Python, as docs/benchmarks.md has them. */
#define PACE_HIT_NATIVE_S 26e-6
#define PACE_HIT_PORTABLE_S 80e-6

struct pace {
	bool begun;	    /* there was an access */
	uint64_t last_ms;   /* the latest */
	uint64_t window_ms; /* since the sums were last added to */
	uint64_t window_steps;
	double ms, steps; /* sums, of which the past fades */
	uint64_t misses;
	double wait_s; /* of a miss, on the mean */
};

/* The training reads a sample. True: the figures are new ones. */
bool pace_access(struct pace *pace, uint64_t now_ms);
/* The reader of a sample that was not at hand has waited for so long. */
void pace_miss(struct pace *pace, double wait_s);
/* Seconds from one access to the next; 0: it is not known. */
double pace_step_s(const struct pace *pace);
/* What a hit saves, as a multiple of a step; 0: it is not known. */
double pace_benefit(const struct pace *pace);

#endif
