/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pace.h"

#include <time.h>

#define SIZES 256	/* samples whose sizes are looked at */
#define LEAST_SECONDS 1 /* a shorter epoch tells nothing */

int64_t pace_init(struct pace *pace, struct shade *mount, uint32_t samples)
{
	uint32_t step = samples > SIZES ? samples / SIZES : 1, count = 0;
	double sum = 0, capacity;
	int rc;

	*pace = (struct pace){ .mount = mount };
	for (uint32_t id = 0; id < samples; id += step, count++) {
		struct shade_sample sample;

		rc = shade_query(mount, id, &sample);
		if (rc)
			return rc;
		sum += (double)sample.size;
	}
	pace->sample_bytes = sum > count ? sum / count : 1;
	rc = shade_stat(mount, "capacity_bytes", &capacity);
	if (rc)
		return rc;
	capacity /= pace->sample_bytes;
	return capacity < 1 ? 1 : capacity < samples ? (int64_t)capacity : samples;
}

static int take_mark(const struct pace *pace, struct pace_mark *mark)
{
	const struct {
		const char *key;
		double *value;
	} wanted[] = {
		{ "accesses", &mark->accesses },	   { "backend_bytes", &mark->bytes },
		{ "waiting_ms", &mark->waiting_ms },	   { "limited_ms", &mark->limited_ms },
		{ "limited_bytes", &mark->limited_bytes },
	};
	struct timespec now;
	int rc = 0;

	clock_gettime(CLOCK_MONOTONIC, &now);
	mark->seconds = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
	for (unsigned i = 0; !rc && i < sizeof(wanted) / sizeof(wanted[0]); i++)
		rc = shade_stat(pace->mount, wanted[i].key, wanted[i].value);
	return rc;
}

int pace_step(struct pace *pace)
{
	if (pace->begun)
		return 0;
	pace->begun = true;
	return take_mark(pace, &pace->first);
}

int pace_end(struct pace *pace, struct shade_score_span *span)
{
	const struct pace_mark *first = &pace->first;
	struct pace_mark last;
	int rc;

	if (!pace->begun)
		return 0;
	pace->begun = false;
	rc = take_mark(pace, &last);
	if (rc)
		return rc;
	*span = (struct shade_score_span){
		.seconds = last.seconds - first->seconds,
		.waited = (last.waiting_ms - first->waiting_ms) / 1000,
		.read = (last.accesses - first->accesses) * pace->sample_bytes,
		.bytes = last.bytes - first->bytes,
		.limited = (last.limited_ms - first->limited_ms) / 1000,
		.limited_bytes = last.limited_bytes - first->limited_bytes,
	};
	/* The mount may be another one by now, whose counters began anew. */
	if (span->seconds < LEAST_SECONDS || span->bytes < 0 || span->waited < 0)
		return 0;
	span->rate = pace->rate = shade_score_rate(pace->rate, span);
	return 1;
}
