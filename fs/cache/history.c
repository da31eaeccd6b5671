/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The record of epochs: what of the cache goes into it, and copies of it that show one moment. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "cache/internal.h"

/* --- counters -----------------------------------------------------------------------------------
 */

/* The first job stands for nobody, too. */
static struct job_record *record_of_locked(struct cache *cache, uint32_t job)
{
	lock_assert_held(&cache->lock);
	return &cache->jobs[job < SCHED_JOBS_MAX ? job : 0];
}

void history_count_locked(struct cache *cache, uint32_t job, enum epoch_counter which,
			  uint64_t more)
{
	lock_assert_held(&cache->lock);
	record_of_locked(cache, job)->counts.values[which] += more;
}

/* What a job does is its own; what the mount does for all of them is not told apart. */
struct epoch_counters history_counters_locked(struct cache *cache, uint32_t job, uint64_t now_ms)
{
	struct job_record *record = record_of_locked(cache, job);
	struct epoch_counters counters = record->counts;
	struct sched_stats sched;

	lock_assert_held(&cache->lock);
	sched_get_stats(cache->sched, &sched);
	waits_count(&cache->waits, now_ms);
	waits_count(&record->waits, now_ms);
	counters.values[EPOCH_WAITS] = record->waits.count;
	counters.values[EPOCH_WAIT_MS] = record->waits.wait_ms;
	counters.values[EPOCH_WAITING_MS] = record->waits.waiting_ms;
	counters.values[EPOCH_EVICTIONS] = sched.evictions;
	counters.values[EPOCH_RECLAIMED] = cache->stats.reclaimed;
	counters.values[EPOCH_LIMITED_MS] = cache->waits.limited_ms;
	counters.values[EPOCH_LIMITED_BYTES] = cache->waits.limited_bytes;
	return counters;
}

void cache_get_job_figures(struct cache *cache, uint32_t job, struct cache_job_figures *figures)
{
	uint64_t now_ms = clock_now_ms();
	const struct job_record *record;

	lock_acquire(&cache->lock);
	record = record_of_locked(cache, job);
	*figures = (struct cache_job_figures){
		.counters = history_counters_locked(cache, job, now_ms),
		.hit_s = cache->options.observed ? PACE_HIT_NATIVE_S : PACE_HIT_PORTABLE_S,
		.step_s = pace_step_s(&record->pace),
		.benefit = pace_benefit(&record->pace),
	};
	for (unsigned i = 0; i < EPOCH_COUNTERS; i++)
		figures->counters.values[i] -= record->begin.values[i];
	if (record->pace.misses)
		figures->miss_s = figures->hit_s + record->pace.wait_s;
	lock_release(&cache->lock);
}

static uint32_t samples_locked(const struct cache *cache)
{
	lock_assert_held(&cache->lock);
	return cache->numbering.id_count;
}

/* --- what happens -------------------------------------------------------------------------------
 */

/* The record of a job, whose first row runs when it is first heard of. NULL: no memory. */
static struct epochs *epochs_of_locked(struct cache *cache, uint32_t job)
{
	struct job_record *record = record_of_locked(cache, job);
	struct epochs *epochs = &record->epochs;

	lock_assert_held(&cache->lock);
	if (epochs->rows)
		return epochs;
	if (epochs_open(epochs))
		return NULL;
	epochs_leave(epochs, &record->begin, 0);
	epochs_reserve(epochs, cache->slots.room);
	return epochs;
}

void history_reserve_locked(struct cache *cache, uint32_t slots)
{
	lock_assert_held(&cache->lock);
	for (uint32_t job = 0; job < SCHED_JOBS_MAX; job++)
		if (cache->jobs[job].epochs.rows)
			epochs_reserve(&cache->jobs[job].epochs, slots);
}

void history_free(struct cache *cache)
{
	for (uint32_t job = 0; job < SCHED_JOBS_MAX; job++)
		epochs_close(&cache->jobs[job].epochs);
}

/* The row of the job that had the number before is over. */
void history_job_locked(struct cache *cache, uint32_t job, uint64_t now_ms)
{
	struct job_record *record = record_of_locked(cache, job);
	struct epoch_counters counters = history_counters_locked(cache, job, now_ms);

	lock_assert_held(&cache->lock);
	record->uses = 0;
	record->read_ms = 0;
	record->pace = (struct pace){ 0 };
	record->begin = counters;
	if (record->epochs.rows)
		epochs_leave(&record->epochs, &counters, samples_locked(cache));
}

void history_access_locked(struct cache *cache, uint32_t job, uint32_t slot, uint64_t now_ms)
{
	struct epochs *epochs = epochs_of_locked(cache, job);
	struct epoch_access access = { .slot = slot,
				       .score = -1,
				       .uses = record_of_locked(cache, job)->uses,
				       .samples = samples_locked(cache),
				       .now_ms = now_ms - cache->created_ms };

	lock_assert_held(&cache->lock);
	if (!epochs)
		return;
	if (epochs_picks(epochs, slot))
		access.score = sched_get_score(cache->sched, job, slot);
	if (epochs_access(epochs, &access)) {
		struct epoch_counters counters = history_counters_locked(cache, job, now_ms);

		epochs_end(epochs, &counters, access.samples);
	}
}

void history_epoch_locked(struct cache *cache, uint32_t job, uint64_t epoch, uint64_t now_ms)
{
	struct epochs *epochs = epochs_of_locked(cache, job);
	struct epoch_counters counters = history_counters_locked(cache, job, now_ms);

	lock_assert_held(&cache->lock);
	if (epochs)
		epochs_begin(epochs, job, epoch, &counters, samples_locked(cache),
			     now_ms - cache->created_ms);
}

void history_order_locked(struct cache *cache, uint32_t job, uint64_t epoch)
{
	struct epochs *epochs = epochs_of_locked(cache, job);

	lock_assert_held(&cache->lock);
	if (epochs)
		epochs_order(epochs, job, epoch);
}

/* --- copies -------------------------------------------------------------------------------------
 */

/* The mount's own record has a row from its begin on, which says nothing while only others read. */
static bool is_blank(const struct epoch_row *row)
{
	return row->running && !row->announced && !row->seen;
}

/* The rows of all jobs. Returns how many. */
static uint32_t copy_rows_locked(struct cache *cache, struct epoch_row *rows, uint64_t now_ms)
{
	uint32_t count = 0;

	lock_assert_held(&cache->lock);
	for (uint32_t job = 0; job < SCHED_JOBS_MAX; job++) {
		const struct epochs *epochs = &cache->jobs[job].epochs;
		struct epoch_counters counters = history_counters_locked(cache, job, now_ms);

		for (uint64_t serial = epochs->rows ? epochs_first(epochs) : 1;
		     serial <= epochs->serial; serial++) {
			rows[count] = epochs_row(epochs, serial, &counters, samples_locked(cache));
			rows[count].job = job;
			if (!is_blank(&rows[count]) || !job)
				count++;
		}
	}
	return count;
}

static int compare_begins(const void *a, const void *b)
{
	const struct epoch_row *left = a, *right = b;

	if (left->begin_ms != right->begin_ms)
		return left->begin_ms < right->begin_ms ? -1 : 1;
	if (left->job != right->job)
		return left->job < right->job ? -1 : 1;
	return left->serial < right->serial ? -1 : left->serial > right->serial;
}

static bool all_of_first(const struct epoch_row *rows, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (rows[i].job)
			return false;
	return true;
}

/* Leaves out the mount's blank row if others than job 0 have rows, and all but the latest. */
static uint32_t trim_rows(struct epoch_row *rows, uint32_t count)
{
	bool of_first = all_of_first(rows, count);
	uint32_t kept = 0, over;

	for (uint32_t i = 0; i < count; i++)
		if (!is_blank(&rows[i]) || of_first)
			rows[kept++] = rows[i];
	over = kept > EPOCHS_ROWS ? kept - EPOCHS_ROWS : 0;
	memmove(rows, rows + over, (kept - over) * sizeof(*rows));
	return kept - over;
}

int cache_copy_epochs(struct cache *cache, struct epoch_row **rows, uint32_t *count)
{
	uint64_t now_ms = clock_now_ms();

	*count = 0;
	*rows = calloc((size_t)SCHED_JOBS_MAX * EPOCHS_ROWS, sizeof(**rows));
	if (!*rows)
		return -ENOMEM;
	lock_acquire(&cache->lock);
	*count = copy_rows_locked(cache, *rows, now_ms);
	lock_release(&cache->lock);
	qsort(*rows, *count, sizeof(**rows), compare_begins);
	*count = trim_rows(*rows, *count);
	return 0;
}

/* A slot as the trace shows it. False: its file has no number, or is gone. */
static bool show_slot_locked(const struct cache *cache, uint32_t slot, uint32_t *id, uint64_t *size)
{
	const struct node *node = cache_node_locked(cache, slot);

	lock_assert_held(&cache->lock);
	*id = numbering_id(&cache->numbering, slot);
	*size = node ? cache_memory_of(cache, node) : 0;
	return node && *id != ID_NONE;
}

static void add_row_locked(const struct cache *cache, const struct epochs *epochs,
			   struct cache_history *history, uint64_t serial)
{
	const struct epoch_entry *entries = epochs_entries(epochs, serial);
	struct epoch_row row = epochs_row(epochs, serial, NULL, samples_locked(cache));
	uint32_t before = history->access_count;

	lock_assert_held(&cache->lock);
	for (uint32_t i = 0; i < row.entries; i++) {
		struct cache_history_access access = { .score = entries[i].score, .entry = i };

		if (epochs_hashes_below(entries[i].slot, history->threshold) &&
		    show_slot_locked(cache, entries[i].slot, &access.id, &access.size))
			history->accesses[history->access_count++] = access;
	}
	history->rows[history->row_count] = row;
	history->first_access[history->row_count++] = before;
	history->first_access[history->row_count] = history->access_count;
}

/* What all samples take, and those of them whose accesses are kept. */
static void add_sizes_locked(const struct cache *cache, struct cache_history *history)
{
	const struct numbering *numbering = &cache->numbering;

	lock_assert_held(&cache->lock);
	history->samples = numbering->id_count;
	for (uint32_t i = 0; i < numbering->id_count; i++) {
		uint32_t slot = numbering->slots[i], id;
		uint64_t size;

		if (!show_slot_locked(cache, slot, &id, &size))
			continue;
		history->data_bytes += size;
		if (epochs_hashes_below(slot, history->threshold)) {
			history->picked_bytes += size;
			history->picked++;
		}
	}
}

/* A trace is one training's: that of the job which was read for last. */
static uint32_t latest_job_locked(const struct cache *cache)
{
	uint32_t latest = 0;

	lock_assert_held(&cache->lock);
	for (uint32_t job = 1; job < SCHED_JOBS_MAX; job++)
		if (cache->jobs[job].epochs.rows &&
		    cache->jobs[job].pace.last_ms > cache->jobs[latest].pace.last_ms)
			latest = job;
	return latest;
}

static void copy_history_locked(const struct cache *cache, struct cache_history *history)
{
	const struct epochs *epochs = &cache->jobs[latest_job_locked(cache)].epochs;
	uint64_t first = epochs_first_traced(epochs);

	lock_assert_held(&cache->lock);
	history->threshold = EPOCHS_EVERY;
	for (uint64_t serial = first; serial <= epochs->serial; serial++) {
		struct epoch_row row = epochs_row(epochs, serial, NULL, 0);

		if (row.seen && row.threshold < history->threshold)
			history->threshold = row.threshold;
	}
	for (uint64_t serial = first; serial <= epochs->serial; serial++)
		add_row_locked(cache, epochs, history, serial);
	add_sizes_locked(cache, history);
	history->capacity_bytes = cache->options.capacity_bytes - cache->options.inflight_bytes;
}

int cache_copy_history(struct cache *cache, struct cache_history **out)
{
	struct cache_history *history = calloc(1, sizeof(*history));

	*out = history;
	if (!history)
		return -ENOMEM;
	lock_acquire(&cache->lock);
	copy_history_locked(cache, history);
	lock_release(&cache->lock);
	return 0;
}
