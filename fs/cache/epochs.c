/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cache/epochs.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What a row begins with: an epoch that reads every sample once keeps three quarters of the
 * entries, so that chance hardly ever makes them too many. */
#define ENTRIES_PLANNED (EPOCHS_ENTRIES * 3 / 4)

const char *const epochs_counter_names[EPOCH_COUNTERS] = {
	[EPOCH_ACCESSES] = "accesses",
	[EPOCH_HITS] = "hits",
	[EPOCH_HITS_PREFETCHED] = "hits_prefetched",
	[EPOCH_MISSES] = "misses",
	[EPOCH_COALESCED] = "coalesced",
	[EPOCH_EVICTIONS] = "evictions",
	[EPOCH_RECLAIMED] = "reclaimed",
	[EPOCH_BACKEND_READS] = "backend_reads",
	[EPOCH_BACKEND_BYTES] = "backend_bytes",
	[EPOCH_FETCH_ERRORS] = "fetch_errors",
	[EPOCH_WAITS] = "waits",
	[EPOCH_WAIT_MS] = "wait_ms",
	[EPOCH_WAITING_MS] = "waiting_ms",
	[EPOCH_LIMITED_MS] = "limited_ms",
	[EPOCH_LIMITED_BYTES] = "limited_bytes",
};

/* --- places -------------------------------------------------------------------------------------
 */

static struct epoch_row *row_at(const struct epochs *epochs, uint64_t serial)
{
	return &epochs->rows[serial % EPOCHS_ROWS];
}

static struct epoch_entry *entries_at(const struct epochs *epochs, uint64_t serial)
{
	return epochs->entries + serial % EPOCHS_TRACED * EPOCHS_ENTRIES;
}

static struct epoch_row *running(const struct epochs *epochs)
{
	return row_at(epochs, epochs->serial);
}

uint64_t epochs_first(const struct epochs *epochs)
{
	return epochs->serial < EPOCHS_ROWS ? 0 : epochs->serial - EPOCHS_ROWS + 1;
}

uint64_t epochs_first_traced(const struct epochs *epochs)
{
	return epochs->serial < EPOCHS_TRACED ? 0 : epochs->serial - EPOCHS_TRACED + 1;
}

const struct epoch_entry *epochs_entries(const struct epochs *epochs, uint64_t serial)
{
	assert(serial <= epochs->serial && serial >= epochs_first_traced(epochs));
	return entries_at(epochs, serial);
}

/* --- begin and end ------------------------------------------------------------------------------
 */

int epochs_open(struct epochs *epochs)
{
	*epochs = (struct epochs){ 0 };
	epochs->rows = calloc(EPOCHS_ROWS, sizeof(*epochs->rows));
	epochs->entries = calloc((size_t)EPOCHS_TRACED * EPOCHS_ENTRIES, sizeof(*epochs->entries));
	if (!epochs->rows || !epochs->entries) {
		epochs_close(epochs);
		return -ENOMEM;
	}
	*running(epochs) = (struct epoch_row){ .running = true, .threshold = EPOCHS_EVERY };
	return 0;
}

void epochs_close(struct epochs *epochs)
{
	free(epochs->rows);
	free(epochs->entries);
	free(epochs->seen);
	*epochs = (struct epochs){ 0 };
}

void epochs_reserve(struct epochs *epochs, uint32_t slots)
{
	uint32_t words = slots / 64 + 1;
	uint64_t *grown;

	if (words <= epochs->words)
		return;
	grown = realloc(epochs->seen, words * sizeof(*grown));
	if (!grown)
		return;
	memset(grown + epochs->words, 0, (words - epochs->words) * sizeof(*grown));
	epochs->seen = grown;
	epochs->words = words;
}

/* --- accesses -----------------------------------------------------------------------------------
 */

/* The last steps of MurmurHash3: neighbours are far apart. */
static uint32_t mix(uint32_t slot)
{
	slot = (slot ^ slot >> 16) * 0x85ebca6bu;
	slot = (slot ^ slot >> 13) * 0xc2b2ae35u;
	return slot ^ slot >> 16;
}

bool epochs_hashes_below(uint32_t slot, uint64_t threshold)
{
	return mix(slot) < threshold;
}

bool epochs_picks(const struct epochs *epochs, uint32_t slot)
{
	return epochs_hashes_below(slot, running(epochs)->threshold);
}

/* Whether this is the row's first access of the slot. */
static bool is_new(struct epochs *epochs, uint32_t slot)
{
	uint64_t bit = (uint64_t)1 << slot % 64;
	bool found;

	if (slot / 64 >= epochs->words)
		return false;
	found = epochs->seen[slot / 64] & bit;
	epochs->seen[slot / 64] |= bit;
	return !found;
}

/* Keeps those of the running row's entries whose hashes are below half of the threshold. */
static void thin_out(struct epochs *epochs)
{
	struct epoch_row *row = running(epochs);
	struct epoch_entry *entries = entries_at(epochs, row->serial);
	uint32_t place[EPOCHS_ENTRIES + 1], kept = 0;

	row->threshold /= 2;
	for (uint32_t i = 0; i < row->entries; i++) {
		place[i] = kept;
		if (epochs_hashes_below(entries[i].slot, row->threshold))
			entries[kept++] = entries[i];
	}
	place[row->entries] = kept;
	if (row->ordered && row->mark.serial == row->serial)
		row->mark.entries = place[row->mark.entries];
	for (unsigned i = 0; i < epochs->order_count; i++)
		if (epochs->orders[i].mark.serial == row->serial)
			epochs->orders[i].mark.entries = place[epochs->orders[i].mark.entries];
	row->entries = kept;
}

/* A slot that is read over and over fills a row at any threshold: then the row has its first
 * entries only. */
static void keep(struct epochs *epochs, uint32_t slot, float score)
{
	struct epoch_row *row = running(epochs);

	if (row->entries == EPOCHS_ENTRIES && row->threshold > 1)
		thin_out(epochs);
	if (row->entries == EPOCHS_ENTRIES || !epochs_picks(epochs, slot))
		return;
	entries_at(epochs, row->serial)[row->entries++] = (struct epoch_entry){ slot, score };
}

/* Threads read the clock before they acquire the lock: time may seem to go back a little. */
bool epochs_access(struct epochs *epochs, const struct epoch_access *access)
{
	struct epoch_row *row = running(epochs);
	uint64_t most = (uint64_t)access->samples * (row->announced ? EPOCHS_OVERDUE : 1);

	if (!row->seen++) {
		row->uses = access->uses;
		if (!row->announced)
			row->begin_ms = access->now_ms;
	}
	if (access->now_ms > row->end_ms)
		row->end_ms = access->now_ms;
	row->distinct += is_new(epochs, access->slot);
	if (epochs_picks(epochs, access->slot))
		keep(epochs, access->slot, access->score);
	return access->samples && row->seen >= most;
}

/* --- rows ---------------------------------------------------------------------------------------
 */

static struct epoch_counters difference(const struct epoch_counters *now,
					const struct epoch_counters *before)
{
	struct epoch_counters grown;

	for (unsigned i = 0; i < EPOCH_COUNTERS; i++)
		grown.values[i] = now->values[i] - before->values[i];
	return grown;
}

/* The share that makes an epoch of `samples` accesses fit. */
static uint64_t threshold_for(uint32_t samples)
{
	return samples <= ENTRIES_PLANNED ? EPOCHS_EVERY : EPOCHS_EVERY / samples * ENTRIES_PLANNED;
}

void epochs_end(struct epochs *epochs, const struct epoch_counters *counters, uint32_t samples)
{
	struct epoch_row *row = running(epochs);

	row->grown = difference(counters, &row->grown);
	row->samples = samples;
	row->running = false;
	epochs->serial++;
	*running(epochs) = (struct epoch_row){ .serial = epochs->serial,
					       .epoch = epochs->serial,
					       .running = true,
					       .begin_ms = row->end_ms,
					       .end_ms = row->end_ms,
					       .threshold = threshold_for(samples),
					       .grown = *counters };
	if (epochs->words)
		memset(epochs->seen, 0, epochs->words * sizeof(*epochs->seen));
}

void epochs_leave(struct epochs *epochs, const struct epoch_counters *counters, uint32_t samples)
{
	if (running(epochs)->seen || running(epochs)->announced)
		epochs_end(epochs, counters, samples);
	running(epochs)->grown = *counters;
	epochs->order_count = 0;
}

/* The order that was announced for the row that begins, and those that nobody will ask for. */
static void take_order(struct epochs *epochs, struct epoch_row *row)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < epochs->order_count; i++) {
		const struct epoch_order *order = &epochs->orders[i];

		if (order->job == row->job && order->epoch == row->epoch) {
			row->ordered = true;
			row->mark = order->mark;
		} else {
			epochs->orders[kept++] = *order;
		}
	}
	epochs->order_count = kept;
}

void epochs_begin(struct epochs *epochs, uint32_t job, uint64_t epoch,
		  const struct epoch_counters *counters, uint32_t samples, uint64_t now_ms)
{
	struct epoch_row *row = running(epochs);

	if (row->announced && row->job == job && row->epoch == epoch)
		return;
	if (row->seen)
		epochs_end(epochs, counters, samples);
	row = running(epochs);
	row->announced = true;
	row->ordered = false;
	row->job = job;
	row->epoch = epoch;
	row->begin_ms = row->end_ms = now_ms;
	row->threshold = threshold_for(samples);
	take_order(epochs, row);
}

/* A training may think better of the rest of an order: the epoch was known since the first. */
void epochs_order(struct epochs *epochs, uint32_t job, uint64_t epoch)
{
	struct epoch_row *row = running(epochs);
	struct epoch_mark mark = { row->serial, row->entries };
	struct epoch_order *orders = epochs->orders;
	unsigned at = 0;

	if (row->announced && row->job == job && row->epoch == epoch) {
		if (!row->ordered)
			row->mark = mark;
		row->ordered = true;
		return;
	}
	while (at < epochs->order_count && (orders[at].job != job || orders[at].epoch != epoch))
		at++;
	if (at < epochs->order_count)
		return;
	if (at == EPOCHS_ORDERS) {
		memmove(orders, orders + 1, (EPOCHS_ORDERS - 1) * sizeof(*orders));
		at--;
	} else {
		epochs->order_count++;
	}
	orders[at] = (struct epoch_order){ .epoch = epoch, .job = job, .mark = mark };
}

struct epoch_row epochs_row(const struct epochs *epochs, uint64_t serial,
			    const struct epoch_counters *counters, uint32_t samples)
{
	struct epoch_row row;

	assert(serial <= epochs->serial && serial >= epochs_first(epochs));
	row = *row_at(epochs, serial);
	if (row.running && counters)
		row.grown = difference(counters, &row.grown);
	if (row.running)
		row.samples = samples;
	return row;
}
