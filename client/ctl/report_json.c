/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The figures of a report for programs: one JSON object within the page. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "report.h"
#include "say.h"

static void print_number(FILE *out, double value)
{
	if (isfinite(value))
		fprintf(out, "%.15g", value);
	else
		fputs("null", out);
}

static void print_numbers(FILE *out, const double *values, unsigned count)
{
	fputc('[', out);
	for (unsigned i = 0; i < count; i++) {
		fputs(i ? ", " : "", out);
		print_number(out, values[i]);
	}
	fputc(']', out);
}

static void print_string(FILE *out, const char *text)
{
	say_json_string(out, text, strlen(text));
}

static void print_epochs(const struct report *report, FILE *out)
{
	fputs("[", out);
	for (unsigned i = 0; i < report->epoch_count; i++) {
		fputs(i ? ",\n  {" : "\n  {", out);
		for (unsigned j = 0; j < COLUMNS; j++) {
			fprintf(out, "%s\"%s\": ", j ? ", " : "", report_column_names[j]);
			print_number(out, report->epochs[i].values[j]);
		}
		fputc('}', out);
	}
	fputs("]", out);
}

static void print_bin(FILE *out, const struct histogram_bin *bin)
{
	fprintf(out, "\"samples\": %lu, \"resident\": %lu}", bin->samples, bin->resident);
}

static void print_scores(const struct report *report, FILE *out)
{
	struct histogram_row rows[HISTOGRAM_ROWS_MAX];
	unsigned count = histogram_rows(&report->scores, rows, HISTOGRAM_ROWS_MAX);

	fputs("{\"unscored\": {", out);
	print_bin(out, &report->scores.unscored);
	fputs(", \"scored\": [", out);
	for (unsigned i = 0; i < count; i++) {
		fputs(i ? ", {\"from\": " : "{\"from\": ", out);
		print_number(out, rows[i].from);
		fputs(", \"to\": ", out);
		print_number(out, rows[i].to);
		fputs(", ", out);
		print_bin(out, &rows[i].sum);
	}
	fputs("]}", out);
}

static void print_capacities(const struct capacities *capacities, FILE *out)
{
	fprintf(out,
		"{\"accesses\": %" PRIu64 ", \"epochs\": %u, \"warm_up\": %u, \"ordered\": %u, "
		"\"capacity_bytes\": ",
		capacities->accesses, capacities->epochs, capacities->warm_up, capacities->ordered);
	print_number(out, capacities->capacity_bytes);
	fputs(", \"data_bytes\": ", out);
	print_number(out, capacities->data_bytes);
	fputs(", \"rate\": ", out);
	print_number(out, capacities->rate);
	fputs(",\n  \"factors\": ", out);
	print_numbers(out, capacities->factors, capacities->point_count);
	fputs(", \"policies\": {", out);
	for (unsigned i = 0; i < capacities->curve_count; i++) {
		fprintf(out, "%s\n    \"%s\": {\"hit_ratio\": ", i ? "," : "",
			capacities->curves[i].policy);
		print_numbers(out, capacities->curves[i].hit_ratio, capacities->point_count);
		fputs(", \"missed_bytes\": ", out);
		print_numbers(out, capacities->curves[i].missed_bytes, capacities->point_count);
		fputc('}', out);
	}
	fputs("}}", out);
}

void report_print_json(const struct report *report, FILE *out)
{
	fputs("{\"version\": \"" SHADE_VERSION "\",\n \"mount\": ", out);
	print_string(out, report->mount_point);
	fputs(",\n \"advice\": ", out);
	print_string(out, report->advice);
	fputs(",\n \"stats\": ", out);
	call_print_json(out, report->stats);
	fputs(",\n \"epochs\": ", out);
	print_epochs(report, out);
	fputs(",\n \"scores\": ", out);
	print_scores(report, out);
	fputs(",\n \"capacities\": ", out);
	print_capacities(&report->capacities, out);
	fputs("}\n", out);
}
