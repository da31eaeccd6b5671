/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What other capacities and policies would have made of the accesses that a mount saw: its history,
 * replayed by the policy code that the mount itself runs. */
#ifndef SHADE_CTL_CAPACITIES_H
#define SHADE_CTL_CAPACITIES_H

#include <stdint.h>

#define CAPACITY_POINTS 9
#define CAPACITY_CURVES 5

struct capacity_curve {
	char policy[16];
	double hit_ratio[CAPACITY_POINTS];
	double missed_bytes[CAPACITY_POINTS]; /* of the accesses that were kept */
};

struct capacities {
	double rate;			   /* the share of samples whose accesses were kept */
	double capacity_bytes, data_bytes; /* for residents, by now; all samples */
	uint64_t accesses;		   /* that were counted; 0: nothing can be said */
	unsigned epochs;		   /* that were counted */
	unsigned warm_up;		   /* that were replayed before, to fill the cache */
	unsigned ordered;		   /* of all these, so many had an order */
	unsigned point_count, present;	   /* which point is the present capacity */
	double factors[CAPACITY_POINTS];   /* of the present capacity, increasing */
	unsigned curve_count, own;	   /* which curve is of the mount's own policy */
	struct capacity_curve curves[CAPACITY_CURVES];
};

/* HISTORY is the text of .shade/history, which errors call NAME; they end the program. POLICY is
 * the mount's. */
void capacities_replay(struct capacities *capacities, const char *history, const char *name,
		       const char *policy);

/* How much less a curve misses at that point than the mount's own at the present capacity; NaN if
 * that misses nothing. */
double capacities_saved(const struct capacities *capacities, unsigned curve, unsigned point);

#endif
