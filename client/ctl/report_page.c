/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The page of a report: one file of HTML with charts as SVG in it. It runs no script and loads
 * nothing, and its policy forbids both, whatever a mount is named.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fail.h"
#include "html.h"
#include "report.h"
#include "say.h"
#include "svg.h"

#define SCORE_ROWS 12

/* --- the head -----------------------------------------------------------------------------------
 */

static void print_head(FILE *out)
{
	fputs("<!DOCTYPE html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
	      "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; "
	      "style-src 'unsafe-inline'; img-src data:\">\n"
	      "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
	      "<meta name='color-scheme' content='light dark'>\n"
	      "<link rel='icon' href='data:,'>\n"
	      "<title>shadefs report</title>\n<style>\n",
	      out);
	fputs(report_style, out);
	fputs("</style>\n</head>\n<body>\n<main>\n", out);
}

/* KEY of lines `key value # comment`, without the comment. */
static void print_value(FILE *out, const char *text, const char *key)
{
	struct pair pair;
	const char *comment;

	if (!text || !pair_find(text, key, &pair) || !pair.value_length) {
		fputs("-", out);
		return;
	}
	comment = memmem(pair.value, pair.value_length, " # ", 3);
	html_bytes(out, pair.value, comment ? (size_t)(comment - pair.value) : pair.value_length);
}

static void print_title(const struct report *report, FILE *out)
{
	time_t now = time(NULL);
	struct tm date;
	char when[64] = "";

	if (localtime_r(&now, &date))
		strftime(when, sizeof(when), "%Y-%m-%d %H:%M %Z", &date);
	fputs("<header>\n<h1>shadefs report</h1>\n<p class='where'><b>", out);
	html_text(out, report->mount_point);
	fputs("</b> over ", out);
	print_value(out, report->config, "source");
	fputs("<br>mode ", out);
	print_value(out, report->stats, "mode");
	fputs(", policy ", out);
	print_value(out, report->stats, "policy");
	fprintf(out, ", capacity %s, %s samples",
		say_bytes(pair_number(report->stats, "capacity_bytes")).text,
		say_count(pair_number(report->stats, "samples")).text);
	fputs("<br>", out);
	html_text(out, when);
	fputs(", shadectl " SHADE_VERSION "</p>\n</header>\n", out);
}

/* ID is what tests find it by. */
static void print_tile(FILE *out, const char *id, const char *value, const char *label)
{
	fprintf(out, "<div class='tile'><b id='%s'>%s</b><span>%s</span></div>\n", id, value,
		label);
}

static void print_tiles(const struct report *report, FILE *out)
{
	const char *stats = report->stats;
	double accesses = pair_number(stats, "accesses");
	double capacity = pair_number(stats, "capacity_bytes");
	struct report_epoch all = report_sum(report, 0);

	fputs("<div class='tiles'>\n", out);
	print_tile(out, "hit-ratio",
		   say_percent(accesses > 0 ? pair_number(stats, "hits") / accesses : NAN).text,
		   "hit ratio since the mount");
	print_tile(out, "coverage", say_percent(pair_number(stats, "coverage")).text,
		   "coverage of this epoch");
	print_tile(out, "waiting", say_percent(report_rate(&all, RATE_WAITING)).text,
		   "of the time a reader waited");
	print_tile(out, "accesses", say_count(accesses).text, "accesses");
	print_tile(out, "backend-bytes", say_bytes(pair_number(stats, "backend_bytes")).text,
		   "from the source");
	print_tile(out, "resident",
		   say_percent(capacity > 0 ? pair_number(stats, "resident_bytes") / capacity : NAN)
			   .text,
		   "of the capacity is resident");
	fputs("</div>\n", out);
}

/* --- charts -------------------------------------------------------------------------------------
 */

static void print_figure(FILE *out, const struct svg_chart *chart, const char *heading, bool bars)
{
	fputs("<figure>\n<figcaption>", out);
	html_text(out, heading);
	fputs("</figcaption>\n", out);
	if (chart->series_count > 1)
		svg_legend(out, chart);
	(bars ? svg_bars : svg_lines)(out, chart);
	fputs("</figure>\n", out);
}

/* Values of all epochs, and their numbers as texts. */
struct epoch_values {
	double rates[RATES][REPORT_EPOCHS_MAX];
	double bytes[REPORT_EPOCHS_MAX];
	struct figure names[REPORT_EPOCHS_MAX];
	const char *texts[REPORT_EPOCHS_MAX];
};

static void fill_values(struct epoch_values *values, const struct report *report)
{
	for (unsigned i = 0; i < report->epoch_count; i++) {
		const struct report_epoch *epoch = &report->epochs[i];

		for (unsigned rate = 0; rate < RATES; rate++)
			values->rates[rate][i] = report_rate(epoch, rate);
		values->bytes[i] = epoch->values[COLUMN_BACKEND_BYTES];
		values->names[i] = report_epoch_name(epoch);
		values->texts[i] = values->names[i].text;
	}
}

static void print_epoch_charts(const struct report *report, const struct epoch_values *values,
			       FILE *out)
{
	struct svg_chart chart = { .x_label = "epoch",
				   .count = report->epoch_count,
				   .x_text = values->texts,
				   .marked = NAN };

	chart.title = "Hit ratio and coverage by epoch";
	chart.y_label = "share of accesses, of samples";
	chart.unit = SVG_PERCENT;
	chart.series_count = 3;
	chart.series[0] = (struct svg_series){ "hits", values->rates[RATE_HIT], 0 };
	chart.series[1] = (struct svg_series){ "kept from before", values->rates[RATE_KEPT], 1 };
	chart.series[2] = (struct svg_series){ "coverage", values->rates[RATE_COVERAGE], 2 };
	print_figure(out, &chart, "Hit ratio and coverage", false);
	chart.title = "Time that readers waited by epoch";
	chart.y_label = "share of the time";
	chart.series_count = 2;
	chart.series[0] = (struct svg_series){ "a reader waited", values->rates[RATE_WAITING], 3 };
	chart.series[1] =
		(struct svg_series){ "the source was the limit", values->rates[RATE_LIMITED], 4 };
	print_figure(out, &chart, "Waiting for the source", false);
	chart.title = "Samples read a second by epoch";
	chart.y_label = "samples a second";
	chart.unit = SVG_COUNT;
	chart.series_count = 1;
	chart.series[0] = (struct svg_series){ "samples", values->rates[RATE_THROUGHPUT], 0 };
	print_figure(out, &chart, "Throughput", false);
	chart.title = "Bytes from the source by epoch";
	chart.y_label = "bytes an epoch";
	chart.unit = SVG_BYTES;
	chart.series[0] = (struct svg_series){ "source", values->bytes, 3 };
	print_figure(out, &chart, "What the source delivered", true);
}

static void print_epochs(const struct report *report, FILE *out)
{
	struct epoch_values *values;

	fputs("<section>\n<h2>Epoch by epoch</h2>\n", out);
	if (!report->epoch_count) {
		fputs("<p>No epoch was seen yet.</p>\n</section>\n", out);
		return;
	}
	values = must(calloc(1, sizeof(*values)));
	fill_values(values, report);
	fputs("<div class='charts'>\n", out);
	print_epoch_charts(report, values, out);
	fputs("</div>\n", out);
	free(values);
	report_print_epochs(report, out);
	fputs("<p class='note'>A hit found its sample in memory. It was kept from an earlier use, "
	      "or "
	      "fetched ahead, which costs the source as much as a miss, but nobody waits for it. "
	      "Coverage is the share of the samples that an epoch has read: without it a hit ratio "
	      "says nothing.</p>\n</section>\n",
	      out);
}

/* --- importance ---------------------------------------------------------------------------------
 */

static void print_score_chart(const struct histogram_row *rows, unsigned count, FILE *out)
{
	double resident[SCORE_ROWS], others[SCORE_ROWS];
	char names[SCORE_ROWS][24];
	const char *texts[SCORE_ROWS];
	struct svg_chart chart = { .title = "Samples by score, and which of them are resident",
				   .x_label = "score, from",
				   .y_label = "samples",
				   .unit = SVG_COUNT,
				   .count = count,
				   .x_text = texts,
				   .series = { { "resident", resident, 0 },
					       { "not in memory", others, 5 } },
				   .series_count = 2,
				   .marked = NAN };

	for (unsigned i = 0; i < count; i++) {
		resident[i] = (double)rows[i].sum.resident;
		others[i] = (double)(rows[i].sum.samples - rows[i].sum.resident);
		snprintf(names[i], sizeof(names[i]), "%.3g", rows[i].from);
		texts[i] = names[i];
	}
	print_figure(out, &chart, "Samples by score", true);
}

static void print_scores(const struct report *report, FILE *out)
{
	struct histogram_row rows[SCORE_ROWS];
	unsigned count = histogram_rows(&report->scores, rows, SCORE_ROWS);

	fputs("<section>\n<h2>Importance</h2>\n", out);
	if (!count)
		fputs("<p>No sample has a score: the training has told of none.</p>\n", out);
	fputs("<div class='beside'>\n", out);
	if (count)
		print_score_chart(rows, count, out);
	report_print_scores(rows, count, &report->scores, out);
	fputs("</div>\n</section>\n", out);
}

/* --- capacities ---------------------------------------------------------------------------------
 */

static const char *factor_text(double factor, char *text, size_t size)
{
	static const struct {
		double factor;
		const char *text;
	} known[] = { { 0.125, "⅛" }, { 0.25, "¼" }, { 0.5, "½" }, { 1, "now" }, { 1.5, "1½" } };

	for (unsigned i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (factor == known[i].factor)
			return known[i].text;
	snprintf(text, size, "%.2g", factor);
	return text;
}

static void print_capacity_chart(const struct capacities *capacities, FILE *out)
{
	double x[CAPACITY_POINTS];
	char names[CAPACITY_POINTS][16];
	const char *texts[CAPACITY_POINTS];
	struct svg_chart chart = { .title = "Hit ratio by capacity for each policy",
				   .x_label = "capacity, as a multiple of the present one",
				   .y_label = "share of accesses that memory would have had",
				   .unit = SVG_PERCENT,
				   .count = capacities->point_count,
				   .x = x,
				   .x_text = texts,
				   .series_count = capacities->curve_count,
				   .marked = 0 };

	for (unsigned i = 0; i < chart.count; i++) {
		x[i] = log2(capacities->factors[i]);
		texts[i] = factor_text(capacities->factors[i], names[i], sizeof(names[i]));
	}
	for (unsigned i = 0; i < chart.series_count; i++)
		chart.series[i] = (struct svg_series){ capacities->curves[i].policy,
						       capacities->curves[i].hit_ratio, i };
	print_figure(out, &chart, "Hit ratio by capacity", false);
}

static void print_capacities(const struct report *report, FILE *out)
{
	const struct capacities *capacities = &report->capacities;

	fputs("<section>\n<h2>What more memory would give</h2>\n", out);
	if (!capacities->accesses) {
		fputs("<p>The mount has recorded no accesses that could be replayed.</p>\n"
		      "</section>\n",
		      out);
		return;
	}
	fputs("<div class='beside'>\n", out);
	print_capacity_chart(capacities, out);
	report_print_capacities(report, out);
	fprintf(out,
		"</div>\n<p class='note'>The mount's own policy code, replayed on %s recorded "
		"accesses of %u epoch%s, those of %s of its samples; %s. %s Nothing is fetched "
		"ahead here: "
		"what is missing is what the source has to give again.</p>\n</section>\n",
		say_count((double)capacities->accesses).text, capacities->epochs,
		capacities->epochs == 1 ? "" : "s", say_percent(capacities->rate).text,
		capacities->warm_up ? "the first epoch only filled the cache"
				    : "the cache was empty at first",
		capacities->ordered ? "Orders are known when the mount knew them."
				    : "No order was announced, so none is known.");
}

/* --- the source ---------------------------------------------------------------------------------
 */

static void print_source_chart(const struct report *report, FILE *out)
{
	struct epoch_values *values = must(calloc(1, sizeof(*values)));
	struct svg_chart chart = {
		.title = "Throughput of the source by epoch",
		.x_label = "epoch",
		.y_label = "bytes a second",
		.unit = SVG_BYTES,
		.count = report->epoch_count,
		.x_text = values->texts,
		.series = { { "while it was the limit", values->rates[RATE_DELIVERED], 3 },
			    { "over the whole epoch", values->rates[RATE_SOURCE], 4 } },
		.series_count = 2,
		.marked = NAN
	};

	fill_values(values, report);
	print_figure(out, &chart, "Throughput of the source", false);
	free(values);
}

static void print_source(const struct report *report, FILE *out)
{
	fputs("<section>\n<h2>The source</h2>\n<div class='beside'>\n", out);
	if (report->epoch_count)
		print_source_chart(report, out);
	report_print_source(report, out);
	fputs("</div>\n</section>\n", out);
}

/* --- all of it ----------------------------------------------------------------------------------
 */

/* Only if the mount tells of it. */
static void print_recognition(const struct report *report, FILE *out)
{
	if (!report_has_keys(report->stats, "recogni") &&
	    !report_has_keys(report->stats, "takeover"))
		return;
	fputs("<section>\n<h2>Recognition and take-over</h2>\n<table>\n", out);
	report_print_keys(report->stats, "recogni", out);
	report_print_keys(report->stats, "takeover", out);
	fputs("</table>\n</section>\n", out);
}

void report_print(const struct report *report, FILE *out)
{
	print_head(out);
	print_title(report, out);
	fputs("<p class='advice' id='advice'>", out);
	html_text(out, report->advice);
	fputs("</p>\n", out);
	print_tiles(report, out);
	print_epochs(report, out);
	print_capacities(report, out);
	print_scores(report, out);
	print_source(report, out);
	print_recognition(report, out);
	fputs("<section>\n<h2>All counters</h2>\n", out);
	report_print_counters(report, out);
	fputs("</section>\n</main>\n<script type='application/json' id='figures'>\n", out);
	report_print_json(report, out);
	fputs("</script>\n</body>\n</html>\n", out);
}
