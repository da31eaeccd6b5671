/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which part of a permutation the ranks of this machine read.
 *
 * Ranks are not told apart by their processes but by what they read: successive reads of one worker
 * are as many places apart as there are ranks, and the remainder is the rank. What is the same set
 * of positions counts as the same layout: workers that get one sample at a time look like more
 * ranks, and a machine that has all ranks reads everything, whoever reads what.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "shade/shuffle.h"

#define REPEATS 3	       /* of SHUFFLE_REPEATED */
#define REPEATED_ROUND 256     /* its epochs are cut to a multiple of this */
#define REPEATED_WORLD_MAX 256 /* ranks that are tried */
#define REPEATED_STEPS 6       /* successive ones that must fit */
#define STEPS_MAX 1024	       /* that are looked at */
#define BATCHES_STEPS 256      /* before gaps between batches mean anything */
#define BATCHES_WORLD_MAX 256

/* --- bits ----------------------------------------------------------------------------------------
 */

static bool is_local(const struct shuffle_layout *layout, uint64_t rank)
{
	return layout->local[rank / 64] >> rank % 64 & 1;
}

static void set_local(struct shuffle_layout *layout, uint64_t rank)
{
	layout->local[rank / 64] |= (uint64_t)1 << rank % 64;
}

unsigned shuffle_layout_ranks(const struct shuffle_layout *layout)
{
	unsigned count = 0;

	for (uint32_t rank = 0; rank < layout->world; rank++)
		count += is_local(layout, rank);
	return count;
}

const char *shuffle_kind_name(enum shuffle_kind kind)
{
	static const char *const names[] = { [SHUFFLE_TURNS] = "DistributedSampler",
					     [SHUFFLE_BATCHES] = "accelerate",
					     [SHUFFLE_REPEATED] = "RepeatAugSampler" };

	return names[kind];
}

/* --- positions -----------------------------------------------------------------------------------
 */

static uint64_t round_up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) / unit * unit;
}

uint64_t shuffle_layout_positions(const struct shuffle_layout *layout, uint32_t n)
{
	uint64_t count = 0;

	switch (layout->kind) {
	case SHUFFLE_TURNS: /* the last turn is filled up from the beginning */
		count = layout->world ? round_up(n, layout->world) : 0;
		break;
	case SHUFFLE_BATCHES:
		count = round_up(n, (uint64_t)layout->world * layout->batch);
		break;
	case SHUFFLE_REPEATED:
		count = (uint64_t)n / REPEATED_ROUND * REPEATED_ROUND;
		count -= count % layout->world;
		break;
	}
	return layout->end && layout->end < count ? layout->end : count;
}

bool shuffle_layout_at(const struct shuffle_layout *layout, uint32_t n, uint64_t position,
		       uint32_t *place)
{
	uint64_t turn = position;

	if (!layout->world)
		return false;
	if (layout->kind == SHUFFLE_BATCHES)
		turn /= layout->batch;
	*place = (uint32_t)((layout->kind == SHUFFLE_REPEATED ? position / REPEATS : position) % n);
	return is_local(layout, turn % layout->world);
}

/* --- steps, thread by thread
 * ---------------------------------------------------------------------- */

static int by_thread(const void *a, const void *b)
{
	const struct shuffle_step *x = a, *y = b;

	if (x->thread != y->thread)
		return x->thread < y->thread ? -1 : 1;
	return (x->place > y->place) - (x->place < y->place);
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* The value that comes most often, the smallest of several; sorts them. */
static uint32_t most_frequent(uint32_t *values, uint32_t count, uint32_t *times)
{
	uint32_t best = 0, run = 0;

	*times = 0;
	qsort(values, count, sizeof(*values), by_value);
	for (uint32_t i = 0; i < count; i++) {
		run = i && values[i] == values[i - 1] ? run + 1 : 1;
		if (run > *times) {
			*times = run;
			best = values[i];
		}
	}
	return best;
}

/* How far apart successive places of one thread are. */
static uint32_t distances(const struct shuffle_step *steps, uint32_t count, uint32_t *distance)
{
	uint32_t pairs = 0;

	for (uint32_t i = 1; i < count; i++)
		if (steps[i].thread == steps[i - 1].thread && steps[i].place > steps[i - 1].place)
			distance[pairs++] = steps[i].place - steps[i - 1].place;
	return pairs;
}

/* The first step of the next thread. */
static uint32_t thread_end(const struct shuffle_step *steps, uint32_t count, uint32_t begin)
{
	uint32_t end = begin;

	while (end < count && steps[end].thread == steps[begin].thread)
		end++;
	return end;
}

/* --- turns ---------------------------------------------------------------------------------------
 */

/* The number of ranks, or 0. */
static uint32_t find_world(const struct shuffle_step *steps, uint32_t count)
{
	uint32_t distance[STEPS_MAX], pairs = distances(steps, count, distance), times, fits = 0;
	uint32_t world = most_frequent(distance, pairs, &times);

	if (pairs < 4 || world > SHUFFLE_WORLD_MAX || times * 5 < pairs * 2)
		return 0;
	for (uint32_t i = 0; i < pairs; i++)
		fits += distance[i] % world == 0;
	return fits * 4 >= pairs * 3 ? world : 0;
}

/* A thread reads for one rank. */
static void learn_turns(struct shuffle_layout *layout, const struct shuffle_step *steps,
			uint32_t count, uint32_t world)
{
	*layout = (struct shuffle_layout){ .kind = SHUFFLE_TURNS, .world = world };
	for (uint32_t begin = 0, end; begin < count; begin = end) {
		uint32_t rests[STEPS_MAX], times, rest;

		end = thread_end(steps, count, begin);
		for (uint32_t i = begin; i < end; i++)
			rests[i - begin] = steps[i].place % world;
		rest = most_frequent(rests, end - begin, &times);
		if (times >= 2 && times * 4 >= (end - begin) * 3)
			set_local(layout, rest);
	}
	if (world == 1)
		set_local(layout, 0);
}

/* --- batches -------------------------------------------------------------------------------------
 */

/* Places that one thread has read in a row. */
struct runs {
	uint32_t first[STEPS_MAX], length[STEPS_MAX];
	uint32_t count;
	uint32_t frontier; /* before this, everything was read that is read here */
};

/* The last run of each thread may go on. */
static void find_runs(struct runs *runs, const struct shuffle_step *steps, uint32_t count)
{
	runs->count = 0;
	runs->frontier = UINT32_MAX;
	for (uint32_t begin = 0, end; begin < count; begin = end) {
		uint32_t first = begin;

		end = thread_end(steps, count, begin);
		for (uint32_t i = begin + 1; i < end; i++) {
			if (steps[i].place == steps[i - 1].place + 1)
				continue;
			runs->first[runs->count] = steps[first].place;
			runs->length[runs->count++] = i - first;
			first = i;
		}
		if (steps[first].place < runs->frontier)
			runs->frontier = steps[first].place;
	}
}

/* The size of a batch, or 0: runs are that long, and begin where batches do. */
static uint32_t find_batch(const struct runs *runs)
{
	uint32_t lengths[STEPS_MAX], times, fits = 0, batch;

	memcpy(lengths, runs->length, runs->count * sizeof(*lengths));
	batch = most_frequent(lengths, runs->count, &times);
	if (runs->count < 4 || times * 5 < runs->count * 3)
		return 0;
	for (uint32_t i = 0; i < runs->count; i++)
		fits += runs->first[i] % batch == 0;
	return fits * 5 >= runs->count * 4 ? batch : 0;
}

/* Whether, with so many ranks, all batches of those that read here were read. */
static bool world_fits(const struct runs *runs, uint32_t batch, uint32_t world,
		       struct shuffle_layout *layout)
{
	uint32_t end = runs->frontier / batch, begin = end, done = 0, expected = 0;

	*layout =
		(struct shuffle_layout){ .kind = SHUFFLE_BATCHES, .world = world, .batch = batch };
	for (uint32_t i = 0; i < runs->count; i++) {
		uint32_t number = runs->first[i] / batch;

		if (number >= end || runs->first[i] % batch)
			continue;
		set_local(layout, number % world);
		begin = number < begin ? number : begin;
		done++;
	}
	for (uint32_t number = begin; number < end; number++)
		expected += is_local(layout, number % world);
	return end - begin >= 2 * world && end - begin >= 8 && done * 20 >= expected * 19;
}

/* Successive places: one rank, or all of them here, or batches that go round machines. */
static void learn_batches(struct shuffle_layout *layout, const struct shuffle_step *steps,
			  uint32_t count)
{
	struct runs runs;
	uint32_t batch = 0;

	if (count >= BATCHES_STEPS) {
		find_runs(&runs, steps, count);
		batch = find_batch(&runs);
	}
	for (uint32_t world = 1; batch > 1 && world <= BATCHES_WORLD_MAX; world++)
		if (world_fits(&runs, batch, world, layout)) {
			if (world > 1)
				return;
			break;
		}
	learn_turns(layout, steps, count, 1);
}

/* --- each three times
 * ----------------------------------------------------------------------------- */

/* Whether successive places are those of one rank; `phase`: which of the three the first one is. */
static bool repeats_fit(const struct shuffle_step *steps, uint32_t world, uint32_t phase)
{
	for (uint32_t i = 1; i < REPEATED_STEPS; i++)
		if (steps[i].thread != steps[0].thread ||
		    steps[i].place - steps[0].place != (phase + world * i) / REPEATS)
			return false;
	return true;
}

static uint32_t count_fits(const struct shuffle_step *steps, uint32_t count, uint32_t world)
{
	uint32_t fits = 0;

	for (uint32_t i = 0; i + REPEATED_STEPS <= count; i++)
		for (uint32_t phase = 0; phase < REPEATS; phase++)
			if (repeats_fit(steps + i, world, phase)) {
				fits++;
				break;
			}
	return fits;
}

static void learn_repeated(struct shuffle_layout *layout, const struct shuffle_step *steps,
			   uint32_t count)
{
	uint32_t world = 1, most = 0;

	for (uint32_t tried = 1; tried <= REPEATED_WORLD_MAX; tried++) {
		uint32_t fits = count_fits(steps, count, tried);

		if (fits > most) {
			most = fits;
			world = tried;
		}
	}
	*layout = (struct shuffle_layout){ .kind = SHUFFLE_REPEATED, .world = world };
	for (uint32_t i = 0; most && i + REPEATED_STEPS <= count; i++)
		for (uint32_t phase = 0; phase < REPEATS; phase++)
			if (repeats_fit(steps + i, world, phase))
				set_local(layout,
					  ((uint64_t)steps[i].place * REPEATS + phase) % world);
	if (!most)
		set_local(layout, 0);
}

/* Whether samples come several times, as no other sampler has them. */
static bool is_repeated(const struct shuffle_step *steps, uint32_t count)
{
	uint32_t places[STEPS_MAX], again = 0;

	for (uint32_t i = 0; i < count; i++)
		places[i] = steps[i].place;
	qsort(places, count, sizeof(*places), by_value);
	for (uint32_t i = 1; i < count; i++)
		again += places[i] == places[i - 1];
	return count >= 32 && again * 10 > count;
}

/* --- learning ------------------------------------------------------------------------------------
 */

/* Ranks that were seen before have not gone. */
static bool extend(struct shuffle_layout *layout, struct shuffle_layout *fresh)
{
	bool changed = false;

	if (fresh->kind != layout->kind || fresh->world != layout->world ||
	    fresh->batch != layout->batch) {
		*layout = *fresh;
		return true;
	}
	for (unsigned i = 0; i < SHUFFLE_WORLD_MAX / 64; i++) {
		changed |= fresh->local[i] & ~layout->local[i];
		layout->local[i] |= fresh->local[i];
	}
	return changed;
}

bool shuffle_layout_learn(struct shuffle_layout *layout, const struct shuffle_step *steps,
			  uint32_t count, uint32_t n)
{
	struct shuffle_step sorted[STEPS_MAX];
	struct shuffle_layout fresh = { 0 };
	uint32_t world;

	assert(n);
	if (count > STEPS_MAX) {
		steps += count - STEPS_MAX;
		count = STEPS_MAX;
	}
	memcpy(sorted, steps, count * sizeof(*sorted));
	qsort(sorted, count, sizeof(*sorted), by_thread);
	if (is_repeated(sorted, count)) {
		learn_repeated(&fresh, sorted, count);
		return extend(layout, &fresh);
	}
	world = find_world(sorted, count);
	if (!world)
		return false;
	if (world == 1)
		learn_batches(&fresh, sorted, count);
	else
		learn_turns(&fresh, sorted, count, world);
	return shuffle_layout_ranks(&fresh) && extend(layout, &fresh);
}
