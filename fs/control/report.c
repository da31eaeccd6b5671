/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The texts of .shade. Those on all samples are copied under one lock: they show one moment. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "control/internal.h"

#define AHEAD_SHOWN 100000 /* ids in `order` */

int report_predictions(struct control *control, uint32_t job, FILE *out)
{
	(void)job;
	if (control->options.hooks->print_predictions)
		control->options.hooks->print_predictions(control->options.context, out);
	return 0;
}

int report_config(struct control *control, uint32_t job, FILE *out)
{
	(void)job;
	control->options.hooks->print_config(control->options.context, out);
	return 0;
}

/* Before the scan there are no samples to report. */
static int rc_of_report(int rc)
{
	return rc == -ENOMEM ? rc : 0;
}

int report_scores(struct control *control, uint32_t job, FILE *out)
{
	struct cache_sample *samples;
	uint32_t count;
	int rc = cache_copy_samples(control->options.cache, job, &samples, &count);

	if (rc)
		return rc_of_report(rc);
	for (uint32_t id = 0; id < count; id++)
		fprintf(out, "%" PRIu32 "\t%.9g\t%" PRIu32 "\t%d\n", id, samples[id].score,
			samples[id].frequency, samples[id].resident);
	free(samples);
	return 0;
}

int report_order(struct control *control, uint32_t job, FILE *out)
{
	uint32_t *ids = malloc(AHEAD_SHOWN * sizeof(*ids)), count;

	if (!ids)
		return -ENOMEM;
	count = cache_ahead(control->options.cache, job, ids, AHEAD_SHOWN);
	for (uint32_t i = 0; i < count; i++)
		fprintf(out, "%" PRIu32 "\n", ids[i]);
	free(ids);
	return 0;
}

/* A bit for each sample, by id, the lowest bit of a byte first. */
int report_resident(struct control *control, uint32_t job, FILE *out)
{
	struct cache_sample *samples;
	unsigned char byte = 0;
	uint32_t count;
	int rc = cache_copy_samples(control->options.cache, job, &samples, &count);

	if (rc)
		return rc_of_report(rc);
	for (uint32_t id = 0; id < count; id++) {
		byte |= (unsigned char)(samples[id].resident << id % 8);
		if (id % 8 == 7 || id + 1 == count) {
			fputc(byte, out);
			byte = 0;
		}
	}
	free(samples);
	return 0;
}

static void print_times(const struct cache_job_figures *figures, FILE *out)
{
	fprintf(out, "t_hit_ms %.6g\nt_miss_ms %.6g\nt_step_ms %.6g\nbenefit %.6g\n",
		figures->hit_s * 1000, figures->miss_s * 1000, figures->step_s * 1000,
		figures->benefit);
}

double coverage_of(const struct control *control, const struct sched_job_stats *stats)
{
	uint32_t samples = cache_samples(control->options.cache);

	if (stats->named)
		return (double)stats->covered_named / stats->named;
	return samples ? (double)stats->covered / samples : 0;
}

int report_job_stats(struct control *control, uint32_t job, FILE *out)
{
	static const enum epoch_counter own[] = {
		EPOCH_ACCESSES,	 EPOCH_HITS,	      EPOCH_HITS_PREFETCHED, EPOCH_MISSES,
		EPOCH_COALESCED, EPOCH_BACKEND_READS, EPOCH_BACKEND_BYTES,   EPOCH_FETCH_ERRORS,
		EPOCH_WAITS,	 EPOCH_WAIT_MS,	      EPOCH_WAITING_MS,
	};
	struct cache_job_figures figures;
	struct sched_job_stats s;

	if (cache_job_stats(control->options.cache, job, &s))
		return 0;
	cache_get_job_figures(control->options.cache, job, &figures);
	fprintf(out,
		"job %" PRIu32 "\nepoch %" PRIu64 "\nuses %.15g\norder_ahead %" PRIu64
		"\norder_bytes %" PRIu64 "\nscored %" PRIu32 "\nreads_samples %" PRIu32
		"\ncoverage %.15g\n",
		job, s.epoch, cache_get_uses(control->options.cache, job), s.order_ahead,
		s.order_bytes, s.scored, s.named, coverage_of(control, &s));
	for (unsigned i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		fprintf(out, "%s %" PRIu64 "\n", epochs_counter_names[own[i]],
			figures.counters.values[own[i]]);
	print_times(&figures, out);
	return 0;
}
