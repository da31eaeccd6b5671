/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Mode adapt, and orders whose rest is drawn anew. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "helpers.h"

/* The training waits for three quarters of the time for a source that gives 10 MB/s. */
static const struct shade_score_span starved = {
	.seconds = 100, .waited = 75, .read = 1e9, .bytes = 1e9, .rate = 1e7
};

static struct shade_scorer *create_adapting(uint32_t lookahead)
{
	struct shade_scorer_options options = options_of(SHADE_SCORE_ADAPT);

	options.lookahead = lookahead;
	return create(options);
}

static double uses_of(struct shade_scorer *s)
{
	struct shade_scorer_options options = { .size = sizeof(options) };

	cr_assert_eq(shade_scorer_get_options(s, &options), 0);
	return options.uses;
}

static uint32_t distinct(const uint32_t *ids, uint32_t count)
{
	bool seen[N] = { false };
	uint32_t found = 0;

	for (uint32_t i = 0; i < count; i++) {
		found += !seen[ids[i]];
		seen[ids[i]] = true;
	}
	return found;
}

/* Until somebody waits, each epoch is a permutation, and each another one. */
Test(adapt, begins_with_permutations)
{
	struct shade_scorer *s = create_adapting(1);
	struct shade_score_span fed = { .seconds = 100, .read = 1e9, .bytes = 8e8, .rate = 1e8 };
	uint32_t ids[N], before[N] = { 0 };

	for (uint64_t epoch = 0; epoch < 4; epoch++) {
		cr_assert_eq(shade_scorer_begin(s, epoch, NULL), 0);
		order_of(s, epoch, ids);
		cr_assert_eq(distinct(ids, N), N);
		cr_assert(memcmp(ids, before, sizeof(ids)));
		memcpy(before, ids, sizeof(ids));
		cr_assert_eq(shade_scorer_measured(s, &fed, 1), 0);
	}
	cr_assert_eq(uses_of(s), 1);
	shade_scorer_destroy(s);
}

/* The first begin() knows nothing of the source, so it draws no epoch ahead. */
Test(adapt, draws_the_second_epoch_after_the_first)
{
	struct shade_scorer *s = create_adapting(1);
	uint32_t ids[N];

	cr_assert_eq(shade_scorer_batch(s, 10), 0);
	cr_assert_eq(shade_scorer_begin(s, 0, NULL), 0);
	cr_assert_eq(shade_scorer_order(s, 1, 0, 1, ids, N), -ENOENT);
	cr_assert_eq(shade_scorer_measured(s, &starved, 1), 1);
	cr_assert_float_eq(uses_of(s), 4 / 0.95, 1e-9);
	cr_assert_eq(shade_scorer_begin(s, 1, NULL), 0);
	order_of(s, 1, ids);
	cr_assert_lt(distinct(ids, N), N * 2 / 3);
	order_of(s, 2, ids);
	cr_assert_lt(distinct(ids, N), N / 2);
	shade_scorer_destroy(s);
}

/* The source has become fast: nothing that was owed comes into the permutations that follow, and
 * they begin with one of their own. */
Test(adapt, goes_back_to_permutations)
{
	struct shade_scorer *s = create_adapting(0);
	struct shade_score_span fed = { .seconds = 100, .read = 1e9, .bytes = 1e8, .rate = 1e9 };
	uint32_t ids[N];
	uint64_t epoch = 0;

	cr_assert_eq(shade_scorer_batch(s, 10), 0);
	cr_assert_eq(shade_scorer_begin(s, epoch++, NULL), 0);
	cr_assert_eq(shade_scorer_measured(s, &starved, 1), 1);
	cr_assert_eq(shade_scorer_begin(s, epoch++, NULL), 0);
	while (uses_of(s) > 1 && epoch < 10) {
		(void)shade_scorer_measured(s, &fed, 1);
		cr_assert_eq(shade_scorer_begin(s, epoch++, NULL), 0);
	}
	for (int i = 0; i < 3; i++, epoch++) {
		cr_assert_eq(shade_scorer_begin(s, epoch, NULL), 0);
		order_of(s, epoch, ids);
		cr_assert_eq(distinct(ids, N), N, "%u distinct", distinct(ids, N));
	}
	shade_scorer_destroy(s);
}

/* Other modes do as they were told. */
Test(adapt, changes_no_other_mode)
{
	struct shade_scorer *s = create_mode(SHADE_SCORE_ECHO);

	cr_assert_eq(shade_scorer_begin(s, 0, NULL), 0);
	cr_assert_eq(shade_scorer_measured(s, &starved, 1), 0);
	cr_assert_eq(uses_of(s), 4);
	shade_scorer_destroy(s);
}

/* What was handed out stays, and what follows goes on with it: samples that came come again only as
 * uses, and none is left out of the pass. */
Test(redraw, keeps_what_was_handed_out)
{
	struct shade_scorer *s = create_adapting(1);
	uint32_t before[N], after[N], next[N], counts[N] = { 0 };

	train(s, 0, 10);
	cr_assert_eq(shade_scorer_batch(s, 10), 0);
	cr_assert_eq(shade_scorer_begin(s, 0, NULL), 0);
	order_of(s, 0, before);
	cr_assert_eq(shade_scorer_measured(s, &starved, 1), 1);
	cr_assert_eq(shade_scorer_redraw(s, 0, 300, NULL), 0, "%s", shade_score_error());
	order_of(s, 0, after);
	cr_assert(!memcmp(before, after, 300 * sizeof(*before)));
	cr_assert(memcmp(before, after, sizeof(before)));
	cr_assert_lt(distinct(after, N), N * 3 / 4);
	order_of(s, 1, next); /* the one ahead, too */
	/* Whoever came in the first 300 was introduced, and comes again in the next pass only. */
	for (uint32_t i = 300; i < 600; i++)
		for (uint32_t k = 0; k < 300; k++)
			cr_assert_neq(after[i], before[k], "%u comes again", after[i]);
	for (uint64_t epoch = 1; epoch < 8; epoch++) {
		cr_assert_eq(shade_scorer_begin(s, epoch, NULL), 0);
		order_of(s, epoch, next);
		for (uint32_t i = 0; i < N; i++)
			counts[next[i]]++;
	}
	for (uint32_t id = 0; id < N; id++)
		cr_assert(counts[id], "%u has not come for seven epochs", id);
	shade_scorer_destroy(s);
}

/* A permutation goes on as it was, in parts or at once: nothing is owed in it. */
Test(redraw, leaves_a_permutation_as_it_is)
{
	static const uint32_t positions[] = { 0, 1, 77, 500, 500, N - 1 };
	struct shade_scorer *s = create_adapting(1), *twin = create_adapting(1);

	for (uint64_t epoch = 0; epoch < 3; epoch++) {
		cr_assert_eq(shade_scorer_begin(s, epoch, NULL), 0);
		cr_assert_eq(shade_scorer_begin(twin, epoch, NULL), 0);
		for (uint32_t i = 0; i < 6; i++) {
			cr_assert_eq(shade_scorer_redraw(s, epoch, positions[i], NULL), 0, "%s",
				     shade_score_error());
			cr_assert_same_order(s, twin, epoch);
		}
		if (epoch)
			cr_assert_same_order(s, twin, epoch + 1);
	}
	shade_scorer_destroy(s);
	shade_scorer_destroy(twin);
}

Test(redraw, refuses_what_cannot_be)
{
	static const uint32_t node_of[] = { 0, 1 };
	struct shade_score_nodes nodes = { .size = sizeof(nodes), .world = 2, .node_of = node_of };
	struct shade_scorer *s = create_adapting(1), *pads = create_mode(SHADE_SCORE_PADS);
	uint32_t before[N], after[N];

	cr_assert_eq(shade_scorer_redraw(s, 0, 0, NULL), -ENOENT);
	cr_assert_eq(shade_scorer_begin(s, 0, NULL), 0);
	cr_assert_eq(shade_scorer_redraw(s, 0, 100, NULL), 0);
	order_of(s, 0, before);
	cr_assert_eq(shade_scorer_redraw(s, 0, N, NULL), -ERANGE);
	cr_assert_eq(shade_scorer_redraw(s, 0, 99, NULL), -ERANGE, "it was drawn from 100 on");
	cr_assert_eq(shade_scorer_redraw(s, 1, 0, NULL), -ENOENT, "it has not begun");
	order_of(s, 0, after);
	cr_assert(!memcmp(before, after, sizeof(before)));
	cr_assert_eq(shade_scorer_begin(pads, 0, NULL), 0);
	cr_assert_eq(shade_scorer_redraw(pads, 0, 0, NULL), -ENOTSUP);
	cr_assert_eq(shade_scorer_nodes(s, &nodes), 0);
	cr_assert_eq(shade_scorer_begin(s, 5, NULL), 0);
	cr_assert_eq(shade_scorer_redraw(s, 5, 0, NULL), -ENOTSUP, "it is assigned to two nodes");
	shade_scorer_destroy(s);
	shade_scorer_destroy(pads);
}

/* A state knows from where on, and with how many uses, an order was drawn. */
Test(redraw, is_saved)
{
	struct shade_scorer *s = create_adapting(1), *other = create_adapting(1);
	int64_t size;
	void *state;

	train(s, 0, 10);
	cr_assert_eq(shade_scorer_begin(s, 0, NULL), 0);
	cr_assert_eq(shade_scorer_measured(s, &starved, 1), 1);
	cr_assert_eq(shade_scorer_redraw(s, 0, 300, NULL), 0);
	size = shade_scorer_save(s, NULL, 0);
	state = malloc((size_t)size);
	cr_assert_eq(shade_scorer_save(s, state, (uint64_t)size), size);
	cr_assert_eq(shade_scorer_load(other, state, (uint64_t)size), 0, "%s", shade_score_error());
	cr_assert_eq(uses_of(other), uses_of(s));
	cr_assert_eq(shade_scorer_redraw(other, 0, 299, NULL), -ERANGE);
	for (uint32_t position = 400; position < N; position += 300) {
		cr_assert_eq(shade_scorer_redraw(s, 0, position, NULL), 0);
		cr_assert_eq(shade_scorer_redraw(other, 0, position, NULL), 0);
		cr_assert_same_order(s, other, 0);
		cr_assert_same_order(s, other, 1);
	}
	free(state);
	shade_scorer_destroy(s);
	shade_scorer_destroy(other);
}
