/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The table .shade/epochs: columns are found by their names, so that a mount of another version may
 * have others. What is no number is as if it were not there. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

const char *const report_column_names[COLUMNS] = {
	[COLUMN_JOB] = "job",
	[COLUMN_EPOCH] = "epoch",
	[COLUMN_ANNOUNCED] = "announced",
	[COLUMN_ORDERED] = "ordered",
	[COLUMN_RUNNING] = "running",
	[COLUMN_BEGIN_MS] = "begin_ms",
	[COLUMN_END_MS] = "end_ms",
	[COLUMN_SAMPLES] = "samples",
	[COLUMN_DISTINCT] = "distinct",
	[COLUMN_USES] = "uses",
	[COLUMN_ACCESSES] = "accesses",
	[COLUMN_HITS] = "hits",
	[COLUMN_HITS_PREFETCHED] = "hits_prefetched",
	[COLUMN_BACKEND_READS] = "backend_reads",
	[COLUMN_BACKEND_BYTES] = "backend_bytes",
	[COLUMN_WAITS] = "waits",
	[COLUMN_WAIT_MS] = "wait_ms",
	[COLUMN_WAITING_MS] = "waiting_ms",
	[COLUMN_LIMITED_MS] = "limited_ms",
	[COLUMN_LIMITED_BYTES] = "limited_bytes",
};

#define PLACES_MAX 64 /* columns that are looked at */

/* The next word of a line; false at its end. */
static bool next_word(const char **at, const char **word, size_t *length)
{
	*word = *at + strspn(*at, " \t");
	*length = strcspn(*word, " \t\n");
	*at = *word + *length;
	return *length > 0;
}

/* Which column each place of the head line is; COLUMNS: none that matters. */
static unsigned parse_head(const char *line, enum report_column *places)
{
	unsigned count = 0;
	const char *word;
	size_t length;

	while (count < PLACES_MAX && next_word(&line, &word, &length)) {
		unsigned column = 0;

		while (column < COLUMNS && (strlen(report_column_names[column]) != length ||
					    memcmp(report_column_names[column], word, length)))
			column++;
		places[count++] = column;
	}
	return count;
}

static struct report_epoch parse_row(const char *line, const enum report_column *places,
				     unsigned place_count)
{
	struct report_epoch epoch;
	const char *word;
	size_t length;

	for (unsigned i = 0; i < COLUMNS; i++)
		epoch.values[i] = NAN;
	for (unsigned i = 0; i < place_count && next_word(&line, &word, &length); i++) {
		char *end;
		double value = strtod(word, &end);

		if (places[i] != COLUMNS && end == word + length && isfinite(value) && value >= 0)
			epoch.values[places[i]] = value;
	}
	return epoch;
}

unsigned report_parse_epochs(const char *text, struct report_epoch *epochs, unsigned max)
{
	enum report_column places[PLACES_MAX];
	unsigned place_count = parse_head(text, places), count = 0;

	while ((text = strchr(text, '\n')) && *++text) {
		struct report_epoch epoch = parse_row(text, places, place_count);

		if (!(epoch.values[COLUMN_ACCESSES] > 0))
			continue;
		if (count == max)
			memmove(epochs, epochs + 1, --count * sizeof(*epochs));
		epochs[count++] = epoch;
	}
	return count;
}

double report_ratio(double part, double whole)
{
	return whole > 0 ? part / whole : NAN;
}

/* Counters are read a little after the last access. */
static double share_of(double part, double whole)
{
	double share = report_ratio(part, whole);

	return share > 1 ? 1 : share;
}

double report_rate(const struct report_epoch *epoch, enum report_rate rate)
{
	const double *v = epoch->values;
	double seconds = (v[COLUMN_END_MS] - v[COLUMN_BEGIN_MS]) / 1000;

	switch (rate) {
	case RATE_HIT:
		return report_ratio(v[COLUMN_HITS], v[COLUMN_ACCESSES]);
	case RATE_KEPT:
		return report_ratio(v[COLUMN_HITS] - v[COLUMN_HITS_PREFETCHED], v[COLUMN_ACCESSES]);
	case RATE_COVERAGE:
		return report_ratio(v[COLUMN_DISTINCT], v[COLUMN_SAMPLES]);
	case RATE_SECONDS:
		return seconds;
	case RATE_THROUGHPUT:
		return report_ratio(v[COLUMN_ACCESSES], seconds);
	case RATE_SOURCE:
		return report_ratio(v[COLUMN_BACKEND_BYTES], seconds);
	case RATE_WAITING:
		return share_of(v[COLUMN_WAITING_MS] / 1000, seconds);
	case RATE_LIMITED:
		return share_of(v[COLUMN_LIMITED_MS] / 1000, seconds);
	case RATE_DELIVERED:
		return report_ratio(v[COLUMN_LIMITED_BYTES], v[COLUMN_LIMITED_MS] / 1000);
	default:
		return NAN;
	}
}

struct figure report_epoch_name(const struct report_epoch *epoch)
{
	struct figure name = { "-" };

	if (isfinite(epoch->values[COLUMN_EPOCH]))
		snprintf(name.text, sizeof(name.text), "%.0f",
			 fmin(epoch->values[COLUMN_EPOCH], 1e30));
	return name;
}

bool report_has_jobs(const struct report *report)
{
	for (unsigned i = 1; i < report->epoch_count; i++)
		if (report->epochs[i].values[COLUMN_JOB] != report->epochs[0].values[COLUMN_JOB] &&
		    isfinite(report->epochs[i].values[COLUMN_JOB]))
			return true;
	return false;
}

/* Times of epochs are added, too, so that a pause between two is nobody's. */
struct report_epoch report_sum(const struct report *report, unsigned first)
{
	struct report_epoch sum = { 0 };

	for (unsigned i = first; i < report->epoch_count; i++)
		for (unsigned j = 0; j < COLUMNS; j++)
			sum.values[j] += report->epochs[i].values[j];
	return sum;
}
