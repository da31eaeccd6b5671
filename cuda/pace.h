/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* How fast a training that is followed reads, and how much its readers wait: for mode auto. */
#ifndef SHADE_PACE_H
#define SHADE_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include "shade/client.h"
#include "shade/score.h"

/* What the clock and the mount's counters say at one moment. */
struct pace_mark {
	double seconds;
	double accesses, bytes, waiting_ms, limited_ms, limited_bytes;
};

struct pace {
	struct shade *mount;
	double sample_bytes; /* of a sample, on the mean */
	double rate;	     /* that the source gives at most; 0: not known */
	bool begun;	     /* the epoch has its first batch */
	struct pace_mark first;
};

/* Looks at the sizes of some samples. Returns how many the cache holds, or a negative errno and
 * shade_error(). */
int64_t pace_init(struct pace *pace, struct shade *mount, uint32_t samples);
/* A batch was done with. The clock of an epoch runs from its first one on. 0 or a negative errno.
 */
int pace_step(struct pace *pace);
/* The epoch is over. 1 with a span, 0 if there is none to tell of, or a negative errno. */
int pace_end(struct pace *pace, struct shade_score_span *span);

#endif
