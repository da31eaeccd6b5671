/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Trainings that read one shared order: who begins where, and that each reads each sample once. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "control/group.h"

static struct group group;

static void setup(void)
{
	strcpy(group.name, "sweep");
}

static void teardown(void)
{
	group_clear(&group);
}

TestSuite(groups, .init = setup, .fini = teardown);

/* A permutation of 0 to count - 1 that depends on the epoch. */
static int put_shuffled(uint64_t epoch, uint32_t count)
{
	struct group_order order = { epoch, count, malloc(count * sizeof(uint32_t)),
				     malloc(count * sizeof(float)) };
	uint32_t random = (uint32_t)epoch * 7919 + 1;

	for (uint32_t i = 0; i < count; i++)
		order.ids[i] = i;
	for (uint32_t i = count; i-- > 1;) {
		uint32_t other, id = order.ids[i];

		random = random * 1664525 + 1013904223;
		other = (random >> 8) % (i + 1);
		order.ids[i] = order.ids[other];
		order.ids[other] = id;
	}
	/* A weight goes where its entry goes. */
	for (uint32_t i = 0; i < count; i++)
		order.weights[i] = (float)order.ids[i] / 2;
	return group_put(&group, &order);
}

static int put_these(uint64_t epoch, const uint32_t *ids, uint32_t count)
{
	struct group_order order = { epoch, count, malloc(count * sizeof(uint32_t)), NULL };

	memcpy(order.ids, ids, count * sizeof(uint32_t));
	return group_put(&group, &order);
}

static struct group_place begin(uint32_t job, uint64_t own_epoch, uint32_t reach)
{
	struct group_place place;

	group_join(&group, job);
	cr_assert_eq(group_begin(&group, job, own_epoch, 0, reach, &place), 0);
	return place;
}

static void cr_assert_place(struct group_place place, uint64_t epoch, uint32_t position)
{
	cr_assert(place.epoch == epoch && place.position == position, "(%lu, %u), not (%lu, %u)",
		  (unsigned long)place.epoch, place.position, (unsigned long)epoch, position);
}

/* What a member that begins there reads. */
static void copy_stretch(struct group_place place, uint32_t *ids)
{
	const struct group_order *first = group_find(&group, place.epoch);
	const struct group_order *second = group_find(&group, place.epoch + 1);
	uint32_t count = first->count - place.position;

	memcpy(ids, first->ids + place.position, count * sizeof(*ids));
	cr_assert(second || !place.position);
	if (place.position)
		memcpy(ids + count, second->ids, place.position * sizeof(*ids));
}

static void cr_assert_each_once(const uint32_t *ids, uint32_t count)
{
	char *seen = calloc(count, 1);

	for (uint32_t i = 0; i < count; i++) {
		cr_assert(ids[i] < count && !seen[ids[i]], "%u comes twice", ids[i]);
		seen[ids[i]] = 1;
	}
	free(seen);
}

Test(groups, names_are_plain_words)
{
	cr_assert(group_is_name("sweep-1.2_b"));
	cr_assert(!group_is_name("") && !group_is_name(".x") && !group_is_name("a/b"));
	cr_assert(!group_is_name("a b") && !group_is_name("\xc3\xa4"));
	cr_assert(
		!group_is_name("0123456789012345678901234567890123456789012345678901234567890123"));
}

Test(groups, the_first_order_of_an_epoch_wins)
{
	uint32_t one[] = { 1, 0, 2 }, other[] = { 2, 1, 0 };

	cr_assert_eq(put_these(0, one, 3), -ERANGE, "nobody reads it");
	cr_assert_place(begin(1, 0, 10), 0, 0);
	cr_assert_place(begin(2, 0, 10), 0, 0);
	cr_assert_eq(put_these(0, one, 3), 0);
	cr_assert_eq(put_these(0, other, 3), -EEXIST);
	cr_assert_eq(memcmp(group_find(&group, 0)->ids, one, sizeof(one)), 0);
	cr_assert_eq(put_these(2, other, 3), -ERANGE, "1 is the next");
	cr_assert_eq(put_these(1, other, 3), 0);
	cr_assert_eq(put_these(2, one, 3), -ERANGE, "nobody has begun 1");
}

Test(groups, the_stream_goes_on_from_what_the_first_says)
{
	struct group_place place;

	group_join(&group, 1);
	cr_assert_eq(group_begin(&group, 1, 5, 17, 3, &place), 0);
	cr_assert_place(place, 17, 0);
	cr_assert_eq(put_shuffled(17, 9), 0);
	/* Who begins an epoch once more begins it where it was. */
	cr_assert_place(begin(1, 5, 3), 17, 0);
	cr_assert_place(begin(1, 6, 3), 18, 0);
}

Test(groups, the_last_three_orders_are_kept)
{
	for (uint64_t epoch = 0; epoch < 5; epoch++) {
		cr_assert_place(begin(1, epoch, 10), epoch, 0);
		cr_assert_eq(put_shuffled(epoch, 20), 0);
	}
	cr_assert(!group_find(&group, 1) && group_find(&group, 2) && group_find(&group, 4));
	/* One that is an epoch too far behind begins where the others are. */
	cr_assert_place(begin(2, 0, 1000), 4, 0);
}

Test(groups, who_starts_a_little_later_starts_at_the_beginning)
{
	begin(1, 0, 100);
	put_shuffled(0, 1000);
	group.members[1].read = 90;
	cr_assert_place(begin(2, 0, 100), 0, 0);
	group.members[1].read = 101;
	cr_assert_place(begin(3, 0, 100), 0, 101);
	group.members[1].read = 1000;
	cr_assert_place(begin(4, 0, 100), 1, 0);
}

Test(groups, a_late_one_reads_each_sample_once)
{
	enum { COUNT = 500 };
	uint32_t ids[COUNT];
	struct group_place late, later;

	begin(1, 0, 50);
	put_shuffled(0, COUNT);
	put_shuffled(1, COUNT); /* drawn ahead, before anybody knew of an offset */
	group.members[1].read = 200;
	late = begin(2, 0, 50);
	cr_assert_place(late, 0, 200);
	group.members[1].read = 330;
	later = begin(3, 0, 50);
	cr_assert_place(later, 0, 330);
	for (uint64_t epoch = 0; epoch < 6; epoch++) {
		copy_stretch(late, ids);
		cr_assert_each_once(ids, COUNT);
		copy_stretch(later, ids);
		cr_assert_each_once(ids, COUNT);
		cr_assert_each_once(group_find(&group, epoch + 1)->ids, COUNT);
		cr_assert_place(begin(1, epoch + 1, COUNT), epoch + 1, 0);
		put_shuffled(epoch + 2, COUNT);
		late = begin(2, epoch + 1, COUNT);
		later = begin(3, epoch + 1, COUNT);
		cr_assert_place(late, epoch + 1, 200);
		cr_assert_place(later, epoch + 1, 330);
	}
}

Test(groups, what_was_told_does_not_change)
{
	enum { COUNT = 400 };
	uint32_t before[COUNT], after[COUNT], ids[COUNT];
	struct group_place late;

	begin(1, 0, 20);
	put_shuffled(0, COUNT);
	put_shuffled(1, COUNT);
	group.members[1].read = 100;
	late = begin(2, 0, 20);
	copy_stretch(late, before);
	group.members[2].read = 200;
	group.members[1].read = 290;
	copy_stretch(begin(3, 0, 5), ids);
	cr_assert_place(group.members[3].begin, 0, 300);
	cr_assert_each_once(ids, COUNT);
	copy_stretch(late, after);
	cr_assert_eq(memcmp(before, after, sizeof(before)), 0);
}

Test(groups, weights_go_with_their_entries_and_the_sequence_stays)
{
	const struct group_order *order;
	uint32_t drawn[300], at = 0;

	begin(1, 0, 20);
	put_shuffled(0, 300);
	put_shuffled(1, 300);
	memcpy(drawn, group_find(&group, 1)->ids, sizeof(drawn));
	group.members[1].read = 120;
	begin(2, 0, 20);
	order = group_find(&group, 1);
	cr_assert(memcmp(drawn, order->ids, sizeof(drawn)), "it was rearranged");
	for (uint32_t i = 0; i < 300; i++)
		cr_assert_eq(order->weights[i], (float)order->ids[i] / 2);
	/* Within a segment they come as they were drawn. */
	for (uint32_t i = 0; i < 300 && at < 120; i++)
		at += drawn[i] == order->ids[at];
	cr_assert_eq(at, 120);
}

Test(groups, orders_of_other_samples_stay_as_they_were_drawn)
{
	uint32_t first[] = { 0, 0, 1, 2, 3, 4 }, second[] = { 4, 4, 4, 3, 2, 1 };
	uint32_t third[] = { 4, 1, 4, 2, 4, 3 };

	begin(1, 0, 0);
	put_these(0, first, 6);
	group.members[1].read = 3;
	cr_assert_place(begin(2, 0, 0), 0, 3);
	put_these(1, second, 6);
	cr_assert_eq(memcmp(group_find(&group, 1)->ids, second, sizeof(second)), 0);
	/* The same ones equally often: then repeated ones are arranged as well. */
	begin(1, 1, 6);
	begin(2, 1, 6);
	cr_assert_eq(put_these(2, third, 6), 0);
	for (uint32_t i = 0; i < 3; i++)
		cr_assert_eq(group_find(&group, 2)->ids[i], 4, "at %u", i);
}

Test(groups, one_that_is_left_behind_begins_where_the_others_are)
{
	begin(1, 0, 100);
	begin(2, 0, 100);
	put_shuffled(0, 1000);
	begin(1, 1, 1000);
	put_shuffled(1, 1000);
	put_shuffled(2, 1000);
	group.members[2].read = 1000;
	group.members[1].read = 450;
	cr_assert_place(begin(2, 1, 100), 1, 450);
	/* The other one is now alone in front, and goes on. */
	group.members[1].read = 1000;
	group.members[2].read = 300;
	cr_assert_place(begin(1, 2, 100), 2, 0);
	/* Within reach each goes on where it was. */
	group.members[2].read = 1000;
	group.members[1].read = 550;
	cr_assert_place(begin(2, 2, 100), 2, 450);
}

/* The last one that was left behind goes on with what is kept. */
Test(groups, one_that_is_left_behind_does_not_need_the_others)
{
	begin(1, 0, 100);
	begin(2, 0, 100);
	for (uint64_t epoch = 0; epoch < 7; epoch++) {
		begin(1, epoch, 100);
		cr_assert_eq(put_shuffled(epoch, 1000), 0);
	}
	cr_assert(group_leave(&group, 1));
	group.members[2].read = 1000;
	cr_assert_place(begin(2, 1, 100), 4, 0);
	cr_assert_place(begin(2, 1, 100), 4, 0);
	for (uint64_t epoch = 2; epoch < 5; epoch++)
		cr_assert_place(begin(2, epoch, 100), 3 + epoch, 0);
	cr_assert_eq(put_shuffled(7, 1000), 0, "the stream goes on");
}

/* Nor does one that joins when only those are there. */
Test(groups, nobody_follows_one_that_is_left_behind)
{
	begin(1, 0, 100);
	begin(2, 0, 100);
	begin(3, 0, 100);
	for (uint64_t epoch = 0; epoch < 7; epoch++) {
		begin(1, epoch, 100);
		cr_assert_eq(put_shuffled(epoch, 1000), 0);
	}
	cr_assert(group_leave(&group, 1));
	cr_assert_place(begin(4, 0, 100), 7, 0);
	cr_assert_eq(put_shuffled(7, 1000), 0);
	cr_assert(group_leave(&group, 4));
	cr_assert_place(begin(2, 1, 100), 5, 0);
	cr_assert_place(begin(3, 1, 100), 5, 0);
}

/* An order that was never drawn is what comes next, whatever a member calls the epoch. */
Test(groups, who_did_not_draw_its_order_begins_there_again)
{
	begin(1, 0, 10);
	put_shuffled(0, 100);
	cr_assert_place(begin(1, 1, 10), 1, 0);
	cr_assert_place(begin(1, 2, 10), 1, 0);
	cr_assert_eq(put_shuffled(1, 100), 0);
	cr_assert_place(begin(1, 3, 10), 2, 0);
}

Test(groups, who_leaves_is_forgotten)
{
	begin(1, 0, 10);
	begin(2, 0, 10);
	put_shuffled(0, 100);
	group.members[1].read = 60;
	cr_assert(group_leave(&group, 1), "2 is there");
	cr_assert_place(begin(3, 0, 10), 0, 0);
	cr_assert(group_leave(&group, 2));
	cr_assert(!group_leave(&group, 3), "nobody is there");
}

Test(groups, where_a_member_is_goes_around)
{
	begin(1, 0, 10);
	put_shuffled(0, 100);
	put_shuffled(1, 100);
	group.members[1].read = 70;
	begin(2, 0, 10);
	group.members[2].read = 29;
	cr_assert_place(group_where(&group, 2), 0, 99);
	group.members[2].read = 30;
	cr_assert_place(group_where(&group, 2), 1, 0);
	group.members[2].read = 100;
	cr_assert_place(group_where(&group, 2), 1, 70);
}

/* Epochs that leave samples out have other lengths. */
Test(groups, where_a_member_is_in_orders_of_other_lengths)
{
	begin(1, 0, 10);
	put_shuffled(0, 100);
	group.members[1].read = 90;
	cr_assert_place(begin(2, 0, 10), 0, 90);
	put_shuffled(1, 20);
	group.members[2].read = 30;
	cr_assert_place(group_where(&group, 2), 2, 0);
	cr_assert_eq(group_leave(&group, 1), true);
	cr_assert_place(begin(2, 1, 10), 1, 90);
	put_shuffled(2, 100);
	cr_assert_place(group_where(&group, 2), 2, 0);
	group.members[2].read = 85;
	cr_assert_place(group_where(&group, 2), 2, 85);
	cr_assert_place(begin(3, 0, 10), 2, 85);
}
