/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What orders promise: reproducible, exactly partitioned, covering, bounded, in
 * proportion. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "helpers.h"
#include "shade/pads.h"

#define N 2000

static float scores[N];
static uint64_t resident[(N + 63) / 64];

/* Every third sample resident, scores 1 to 5. */
static void setup(void)
{
	for (uint32_t i = 0; i < N; i++) {
		scores[i] = (float)(1 + i % 5);
		if (i % 3 == 0)
			resident[i / 64] |= (uint64_t)1 << i % 64;
	}
}

TestSuite(pads, .init = setup);
TestSuite(echo, .init = setup);

static struct pads_request request_of(enum pads_mode mode)
{
	return (struct pads_request){
		.mode = mode,
		.samples = N,
		.scores = scores,
		.resident = resident,
		.seed = 42,
		.epoch = 3,
		.rep = 3,
		.capacity = N / 5,
	};
}

static void draw(struct pads_request request, uint32_t *order)
{
	struct pads_echo echo = { 0 };

	if (request.mode == PADS_ECHO && !request.echo)
		request.echo = &echo;
	cr_assert_eq(pads_draw(&request, order), 0);
	for (uint32_t i = 0; i < pads_length(&request); i++)
		cr_assert_lt(order[i], request.samples);
	pads_echo_free(&echo);
}

static void count(const uint32_t *order, uint32_t length, uint32_t *counts)
{
	memset(counts, 0, N * sizeof(*counts));
	for (uint32_t i = 0; i < length; i++)
		counts[order[i]]++;
}

static const enum pads_mode all_modes[] = { PADS_UNIFORM, PADS_REPLACEMENT, PADS_PAPER, PADS_PADS,
					    PADS_ECHO };

Test(pads, the_same_request_gives_the_same_order)
{
	uint32_t a[N], b[N];

	for (unsigned i = 0; i < 5; i++) {
		struct pads_request request = request_of(all_modes[i]);

		draw(request, a);
		draw(request, b);
		cr_assert_arr_eq(a, b, sizeof(a));
		request.seed++;
		draw(request, b);
		cr_assert_arr_neq(a, b, sizeof(a));
		request.seed--;
		request.epoch++;
		draw(request, b);
		/* Echo goes by its state, not by the epoch. */
		if (all_modes[i] != PADS_ECHO)
			cr_assert_arr_neq(a, b, sizeof(a));
	}
}

static uint64_t fingerprint(const uint32_t *order)
{
	uint64_t hash = 14695981039346656037u;

	for (uint32_t i = 0; i < N; i++)
		hash = (hash ^ order[i]) * 1099511628211u;
	return hash;
}

/* On every machine: these were computed once and must not change unnoticed, or trainings
 * that resume draw other orders. */
Test(pads, orders_are_the_same_everywhere)
{
	static const uint64_t expected[] = { 0xf1527c72da24fc9d, 0x8085570b04228aef,
					     0xee70b6c0924cced0, 0xc782a27460a4c36d,
					     0x3e1e76972a69faad };
	uint32_t order[N];

	for (unsigned i = 0; i < 5; i++) {
		struct pads_request request = request_of(all_modes[i]);

		request.strength = 0.5;
		draw(request, order);
		cr_assert_eq(fingerprint(order), expected[i], "%s: %#lx",
			     pads_mode_name(all_modes[i]), (unsigned long)fingerprint(order));
	}
}

/* Together the ranks have the whole order: nothing twice, nothing left out. */
Test(pads, ranks_partition_exactly)
{
	static const enum pads_mode modes[] = { PADS_UNIFORM, PADS_REPLACEMENT, PADS_PADS,
						PADS_ECHO };
	uint32_t whole[N], part[N], world = 7;

	for (unsigned i = 0; i < 4; i++) {
		struct pads_request request = request_of(modes[i]);
		uint32_t total = 0;

		draw(request, whole);
		request.world = world;
		for (request.rank = 0; request.rank < world; request.rank++) {
			uint32_t length = pads_length(&request);

			draw(request, part);
			cr_assert(length == N / world || length == N / world + 1);
			for (uint32_t k = 0; k < length; k++)
				cr_assert_eq(part[k], whole[k * world + request.rank]);
			total += length;
		}
		cr_assert_eq(total, N);
	}
}

Test(pads, uniform_is_a_permutation)
{
	uint32_t order[N], counts[N];

	draw(request_of(PADS_UNIFORM), order);
	count(order, N, counts);
	for (uint32_t id = 0; id < N; id++)
		cr_assert_eq(counts[id], 1);
}

/* Expected: draws in proportion to the score. Pearson's chi-square over the five scores,
 * 4 degrees of freedom: 18.5 is exceeded once in a thousand. */
Test(pads, paper_draws_in_proportion)
{
	uint32_t order[N];
	double drawn[5] = { 0 }, chi = 0, total = 0;

	for (uint64_t epoch = 0; epoch < 50; epoch++) {
		struct pads_request request = request_of(PADS_PAPER);

		request.epoch = epoch;
		request.resident = NULL;
		draw(request, order);
		for (uint32_t i = 0; i < N; i++)
			drawn[order[i] % 5]++;
		total += N;
	}
	for (int i = 0; i < 5; i++) {
		double expected = total * (i + 1) / 15;

		chi += (drawn[i] - expected) * (drawn[i] - expected) / expected;
	}
	cr_assert_lt(chi, 18.5, "chi-square %f", chi);
}

Test(pads, paper_puts_hits_first_and_repeats_them)
{
	struct pads_request request = request_of(PADS_PAPER);
	uint32_t order[N], once[N], counts[N], hits = 0, before = 0;

	request.rep = 1;
	draw(request, once);
	for (uint32_t i = 0; i < N; i++)
		before += once[i] % 3 == 0;
	request.rep = 2;
	draw(request, order);
	while (hits < N && order[hits] % 3 == 0)
		hits++;
	for (uint32_t i = hits; i < N; i++)
		cr_assert_neq(order[i] % 3, 0);
	cr_assert_eq(hits, 2 * before);
	count(order, N, counts);
	for (uint32_t id = 0; id < N; id += 3)
		cr_assert_eq(counts[id] % 2, 0);
}

/* SHADE's ranks draw for themselves, so they overlap; ours never do. */
Test(pads, papers_ranks_draw_for_themselves)
{
	struct pads_request request = request_of(PADS_PAPER);
	uint32_t first[N], second[N], same = 0;

	request.world = 2;
	draw(request, first);
	request.rank = 1;
	draw(request, second);
	for (uint32_t i = 0; i < N / 2; i++)
		same += first[i] == second[i];
	cr_assert_lt(same, N / 20);
}

/* Half a repeat: of what is drawn of residents, half comes once more. */
Test(pads, repeats_may_be_fractions)
{
	struct pads_request request = request_of(PADS_PADS);
	uint32_t order[N];
	double hits[3] = { 0 };

	request.cover_epochs = 1000000; /* nothing must come */
	request.max_repeats = 1000;
	for (int i = 0; i < 3; i++)
		for (request.epoch = 0; request.epoch < 20; request.epoch++) {
			request.rep = 1 + i * 0.5;
			draw(request, order);
			for (uint32_t k = 0; k < N; k++)
				hits[i] += order[k] % 3 == 0;
		}
	cr_assert_float_eq(hits[1] / hits[0], 1.5, 0.02, "%f", hits[1] / hits[0]);
	cr_assert_float_eq(hits[2] / hits[0], 2, 0.02, "%f", hits[2] / hits[0]);
}

Test(pads, unseen_come_first)
{
	struct pads_request request = request_of(PADS_PADS);
	uint32_t order[N], counts[N];

	scores[17] = -1;
	scores[1234] = -1;
	for (request.epoch = 0; request.epoch < 20; request.epoch++) {
		draw(request, order);
		count(order, N, counts);
		cr_assert(counts[17] && counts[1234]);
	}
	/* An epoch of which nothing is known reads everything once. */
	request.scores = NULL;
	draw(request, order);
	count(order, N, counts);
	for (uint32_t id = 0; id < N; id++)
		cr_assert_eq(counts[id], 1);
	/* And if not all fit, only what was never seen comes. */
	request.scores = scores;
	request.draws = 2;
	draw(request, order);
	cr_assert(order[0] + order[1] == 17 + 1234 && order[0] != order[1]);
}

Test(pads, covers_all_in_k_epochs)
{
	struct pads_request request = request_of(PADS_PADS);
	uint32_t order[N], first_coverage = 0;
	bool seen[N] = { false };

	scores[5] = 0; /* would hardly ever be drawn */
	request.cover_epochs = 4;
	for (request.epoch = 10; request.epoch < 14; request.epoch++) {
		draw(request, order);
		for (uint32_t i = 0; i < N; i++)
			seen[order[i]] = true;
		for (uint32_t id = 0; request.epoch == 10 && id < N; id++)
			first_coverage += seen[id];
	}
	for (uint32_t id = 0; id < N; id++)
		cr_assert(seen[id], "sample %u did not come", id);
	cr_assert_lt(first_coverage, N); /* one epoch alone does not */
}

Test(pads, repeats_are_bounded)
{
	struct pads_request request = request_of(PADS_PADS);
	uint32_t order[N], counts[N], most = 0;

	for (uint32_t id = 0; id < N; id++)
		scores[id] = id % 100 == 0 ? 1000 : 0.001f;
	request.max_repeats = 5;
	draw(request, order);
	count(order, N, counts);
	for (uint32_t id = 0; id < N; id++) {
		cr_assert_leq(counts[id], 5);
		most = counts[id] > most ? counts[id] : most;
	}
	cr_assert_eq(most, 5); /* and would have been more */
	request.max_repeats = 1;
	draw(request, order);
	count(order, N, counts);
	for (uint32_t id = 0; id < N; id++)
		cr_assert_eq(counts[id], 1);
}

Test(pads, hits_and_misses_are_mixed)
{
	uint32_t order[N], halves[2] = { 0 };

	draw(request_of(PADS_PADS), order);
	for (uint32_t i = 0; i < N; i++)
		halves[i < N / 2] += order[i] % 3 == 0;
	cr_assert_gt(halves[0], halves[1] * 0.85);
	cr_assert_gt(halves[1], halves[0] * 0.85);
}

/* The weighted and the plain sum over epochs of a value for each sample, by its true sum. */
static void weigh(struct pads_request request, double *weighted, double *drawn)
{
	static uint32_t order[2 * N];
	static float weights[N];
	double plain = 0;

	*weighted = *drawn = 0;
	for (uint32_t id = 0; id < N; id++)
		plain += (1 + id % 5) * (1 + id % 5) + (id % 3 == 0 ? 10 : 0);
	plain *= (double)pads_length(&request) / N * 200;
	for (request.epoch = 0; request.epoch < 200; request.epoch++) {
		draw(request, order);
		cr_assert_eq(pads_weights(&request, weights), 0);
		for (uint32_t i = 0; i < pads_length(&request); i++) {
			uint32_t id = order[i];
			double value = (1 + id % 5) * (1 + id % 5) + (id % 3 == 0 ? 10 : 0);

			*weighted += weights[id] * value / plain;
			*drawn += value / plain;
		}
	}
}

/* The weighted sum over an epoch is, on the mean, the plain sum over the data set: whether the
 * bound on repeats is felt or not, and even if it leaves room that must be filled up. */
Test(pads, weights_make_it_unbiased)
{
	static const struct {
		double rep;
		uint32_t max_repeats, draws;
	} cases[] = { { 1, 0, 0 },	 { 2, 100, 0 },	  { 2, 0, 0 },		 { 2, 3, 0 },
		      { 2.5, 0, N / 3 }, { 2, 0, 2 * N }, { 2, 2, 2 * N - 500 }, { 6, 0, 0 } };

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct pads_request request = request_of(PADS_PADS);
		double weighted, drawn;

		request.rep = cases[i].rep;
		request.max_repeats = cases[i].max_repeats;
		request.draws = cases[i].draws;
		weigh(request, &weighted, &drawn);
		cr_assert_float_eq(weighted, 1, 0.01, "case %u: %f", i, weighted);
		if (i == 2) /* without the weights it is biased */
			cr_assert_gt(drawn, 1.1, "%f", drawn);
	}
}

/* Of samples that were never scored more than an epoch has room for. */
Test(pads, weights_of_unseen)
{
	struct pads_request request = request_of(PADS_PADS);
	float weights[N];

	request.scores = NULL;
	request.draws = N / 4;
	cr_assert_eq(pads_weights(&request, weights), 0);
	for (uint32_t id = 0; id < N; id++)
		cr_assert_float_eq(weights[id], 1, 1e-5, "%u: %f", id, weights[id]);
}

Test(pads, nonsense_is_refused)
{
	uint32_t order[N];
	struct pads_request request = request_of(PADS_PADS);

#define REFUSED(field, value)                                                                      \
	do {                                                                                       \
		struct pads_request bad = request;                                                 \
		bad.field = value;                                                                 \
		cr_assert_eq(pads_draw(&bad, order), -EINVAL);                                     \
	} while (0)
	REFUSED(samples, 0);
	REFUSED(rep, 0.5);
	REFUSED(rep, NAN);
	REFUSED(rank, 1);
	REFUSED(world, N + 1);
	REFUSED(strength, 1.5);
	REFUSED(uses, -1);
	REFUSED(mode, (enum pads_mode)99);
	REFUSED(mode, PADS_ECHO); /* without a state */
	request.max_repeats = 1;
	REFUSED(draws, N + 1);
	scores[3] = NAN;
	REFUSED(seed, 1);
#undef REFUSED
}

/* --- echo ------------------------------------------------------------------------------- */

/* Draws epochs and counts, from the second pass on, what each sample gets in a pass. */
static void play_echo(double uses, double strength, int epochs, uint64_t *introduced,
		      uint32_t *counts)
{
	struct pads_request request = request_of(PADS_ECHO);
	struct pads_echo echo = { 0 };
	uint32_t order[N];

	request.echo = &echo;
	request.uses = uses;
	request.strength = strength;
	memset(counts, 0, N * sizeof(*counts));
	for (request.epoch = 0; request.epoch < (uint64_t)epochs; request.epoch++) {
		cr_assert_eq(pads_draw(&request, order), 0);
		for (uint32_t i = 0; i < N; i++)
			counts[order[i]]++;
	}
	*introduced = echo.introduced;
	pads_echo_free(&echo);
}

Test(echo, every_sample_once_in_e_epochs)
{
	uint32_t counts[N];
	uint64_t introduced;

	play_echo(4, 0, 4, &introduced, counts);
	for (uint32_t id = 0; id < N; id++)
		cr_assert_geq(counts[id], 1);
	/* 4 epochs of N uses, 4 for each: N samples, and a few whose uses are still due. */
	cr_assert_geq(introduced, N);
	cr_assert_leq(introduced, N + N / 5);
}

Test(echo, uses_grow_with_the_score)
{
	uint32_t counts[N];
	double by_score[2][5] = { { 0 } };
	uint64_t introduced;

	for (int strength = 0; strength < 2; strength++) {
		play_echo(4, strength, 40, &introduced, counts);
		for (uint32_t id = 0; id < N; id++)
			by_score[strength][id % 5] += counts[id];
		/* The mean stays what it was asked to be. */
		cr_assert_float_eq(40.0 * N / (double)introduced, 4, 0.15, "%f",
				   40.0 * N / (double)introduced);
	}
	cr_assert_lt(by_score[0][4] / by_score[0][0], 1.03);
	cr_assert_gt(by_score[1][4] / by_score[1][0], 3);
	for (int i = 1; i < 5; i++)
		cr_assert_gt(by_score[1][i], by_score[1][i - 1]);
}

/* Uses that are due later are not lost between epochs. */
Test(echo, what_is_left_over_goes_on)
{
	struct pads_request request = request_of(PADS_ECHO);
	struct pads_echo echo = { 0 };
	uint32_t order[N], counts[N];

	request.echo = &echo;
	request.uses = 3;
	cr_assert_eq(pads_draw(&request, order), 0);
	cr_assert_gt(echo.use_count, 0);
	count(order, N, counts);
	for (uint32_t i = 0; i < echo.use_count; i++) {
		cr_assert_gt(counts[echo.uses[i].id], 0); /* it was introduced */
		counts[echo.uses[i].id] += echo.uses[i].left;
	}
	for (uint32_t id = 0; id < N; id++)
		cr_assert(counts[id] == 0 || counts[id] == 3, "sample %u: %u uses", id, counts[id]);
	pads_echo_free(&echo);
}

/* However short the epochs are, a sample has its uses. */
Test(echo, keeps_its_pace_over_short_epochs)
{
	struct pads_request request = request_of(PADS_ECHO);
	struct pads_echo echo = { 0 };
	uint32_t order[3], owed = 0;

	request.echo = &echo;
	request.uses = 4;
	request.draws = 3;
	for (int i = 0; i < 2000; i++)
		cr_assert_eq(pads_draw(&request, order), 0);
	for (uint32_t i = 0; i < echo.use_count; i++)
		owed += echo.uses[i].left;
	cr_assert_eq(4 * echo.introduced, 6000 + owed);
	cr_assert_lt(owed, 2 * N / 5);
	pads_echo_free(&echo);
}

Test(echo, more_uses_than_an_epoch_has_entries)
{
	uint32_t order[10];
	struct pads_echo echo = { 0 };
	struct pads_request request = { .mode = PADS_ECHO,
					.samples = 10,
					.seed = 5,
					.uses = 1000,
					.capacity = 1,
					.echo = &echo };

	for (request.epoch = 0; request.epoch < 400; request.epoch++) {
		cr_assert_eq(pads_draw(&request, order), 0);
		for (unsigned i = 0; i < 10; i++)
			cr_assert_lt(order[i], 10);
	}
	cr_assert_geq(echo.introduced, 3);
	cr_assert_leq(echo.introduced, 6);
	pads_echo_free(&echo);
}

Test(echo, almost_one_use)
{
	uint32_t counts[N];
	uint64_t introduced;

	play_echo(1.0001, 1, 3, &introduced, counts);
	cr_assert_geq(introduced, 3 * N - N / 50);
}

/* --- scores ------------------------------------------------------------------------------ */

Test(scores, rank_within_the_batch)
{
	static const float losses[] = { 2.5f, 0.1f, 7.0f, 0.1f };
	float found[4];

	cr_assert_eq(pads_rank_batch(losses, 4, found), 0);
	cr_assert_float_eq(found[0], log(12), 1e-6);
	cr_assert_float_eq(found[1], log(10.5), 1e-6); /* equal losses share the mean */
	cr_assert_float_eq(found[2], log(13), 1e-6);
	cr_assert_float_eq(found[3], log(10.5), 1e-6);
	cr_assert_eq(pads_rank_batch((const float[]){ NAN }, 1, found), -EINVAL);
	cr_assert_eq(pads_rank_batch((const float[]){ -1, 5, -INFINITY }, 3, found), 0);
	cr_assert_float_eq(found[2], log(10), 1e-6);
	cr_assert_float_eq(found[0], log(11), 1e-6);
}

/* The power that one more use has then is far below what an int can be. */
Test(echo, hardly_more_than_one_use)
{
	static uint32_t order[N];
	struct pads_request request = request_of(PADS_ECHO);

	request.uses = 1 + 1e-15;
	request.strength = 1;
	draw(request, order);
}
