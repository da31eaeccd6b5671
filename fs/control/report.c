/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The texts of .shade. Those on all samples are copied under one lock: they show one moment. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "control/internal.h"

#define AHEAD_SHOWN 100000 /* ids in `order` */

struct figure {
	const char *name;
	const char *kind; /* of OpenMetrics */
	double value;
};

#define FIGURES_MAX 56

static double coverage_of(const struct cache_stats *s, uint32_t samples)
{
	return samples ? (double)s->job.covered / samples : 0;
}

static unsigned collect(struct control *control, struct figure *figures, const char **policy)
{
	uint32_t samples = cache_samples(control->options.cache);
	struct cache_job_figures first;
	struct cache_stats s;
	unsigned count = 0;

	cache_get_stats(control->options.cache, &s);
	cache_get_job_figures(control->options.cache, 0, &first);
	*policy = s.policy;
#define GAUGE(name, value) figures[count++] = (struct figure){ name, "gauge", (double)(value) }
#define COUNTER(name, value)                                                                       \
	figures[count++] = (struct figure)                                                         \
	{                                                                                          \
		name, "counter", (double)(value)                                                   \
	}
	GAUGE("capacity_bytes", s.capacity_bytes);
	GAUGE("resident_bytes", s.sched.resident_bytes);
	GAUGE("resident_samples", s.sched.resident_samples);
	GAUGE("reserved_bytes", s.sched.reserved_bytes);
	GAUGE("pinned_bytes", s.sched.pinned_bytes);
	GAUGE("inflight_bytes", s.inflight_bytes);
	GAUGE("memory_bytes", s.memory_bytes);
	GAUGE("samples", samples);
	GAUGE("names_left_out", tree_left_out(cache_tree(control->options.cache)));
	GAUGE("scan_complete", cache_scan_complete(control->options.cache));
	COUNTER("accesses", s.sched.accesses + s.slotless_opens);
	COUNTER("accesses_lost", control->options.hooks->accesses_lost(control->options.context));
	COUNTER("hits", s.sched.hits);
	COUNTER("hits_prefetched", s.sched.hits_prefetched);
	COUNTER("misses", s.sched.admissions + s.sched.bypasses + s.slotless_opens);
	COUNTER("coalesced", s.sched.joins);
	COUNTER("admissions", s.sched.admissions);
	COUNTER("bypasses", s.sched.bypasses + s.slotless_opens);
	COUNTER("prefetches", s.sched.prefetches);
	COUNTER("evictions", s.sched.evictions);
	COUNTER("reclaimed", s.reclaimed);
	COUNTER("backend_reads", s.backend_reads);
	COUNTER("backend_bytes", s.backend_bytes);
	COUNTER("waits", s.waits);
	COUNTER("wait_ms", s.wait_ms);
	COUNTER("waiting_ms", s.waiting_ms);
	COUNTER("limited_ms", s.limited_ms);
	COUNTER("limited_bytes", s.limited_bytes);
	COUNTER("fetch_errors", s.fetch_errors);
	COUNTER("stale_drops", s.stale_drops);
	GAUGE("young", s.young);
	GAUGE("epoch", s.job.epoch);
	GAUGE("uses", cache_get_uses(control->options.cache, 0));
	GAUGE("order_ahead", s.job.order_ahead);
	GAUGE("order_bytes", s.job.order_bytes);
	GAUGE("scored", s.job.scored);
	GAUGE("coverage", coverage_of(&s, samples));
	GAUGE("t_hit_ms", first.hit_s * 1000);
	GAUGE("t_miss_ms", first.miss_s * 1000);
	GAUGE("t_step_ms", first.step_s * 1000);
	GAUGE("benefit", first.benefit);
	GAUGE("warm_pending", s.warm_pending);
	COUNTER("warm_done", s.warm_done);
	COUNTER("warm_refused", s.warm_refused);
	COUNTER("warm_failed", s.warm_failed);
	GAUGE("warm_pending_bytes", s.warm_pending_bytes);
	COUNTER("warm_done_bytes", s.warm_done_bytes);
	COUNTER("warm_refused_bytes", s.warm_refused_bytes);
#undef GAUGE
#undef COUNTER
	assert(count <= FIGURES_MAX);
	return count;
}

void control_print_figure(FILE *out, bool metrics, const char *kind, const char *name, double value)
{
	if (metrics)
		fprintf(out, "# TYPE shadefs_%s %s\nshadefs_%s%s %.15g\n", name, kind, name,
			strcmp(kind, "counter") ? "" : "_total", value);
	else
		fprintf(out, "%s %.15g\n", name, value);
}

static void print_all(const struct figure *figures, unsigned count, FILE *out, bool metrics)
{
	for (unsigned i = 0; i < count; i++)
		control_print_figure(out, metrics, figures[i].kind, figures[i].name,
				     figures[i].value);
}

static void print_more(const struct control *control, FILE *out, bool metrics)
{
	if (control->options.hooks->print_more)
		control->options.hooks->print_more(control->options.context, out, metrics);
}

int report_stats(struct control *control, uint32_t job, FILE *out)
{
	struct figure figures[FIGURES_MAX];
	const char *policy;
	unsigned count = collect(control, figures, &policy);

	(void)job;
	fprintf(out, "mode %s\npolicy %s\n", control->mode, policy);
	print_all(figures, count, out, false);
	print_more(control, out, false);
	return 0;
}

int report_metrics(struct control *control, uint32_t job, FILE *out)
{
	struct figure figures[FIGURES_MAX];
	const char *policy;
	unsigned count = collect(control, figures, &policy);

	(void)job;
	fprintf(out, "# TYPE shadefs info\nshadefs_info{policy=\"%s\",mode=\"%s\"} 1\n", policy,
		control->mode);
	print_all(figures, count, out, true);
	print_more(control, out, true);
	fputs("# EOF\n", out);
	return 0;
}

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

int report_job_stats(struct control *control, uint32_t job, FILE *out)
{
	static const enum epoch_counter own[] = {
		EPOCH_ACCESSES,	 EPOCH_HITS,	      EPOCH_HITS_PREFETCHED, EPOCH_MISSES,
		EPOCH_COALESCED, EPOCH_BACKEND_READS, EPOCH_BACKEND_BYTES,   EPOCH_FETCH_ERRORS,
		EPOCH_WAITS,	 EPOCH_WAIT_MS,	      EPOCH_WAITING_MS,
	};
	uint32_t samples = cache_samples(control->options.cache);
	struct cache_job_figures figures;
	struct sched_job_stats s;

	if (cache_job_stats(control->options.cache, job, &s))
		return 0;
	cache_get_job_figures(control->options.cache, job, &figures);
	fprintf(out,
		"job %" PRIu32 "\nepoch %" PRIu64 "\nuses %.15g\norder_ahead %" PRIu64
		"\norder_bytes %" PRIu64 "\nscored %" PRIu32 "\ncoverage %.15g\n",
		job, s.epoch, cache_get_uses(control->options.cache, job), s.order_ahead,
		s.order_bytes, s.scored, samples ? (double)s.covered / samples : 0);
	for (unsigned i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		fprintf(out, "%s %" PRIu64 "\n", epochs_counter_names[own[i]],
			figures.counters.values[own[i]]);
	print_times(&figures, out);
	return 0;
}
