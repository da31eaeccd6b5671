/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How often a fetched sample should be used: as often as the source is too slow, and no more.
 *
 * Where the source keeps up, each sample comes once an epoch, and the training is what it would be
 * without a cache. Where the training waits for the source, using a sample several times while it
 * is in memory asks the source for less. The waiting is worth more than the freshness of samples
 * until it is a twentieth of the time; from there on fewer uses are.
 *
 * Pure functions from what was measured to a number of uses. A span is some time of a training in
 * which `uses` did not change, an epoch or a part of one.
 */
#ifndef SHADE_REUSE_H
#define SHADE_REUSE_H

#include <stdbool.h>
#include <stdint.h>

/* What one rank has measured. All figures are 0 or more. */
struct reuse_span {
	double seconds;
	double waited;	      /* of these, the training waited for the source */
	double read;	      /* bytes that the training has read; 0: not known */
	double bytes;	      /* that came from the source */
	double limited;	      /* seconds in which the source was the limit, */
	double limited_bytes; /* and what it gave in these */
	double rate;	      /* bytes a second that it gives at most, see below; 0: not known */
};

/* `uses` and `most` are the caller's: from 1 on. The rest begins with 0. */
struct reuse {
	double uses;	/* what was decided last */
	double most;	/* they never get above this */
	double too_few; /* so many uses were not enough while the demand was `demand`; 0: none */
	double demand;
	bool tries;	   /* the last step down was a try: nothing had shown that it would do */
	unsigned calm;	   /* spans since then, and since the source was last the limit */
	unsigned patience; /* so many of them until fewer uses are tried; 0: the default */
};

#define REUSE_WAIT 0.05 /* the share of time that a training may wait */

/* What the source gives at most, after a span and with what was known before (0: nothing). Only
 * where it was the limit for some of the time does the span tell. */
double reuse_rate(double before, const struct reuse_span *span);

/* Sets reuse->uses to what is best after these spans, one for each rank, in which samples had
 * `used` uses: orders are drawn ahead, so that may be what was decided before the last decision.
 * The rank that the source serves worst decides, since all others wait for it. Spans without time
 * or figures tell nothing. */
void reuse_adapt(struct reuse *reuse, double used, const struct reuse_span *spans, uint32_t count);

#endif
