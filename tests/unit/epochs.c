/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The record of epochs: rows, their ends, distinct samples, and the accesses that are kept. */
#include "cache/epochs.h"

#include <criterion/criterion.h>

static struct epochs epochs;
static struct epoch_counters counters;
static uint32_t samples;
static uint64_t now_ms;

static void begin(uint32_t count)
{
	cr_assert_eq(epochs_open(&epochs), 0);
	epochs_reserve(&epochs, count);
	counters = (struct epoch_counters){ 0 };
	samples = count;
	now_ms = 1000;
}

/* One access a millisecond, each of 10 bytes from the source. */
static void read_sample(uint32_t slot)
{
	struct epoch_access access = { .slot = slot,
				       .score = (float)slot,
				       .uses = 2.5,
				       .samples = samples,
				       .now_ms = now_ms++ };

	counters.values[EPOCH_ACCESSES]++;
	counters.values[EPOCH_BACKEND_BYTES] += 10;
	if (epochs_access(&epochs, &access))
		epochs_end(&epochs, &counters, samples);
}

static void read_samples(uint32_t from, uint32_t end)
{
	for (uint32_t slot = from; slot < end; slot++)
		read_sample(slot);
}

static void announce(uint32_t job, uint64_t epoch)
{
	epochs_begin(&epochs, job, epoch, &counters, samples, now_ms);
}

static struct epoch_row row(uint64_t serial)
{
	return epochs_row(&epochs, serial, &counters, samples);
}

/* The rows that are kept add up to what the counters are, if none has been forgotten. */
static void check_sums(void)
{
	for (unsigned i = 0; i < EPOCH_COUNTERS; i++) {
		uint64_t sum = 0;

		for (uint64_t serial = epochs_first(&epochs); serial <= epochs.serial; serial++)
			sum += row(serial).grown.values[i];
		cr_assert_eq(sum, counters.values[i], "%s: %lu of %lu", epochs_counter_names[i],
			     (unsigned long)sum, (unsigned long)counters.values[i]);
	}
}

Test(epochs, announced_epochs_are_rows)
{
	begin(100);
	counters.values[EPOCH_BACKEND_BYTES] = 7; /* fetched before anybody read */
	announce(0, 5);
	read_samples(0, 60);
	read_samples(0, 20);
	now_ms += 5000; /* a pause is nobody's time */
	announce(0, 6);
	read_samples(0, 100);
	cr_assert_eq(epochs.serial, 1);
	cr_assert(row(0).announced && !row(0).running && row(1).running);
	cr_assert_eq(row(0).epoch, 5);
	cr_assert_eq(row(0).distinct, 60);
	cr_assert_eq(row(0).samples, 100);
	cr_assert_eq(row(0).seen, 80);
	cr_assert_eq(row(0).uses, 2.5);
	cr_assert_eq(row(0).begin_ms, 1000);
	cr_assert_eq(row(0).end_ms, 1079);
	cr_assert_eq(row(0).grown.values[EPOCH_BACKEND_BYTES], 807);
	cr_assert_eq(row(1).begin_ms, 6080);
	cr_assert_eq(row(1).distinct, 100);
	check_sums();
	epochs_close(&epochs);
}

/* Ranks each announce an epoch; a row without accesses is no row. */
Test(epochs, the_same_epoch_again_is_the_same_row)
{
	begin(10);
	announce(0, 1);
	announce(0, 2);
	read_samples(0, 3);
	announce(0, 2);
	read_samples(3, 6);
	cr_assert_eq(epochs.serial, 0);
	cr_assert_eq(row(0).epoch, 2);
	cr_assert_eq(row(0).seen, 6);
	announce(1, 2);
	read_sample(0);
	cr_assert_eq(epochs.serial, 1);
	cr_assert_eq(row(1).job, 1);
	check_sums();
	epochs_close(&epochs);
}

/* The job's number is another training's from then on. */
Test(epochs, a_training_that_has_ended_leaves_its_rows)
{
	begin(10);
	announce(3, 1);
	epochs_order(&epochs, 3, 2);
	read_samples(0, 4);
	counters.values[EPOCH_EVICTIONS] += 5;
	epochs_leave(&epochs, &counters, samples);
	cr_assert_eq(epochs.serial, 1);
	cr_assert(!row(0).running && row(0).epoch == 1);
	cr_assert_eq(row(0).grown.values[EPOCH_EVICTIONS], 5);
	counters.values[EPOCH_EVICTIONS] += 100; /* nobody's */
	epochs_leave(&epochs, &counters, samples);
	cr_assert_eq(epochs.serial, 1, "nothing was read meanwhile");
	announce(3, 2);
	read_samples(0, 2);
	cr_assert(!row(1).ordered, "that was the other training's order");
	cr_assert_eq(row(1).grown.values[EPOCH_EVICTIONS], 0);
	epochs_close(&epochs);
}

Test(epochs, without_announcements_a_row_is_as_many_accesses_as_samples)
{
	begin(50);
	for (unsigned i = 0; i < 3; i++)
		read_samples(0, 50);
	read_samples(0, 7);
	cr_assert_eq(epochs.serial, 3);
	for (unsigned i = 0; i < 3; i++) {
		cr_assert(!row(i).announced);
		cr_assert_eq(row(i).epoch, i);
		cr_assert_eq(row(i).distinct, 50);
		cr_assert_eq(row(i).grown.values[EPOCH_ACCESSES], 50);
	}
	cr_assert_eq(row(3).seen, 7);
	check_sums();
	epochs_close(&epochs);
}

/* Before the scan is complete nobody knows how long an epoch is. */
Test(epochs, unknown_samples_end_no_row)
{
	begin(0);
	epochs_reserve(&epochs, 5000);
	read_samples(0, 5000);
	cr_assert_eq(epochs.serial, 0);
	cr_assert_eq(row(0).distinct, 5000);
	cr_assert_leq(row(0).entries, EPOCHS_ENTRIES);
	cr_assert_gt(row(0).entries, 300);
	epochs_close(&epochs);
}

Test(epochs, a_training_that_has_ended_ends_its_row)
{
	begin(10);
	announce(0, 89);
	for (unsigned i = 0; i < EPOCHS_OVERDUE + 2; i++)
		read_samples(0, 10);
	cr_assert_eq(epochs.serial, 3);
	cr_assert_eq(row(0).seen, UINT64_C(10) * EPOCHS_OVERDUE);
	cr_assert(row(0).announced && !row(1).announced && !row(2).announced);
	cr_assert_eq(row(1).job, 0);
	check_sums();
	epochs_close(&epochs);
}

Test(epochs, the_record_is_bounded)
{
	begin(4);
	for (unsigned i = 0; i < 3 * EPOCHS_ROWS; i++) {
		announce(0, i);
		read_samples(0, 2);
	}
	cr_assert_eq(epochs.serial - epochs_first(&epochs) + 1, EPOCHS_ROWS);
	cr_assert_eq(epochs.serial - epochs_first_traced(&epochs) + 1, EPOCHS_TRACED);
	cr_assert_eq(row(epochs_first(&epochs)).epoch, UINT64_C(2) * EPOCHS_ROWS);
	cr_assert_eq(row(epochs_first(&epochs)).distinct, 2);
	cr_assert_eq(epochs_entries(&epochs, epochs_first_traced(&epochs))[1].slot, 1);
	epochs_close(&epochs);
}

Test(epochs, of_few_samples_every_access_is_kept)
{
	begin(700);
	announce(0, 0);
	for (uint32_t i = 0; i < 700; i++)
		read_sample(i * 3 % 700);
	cr_assert_eq(row(0).threshold, EPOCHS_EVERY);
	cr_assert_eq(row(0).entries, 700);
	for (uint32_t i = 0; i < 700; i++) {
		cr_assert_eq(epochs_entries(&epochs, 0)[i].slot, i * 3 % 700);
		cr_assert_eq(epochs_entries(&epochs, 0)[i].score, (float)(i * 3 % 700));
	}
	epochs_close(&epochs);
}

/* Of a sample all accesses are kept or none, in every row; and the share is as told. */
static void check_sampling(uint64_t serial, uint32_t reads_of_each)
{
	const struct epoch_row found = row(serial);
	const struct epoch_entry *entries = epochs_entries(&epochs, serial);
	uint32_t *counts = calloc(samples, sizeof(*counts)), picked = 0;

	cr_assert_leq(found.entries, EPOCHS_ENTRIES);
	for (uint32_t i = 0; i < found.entries; i++)
		counts[entries[i].slot]++;
	for (uint32_t slot = 0; slot < samples; slot++) {
		bool below = epochs_hashes_below(slot, found.threshold);

		picked += below;
		cr_assert_eq(counts[slot], below ? reads_of_each : 0, "slot %u", slot);
	}
	cr_assert_float_eq(picked, (double)samples * (double)found.threshold / EPOCHS_EVERY,
			   5 * 32);
	cr_assert_gt(found.entries, EPOCHS_ENTRIES / 3);
	free(counts);
}

Test(epochs, of_many_samples_some_are_followed)
{
	begin(100000);
	announce(0, 0);
	read_samples(0, 100000);
	announce(0, 1);
	read_samples(0, 100000);
	announce(0, 2);
	for (unsigned i = 0; i < 3; i++)
		read_samples(0, 100000);
	check_sampling(0, 1);
	check_sampling(1, 1);
	check_sampling(2, 3);
	cr_assert_eq(row(0).threshold, row(1).threshold);
	cr_assert_lt(row(2).threshold, row(1).threshold); /* thinned out: it had too many */
	epochs_close(&epochs);
}

/* One sample, read over and over, must not make a row endless. */
Test(epochs, one_sample_for_ever_stays_bounded)
{
	begin(1000000);
	announce(0, 0);
	for (unsigned i = 0; i < 100000; i++)
		read_sample(12345);
	for (uint32_t slot = 0; slot < 3000; slot++) /* whichever slot hashes lowest */
		for (unsigned i = 0; i < 5; i++)
			read_sample(slot);
	cr_assert_leq(row(0).entries, EPOCHS_ENTRIES);
	cr_assert_eq(row(0).distinct, 3001);
	epochs_close(&epochs);
}

Test(epochs, orders_are_marked_where_they_became_known)
{
	begin(100);
	epochs_order(&epochs, 0, 0);
	announce(0, 0);
	read_samples(0, 40);
	epochs_order(&epochs, 0, 1);
	epochs_order(&epochs, 1, 2); /* of another job */
	read_samples(40, 100);
	announce(0, 1);
	read_samples(0, 10);
	announce(0, 2);
	read_samples(0, 10);
	epochs_order(&epochs, 0, 2);
	read_samples(10, 20);
	announce(1, 2);
	read_sample(0);
	cr_assert(row(0).ordered && row(0).mark.serial == 0 && row(0).mark.entries == 0);
	cr_assert(row(1).ordered && row(1).mark.serial == 0 && row(1).mark.entries == 40);
	cr_assert(row(2).ordered && row(2).mark.serial == 2 && row(2).mark.entries == 10);
	cr_assert(row(3).ordered && row(3).mark.serial == 0 && row(3).mark.entries == 40);
	announce(0, 3);
	read_sample(0);
	cr_assert(!row(4).ordered);
	epochs_close(&epochs);
}

/* A training that draws the rest of its epoch anew announces this order and the next once more. */
Test(epochs, an_order_that_is_announced_again_was_known_before)
{
	begin(100);
	announce(0, 0);
	epochs_order(&epochs, 0, 0);
	epochs_order(&epochs, 0, 1);
	read_samples(0, 50);
	epochs_order(&epochs, 0, 0);
	epochs_order(&epochs, 0, 1);
	read_samples(50, 100);
	announce(0, 1);
	read_sample(0);
	cr_assert(row(0).ordered && row(0).mark.entries == 0);
	cr_assert(row(1).ordered && row(1).mark.serial == 0 && row(1).mark.entries == 0);
	epochs_close(&epochs);
}

/* What is thinned out moves the marks with it. */
Test(epochs, marks_follow_when_entries_go)
{
	uint32_t before = 0;

	begin(0);
	epochs_reserve(&epochs, 3000);
	read_samples(0, 500);
	epochs_order(&epochs, 0, 1);
	read_samples(500, 3000);
	announce(0, 1);
	read_sample(0);
	for (uint32_t slot = 0; slot < 500; slot++)
		before += epochs_hashes_below(slot, row(0).threshold);
	cr_assert_lt(row(0).threshold, EPOCHS_EVERY);
	cr_assert(row(1).ordered && row(1).mark.serial == 0);
	cr_assert_eq(row(1).mark.entries, before);
	epochs_close(&epochs);
}

/* More orders than are remembered: the oldest are forgotten. */
Test(epochs, orders_are_bounded)
{
	begin(10);
	for (uint64_t epoch = 0; epoch < UINT64_C(3) * EPOCHS_ORDERS; epoch++)
		epochs_order(&epochs, 0, epoch);
	announce(0, 0);
	cr_assert(!row(0).ordered);
	announce(0, UINT64_C(3) * EPOCHS_ORDERS - 1);
	cr_assert(row(0).ordered);
	announce(0, UINT64_C(2) * EPOCHS_ORDERS);
	cr_assert(row(0).ordered);
	epochs_close(&epochs);
}
