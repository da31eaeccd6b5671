/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a cache did over a stretch of a run. */
#ifndef SHADE_SIM_METER_H
#define SHADE_SIM_METER_H

#include <stddef.h>
#include <stdint.h>

#include "shade/sched.h"

#define METER_RECENT 10

struct figures {
	uint64_t accesses, hits, admissions, bypasses, evictions, bytes_fetched;
	uint64_t prefetches; /* fetched before they were accessed */
	uint64_t remote;     /* hits in the cache of another node */
	uint64_t trained;    /* entries that the training computes with */
	uint64_t distinct;   /* summed over the epochs */
	uint32_t epochs;     /* that had an access */
	uint32_t recent;     /* distinct over the last METER_RECENT epochs, at the end */
};

struct meter {
	uint32_t *seen; /* by sample: the epoch of the last access, counted from 1 */
	uint32_t samples;
	uint32_t epoch;
	uint32_t distinct; /* in this epoch */
	uint32_t epochs;
	uint64_t distinct_sum;
	uint32_t recent; /* distinct in the last METER_RECENT epochs that are over */
	/* Counted by the caller: */
	uint64_t remote;  /* hits in the cache of another node */
	uint64_t trained; /* entries that the training computes with */
};

void meter_init(struct meter *meter, uint32_t samples);
void meter_free(struct meter *meter);
void meter_access(struct meter *meter, uint32_t id);
/* An epoch is over. */
void meter_epoch(struct meter *meter);
/* All so far, over all caches; the current epoch counts if it had an access. */
struct figures meter_read(const struct meter *meter, struct sched *const *caches, size_t count);
/* What came after `before`. */
struct figures figures_since(struct figures now, struct figures before);

double figures_hit_ratio(const struct figures *figures);
double figures_distinct_per_epoch(const struct figures *figures);
/* What was asked of the source: misses, and what was fetched ahead of its access. */
double figures_fetches_per_epoch(const struct figures *figures);

#endif
