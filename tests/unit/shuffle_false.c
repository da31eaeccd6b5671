/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is no shuffle of a likely seed must not be taken for one: a thousand recorded orders of each
 * kind, each tried with all seeds and at each number of reads at which a mount would try.
 *
 * All orders are of one number of samples, so that the permutations of all seeds are made once.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "shuffle_loader.h"

#define SEEDS 1102
#define TRIES 1000

struct world {
	uint32_t n;
	uint32_t *places; /* by seed and index */
	double worst;	  /* score, of all tries */
};

static void world_init(struct world *world, uint32_t n)
{
	uint32_t *permutation = malloc(n * sizeof(*permutation));

	*world = (struct world){ .n = n, .worst = -HUGE_VAL };
	world->places = malloc((size_t)SEEDS * n * sizeof(*world->places));
	for (uint32_t seed = 0; seed < SEEDS; seed++) {
		shuffle_permute(seed, permutation, n);
		for (uint32_t i = 0; i < n; i++)
			world->places[(size_t)seed * n + permutation[i]] = i;
	}
	free(permutation);
}

/* The best score of all seeds. */
static double best_of(const struct world *world, const struct shuffle_trial *trial)
{
	uint32_t places[SHUFFLE_READS];
	double best = -HUGE_VAL;

	for (uint32_t seed = 0; seed < SEEDS; seed++) {
		struct shuffle_match match;

		for (unsigned i = 0; i < trial->count; i++)
			places[i] = world->places[(size_t)seed * world->n + trial->reads[i].index];
		match = shuffle_weigh(trial, places);
		best = match.score > best ? match.score : best;
	}
	return best;
}

/* What a mount does with these reads: it tries when 16 are there, and when 64 are. */
static void try_reads(struct world *world, const struct shuffle_read *reads, uint32_t count)
{
	struct shuffle_trial trial = { .n = world->n,
				       .limit = world->n,
				       .tries_log10 = log10(SEEDS * 4) };

	for (uint32_t i = 0; i < count; i++) {
		double score;
		unsigned before = trial.count;

		shuffle_trial_add(&trial, reads[i].thread, reads[i].index);
		if (trial.count == before || (trial.count != 16 && trial.count != SHUFFLE_READS))
			continue;
		score = best_of(world, &trial);
		world->worst = score > world->worst ? score : world->worst;
		if (trial.count == SHUFFLE_READS)
			return;
	}
}

static void check(const struct world *world, const char *what)
{
	cr_log_info("%s: the best score was %.1f\n", what, world->worst);
	cr_assert_lt(world->worst, SHUFFLE_SURE, "%s: score %.1f", what, world->worst);
	cr_assert_gt(world->worst, -20, "nothing was tried");
	free(world->places);
}

/* RandomSampler's generators have seeds of 64 bits, of which the low half counts; foreign seeds are
 * above those that are tried. */
Test(shuffle_false, random_sampler)
{
	struct world world;
	uint64_t state = 1;

	world_init(&world, 500);
	for (unsigned i = 0; i < TRIES; i++) {
		struct loader loader = { .n = 500,
					 .world = 1,
					 .ranks = 1,
					 .workers = 1 + i % 4,
					 .batch = 1 + i % 20,
					 .thread = 1,
					 .state = i };
		uint32_t count, seed = 5000 + loader_random(&state);
		struct shuffle_read *reads = loader_epoch(&loader, seed, &count);

		try_reads(&world, reads, count);
		free(reads);
	}
	check(&world, "RandomSampler");
}

Test(shuffle_false, foreign_seeds)
{
	struct world world;

	world_init(&world, 500);
	for (unsigned i = 0; i < TRIES; i++) {
		struct loader loader = { .n = 500,
					 .world = 1 + i % 8,
					 .ranks = 1 + i % 8,
					 .workers = 1 + i % 4,
					 .batch = 1 + i % 20,
					 .thread = 1,
					 .state = i };
		uint32_t count;
		struct shuffle_read *reads = loader_epoch(&loader, SEEDS + i, &count);

		try_reads(&world, reads, count);
		free(reads);
	}
	check(&world, "foreign seeds");
}

/* With replacement, some samples far more often than others. */
Test(shuffle_false, weighted_random_sampler)
{
	struct shuffle_read reads[1000];
	struct world world;
	uint64_t state = 2;

	world_init(&world, 500);
	for (unsigned i = 0; i < TRIES; i++) {
		for (unsigned k = 0; k < 1000; k++) {
			double u = loader_random(&state) / 2147483648.0;

			reads[k] = (struct shuffle_read){ (int32_t)(1 + k / 8 % 4),
							  (uint32_t)(500 * u * u) };
		}
		try_reads(&world, reads, 1000);
	}
	check(&world, "WeightedRandomSampler");
}

Test(shuffle_false, sequential)
{
	struct shuffle_read reads[200];
	struct world world;

	world_init(&world, 500);
	for (unsigned i = 0; i < TRIES; i++) {
		unsigned step = 1 + i % 7, workers = 1 + i % 4, batch = 1 + i % 16;

		for (unsigned k = 0; k < 200; k++)
			reads[k] = (struct shuffle_read){ (int32_t)(1 + k / batch % workers),
							  (i + k * step) % 500 };
		try_reads(&world, reads, 200);
	}
	check(&world, "sequential");
}

/* Two trainings that nobody knows, reading at once, with different numbers of ranks. */
Test(shuffle_false, two_trainings)
{
	struct world world;
	uint64_t state = 4;

	world_init(&world, 500);
	for (unsigned i = 0; i < TRIES; i++) {
		struct loader one = { .n = 500,
				      .world = 1 + i % 4,
				      .ranks = 1 + i % 4,
				      .workers = 2,
				      .batch = 1 + i % 20,
				      .thread = 1,
				      .state = i };
		struct loader two = { .n = 500,
				      .world = 2,
				      .ranks = 2,
				      .workers = 1 + i % 3,
				      .batch = 8,
				      .thread = 100,
				      .state = i + 1 };
		struct shuffle_read both[400];
		uint32_t a_count, b_count, a = 0, b = 0;
		struct shuffle_read *first = loader_epoch(&one, 2000000 + i, &a_count);
		struct shuffle_read *second = loader_epoch(&two, 3000000 + i, &b_count);

		for (unsigned k = 0; k < 400; k++)
			both[k] = loader_random(&state) & 1 ? first[a++] : second[b++];
		try_reads(&world, both, 400);
		free(first);
		free(second);
	}
	check(&world, "two trainings");
}

/* The same trial does recognise what is there: else nothing above would mean anything. */
Test(shuffle_false, and_yet_a_known_seed_is_recognised)
{
	struct loader loader = {
		.n = 500, .world = 4, .ranks = 4, .workers = 2, .batch = 8, .thread = 1
	};
	struct world world;
	uint32_t count;
	struct shuffle_read *reads = loader_epoch(&loader, 1101, &count);

	world_init(&world, 500);
	try_reads(&world, reads, count);
	cr_assert_gt(world.worst, SHUFFLE_SURE, "score %.1f", world.worst);
	free(reads);
	free(world.places);
}
