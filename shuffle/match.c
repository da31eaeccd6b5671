/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Whether some reads are the work of a seed.
 *
 * A seed that has nothing to do with them puts them anywhere. So there are two things that chance
 * hardly ever does. First, of k reads h are among the first m places: that has a chance of at most
 * C(k,h) (m/n)^h. It recognises the begin of an epoch, and needs no more than the first m places.
 * Second, reads of one thread follow each other at always the same distance, which is the number of
 * ranks: of g pairs h do so with a chance of at most C(g,h) (1/(n-k))^h for one distance. It
 * recognises small data sets that many ranks are in the middle of at once, and trainings that began
 * before anybody looked. The score is the power of ten of that chance, less what it gains because
 * so many hypotheses are tried.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "shade/shuffle.h"

#define PREFIX_MIN 256 /* places; then twice as many, and so on */
#define DISTANCE_MAX 1024

/* log10 of n over k. */
static double choose_log10(unsigned n, unsigned k)
{
	return (lgamma(n + 1.0) - lgamma(k + 1.0) - lgamma(n - k + 1.0)) / log(10);
}

static void take(struct shuffle_match *best, const struct shuffle_match *match)
{
	if (match->score > best->score)
		*best = *match;
}

void shuffle_trial_add(struct shuffle_trial *trial, int32_t thread, uint32_t index)
{
	unsigned last = trial->count;

	if (trial->count == SHUFFLE_READS)
		return;
	for (unsigned i = 0; i < trial->count; i++) {
		if (trial->reads[i].index == index)
			return;
		if (trial->reads[i].thread == thread)
			last = i;
	}
	trial->before[trial->count] = (uint8_t)last;
	trial->reads[trial->count++] = (struct shuffle_read){ thread, index };
}

/* --- the begin of an epoch
 * ------------------------------------------------------------------------ */

/* How many values of m are tried. */
static unsigned prefixes(const struct shuffle_trial *trial)
{
	unsigned count = 0;

	for (uint64_t m = PREFIX_MIN; m <= trial->limit && m <= trial->n / 2; m *= 2)
		count++;
	return count ? count : 1;
}

static void weigh_prefixes(const struct shuffle_trial *trial, const uint32_t *places,
			   struct shuffle_match *best)
{
	double tries = trial->tries_log10 + log10(prefixes(trial));

	for (uint64_t m = PREFIX_MIN; m <= trial->limit && m <= trial->n / 2; m *= 2) {
		struct shuffle_match match = { .reads = trial->count,
					       .possible = trial->count,
					       .within = (uint32_t)m };

		for (unsigned i = 0; i < trial->count; i++)
			match.hits += places[i] < m;
		if (match.hits * log10((double)trial->n / (double)m) - tries <= best->score)
			continue; /* and it is less than that */
		match.score = -choose_log10(trial->count, match.hits) -
			      match.hits * log10((double)m / trial->n) - tries;
		take(best, &match);
	}
}

/* --- steps
 * ---------------------------------------------------------------------------------------- */

/* The distances of successive reads that are ahead and not too far. `pairs`: how many reads follow
 * others, near or not. */
static unsigned distances(const struct shuffle_trial *trial, const uint32_t *places,
			  uint32_t *distance, unsigned *pairs)
{
	unsigned count = 0;

	*pairs = 0;
	for (unsigned i = 0; i < trial->count; i++) {
		unsigned last = trial->before[i];

		*pairs += last != i;
		if (last != i && places[i] != SHUFFLE_BEYOND && places[last] < places[i] &&
		    places[i] - places[last] <= DISTANCE_MAX)
			distance[count++] = places[i] - places[last];
	}
	return count;
}

static void weigh_steps(const struct shuffle_trial *trial, const uint32_t *places,
			struct shuffle_match *best)
{
	double each = log10(trial->n - trial->count > 1 ? trial->n - trial->count : 1);
	double tries = trial->tries_log10 + log10(DISTANCE_MAX);
	struct shuffle_match match = { .reads = trial->count };
	uint32_t distance[SHUFFLE_READS];
	unsigned pairs, count = distances(trial, places, distance, &pairs);

	for (unsigned i = 0; i < count; i++) {
		unsigned same = 0;

		for (unsigned k = 0; k < count; k++)
			same += distance[k] == distance[i];
		match.hits = same > match.hits ? same : match.hits;
	}
	match.score = match.hits * each - tries;
	if (!match.hits || match.score <= best->score)
		return;
	match.possible = pairs;
	match.score -= choose_log10(pairs, match.hits);
	take(best, &match);
}

/* --- seeds
 * ---------------------------------------------------------------------------------------- */

struct shuffle_match shuffle_weigh(const struct shuffle_trial *trial, const uint32_t *places)
{
	struct shuffle_match best = { .score = -HUGE_VAL, .reads = trial->count };

	assert(trial->count <= SHUFFLE_READS);
	if (trial->n < SHUFFLE_FILES_MIN)
		return best;
	weigh_prefixes(trial, places, &best);
	weigh_steps(trial, places, &best);
	return best;
}

bool shuffle_match_is_plain(const struct shuffle_match *match)
{
	return match->score > SHUFFLE_SURE && match->hits * 4 >= match->possible * 3;
}

void shuffle_search(const struct shuffle_trial *trial, uint32_t first, uint32_t seeds,
		    struct shuffle_match *best)
{
	uint32_t indices[SHUFFLE_READS], places[SHUFFLE_READS];

	for (unsigned i = 0; i < trial->count; i++)
		indices[i] = trial->reads[i].index;
	for (uint32_t i = 0; i < seeds && !shuffle_match_is_plain(best); i++) {
		struct shuffle_match match;

		shuffle_locate(first + i, trial->n, trial->limit, indices, trial->count, places);
		match = shuffle_weigh(trial, places);
		match.seed = first + i;
		take(best, &match);
	}
}

bool shuffle_is_sequential(const struct shuffle_trial *trial)
{
	unsigned pairs = 0;

	for (unsigned i = 0; i < trial->count; i++) {
		unsigned last = trial->before[i];

		if (last == i)
			continue;
		if (trial->reads[i].index < trial->reads[last].index)
			return false;
		pairs++;
	}
	return pairs >= 8;
}
