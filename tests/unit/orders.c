/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Orders as they really come: overtaken, cut short, too short, twice, late. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "helpers.h"

static struct sched_job_stats job_of(const struct sched *s)
{
	struct sched_job_stats job;

	cr_assert_eq(sched_get_job_stats(s, 0, &job), 0);
	return job;
}

static void expect_ahead(const struct sched *s, const uint32_t *expected, uint32_t count)
{
	uint32_t ids[32], found = sched_get_ahead(s, 0, ids, 32);

	cr_assert_eq(found, count, "%u ahead, not %u", found, count);
	for (uint32_t i = 0; i < count; i++)
		cr_assert_eq(ids[i], expected[i], "entry %u is %u", i, ids[i]);
	cr_assert_eq(job_of(s).order_ahead, count);
}

#define AHEAD(s, ...)                                                                              \
	expect_ahead(s, (const uint32_t[]){ __VA_ARGS__ },                                         \
		     sizeof((const uint32_t[]){ __VA_ARGS__ }) / sizeof(uint32_t))

static struct sched *with_order(uint32_t samples, const uint32_t *ids, uint32_t count)
{
	struct sched *s = make_sched(2, "shade", samples);

	cr_assert_eq(sched_order(s, 0, 0, ids, count), 0);
	cr_assert_sound(s);
	return s;
}

Test(orders, readers_overtake)
{
	static const uint32_t order[] = { 0, 1, 2, 3, 1 };
	struct sched *s = with_order(4, order, 5);

	read_one(s, 2);
	AHEAD(s, 0, 1, 3, 1);
	read_one(s, 1);
	AHEAD(s, 0, 3, 1); /* the earlier of the two */
	read_one(s, 0);
	AHEAD(s, 3, 1);
	sched_destroy(s);
}

Test(orders, an_access_outside_the_order_consumes_nothing)
{
	static const uint32_t order[] = { 0, 1 };
	struct sched *s = with_order(3, order, 2);

	read_one(s, 2);
	AHEAD(s, 0, 1);
	read_one(s, 0);
	read_one(s, 0);
	AHEAD(s, 1);
	sched_destroy(s);
}

Test(orders, a_shorter_epoch_drops_the_rest)
{
	static const uint32_t order[] = { 0, 1, 2 }, next[] = { 2, 0 };
	struct sched *s = with_order(3, order, 3);

	cr_assert_eq(sched_order(s, 0, 1, next, 2), 0);
	read_one(s, 0);
	AHEAD(s, 1, 2, 2, 0);
	cr_assert_eq(sched_epoch(s, 0, 1), 0);
	cr_assert_sound(s);
	AHEAD(s, 2, 0);
	cr_assert_eq(job_of(s).epoch, 1);
	sched_destroy(s);
}

/* More is read than was announced: what is ahead already belongs to the next epoch. */
Test(orders, a_longer_epoch_goes_on_into_the_next)
{
	static const uint32_t order[] = { 0 }, next[] = { 1, 0 };
	struct sched *s = with_order(3, order, 1);

	cr_assert_eq(sched_order(s, 0, 1, next, 2), 0);
	read_one(s, 0);
	read_one(s, 2);
	read_one(s, 1);
	cr_assert_eq(sched_epoch(s, 0, 1), 0);
	AHEAD(s, 0);
	sched_destroy(s);
}

/* A read outside the order in the middle of an epoch takes no entry of the next one, or the
 * sample would be an epoch off from then on. */
Test(orders, a_stray_read_does_not_reach_into_the_next_epoch)
{
	uint32_t order[64];
	struct sched *s = make_sched(2, "shade", 64);

	for (uint32_t i = 0; i < 64; i++)
		order[i] = i;
	cr_assert_eq(sched_order(s, 0, 0, order, 64), 0);
	cr_assert_eq(sched_order(s, 0, 1, order, 64), 0);
	read_one(s, 5);
	read_one(s, 5); /* a stray one: the first epoch has hardly begun */
	cr_assert_eq(job_of(s).order_ahead, 127);
	for (uint32_t i = 0; i < 60; i++)
		if (i != 5)
			read_one(s, i);
	read_one(s, 5); /* a worker that is ahead: the first epoch is all but over */
	cr_assert_eq(job_of(s).order_ahead, 128 - 61);
	sched_destroy(s);
}

Test(orders, a_training_that_begins_anew)
{
	static const uint32_t order[] = { 0, 1, 2 };
	struct sched *s = with_order(3, order, 3);

	cr_assert_eq(sched_epoch(s, 0, 9), 0);
	cr_assert_eq(sched_order(s, 0, 10, order, 3), 0);
	cr_assert_eq(sched_order(s, 0, 0, order, 3), -ERANGE); /* late, for all one knows */
	cr_assert_eq(sched_epoch(s, 0, 0), 0);
	cr_assert_eq(job_of(s).order_ahead, 0);
	cr_assert_eq(sched_order(s, 0, 0, order, 2), 0);
	AHEAD(s, 0, 1);
	cr_assert_sound(s);
	sched_destroy(s);
}

Test(orders, one_that_was_read_gives_up_its_place)
{
	static const uint32_t order[] = { 0 };
	struct sched *s = make_sched(2, "shade", 1);

	for (uint64_t epoch = 0; epoch < (uint64_t)3 * SCHED_ORDERS_MAX; epoch++) {
		cr_assert_eq(sched_order(s, 0, epoch, order, 1), 0);
		read_one(s, 0); /* nobody says `epoch` */
	}
	sched_destroy(s);
}

/* A training thinks better of the rest of its epoch. What was read stays read, also where a reader
 * has overtaken others, and what both orders expect next has to be read once. */
Test(orders, what_was_read_of_the_same_beginning_stays_read)
{
	static const uint32_t order[] = { 0, 1, 2, 3, 4 }, better[] = { 0, 1, 2, 4, 4, 0 };
	struct sched *s = with_order(5, order, 5);

	read_one(s, 0);
	read_one(s, 2);
	read_one(s, 4);
	AHEAD(s, 1, 3);
	cr_assert_eq(sched_order(s, 0, 0, better, 6), 0);
	cr_assert_sound(s);
	AHEAD(s, 1, 4, 4, 0);
	sched_destroy(s);
}

/* It died, begins its epoch once more, and announces the same. */
Test(orders, an_epoch_that_begins_once_more_has_all_of_its_order)
{
	static const uint32_t order[] = { 0, 1, 2 };
	struct sched *s = with_order(3, order, 3);

	read_one(s, 0);
	cr_assert_eq(sched_epoch(s, 0, 0), 0);
	AHEAD(s, 1, 2);
	cr_assert_eq(sched_order(s, 0, 0, order, 3), 0);
	cr_assert_sound(s);
	AHEAD(s, 0, 1, 2);
	sched_destroy(s);
}

Test(orders, announcing_again_replaces)
{
	static const uint32_t order[] = { 0, 1, 2 }, other[] = { 2, 2 }, next[] = { 1 };
	struct sched *s = with_order(3, order, 3);

	cr_assert_eq(sched_order(s, 0, 1, next, 1), 0);
	read_one(s, 0);
	cr_assert_eq(sched_order(s, 0, 0, other, 2), 0);
	cr_assert_sound(s);
	AHEAD(s, 2, 2, 1);
	cr_assert_eq(sched_order(s, 0, 0, NULL, 0), 0); /* and withdraws */
	cr_assert_sound(s);
	AHEAD(s, 1);
	sched_destroy(s);
}

Test(orders, are_sorted_by_epoch)
{
	static const uint32_t a[] = { 0 }, b[] = { 1 }, c[] = { 2 };
	struct sched *s = make_sched(2, "shade", 3);

	cr_assert_eq(sched_order(s, 0, 7, c, 1), 0);
	cr_assert_eq(sched_order(s, 0, 3, a, 1), 0);
	cr_assert_eq(sched_order(s, 0, 5, b, 1), 0);
	cr_assert_sound(s);
	AHEAD(s, 0, 1, 2);
	cr_assert_eq(sched_epoch(s, 0, 5), 0);
	AHEAD(s, 1, 2);
	sched_destroy(s);
}

Test(orders, samples_may_come_later_than_an_order)
{
	static const uint32_t order[] = { 0, 1 };
	struct sched *s = with_order(2, order, 2);

	cr_assert_eq(sched_grow(s, 500), 0);
	cr_assert_sound(s);
	read_one(s, 400);
	AHEAD(s, 0, 1);
	sched_destroy(s);
}

Test(orders, coverage_is_distinct_samples_of_the_epoch)
{
	struct sched *s = make_sched(2, "shade", 4);

	read_one(s, 0);
	read_one(s, 0);
	read_one(s, 1);
	cr_assert_eq(job_of(s).covered, 2);
	cr_assert_eq(sched_epoch(s, 0, 1), 0);
	cr_assert_eq(job_of(s).covered, 0);
	read_one(s, 0);
	cr_assert_eq(job_of(s).covered, 1);
	sched_destroy(s);
}

Test(orders, an_unknown_job_is_found_by_what_it_expects)
{
	static const uint32_t far[] = { 1, 1, 0 }, near[] = { 0 };
	struct sched *s = make_sched(2, "shade", 2);
	struct sched_job_stats job_stats;
	struct sched_verdict verdict;
	uint32_t job;

	cr_assert_eq(sched_job_begin(s, &job), 0);
	cr_assert_eq(sched_order(s, 0, 0, far, 3), 0);
	cr_assert_eq(sched_order(s, job, 0, near, 1), 0);
	cr_assert_eq(sched_access(s, SCHED_JOB_ANY, 0, 1, &verdict), 0);
	cr_assert(verdict.job == job && verdict.expected);
	AHEAD(s, 1, 1, 0);
	cr_assert_eq(sched_get_job_stats(s, job, &job_stats), 0);
	cr_assert_eq(job_stats.order_ahead, 0);
	sched_destroy(s);
}

Test(orders, a_known_job_leaves_the_entries_of_others_alone)
{
	static const uint32_t far[] = { 1, 0 }, near[] = { 0 };
	struct sched *s = make_sched(2, "shade", 3);
	struct sched_verdict verdict;
	uint32_t job;

	cr_assert_eq(sched_job_begin(s, &job), 0);
	cr_assert_eq(sched_order(s, 0, 0, far, 2), 0);
	cr_assert_eq(sched_order(s, job, 0, near, 1), 0);
	cr_assert_eq(sched_access(s, job, 1, 1, &verdict), 0);
	cr_assert(verdict.job == job && !verdict.expected);
	AHEAD(s, 1, 0);
	cr_assert_eq(sched_access(s, 0, 0, 1, &verdict), 0);
	cr_assert(verdict.job == 0 && verdict.expected);
	AHEAD(s, 1);
	/* Nobody expects it. */
	cr_assert_eq(sched_access(s, SCHED_JOB_ANY, 2, 1, &verdict), 0);
	cr_assert(verdict.job == 0 && !verdict.expected);
	sched_destroy(s);
}

Test(orders, go_with_their_training)
{
	static const uint32_t first[] = { 0, 1, 2 }, second[] = { 2, 1, 0 };
	struct sched *s = with_order(3, first, 3);

	cr_assert_eq(sched_order(s, 0, 1, second, 3), 0);
	cr_assert_eq(sched_score(s, 0, 2, 5), 0);
	read_one(s, 0);
	cr_assert_gt(job_of(s).order_bytes, 6 * sizeof(uint64_t));
	cr_assert_eq(sched_drop_orders(s, 0), 0);
	cr_assert_sound(s);
	cr_assert_eq(job_of(s).order_ahead, 0);
	cr_assert_eq(job_of(s).order_bytes, 0);
	cr_assert_eq(sched_get_score(s, 0, 2), 5);
	/* It can be told again what comes. */
	cr_assert_eq(sched_order(s, 0, 1, second, 3), 0);
	AHEAD(s, 2, 1, 0);
	cr_assert_eq(sched_drop_orders(s, 1), -ERANGE);
	sched_destroy(s);
}

/* --- what a sample is worth ------------------------------------------------------------------- */

Test(orders, the_sooner_the_more_it_is_worth)
{
	static const uint32_t now[] = { 3, 1, 3, 0 }, next[] = { 2, 3 };
	struct sched *s = with_order(6, now, 4);

	cr_assert_eq(sched_order(s, 0, 1, next, 2), 0);
	cr_assert_eq(sched_score(s, 0, 4, 5), 0);
	cr_assert_float_eq(sched_worth(s, 3, false), 1, 1e-6);
	cr_assert_float_eq(sched_worth(s, 1, false), 1 - 0.25 / 3, 1e-6);
	cr_assert_float_eq(sched_worth(s, 3, true), 1 - 0.5 / 3, 1e-6); /* the second of its uses */
	cr_assert_float_eq(sched_worth(s, 2, false), 2.0 / 3, 1e-6);
	cr_assert_float_eq(sched_worth(s, 4, false), 0.5 / 3, 1e-6); /* the mean of all scores */
	cr_assert_lt(sched_worth(s, 5, false), 0);
	cr_assert_lt(sched_worth(s, 0, true), 0);
	cr_assert_lt(sched_worth(s, 6, false), 0, "there is no such sample");
	read_one(s, 3);
	cr_assert_float_eq(sched_worth(s, 3, false), 1 - 0.5 / 3, 1e-6);
	cr_assert_eq(sched_epoch(s, 0, 1), 0);
	cr_assert_float_eq(sched_worth(s, 2, false), 1, 1e-6);
	cr_assert_lt(sched_worth(s, 1, false), 0, "its epoch is over");
	sched_destroy(s);
}

Test(orders, without_an_order_scores_say_what_it_is_worth)
{
	struct sched *s = make_sched(2, "shade", 4);
	uint32_t job;

	for (uint32_t id = 0; id < 3; id++)
		cr_assert_eq(sched_score(s, 0, id, (float)id), 0);
	cr_assert_float_eq(sched_worth(s, 0, false), 0, 1e-6);
	cr_assert_float_eq(sched_worth(s, 1, false), 0.5 / 3, 1e-6);
	cr_assert_float_eq(sched_worth(s, 2, false), 2.0 / 3 / 3, 1e-6);
	cr_assert_lt(sched_worth(s, 3, false), 0);
	/* Of two trainings the one that needs it more counts. */
	cr_assert_eq(sched_job_begin(s, &job), 0);
	cr_assert_eq(sched_order(s, job, 0, (const uint32_t[]){ 0 }, 1), 0);
	cr_assert_float_eq(sched_worth(s, 0, false), 1, 1e-6);
	sched_destroy(s);
}

/* --- orders that outlive their handle ------------------------------------------------------------
 */

#define BLOCKS 8

struct memory {
	struct {
		void *block; /* NULL: none */
		size_t bytes;
		bool is_kept;
	} blocks[BLOCKS];
};

static unsigned find_block(const struct memory *memory, const void *block)
{
	unsigned i = 0;

	while (memory->blocks[i].block != block)
		cr_assert_lt(++i, BLOCKS);
	return i;
}

static void *get(void *context, size_t bytes)
{
	struct memory *memory = context;
	unsigned i = find_block(memory, NULL);

	memory->blocks[i].block = calloc(1, bytes);
	memory->blocks[i].bytes = bytes;
	memory->blocks[i].is_kept = false;
	return memory->blocks[i].block;
}

static void keep(void *context, void *block)
{
	struct memory *memory = context;

	memory->blocks[find_block(memory, block)].is_kept = true;
}

static void give_back(void *context, void *block)
{
	struct memory *memory = context;

	if (!block)
		return;
	memory->blocks[find_block(memory, block)].block = NULL;
	free(block);
}

static struct sched_memory in(struct memory *memory)
{
	return (struct sched_memory){ get, keep, give_back, memory };
}

/* What there is of `memory` when its daemon dies: blocks that are not kept are lost. */
static struct memory copy_kept(const struct memory *memory)
{
	struct memory copy = { 0 };

	for (unsigned i = 0; i < BLOCKS; i++)
		if (memory->blocks[i].block && memory->blocks[i].is_kept) {
			copy.blocks[i] = memory->blocks[i];
			copy.blocks[i].block = malloc(memory->blocks[i].bytes);
			memcpy(copy.blocks[i].block, memory->blocks[i].block,
			       memory->blocks[i].bytes);
		}
	return copy;
}

static struct sched *with_memory(struct memory *memory, uint32_t samples)
{
	struct sched_memory own = in(memory);
	struct sched *s;

	cr_assert_eq(sched_create(&s, 2, "shade"), 0);
	sched_set_memory(s, &own);
	cr_assert_eq(sched_grow(s, samples), 0);
	return s;
}

static unsigned count_blocks(const struct memory *memory)
{
	unsigned count = 0;

	for (unsigned i = 0; i < BLOCKS; i++)
		count += memory->blocks[i].block != NULL;
	return count;
}

static void adopt_all(struct sched *s, struct memory *memory)
{
	struct memory before = *memory;

	for (unsigned i = BLOCKS; i-- > 0;)
		if (before.blocks[i].block)
			cr_assert_eq(sched_adopt_order(s, before.blocks[i].block), 0);
}

Test(orders, are_adopted_as_far_as_they_were_read)
{
	static const uint32_t first[] = { 0, 1, 2, 3 }, second[] = { 3, 0, 2, 1 };
	struct memory memory = { 0 }, left;
	struct sched *s = with_memory(&memory, 4);
	uint32_t ids[8];

	cr_assert_eq(sched_order(s, 0, 0, first, 4), 0);
	cr_assert_eq(sched_order(s, 0, 1, second, 4), 0);
	read_one(s, 1);
	read_one(s, 0);
	left = copy_kept(&memory);
	sched_destroy(s);
	cr_assert_eq(count_blocks(&memory), 0);
	s = with_memory(&left, 4);
	adopt_all(s, &left);
	cr_assert_sound(s);
	cr_assert_eq(sched_get_ahead(s, 0, ids, 8), 6);
	cr_assert(ids[0] == 2 && ids[1] == 3 && ids[2] == 3 && ids[3] == 0);
	read_one(s, 2);
	AHEAD(s, 3, 3, 0, 2, 1);
	/* A later one of the epoch still replaces it. */
	cr_assert_eq(sched_order(s, 0, 1, first, 4), 0);
	AHEAD(s, 3, 0, 1, 2, 3);
	sched_destroy(s);
	cr_assert_eq(count_blocks(&left), 0);
}

Test(orders, of_two_for_an_epoch_the_later_is_adopted)
{
	static const uint32_t first[] = { 0, 1 }, second[] = { 1, 2 };
	struct memory memory = { 0 }, left, both;
	struct sched *s = with_memory(&memory, 3);

	cr_assert_eq(sched_order(s, 0, 0, first, 2), 0);
	both = copy_kept(&memory);
	cr_assert_eq(sched_order(s, 0, 0, second, 2), 0);
	left = copy_kept(&memory);
	/* It died before the old one was given back: the later one comes first here. */
	for (unsigned i = 0; i < BLOCKS; i++)
		if (left.blocks[i].block) {
			both.blocks[BLOCKS - 1] = left.blocks[i];
			break;
		}
	sched_destroy(s);
	s = with_memory(&both, 3);
	adopt_all(s, &both);
	AHEAD(s, 1, 2);
	cr_assert_eq(count_blocks(&both), 1);
	cr_assert_sound(s);
	sched_destroy(s);
}

Test(orders, what_does_not_fit_is_not_adopted)
{
	static const uint32_t first[] = { 0, 1, 2 };
	struct memory memory = { 0 }, left;
	struct sched *s = with_memory(&memory, 3);

	cr_assert_eq(sched_order(s, 0, 4, first, 3), 0);
	left = copy_kept(&memory);
	sched_destroy(s);
	s = with_memory(&left, 2); /* one sample less */
	adopt_all(s, &left);
	cr_assert_eq(count_blocks(&left), 0);
	expect_ahead(s, NULL, 0);
	cr_assert_sound(s);
	sched_destroy(s);
}
