/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The figures of `stats` and `metrics`: each is named, explained and computed once, here.
 *
 * Two grammars read `metrics`: OpenMetrics, and Prometheus' older text format, which promtool and
 * node_exporter's textfile collector still parse. They name a counter's family differently, without
 * and with _total, so a line "# TYPE ... counter" that one wants makes the other lose the help
 * text. Counters therefore have no such line: their names end in _total, by which tools know them,
 * and both formats call them "unknown". For the same reason shadefs_info is a gauge. Times are in
 * seconds there, the base unit, and in `stats` in the unit that the name says.
 */
#include <assert.h>
#include <string.h>

#include "control/internal.h"

#define FIGURES_MAX 56

struct figures {
	unsigned count;
	struct control_figure list[FIGURES_MAX];
};

static void add(struct figures *figures, enum control_figure_kind kind, const char *name,
		double value, const char *help)
{
	assert(figures->count < FIGURES_MAX);
	figures->list[figures->count++] =
		(struct control_figure){ .kind = kind, .name = name, .value = value, .help = help };
}

static void add_gauge(struct figures *figures, const char *name, double value, const char *help)
{
	add(figures, CONTROL_GAUGE, name, value, help);
}

static void add_counter(struct figures *figures, const char *name, uint64_t value, const char *help)
{
	add(figures, CONTROL_COUNTER, name, (double)value, help);
}

static void add_memory(struct control *control, const struct cache_stats *s, struct figures *to)
{
	struct cache *cache = control->options.cache;

	add_gauge(to, "capacity_bytes", (double)s->capacity_bytes, "Memory for files.");
	add_gauge(to, "resident_bytes", (double)s->sched.resident_bytes, "Files in memory.");
	add_gauge(to, "resident_samples", s->sched.resident_samples, "Files in memory.");
	add_gauge(to, "reserved_bytes", (double)s->sched.reserved_bytes,
		  "Room for files that are being fetched to stay.");
	add_gauge(to, "pinned_bytes", (double)s->sched.pinned_bytes,
		  "Files that stay until they are unpinned.");
	add_gauge(to, "inflight_bytes", (double)s->inflight_bytes, "Buffers of fetches.");
	add_gauge(to, "memory_bytes", (double)s->memory_bytes,
		  "Files in memory, and buffers of fetches.");
	add_gauge(to, "samples", cache_samples(cache), "Files that the source has.");
	add_gauge(to, "names_left_out", (double)tree_left_out(cache_tree(cache)),
		  "Names that the source has and fails to tell of.");
	add_gauge(to, "scan_complete", cache_scan_complete(cache),
		  "Whether all files of the source are known.");
}

static void add_accesses(struct control *control, const struct cache_stats *s, struct figures *to)
{
	const struct sched_stats *sched = &s->sched;

	add_counter(to, "accesses", sched->accesses + s->slotless_opens, "Opens of files.");
	add_counter(to, "accesses_lost",
		    control->options.hooks->accesses_lost(control->options.context),
		    "Opens that the kernel did not tell of, at least.");
	add_counter(to, "hits", sched->hits, "Opens of files that were in memory.");
	add_counter(to, "hits_prefetched", sched->hits_prefetched,
		    "Hits of files that were fetched ahead.");
	add_counter(to, "misses", sched->admissions + sched->bypasses + s->slotless_opens,
		    "Opens of files that had to be fetched.");
	add_counter(to, "coalesced", sched->joins,
		    "Opens of files that were being fetched already.");
	add_counter(to, "admissions", sched->admissions, "Misses whose file was to stay.");
	add_counter(to, "bypasses", sched->bypasses + s->slotless_opens,
		    "Misses whose file was not to stay.");
	add_counter(to, "prefetches", sched->prefetches, "Files fetched ahead.");
	add_counter(to, "evictions", sched->evictions, "Files that left for others.");
	add_counter(to, "reclaimed", s->reclaimed, "Files that the kernel took from memory.");
}

static void add_source(const struct cache_stats *s, struct figures *to)
{
	add_counter(to, "backend_reads", s->backend_reads, "Fetches from the source.");
	add_counter(to, "backend_bytes", s->backend_bytes, "Bytes fetched from the source.");
	add_counter(to, "waits", s->waits, "Opens and reads that waited for the source.");
	add_counter(to, "wait_ms", s->wait_ms, "How long these waited, summed over them.");
	add_counter(to, "waiting_ms", s->waiting_ms, "How long at least one of them waited.");
	add_counter(to, "limited_ms", s->limited_ms, "How long the source was the limit.");
	add_counter(to, "limited_bytes", s->limited_bytes, "What the source gave in that time.");
	add_counter(to, "fetch_errors", s->fetch_errors, "Fetches that failed.");
	add_counter(to, "stale_drops", s->stale_drops,
		    "Files dropped because the source has another version.");
	add_gauge(to, "young", (double)s->young, "Files too young to be kept.");
}

static void add_training(struct control *control, const struct cache_stats *s, struct figures *to)
{
	struct cache *cache = control->options.cache;
	struct cache_job_figures first;

	cache_get_job_figures(cache, 0, &first);
	add_gauge(to, "epoch", (double)s->job.epoch, "The epoch of job 0.");
	add_gauge(to, "uses", cache_get_uses(cache, 0),
		  "How often job 0 uses a file that was fetched, on the mean.");
	add_gauge(to, "order_ahead", (double)s->job.order_ahead, "Entries ahead of job 0.");
	add_gauge(to, "order_bytes", (double)s->job.order_bytes, "Memory of its orders.");
	add_gauge(to, "scored", s->job.scored, "Files that job 0 has scored.");
	add_gauge(to, "reads_samples", s->job.named,
		  "Files that job 0 has said to read; 0: it has not said.");
	add_gauge(to, "coverage", coverage_of(control, &s->job),
		  "Share of these, or of all files, that job 0 has read in this epoch.");
	add_gauge(to, "t_hit_ms", first.hit_s * 1000, "Time of a hit.");
	add_gauge(to, "t_miss_ms", first.miss_s * 1000, "Time of a miss of job 0.");
	add_gauge(to, "t_step_ms", first.step_s * 1000, "Time between accesses of job 0.");
	add_gauge(to, "benefit", first.benefit, "What a hit saves job 0, in steps.");
}

static void add_warm(const struct cache_stats *s, struct figures *to)
{
	add_gauge(to, "warm_pending", (double)s->warm_pending, "Files still to be warmed.");
	add_counter(to, "warm_done", s->warm_done, "Files warmed.");
	add_counter(to, "warm_refused", s->warm_refused, "Files without room to be warmed.");
	add_counter(to, "warm_failed", s->warm_failed, "Files that could not be warmed.");
	add_gauge(to, "warm_pending_bytes", (double)s->warm_pending_bytes,
		  "Bytes still to be warmed.");
	add_counter(to, "warm_done_bytes", s->warm_done_bytes, "Bytes warmed.");
	add_counter(to, "warm_refused_bytes", s->warm_refused_bytes,
		    "Bytes without room to be warmed.");
}

static void collect(struct control *control, struct figures *figures, const char **policy)
{
	struct cache_stats s;

	cache_get_stats(control->options.cache, &s);
	*policy = s.policy;
	figures->count = 0;
	add_memory(control, &s, figures);
	add_accesses(control, &s, figures);
	add_source(&s, figures);
	add_training(control, &s, figures);
	add_warm(&s, figures);
}

/* --- as lines ----------------------------------------------------------------------------------*/

/* The length of a name without its unit, and what its values are to be divided by to be seconds.
 * 0: it is not a time. */
static double seconds_of(const char *name, size_t *length)
{
	*length = strlen(name);
	if (*length < 3 || (strcmp(name + *length - 3, "_ms") && strcmp(name + *length - 3, "_us")))
		return 0;
	*length -= 3;
	return name[*length + 1] == 'm' ? 1e3 : 1e6;
}

void control_print_head(FILE *out, enum control_figure_kind kind, const char *name,
			const char *help)
{
	size_t length;
	const char *unit = seconds_of(name, &length) > 0 ? "_seconds" : "";

	if (kind == CONTROL_COUNTER)
		fprintf(out, "# HELP shadefs_%.*s%s_total %s\n", (int)length, name, unit, help);
	else
		fprintf(out, "# HELP shadefs_%.*s%s %s\n# TYPE shadefs_%.*s%s gauge\n", (int)length,
			name, unit, help, (int)length, name, unit);
}

void control_print_figure(FILE *out, bool metrics, const struct control_figure *figure)
{
	const char *total = figure->kind == CONTROL_COUNTER ? "_total" : "";
	size_t length;
	double divisor = seconds_of(figure->name, &length);

	if (!metrics) {
		fprintf(out, "%s %.15g\n", figure->name, figure->value);
		return;
	}
	control_print_head(out, figure->kind, figure->name, figure->help);
	fprintf(out, "shadefs_%.*s%s%s %.15g\n", (int)length, figure->name,
		divisor > 0 ? "_seconds" : "", total,
		divisor > 0 ? figure->value / divisor : figure->value);
}

static void print_all(struct control *control, const struct figures *figures, FILE *out,
		      bool metrics)
{
	for (unsigned i = 0; i < figures->count; i++)
		control_print_figure(out, metrics, &figures->list[i]);
	if (control->options.hooks->print_more)
		control->options.hooks->print_more(control->options.context, out, metrics);
}

int report_stats(struct control *control, uint32_t job, FILE *out)
{
	struct figures figures;
	const char *policy;

	(void)job;
	collect(control, &figures, &policy);
	fprintf(out, "mode %s\npolicy %s\n", control->mode, policy);
	print_all(control, &figures, out, false);
	return 0;
}

int report_metrics(struct control *control, uint32_t job, FILE *out)
{
	struct figures figures;
	const char *policy;

	(void)job;
	collect(control, &figures, &policy);
	control_print_head(out, CONTROL_GAUGE, "info", "How the mount works.");
	fprintf(out, "shadefs_info{policy=\"%s\",mode=\"%s\"} 1\n", policy, control->mode);
	print_all(control, &figures, out, true);
	fputs("# EOF\n", out);
	return 0;
}
