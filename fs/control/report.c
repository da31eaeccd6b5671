/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The files of .shade that can be read, as text. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "control/shade.h"

#define AHEAD_SHOWN 100000 /* ids in `order` */

/* Odd bytes as \nnn, so that a line is a line. */
static void print_path(FILE *out, const char *path)
{
	for (; *path; path++) {
		unsigned char c = (unsigned char)*path;

		if (c == '\\')
			fputs("\\\\", out);
		else if (c < ' ' || c == 127)
			fprintf(out, "\\%03o", c);
		else
			fputc(c, out);
	}
}

struct figure {
	const char *name;
	const char *kind; /* of OpenMetrics */
	double value;
};

#define FIGURES_MAX 48

static double coverage_of(const struct cache_stats *s, uint32_t samples)
{
	return samples ? (double)s->job.covered / samples : 0;
}

static unsigned collect(struct front *front, struct figure *figures, const char **policy)
{
	uint32_t samples = cache_samples(front->cache);
	struct cache_stats s;
	unsigned count = 0;

	cache_get_stats(front->cache, &s);
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
	GAUGE("scan_complete", cache_scan_complete(front->cache));
	COUNTER("accesses", s.sched.accesses + s.slotless_opens);
	COUNTER("accesses_lost", atomic_load(&front->accesses_lost));
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
	COUNTER("fetch_errors", s.fetch_errors);
	COUNTER("stale_drops", s.stale_drops);
	GAUGE("epoch", s.job.epoch);
	GAUGE("order_ahead", s.job.order_ahead);
	GAUGE("scored", s.job.scored);
	GAUGE("coverage", coverage_of(&s, samples));
	GAUGE("warm_pending", s.warm_pending);
	COUNTER("warm_done", s.warm_done);
	COUNTER("warm_refused", s.warm_refused);
	COUNTER("warm_failed", s.warm_failed);
	GAUGE("warm_pending_bytes", s.warm_pending_bytes);
	COUNTER("warm_done_bytes", s.warm_done_bytes);
	COUNTER("warm_refused_bytes", s.warm_refused_bytes);
#undef GAUGE
#undef COUNTER
	return count;
}

void print_stats(struct front *front, uint32_t job, FILE *out)
{
	struct figure figures[FIGURES_MAX];
	const char *policy;
	unsigned count = collect(front, figures, &policy);

	(void)job;
	fprintf(out, "mode %s\npolicy %s\n", front_mode(front), policy);
	for (unsigned i = 0; i < count; i++)
		fprintf(out, "%s %.15g\n", figures[i].name, figures[i].value);
}

void print_metrics(struct front *front, uint32_t job, FILE *out)
{
	struct figure figures[FIGURES_MAX];
	const char *policy;
	unsigned count = collect(front, figures, &policy);

	(void)job;
	fprintf(out, "# TYPE shadefs info\nshadefs_info{policy=\"%s\",mode=\"%s\"} 1\n", policy,
		front_mode(front));
	for (unsigned i = 0; i < count; i++)
		fprintf(out, "# TYPE shadefs_%s %s\nshadefs_%s%s %.15g\n", figures[i].name,
			figures[i].kind, figures[i].name,
			strcmp(figures[i].kind, "counter") ? "" : "_total", figures[i].value);
	fputs("# EOF\n", out);
}

void print_config(struct front *front, uint32_t job, FILE *out)
{
	struct options now = front->options;
	struct cache_stats stats;

	(void)job;
	cache_get_stats(front->cache, &stats);
	if (stats.capacity_bytes != now.capacity_bytes)
		now.capacity_from = "control";
	if (strcmp(stats.policy, now.policy))
		now.policy_from = "control";
	now.capacity_bytes = stats.capacity_bytes;
	now.policy = stats.policy;
	options_print(&now, out);
}

void print_samples(struct front *front, uint32_t job, FILE *out)
{
	uint32_t samples = cache_scan_complete(front->cache) ? cache_samples(front->cache) : 0;

	(void)job;
	for (uint32_t id = 0; id < samples; id++) {
		char *path = cache_sample_path(front->cache, id);

		fprintf(out, "%" PRIu32 "\t", id);
		print_path(out, path ? path : "");
		fputc('\n', out);
		free(path);
	}
}

void print_scores(struct front *front, uint32_t job, FILE *out)
{
	struct cache_sample sample;

	for (uint32_t id = 0; !cache_get_sample(front->cache, job, id, &sample); id++)
		fprintf(out, "%" PRIu32 "\t%.9g\t%" PRIu32 "\t%d\n", id, sample.score,
			sample.frequency, sample.resident);
}

void print_order(struct front *front, uint32_t job, FILE *out)
{
	uint32_t *ids = malloc(AHEAD_SHOWN * sizeof(*ids));
	uint32_t count = ids ? cache_ahead(front->cache, job, ids, AHEAD_SHOWN) : 0;

	for (uint32_t i = 0; i < count; i++)
		fprintf(out, "%" PRIu32 "\n", ids[i]);
	free(ids);
}

void print_resident(struct front *front, uint32_t job, FILE *out)
{
	struct cache_sample sample;
	unsigned char byte = 0;
	uint32_t id = 0;

	for (; !cache_get_sample(front->cache, job, id, &sample); id++) {
		byte |= (unsigned char)(sample.resident << id % 8);
		if (id % 8 == 7) {
			fputc(byte, out);
			byte = 0;
		}
	}
	if (id % 8)
		fputc(byte, out);
}

void print_job_stats(struct front *front, uint32_t job, FILE *out)
{
	struct sched_job_stats s;
	uint32_t samples = cache_samples(front->cache);

	if (cache_job_stats(front->cache, job, &s))
		return;
	fprintf(out,
		"epoch %" PRIu64 "\norder_ahead %" PRIu64 "\nscored %" PRIu32 "\ncoverage %.15g\n",
		s.epoch, s.order_ahead, s.scored, samples ? (double)s.covered / samples : 0);
}
