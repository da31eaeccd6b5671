/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Modes that leave samples out, as a training uses them. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "helpers.h"

/* Every mode that keeps losses, and each with its extras. */
enum { KINDS = 4 };

static struct shade_scorer_options kind_of(uint32_t kind)
{
	static const uint32_t modes[KINDS] = { SHADE_SCORE_PRUNE, SHADE_SCORE_IIS, SHADE_SCORE_IIS,
					       SHADE_SCORE_ECHO };
	struct shade_scorer_options options = options_of(modes[kind]);

	options.substitute = kind == 2;
	options.package = kind == 2 ? 8 : 0;
	options.keep = kind == 3 ? 0.5 : 0;
	return options;
}

/* Everybody's loss is its number, so the mean is N / 2 - 0.5. */
static void tell_losses(struct shade_scorer *s)
{
	uint32_t ids[N];
	float losses[N];

	for (uint32_t id = 0; id < N; id++) {
		ids[id] = id;
		losses[id] = (float)id;
	}
	cr_assert_eq(shade_scorer_update(s, ids, losses, N, NULL), 0);
}

static uint32_t length_of(struct shade_scorer *s, uint64_t epoch, uint32_t rank, uint32_t world)
{
	int64_t length = shade_scorer_order(s, epoch, rank, world, NULL, 0);

	cr_assert_geq(length, 0, "%s", shade_score_error());
	return (uint32_t)length;
}

static uint32_t draw(struct shade_scorer *s, uint64_t epoch, uint32_t *ids)
{
	cr_assert_eq(shade_scorer_begin(s, epoch, NULL), 0, "%s", shade_score_error());
	cr_assert_eq(shade_scorer_order(s, epoch, 0, 1, ids, N), length_of(s, epoch, 0, 1));
	return length_of(s, epoch, 0, 1);
}

static uint64_t digest_of(struct shade_scorer *s, uint64_t epoch)
{
	uint64_t digest;

	cr_assert_eq(shade_scorer_digest(s, epoch, &digest), 0, "%s", shade_score_error());
	return digest;
}

/* --- lengths -------------------------------------------------------------------------------- */

Test(lengths, are_known_once_it_is_drawn)
{
	for (uint32_t kind = 0; kind < 3; kind++) {
		struct shade_scorer *s = create(kind_of(kind));
		uint32_t ids[N], length;

		cr_assert_eq(draw(s, 0, ids), N, "nothing is known");
		tell_losses(s);
		length = draw(s, 7, ids);
		cr_assert_gt(length, N / 2);
		cr_assert_lt(length, N * 9 / 10);
		cr_assert_eq(shade_scorer_length(s, 0, 1), N, "the most that it can be");
		cr_assert_eq(shade_scorer_order(s, 7, 0, 1, ids, length - 1), -ENOSPC);
		cr_assert_eq(shade_scorer_order(s, 8, 0, 1, NULL, 0), -ENOENT);
		cr_assert_eq(shade_scorer_order(s, 7, 3, 3, NULL, 0), -ERANGE);
		shade_scorer_destroy(s);
	}
}

/* Ranks that wait for each other in every step have as many of them. */
Test(lengths, of_ranks_are_equal)
{
	for (uint32_t world = 2; world <= 7; world += 5) {
		struct shade_scorer_options options = kind_of(0);
		struct shade_scorer *s;
		uint32_t ids[N + 7], counts[N] = { 0 }, all = 0, distinct = 0;

		options.multiple = world;
		s = create(options);
		tell_losses(s);
		cr_assert_eq(shade_scorer_begin(s, 6, NULL), 0);
		for (uint32_t rank = 0; rank < world; rank++) {
			int64_t length = shade_scorer_order(s, 6, rank, world, ids, N);

			cr_assert_eq(length, length_of(s, 6, 0, world));
			all += (uint32_t)length;
			for (int64_t i = 0; i < length; i++)
				distinct += !counts[ids[i]]++;
		}
		cr_assert_eq(all, length_of(s, 6, 0, 1));
		cr_assert_lt(all - distinct, world);
		for (uint32_t id = N / 2; id < N; id++)
			cr_assert(counts[id], "%u has a high loss", id);
		shade_scorer_destroy(s);
	}
}

Test(lengths, on_several_nodes)
{
	static const uint32_t node_of[] = { 0, 1, 1 };
	struct shade_score_nodes nodes = { .size = sizeof(nodes), .world = 3, .node_of = node_of };
	struct shade_scorer_options options = kind_of(0);
	struct shade_scorer *s = create(options);
	uint32_t ids[N], length = 0;

	cr_assert_eq(shade_scorer_nodes(s, &nodes), -EINVAL, "their parts would not be equal");
	shade_scorer_destroy(s);
	options.multiple = 3;
	s = create(options);
	cr_assert_eq(shade_scorer_nodes(s, &nodes), 0, "%s", shade_score_error());
	tell_losses(s);
	cr_assert_eq(shade_scorer_begin(s, 6, NULL), 0);
	for (uint32_t rank = 0; rank < 3; rank++) {
		cr_assert_eq(shade_scorer_order(s, 6, rank, 3, ids, N), length_of(s, 6, 0, 3));
		length += length_of(s, 6, rank, 3);
	}
	cr_assert_eq(length, length_of(s, 6, 0, 1));
	shade_scorer_destroy(s);
}

/* --- rules ---------------------------------------------------------------------------------- */

Test(prune, weights_and_the_last_eighth)
{
	struct shade_scorer_options options = kind_of(0);
	struct shade_scorer *s;
	uint32_t ids[N], length;
	float weights[N];

	options.epochs = 16;
	s = create(options);
	tell_losses(s);
	length = draw(s, 13, ids);
	cr_assert_lt(length, N);
	cr_assert_eq(shade_scorer_weights(s, 13, ids, weights, length), 0);
	for (uint32_t i = 0; i < length; i++)
		cr_assert_eq(weights[i], ids[i] < N / 2 ? 2 : 1, "%u", ids[i]);
	cr_assert_eq(draw(s, 14, ids), N);
	cr_assert_eq(shade_scorer_weights(s, 14, ids, weights, N), 0);
	for (uint32_t i = 0; i < N; i++)
		cr_assert_eq(weights[i], 1);
	shade_scorer_destroy(s);
}

/* A sample that is left out four times in a row comes in the fifth epoch, whatever its loss. */
Test(prune, everybody_comes_in_five_epochs)
{
	struct shade_scorer_options options = kind_of(0);
	struct shade_scorer *s;
	uint32_t ids[N], last[N] = { 0 }, longest = 0;

	options.keep = 0.01;
	options.lookahead = 1;
	s = create(options);
	tell_losses(s);
	for (uint32_t epoch = 0; epoch < 30; epoch++) {
		uint32_t length = draw(s, epoch, ids);

		for (uint32_t i = 0; i < length; i++) {
			if (epoch - last[ids[i]] > longest)
				longest = epoch - last[ids[i]];
			last[ids[i]] = epoch;
		}
	}
	for (uint32_t id = 0; id < N; id++)
		cr_assert_geq(last[id], 25, "%u", id);
	cr_assert_eq(longest, 5);
	shade_scorer_destroy(s);
}

Test(iis, substitutes_have_no_weights)
{
	struct shade_scorer *s = create(kind_of(1));
	uint32_t ids[N], length;
	float weights[N];

	tell_losses(s);
	length = draw(s, 7, ids);
	cr_assert_eq(shade_scorer_weights(s, 7, ids, weights, length), 0);
	for (uint32_t i = 0; i < length; i++)
		cr_assert_float_eq(weights[i], pow((ids[i] + 1.0) / N, -0.33), 1e-5 * weights[i]);
	shade_scorer_destroy(s);
	s = create(kind_of(2));
	length = draw(s, 7, ids);
	cr_assert_eq(shade_scorer_weights(s, 7, ids, weights, length), -ENOTSUP);
	shade_scorer_destroy(s);
}

Test(iis, substitutes_are_residents)
{
	struct shade_scorer *s = create(kind_of(2));
	uint8_t resident[(N + 7) / 8] = { 0xff, 0xff };
	uint32_t ids[N], counts[N] = { 0 };
	int64_t length;

	tell_losses(s);
	cr_assert_eq(shade_scorer_begin(s, 0, NULL), 0); /* all were planned lately */
	cr_assert_eq(shade_scorer_begin(s, 1, NULL), 0);
	cr_assert_eq(shade_scorer_begin(s, 5, resident), 0);
	length = shade_scorer_order(s, 5, 0, 1, ids, N);
	for (int64_t i = 0; i < length; i++)
		counts[ids[i]]++;
	for (uint32_t id = 0; id < N; id++)
		cr_assert(id < 16 ? counts[id] == 2 : counts[id] <= 1, "%u: %u", id, counts[id]);
	shade_scorer_destroy(s);
}

static uint32_t adjacent(const uint32_t *ids, int64_t length, const uint32_t *place)
{
	uint32_t count = 0;

	for (int64_t i = 1; i < length; i++)
		count +=
			place[ids[i]] > place[ids[i - 1]] && place[ids[i]] - place[ids[i - 1]] < 20;
	return count;
}

Test(iis, packages_are_of_neighbours)
{
	struct shade_scorer_options options = kind_of(1);
	struct shade_scorer *s;
	uint32_t neighbours[N], place[N], ids[N], plain;

	options.package = 10;
	s = create(options);
	for (uint32_t i = 0; i < N; i++) {
		neighbours[i] = i * 377 % N;
		place[neighbours[i]] = i;
	}
	tell_losses(s);
	plain = adjacent(ids, draw(s, 5, ids), place);
	cr_assert_eq(shade_scorer_neighbours(s, neighbours), 0, "%s", shade_score_error());
	cr_assert_gt(adjacent(ids, draw(s, 7, ids), place), plain + 50);
	neighbours[4] = neighbours[5];
	cr_assert_eq(shade_scorer_neighbours(s, neighbours), -EINVAL);
	neighbours[4] = N;
	cr_assert_eq(shade_scorer_neighbours(s, neighbours), -ERANGE);
	cr_assert_gt(adjacent(ids, draw(s, 10, ids), place), plain + 50);
	cr_assert_eq(shade_scorer_neighbours(s, NULL), 0);
	cr_assert_lt(adjacent(ids, draw(s, 13, ids), place), plain + 20);
	shade_scorer_destroy(s);
}

/* Fresh samples of low loss come half as often, and count twice. */
Test(echo, over_a_pruned_stream)
{
	struct shade_scorer *s = create(kind_of(3));
	double entries[2] = { 0 }, weighted[2] = { 0 };
	uint32_t ids[N];
	float weights[N];

	tell_losses(s);
	for (uint64_t epoch = 0; epoch < 200; epoch++) {
		cr_assert_eq(draw(s, epoch, ids), N);
		cr_assert_eq(shade_scorer_weights(s, epoch, ids, weights, N), 0);
		for (uint32_t i = 0; i < N; i++) {
			entries[ids[i] >= N / 2]++;
			weighted[ids[i] >= N / 2] += weights[i];
		}
	}
	/* One that was left out for five passes comes for sure: a little more than half. */
	cr_assert_float_eq(entries[0] / entries[1], 0.516, 0.03, "%f", entries[0] / entries[1]);
	cr_assert_float_eq(weighted[0] / weighted[1], 1, 0.05, "%f", weighted[0] / weighted[1]);
	shade_scorer_destroy(s);
}

Test(echo, draws_a_pruned_rest_once_more)
{
	struct shade_scorer_options options = kind_of(3);
	struct shade_scorer *s;
	uint32_t before[N], after[N], counts[2] = { 0 };

	options.lookahead = 1;
	s = create(options);
	tell_losses(s);
	cr_assert_eq(draw(s, 0, before), N);
	cr_assert_eq(shade_scorer_redraw(s, 0, N / 2, NULL), 0, "%s", shade_score_error());
	order_of(s, 0, after);
	cr_assert_eq(memcmp(before, after, sizeof(before) / 2), 0, "that was read");
	for (uint32_t i = N / 2; i < N; i++)
		counts[after[i] >= N / 2]++;
	order_of(s, 1, after);
	for (uint32_t i = 0; i < N; i++)
		counts[after[i] >= N / 2]++;
	cr_assert_lt(counts[0], counts[1] * 7 / 10);
	shade_scorer_destroy(s);
}

Test(options, that_make_no_sense)
{
	struct shade_scorer_options options;
	struct shade_scorer *s = NULL;

#define REFUSED(kind, field, value, word)                                                          \
	do {                                                                                       \
		options = kind_of(kind);                                                           \
		options.field = (value);                                                           \
		cr_assert_eq(shade_scorer_create(&s, &options), -EINVAL, #field);                  \
		cr_assert(strstr(shade_score_error(), word), "%s", shade_score_error());           \
		cr_assert_null(s);                                                                 \
	} while (0)
	REFUSED(0, keep, 0.001, "keep");
	REFUSED(0, keep, NAN, "keep");
	REFUSED(3, keep, 1.5, "keep");
	REFUSED(1, keep, 0.5, "keep");
	REFUSED(0, substitute, 1, "iis");
	REFUSED(2, substitute, 2, "substitute");
	REFUSED(3, package, 8, "iis");
	REFUSED(0, draws, N - 1, "prune");
	REFUSED(1, multiple, UINT32_MAX, "multiple");
#undef REFUSED
}

/* --- ranks ---------------------------------------------------------------------------------- */

/* Each rank ranks its own batches, and all merge the scores and losses of both. */
Test(ranks, agree)
{
	for (uint32_t kind = 0; kind < KINDS; kind++) {
		struct shade_scorer_options options = kind_of(kind);
		struct shade_scorer *ranks[2], *alone;
		float losses[2][N / 2], kept[N], scores[2][N / 2];
		uint32_t ids[2][N / 2];

		options.multiple = 2;
		options.lookahead = 1;
		alone = create(options);
		for (uint32_t rank = 0; rank < 2; rank++) {
			struct shade_score_batch batch = { .size = sizeof(batch),
							   .count = N / 2,
							   .ids = ids[rank],
							   .losses = losses[rank],
							   .losses_out = losses[rank],
							   .scores_out = scores[rank] };

			ranks[rank] = create(options);
			for (uint32_t i = 0; i < N / 2; i++) {
				ids[rank][i] = 2 * i + rank;
				losses[rank][i] = (float)(random_u32(2 * i + rank) % 100);
			}
			cr_assert_eq(shade_scorer_rank_batch(ranks[rank], &batch), 0);
			cr_assert_eq(shade_scorer_losses(ranks[rank], kept), 0);
			cr_assert(isnan(kept[rank]), "it was only to be ranked");
		}
		for (uint32_t from = 0; from < 2; from++) {
			cr_assert_eq(shade_scorer_update(alone, ids[from], losses[from], N / 2,
							 NULL),
				     0);
			for (uint32_t rank = 0; rank < 2; rank++) {
				cr_assert_eq(shade_scorer_merge(ranks[rank], ids[from],
								scores[from], N / 2),
					     0);
				cr_assert_eq(shade_scorer_merge_losses(ranks[rank], ids[from],
								       losses[from], N / 2),
					     0);
			}
		}
		for (uint64_t epoch = 4; epoch < 9; epoch++) {
			cr_assert_eq(shade_scorer_begin(alone, epoch, NULL), 0);
			cr_assert_eq(shade_scorer_begin(ranks[0], epoch, NULL), 0);
			cr_assert_eq(shade_scorer_begin(ranks[1], epoch, NULL), 0);
			cr_assert_eq(digest_of(ranks[0], epoch + 1), digest_of(alone, epoch + 1));
			cr_assert_eq(digest_of(ranks[1], epoch + 1), digest_of(alone, epoch + 1));
			cr_assert_eq(length_of(ranks[0], epoch, 0, 2),
				     length_of(ranks[1], epoch, 1, 2));
		}
		/* A loss that only one of them knows is found. */
		cr_assert_eq(shade_scorer_merge_losses(ranks[1], (const uint32_t[]){ N / 2 },
						       (const float[]){ 1000 }, 1),
			     0);
		cr_assert_eq(shade_scorer_begin(ranks[0], 9, NULL), 0);
		cr_assert_eq(shade_scorer_begin(ranks[1], 9, NULL), 0);
		cr_assert_neq(digest_of(ranks[0], 10), digest_of(ranks[1], 10), "kind %u", kind);
		shade_scorer_destroy(alone);
		shade_scorer_destroy(ranks[0]);
		shade_scorer_destroy(ranks[1]);
	}
}

Test(ranks, losses_that_are_none)
{
	struct shade_scorer *s = create(kind_of(0)), *other = create_mode(SHADE_SCORE_PADS);
	float losses[N];

	cr_assert_eq(shade_scorer_merge_losses(s, (const uint32_t[]){ 3 }, (const float[]){ NAN },
					       1),
		     -EINVAL);
	cr_assert_eq(shade_scorer_merge_losses(s, (const uint32_t[]){ N }, (const float[]){ 1 }, 1),
		     -ERANGE);
	cr_assert_eq(shade_scorer_merge_losses(s, (const uint32_t[]){ 3 },
					       (const float[]){ INFINITY }, 1),
		     0);
	cr_assert_eq(shade_scorer_losses(s, losses), 0);
	for (uint32_t id = 0; id < N; id++)
		cr_assert(id == 3 ? isinf(losses[id]) : isnan(losses[id]));
	cr_assert_eq(shade_scorer_losses(other, losses), -ENOTSUP);
	cr_assert_eq(shade_scorer_merge_losses(other, (const uint32_t[]){ 3 }, (const float[]){ 1 },
					       1),
		     0);
	shade_scorer_destroy(s);
	shade_scorer_destroy(other);
}

/* --- states --------------------------------------------------------------------------------- */

static void *save(struct shade_scorer *s, uint64_t *size)
{
	int64_t bytes = shade_scorer_save(s, NULL, 0);
	void *state = malloc((size_t)bytes);

	cr_assert_eq(shade_scorer_save(s, state, (uint64_t)bytes), bytes);
	*size = (uint64_t)bytes;
	return state;
}

Test(states, resumed_draws_the_same)
{
	for (uint32_t kind = 0; kind < 2 * KINDS; kind++) {
		struct shade_scorer_options options = kind_of(kind % KINDS);
		struct shade_scorer *s, *resumed = create_mode(SHADE_SCORE_UNIFORM);
		uint64_t size;
		void *state;

		options.lookahead = kind / KINDS;
		options.epochs = 100;
		s = create(options);
		for (uint64_t epoch = 0; epoch < 6; epoch++) {
			cr_assert_eq(shade_scorer_begin(s, epoch, NULL), 0);
			train(s, (uint32_t)epoch * 20, 20);
		}
		state = save(s, &size);
		cr_assert_eq(shade_scorer_load(resumed, state, size), 0, "%s", shade_score_error());
		for (uint64_t epoch = 6; epoch < 12; epoch++) {
			cr_assert_eq(shade_scorer_begin(s, epoch, NULL), 0);
			cr_assert_eq(shade_scorer_begin(resumed, epoch, NULL), 0);
			cr_assert_eq(digest_of(s, epoch), digest_of(resumed, epoch), "kind %u",
				     kind);
			train(s, (uint32_t)epoch * 20, 20);
			train(resumed, (uint32_t)epoch * 20, 20);
		}
		free(state);
		shade_scorer_destroy(s);
		shade_scorer_destroy(resumed);
	}
}

/* On more ranks parts must be equal again, so orders are drawn anew; nothing else is lost. */
Test(states, of_other_ranks)
{
	struct shade_scorer_options options = kind_of(0);
	struct shade_scorer *s, *resumed;
	uint32_t ids[N], other[N], length;
	uint64_t size;
	void *state;

	options.multiple = 2;
	options.lookahead = 1;
	s = create(options);
	tell_losses(s);
	length = draw(s, 6, ids);
	state = save(s, &size);
	options.multiple = 5;
	resumed = create(options);
	cr_assert_eq(shade_scorer_load(resumed, state, size), 0, "%s", shade_score_error());
	cr_assert_eq(shade_scorer_order(resumed, 6, 0, 5, NULL, 0), -ENOENT);
	cr_assert_eq(draw(resumed, 6, other) % 5, 0);
	/* The same samples, but for what fills them up. */
	cr_assert_eq(memcmp(ids, other, (length - 2) * sizeof(*ids)), 0);
	free(state);
	shade_scorer_destroy(s);
	shade_scorer_destroy(resumed);
}
