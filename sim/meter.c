/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "meter.h"

#include <stdlib.h>

#include "fail.h"

void meter_init(struct meter *meter, uint32_t samples)
{
	*meter = (struct meter){ .samples = samples, .epoch = 1 };
	meter->seen = must(calloc(samples ? samples : 1, sizeof(*meter->seen)));
}

void meter_free(struct meter *meter)
{
	free(meter->seen);
}

void meter_access(struct meter *meter, uint32_t id)
{
	if (meter->seen[id] == meter->epoch)
		return;
	meter->seen[id] = meter->epoch;
	meter->distinct++;
}

void meter_epoch(struct meter *meter)
{
	if (!meter->distinct)
		return;
	meter->distinct_sum += meter->distinct;
	meter->epochs++;
	meter->distinct = 0;
	meter->recent = 0;
	for (uint32_t id = 0; id < meter->samples; id++)
		meter->recent += meter->seen[id] && meter->seen[id] + METER_RECENT > meter->epoch;
	meter->epoch++;
}

struct figures meter_read(const struct meter *meter, struct sched *const *caches, size_t count)
{
	struct figures figures = { .epochs = meter->epochs + (meter->distinct > 0),
				   .distinct = meter->distinct_sum + meter->distinct,
				   .recent = meter->recent,
				   .remote = meter->remote,
				   .trained = meter->trained };

	for (size_t i = 0; i < count; i++) {
		struct sched_stats stats;

		sched_get_stats(caches[i], &stats);
		figures.accesses += stats.accesses;
		figures.hits += stats.hits;
		figures.admissions += stats.admissions;
		figures.bypasses += stats.bypasses;
		figures.evictions += stats.evictions;
		figures.bytes_fetched += stats.bytes_missed;
		figures.prefetches += stats.prefetches;
	}
	return figures;
}

struct figures figures_since(struct figures now, struct figures before)
{
	return (struct figures){
		.accesses = now.accesses - before.accesses,
		.hits = now.hits - before.hits,
		.admissions = now.admissions - before.admissions,
		.bypasses = now.bypasses - before.bypasses,
		.evictions = now.evictions - before.evictions,
		.bytes_fetched = now.bytes_fetched - before.bytes_fetched,
		.prefetches = now.prefetches - before.prefetches,
		.remote = now.remote - before.remote,
		.trained = now.trained - before.trained,
		.recent = now.recent,
		.epochs = now.epochs - before.epochs,
		.distinct = now.distinct - before.distinct,
	};
}

double figures_hit_ratio(const struct figures *figures)
{
	return figures->accesses ? (double)figures->hits / (double)figures->accesses : 0;
}

double figures_distinct_per_epoch(const struct figures *figures)
{
	return figures->epochs ? (double)figures->distinct / figures->epochs : 0;
}

double figures_fetches_per_epoch(const struct figures *figures)
{
	uint64_t fetches = figures->admissions + figures->bypasses + figures->prefetches;

	return figures->epochs ? (double)fetches / figures->epochs : 0;
}
