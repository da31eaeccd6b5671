/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct report {
	const struct report_row *rows;
	size_t count;
	const char *const *periods;
	uint32_t samples;
};

static double coverage(const struct report *report, const struct figures *f)
{
	return report->samples ? figures_distinct_per_epoch(f) / report->samples : 0;
}

static double recent_coverage(const struct report *report, const struct figures *f)
{
	return report->samples ? (double)f->recent / report->samples : 0;
}

/* --- table -------------------------------------------------------------------------- */

static void table_line(const struct report *report, const char *policy, const char *period,
		       const struct figures *f)
{
	printf("%-12s", policy);
	if (*report->periods[0])
		printf(" %-6s", period);
	printf(" %9.4f %9.4f %12" PRIu64 " %12" PRIu64 " %12" PRIu64 " %12" PRIu64 " %12" PRIu64
	       " %14" PRIu64 "\n",
	       figures_hit_ratio(f), coverage(report, f), f->accesses, f->hits, f->admissions,
	       f->bypasses, f->evictions, f->bytes_fetched);
}

static void print_table(const struct report *report)
{
	printf("%-12s", "policy");
	if (*report->periods[0])
		printf(" %-6s", "period");
	printf(" %9s %9s %12s %12s %12s %12s %12s %14s\n", "hit ratio", "coverage", "accesses",
	       "hits", "admissions", "bypasses", "evictions", "bytes fetched");
	for (size_t period = 0; report->periods[period]; period++)
		for (size_t i = 0; i < report->count; i++)
			table_line(report, report->rows[i].policy, report->periods[period],
				   &report->rows[i].periods[period]);
}

/* --- JSON --------------------------------------------------------------------------- */

static void json_figures(const struct report *report, const struct figures *f)
{
	printf("\"accesses\": %" PRIu64 ", \"hits\": %" PRIu64 ", \"hit_ratio\": %.6f, "
	       "\"admissions\": %" PRIu64 ", \"bypasses\": %" PRIu64 ", \"evictions\": %" PRIu64
	       ", \"bytes_fetched\": %" PRIu64 ", \"distinct_per_epoch\": %.2f, "
	       "\"coverage\": %.6f, \"coverage_10\": %.6f",
	       f->accesses, f->hits, figures_hit_ratio(f), f->admissions, f->bypasses, f->evictions,
	       f->bytes_fetched, figures_distinct_per_epoch(f), coverage(report, f),
	       recent_coverage(report, f));
}

static void json_row(const struct report *report, const struct report_row *row)
{
	printf("  {\"policy\": \"%s\"", row->policy);
	for (size_t period = 0; report->periods[period]; period++) {
		bool named = *report->periods[period];

		if (named)
			printf(", \"%s\": {", report->periods[period]);
		else
			printf(", ");
		json_figures(report, &row->periods[period]);
		if (named)
			putchar('}');
	}
	putchar('}');
}

static void print_json(const struct report *report)
{
	puts("[");
	for (size_t i = 0; i < report->count; i++) {
		json_row(report, &report->rows[i]);
		puts(i + 1 < report->count ? "," : "");
	}
	puts("]");
}

/* --- CSV ---------------------------------------------------------------------------- */

static void csv_line(const struct report *report, const char *policy, const char *period,
		     const struct figures *f)
{
	printf("%s,", policy);
	if (*period)
		printf("%s,", period);
	printf("%" PRIu64 ",%" PRIu64 ",%.6f,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
	       ",%.2f,%.6f,%.6f\n",
	       f->accesses, f->hits, figures_hit_ratio(f), f->admissions, f->bypasses, f->evictions,
	       f->bytes_fetched, figures_distinct_per_epoch(f), coverage(report, f),
	       recent_coverage(report, f));
}

static void print_csv(const struct report *report)
{
	printf("policy,%saccesses,hits,hit_ratio,admissions,bypasses,evictions,bytes_fetched,"
	       "distinct_per_epoch,coverage,coverage_10\n",
	       *report->periods[0] ? "period," : "");
	for (size_t i = 0; i < report->count; i++)
		for (size_t period = 0; report->periods[period]; period++)
			csv_line(report, report->rows[i].policy, report->periods[period],
				 &report->rows[i].periods[period]);
}

void report_print(enum report_format format, const struct report_row *rows, size_t count,
		  const char *const periods[], uint32_t samples)
{
	struct report report = { rows, count, periods, samples };

	switch (format) {
	case REPORT_TABLE:
		print_table(&report);
		break;
	case REPORT_JSON:
		print_json(&report);
		break;
	case REPORT_CSV:
		print_csv(&report);
		break;
	}
}
