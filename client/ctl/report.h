/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* `shadectl report`: what it knows of a mount (report_take.c, report_epochs.c), and how that
 * becomes a page (report_page.c, report_tables.c, report_json.c, report_style.c). */
#ifndef SHADE_CTL_REPORT_H
#define SHADE_CTL_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "call.h"
#include "capacities.h"
#include "histogram.h"
#include "say.h"

#define REPORT_EPOCHS_MAX 256
#define REPORT_ADVICE_MAX 1024

/* Columns of .shade/epochs that the page shows. */
enum report_column {
	COLUMN_JOB,
	COLUMN_EPOCH,
	COLUMN_ANNOUNCED,
	COLUMN_ORDERED,
	COLUMN_RUNNING,
	COLUMN_BEGIN_MS,
	COLUMN_END_MS,
	COLUMN_SAMPLES,
	COLUMN_DISTINCT,
	COLUMN_USES,
	COLUMN_ACCESSES,
	COLUMN_HITS,
	COLUMN_HITS_PREFETCHED,
	COLUMN_BACKEND_READS,
	COLUMN_BACKEND_BYTES,
	COLUMN_WAITS,
	COLUMN_WAIT_MS,
	COLUMN_WAITING_MS,
	COLUMN_LIMITED_MS,
	COLUMN_LIMITED_BYTES,
	COLUMNS,
};

extern const char *const report_column_names[COLUMNS];

struct report_epoch {
	double values[COLUMNS]; /* NaN: the mount has no such column */
};

/* What follows from the columns; NaN where that cannot be said. */
enum report_rate {
	RATE_HIT,	 /* hits of accesses */
	RATE_KEPT,	 /* hits that were not fetched ahead, of accesses */
	RATE_COVERAGE,	 /* distinct of samples */
	RATE_SECONDS,	 /* that it took */
	RATE_THROUGHPUT, /* accesses a second */
	RATE_SOURCE,	 /* bytes of the source a second */
	RATE_WAITING,	 /* of the time: somebody waited */
	RATE_LIMITED,	 /* of the time: the source was the limit */
	RATE_DELIVERED,	 /* bytes a second while it was */
	RATES,
};

struct report {
	const char *mount_point;
	char *stats;  /* as texts */
	char *config; /* NULL: not to be had */
	struct report_epoch epochs[REPORT_EPOCHS_MAX];
	unsigned epoch_count;
	struct histogram scores;
	struct capacities capacities;
	char advice[REPORT_ADVICE_MAX];
};

/* --- report_take.c */

/* Reads everything from the mount. Returns an exit code. */
int report_take(struct report *report, const struct call *call);
void report_free(struct report *report);

/* --- report_epochs.c */

/* The rows of a text of .shade/epochs that had accesses; the latest, if there are more than MAX.
 * Returns how many. */
unsigned report_parse_epochs(const char *text, struct report_epoch *epochs, unsigned max);
/* NaN if the whole is nothing. */
double report_ratio(double part, double whole);
double report_rate(const struct report_epoch *epoch, enum report_rate rate);
/* The number of an epoch as a text. */
struct figure report_epoch_name(const struct report_epoch *epoch);
/* Whether the epochs are those of several trainings. */
bool report_has_jobs(const struct report *report);
/* All epochs from FIRST on as one. */
struct report_epoch report_sum(const struct report *report, unsigned first);

/* --- the page */

void report_print(const struct report *report, FILE *out);
void report_print_json(const struct report *report, FILE *out);
void report_print_epochs(const struct report *report, FILE *out);
void report_print_capacities(const struct report *report, FILE *out);
void report_print_scores(const struct histogram_row *rows, unsigned count,
			 const struct histogram *scores, FILE *out);
void report_print_source(const struct report *report, FILE *out);
void report_print_counters(const struct report *report, FILE *out);
/* Keys of stats that begin so; whether there are any. */
bool report_has_keys(const char *stats, const char *beginning);
void report_print_keys(const char *stats, const char *beginning, FILE *out);

extern const char report_style[];

#endif
