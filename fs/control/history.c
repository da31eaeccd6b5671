/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The files `epochs`, a table with a line for each epoch, and `history`, the sampled accesses of
 * the latest ones as a trace, which shade-sim replays as it is: scores stand before the access that
 * they had then, and an order where it became known, at most one epoch ahead.
 *
 * An order of the trace has what the epoch has really read by now, not what was announced.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "control/internal.h"

int report_epochs(struct control *control, uint32_t job, FILE *out)
{
	struct epoch_row *rows;
	uint32_t count;
	int rc = cache_copy_epochs(control->options.cache, &rows, &count);

	(void)job;
	if (rc)
		return rc;
	fputs("job epoch announced ordered running begin_ms end_ms samples distinct uses", out);
	for (unsigned i = 0; i < EPOCH_COUNTERS; i++)
		fprintf(out, " %s", epochs_counter_names[i]);
	fputc('\n', out);
	for (const struct epoch_row *row = rows; row < rows + count; row++) {
		fprintf(out,
			"%" PRIu32 " %" PRIu64 " %d %d %d %" PRIu64 " %" PRIu64 " %" PRIu32
			" %" PRIu32 " %.15g",
			row->job, row->epoch, row->announced, row->ordered, row->running,
			row->begin_ms, row->end_ms, row->samples, row->distinct, row->uses);
		for (unsigned i = 0; i < EPOCH_COUNTERS; i++)
			fprintf(out, " %" PRIu64, row->grown.values[i]);
		fputc('\n', out);
	}
	free(rows);
	return 0;
}

/* When the order of a row was known, as the trace tells it: not before the row before it. */
static struct epoch_mark mark_of(const struct cache_history *history, uint32_t row)
{
	const struct epoch_mark *mark = &history->rows[row].mark;
	uint64_t earliest = row ? history->rows[row - 1].serial : history->rows[row].serial;

	return mark->serial < earliest ? (struct epoch_mark){ .serial = earliest } : *mark;
}

/* The orders that became known before this entry of this row. `*next` is the first row whose order
 * was not told yet. */
static void print_orders(const struct cache_history *history, uint32_t row, uint32_t entry,
			 uint32_t *next, FILE *out)
{
	for (; *next <= row + 1 && *next < history->row_count; (*next)++) {
		struct epoch_mark mark = mark_of(history, *next);
		uint32_t first = history->first_access[*next];
		uint32_t end = history->first_access[*next + 1];

		if (!history->rows[*next].ordered || first == end)
			continue;
		if (mark.serial == history->rows[row].serial && mark.entries > entry)
			return;
		if (mark.serial > history->rows[row].serial)
			return;
		fprintf(out, "o %" PRIu64, history->rows[*next].serial);
		for (uint32_t i = first; i < end; i++)
			fprintf(out, " %" PRIu32, history->accesses[i].id);
		fputc('\n', out);
	}
}

static void print_row(const struct cache_history *history, uint32_t row, uint32_t *next, FILE *out)
{
	const struct epoch_row *epoch = &history->rows[row];

	fprintf(out, "e %" PRIu64 " # job %" PRIu32 ", epoch %" PRIu64 "%s%s\n", epoch->serial,
		epoch->job, epoch->epoch, epoch->announced ? "" : ", not announced",
		epoch->ordered ? ", order known" : "");
	for (uint32_t i = history->first_access[row]; i < history->first_access[row + 1]; i++) {
		const struct cache_history_access *access = &history->accesses[i];

		print_orders(history, row, access->entry, next, out);
		if (access->score >= 0)
			fprintf(out, "s %" PRIu32 " %.9g\n", access->id, access->score);
		fprintf(out, "a %" PRIu32 " %" PRIu64 "\n", access->id, access->size);
	}
	print_orders(history, row, UINT32_MAX, next, out);
}

int report_history(struct control *control, uint32_t job, FILE *out)
{
	struct cache_history *history;
	uint32_t next = 0;
	int rc = cache_copy_history(control->options.cache, &history);

	(void)job;
	if (rc)
		return rc;
	fprintf(out,
		"# rate %.9g\n# samples %" PRIu32 "\n# picked %" PRIu32 "\n# data_bytes %" PRIu64
		"\n# picked_bytes %" PRIu64 "\n# capacity_bytes %" PRIu64 "\n",
		(double)history->threshold / (double)EPOCHS_EVERY, history->samples,
		history->picked, history->data_bytes, history->picked_bytes,
		history->capacity_bytes);
	for (uint32_t row = 0; row < history->row_count; row++)
		print_row(history, row, &next, out);
	free(history);
	return 0;
}
