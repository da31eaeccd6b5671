/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The tables of a report: what its charts show, to be read and copied. */
#include <math.h>
#include <string.h>

#include "html.h"
#include "report.h"
#include "say.h"

#define EPOCHS_SHOWN 40 /* the charts and the JSON have all */

static void print_cell(FILE *out, struct figure figure)
{
	fprintf(out, "<td>%s</td>", figure.text);
}

static struct figure rate_of(double bytes_a_second)
{
	struct figure text = say_bytes(bytes_a_second);

	if (isfinite(bytes_a_second))
		strcat(text.text, "/s");
	return text;
}

/* --- epochs -------------------------------------------------------------------------------------
 */

static struct figure seconds_of(double seconds)
{
	struct figure text;

	if (!(seconds < 60))
		return say_duration(seconds);
	snprintf(text.text, sizeof(text.text), "%.1f s", seconds);
	return text;
}

static void print_epoch(const struct report_epoch *epoch, bool has_uses, bool has_jobs, FILE *out)
{
	const double *v = epoch->values;

	fprintf(out, "<tr><th>%s%s%s</th>", report_epoch_name(epoch).text,
		v[COLUMN_ANNOUNCED] > 0 ? "" : " <i>guessed</i>",
		v[COLUMN_RUNNING] > 0 ? " <i>running</i>" : "");
	if (has_jobs)
		print_cell(out, say_count(v[COLUMN_JOB]));
	print_cell(out, say_count(v[COLUMN_ACCESSES]));
	print_cell(out, say_percent(report_rate(epoch, RATE_HIT)));
	print_cell(out, say_percent(report_rate(epoch, RATE_KEPT)));
	print_cell(out, say_percent(report_rate(epoch, RATE_COVERAGE)));
	print_cell(out, seconds_of(report_rate(epoch, RATE_SECONDS)));
	print_cell(out, say_count(report_rate(epoch, RATE_THROUGHPUT)));
	print_cell(out, say_percent(report_rate(epoch, RATE_WAITING)));
	print_cell(out, say_bytes(v[COLUMN_BACKEND_BYTES]));
	if (has_uses && isfinite(v[COLUMN_USES]))
		fprintf(out, "<td>%.3g</td>", v[COLUMN_USES]);
	else if (has_uses)
		fputs("<td>-</td>", out);
	fputs("</tr>\n", out);
}

void report_print_epochs(const struct report *report, FILE *out)
{
	unsigned first =
		report->epoch_count > EPOCHS_SHOWN ? report->epoch_count - EPOCHS_SHOWN : 0;
	bool has_uses = report_sum(report, 0).values[COLUMN_USES] > 0;
	bool has_jobs = report_has_jobs(report);

	fprintf(out,
		"<div class='wide'><table id='epochs'>\n<thead><tr><th>epoch</th>%s"
		"<th>accesses</th><th>hits</th><th>kept</th><th>coverage</th><th>time</th>"
		"<th>samples/s</th><th>waited</th><th>source</th>",
		has_jobs ? "<th>job</th>" : "");
	fputs(has_uses ? "<th>uses</th></tr></thead>\n" : "</tr></thead>\n", out);
	for (unsigned i = first; i < report->epoch_count; i++)
		print_epoch(&report->epochs[i], has_uses, has_jobs, out);
	fputs("</table></div>\n", out);
	if (first)
		fprintf(out, "<p class='note'>The latest %u of %u epochs.</p>\n", EPOCHS_SHOWN,
			report->epoch_count);
	if (has_jobs)
		fputs("<p class='note'>These are epochs of several trainings, by when they began. "
		      "Job 0 is the mount's own; jobs/NAME/stats of the mount says which number "
		      "another one has, and one that has ended leaves its number to the "
		      "next.</p>\n",
		      out);
}

/* --- capacities ---------------------------------------------------------------------------------
 */

static void print_saved(FILE *out, double saved)
{
	if (!isfinite(saved))
		fputs("<td>-</td>", out);
	else if (fabs(saved) < 0.0005)
		fputs("<td>0 %</td>", out);
	else
		fprintf(out, "<td>%+.1f %%</td>", -100 * saved);
}

void report_print_capacities(const struct report *report, FILE *out)
{
	const struct capacities *capacities = &report->capacities;

	fputs("<div class='wide'><table id='capacities'>\n<thead><tr><th>capacity</th>", out);
	for (unsigned i = 0; i < capacities->curve_count; i++)
		fprintf(out, "<th>%s%s</th>", capacities->curves[i].policy,
			i == capacities->own ? "*" : "");
	fputs("<th>source*</th></tr></thead>\n", out);
	for (unsigned i = 0; i < capacities->point_count; i++) {
		fprintf(out, "<tr%s><th>%s</th>", i == capacities->present ? " class='now'" : "",
			say_bytes(capacities->factors[i] * capacities->capacity_bytes).text);
		for (unsigned j = 0; j < capacities->curve_count; j++)
			print_cell(out, say_percent(capacities->curves[j].hit_ratio[i]));
		print_saved(out, capacities_saved(capacities, capacities->own, i));
		fputs("</tr>\n", out);
	}
	fputs("</table>\n<p class='note'>* the mount's policy, and how the bytes that it needs "
	      "from "
	      "the source would change. The capacity is what is left for samples after buffers."
	      "</p></div>\n",
	      out);
}

/* --- scores -------------------------------------------------------------------------------------
 */

static void print_bin(FILE *out, const struct histogram_bin *bin)
{
	print_cell(out, say_count((double)bin->samples));
	print_cell(out, say_count((double)bin->resident));
	print_cell(out, say_percent((double)bin->resident / (double)bin->samples));
	fputs("</tr>\n", out);
}

void report_print_scores(const struct histogram_row *rows, unsigned count,
			 const struct histogram *scores, FILE *out)
{
	if (!count && !scores->unscored.samples)
		return;
	fputs("<div class='wide'><table id='scores'>\n<thead><tr><th>score</th><th>samples</th>"
	      "<th>resident</th><th>share</th></tr></thead>\n",
	      out);
	while (count--) {
		if (!rows[count].sum.samples)
			continue;
		fprintf(out, "<tr><th>%.4g – %.4g</th>", rows[count].from, rows[count].to);
		print_bin(out, &rows[count].sum);
	}
	if (scores->unscored.samples) {
		fputs("<tr><th>no score</th>", out);
		print_bin(out, &scores->unscored);
	}
	fputs("</table></div>\n", out);
}

/* --- the source, and counters -------------------------------------------------------------------
 */

static void print_fact(FILE *out, const char *name, struct figure figure)
{
	fprintf(out, "<tr><th>%s</th><td>%s</td></tr>\n", name, figure.text);
}

void report_print_source(const struct report *report, FILE *out)
{
	const char *stats = report->stats;
	double reads = pair_number(stats, "backend_reads");
	double bytes = pair_number(stats, "backend_bytes");
	double limited_s = pair_number(stats, "limited_ms") / 1000;
	double waits = pair_number(stats, "waits");
	double wait_s = pair_number(stats, "wait_ms") / 1000;
	struct figure mean = { "-" };

	if (waits > 0)
		snprintf(mean.text, sizeof(mean.text), "%.3g ms", 1000 * wait_s / waits);
	fputs("<table id='source'>\n", out);
	print_fact(out, "reads", say_count(reads));
	print_fact(out, "bytes", say_bytes(bytes));
	print_fact(out, "bytes a read", say_bytes(reads > 0 ? bytes / reads : NAN));
	print_fact(out, "it was the limit for", seconds_of(limited_s));
	print_fact(out, "and gave meanwhile",
		   rate_of(limited_s > 0 ? pair_number(stats, "limited_bytes") / limited_s : NAN));
	print_fact(out, "opens and reads that waited", say_count(waits));
	print_fact(out, "for, on the mean", mean);
	print_fact(out, "reads that failed", say_count(pair_number(stats, "fetch_errors")));
	print_fact(out, "files that changed in memory",
		   say_count(pair_number(stats, "stale_drops")));
	fputs("</table>\n", out);
}

static bool begins_with(const struct pair *pair, const char *beginning)
{
	size_t length = strlen(beginning);

	return pair->key_length >= length && !memcmp(pair->key, beginning, length);
}

bool report_has_keys(const char *stats, const char *beginning)
{
	struct pair pair;

	while (pair_next(&stats, &pair))
		if (begins_with(&pair, beginning))
			return true;
	return false;
}

void report_print_keys(const char *stats, const char *beginning, FILE *out)
{
	struct pair pair;

	while (pair_next(&stats, &pair)) {
		if (!begins_with(&pair, beginning))
			continue;
		fputs("<tr><th>", out);
		html_bytes(out, pair.key, pair.key_length);
		fputs("</th><td>", out);
		html_bytes(out, pair.value, pair.value_length);
		fputs("</td></tr>\n", out);
	}
}

void report_print_counters(const struct report *report, FILE *out)
{
	fputs("<table id='stats' class='counters'>\n", out);
	report_print_keys(report->stats, "", out);
	fputs("</table>\n", out);
}
