/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Draws the screen of `shadectl top` as plain lines; terminal.c or a pipe takes them. */
#include "frame.h"

#include <math.h>
#include <string.h>

#include "chart.h"
#include "say.h"

#define CHART_ROWS 5
#define OTHER_ROWS 13 /* all lines but those of the histogram */

static void draw_head(const struct frame *frame, FILE *out)
{
	bool several = frame->jobs && *frame->jobs; /* each has its own epoch, on its line */

	say_line(out, "shadefs %s   mode %s   policy %s%s%s", frame->mount_point, frame->mode,
		 frame->policy, several ? "" : "   epoch ",
		 several ? "" : say_count(frame->epoch).text);
}

static void draw_ratio(const struct frame *frame, FILE *out, unsigned columns, bool blocks)
{
	static const char *const labels[CHART_ROWS] = { "100 %", "", " 50 %", "", "  0 %" };
	unsigned width = columns > 20 ? columns - 8 : 12;
	unsigned count = frame->history_count < width ? frame->history_count : width;
	const double *from = frame->history + frame->history_count - count;

	fprintf(out, "hit ratio   %s now, %s since the mount", say_percent(frame->ratio_now).text,
		say_percent(frame->ratio_all).text);
	if (!frame->jobs || !*frame->jobs)
		fprintf(out, ", coverage %s", say_percent(frame->coverage).text);
	fputc('\n', out);
	for (unsigned row = 0; row < CHART_ROWS; row++) {
		fprintf(out, "%6s %s", labels[row], blocks ? "│" : "|");
		chart_row(out, from, count, row, CHART_ROWS, blocks);
		fputc('\n', out);
	}
}

static void draw_load(const struct frame *frame, FILE *out, unsigned columns, bool blocks)
{
	double share = frame->resident_bytes / frame->capacity_bytes;

	fprintf(out, "throughput  %s hits/s, %s misses/s, source %s/s, in flight %s\n",
		say_count(frame->hits_rate).text, say_count(frame->misses_rate).text,
		say_bytes(frame->source_rate).text, say_bytes(frame->inflight_bytes).text);
	fprintf(out, "waiting     for the source %s of the time", say_percent(frame->waiting).text);
	if (frame->uses > 0)
		fprintf(out, "; %.1f uses of a fetched sample", frame->uses);
	fputs("\nresident    ", out);
	chart_bar(out, share, columns > 70 ? columns / 4 : 12, blocks);
	fprintf(out, " %s of %s (%s)\n", say_bytes(frame->resident_bytes).text,
		say_bytes(frame->capacity_bytes).text, say_percent(share).text);
	fprintf(out, "            %s of %s samples%s\n", say_count(frame->resident_samples).text,
		say_count(frame->samples).text,
		frame->scanning ? ", the scan is still running" : "");
}

static void draw_bin(FILE *out, const struct histogram_bin *bin, unsigned width, bool blocks)
{
	chart_bar(out, (double)bin->resident / (double)bin->samples, width, blocks);
	fprintf(out, " %s of %s\n", say_count((double)bin->resident).text,
		say_count((double)bin->samples).text);
}

static void draw_scores(const struct frame *frame, FILE *out, unsigned rows, unsigned columns,
			bool blocks)
{
	struct histogram_row row[HISTOGRAM_ROWS_MAX];
	unsigned width = columns > 70 ? columns / 3 : 12;
	unsigned most = rows > OTHER_ROWS + 3 ? rows - OTHER_ROWS : 3;
	unsigned count;

	if (most > HISTOGRAM_ROWS_MAX)
		most = HISTOGRAM_ROWS_MAX;
	count = histogram_rows(&frame->scores, row, most);
	fputs("resident by score\n", out);
	while (count--) {
		if (!row[count].sum.samples)
			continue;
		fprintf(out, "%8.4g - %-8.4g ", row[count].from, row[count].to);
		draw_bin(out, &row[count].sum, width, blocks);
	}
	if (frame->scores.unscored.samples) {
		fprintf(out, "%19s ", "no score");
		draw_bin(out, &frame->scores.unscored, width, blocks);
	}
}

static void draw_ahead(const struct frame *frame, FILE *out, unsigned columns)
{
	char line[FRAME_AHEAD_MAX + 80];
	size_t length;

	snprintf(line, sizeof(line), "ahead       %s accesses%s%s",
		 say_count(frame->order_ahead).text, *frame->ahead ? ": " : "", frame->ahead);
	length = strlen(line);
	/* Cut between ids: half of one is another. */
	if (length > columns) {
		length = columns;
		while (length && line[length] != ' ')
			length--;
	}
	fprintf(out, "%.*s\n", (int)length, line);
}

/* Lines that are too long are cut, between characters. */
static void draw_jobs(const struct frame *frame, FILE *out, unsigned columns)
{
	for (const char *at = frame->jobs; at && *at;) {
		size_t length = strcspn(at, "\n"), kept = 0;

		for (unsigned cells = 0; cells < columns && kept < length; cells++) {
			size_t bytes =
				say_utf8_length((const unsigned char *)at + kept, length - kept);

			kept += bytes ? bytes : 1;
		}
		fprintf(out, "%.*s\n", (int)kept, at);
		at += length + (at[length] == '\n');
	}
}

void frame_draw(const struct frame *frame, FILE *out, unsigned rows, unsigned columns, bool blocks)
{
	draw_head(frame, out);
	draw_ratio(frame, out, columns, blocks);
	draw_load(frame, out, columns, blocks);
	draw_ahead(frame, out, columns);
	draw_jobs(frame, out, columns);
	draw_scores(frame, out, rows, columns, blocks);
}
