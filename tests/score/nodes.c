/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Orders for ranks on several machines. sched/ has the rule; here is what the scorer makes of it.
 */
#include <errno.h>
#include <stdlib.h>

#include "helpers.h"

static const uint32_t four[] = { 0, 1, 2, 3 }, uneven[] = { 0, 0, 1, 1, 1 };

static struct shade_score_nodes nodes_of(const uint32_t *node_of, uint32_t world)
{
	return (struct shade_score_nodes){ .size = sizeof(struct shade_score_nodes),
					   .world = world,
					   .node_of = node_of,
					   .block = 25 };
}

static struct shade_scorer *create_on(const struct shade_score_nodes *nodes, uint32_t mode,
				      uint32_t lookahead)
{
	struct shade_scorer_options options = options_of(mode);
	struct shade_scorer *s;

	options.lookahead = lookahead;
	s = create(options);
	cr_assert_eq(shade_scorer_nodes(s, nodes), 0, "%s", shade_score_error());
	return s;
}

/* By sample: the node that reads it in an epoch. */
static void readers_of(struct shade_scorer *s, const struct shade_score_nodes *nodes,
		       uint64_t epoch, uint32_t *reader)
{
	uint32_t ids[N], whole[N], counts[N] = { 0 };

	for (uint32_t rank = 0; rank < nodes->world; rank++) {
		uint32_t length = shade_scorer_length(s, rank, nodes->world);

		cr_assert_eq(shade_scorer_order(s, epoch, rank, nodes->world, ids, N), length);
		for (uint32_t i = 0; i < length; i++) {
			reader[ids[i]] = nodes->node_of[rank];
			counts[ids[i]]++;
		}
	}
	/* Together they are the whole. */
	cr_assert_eq(shade_scorer_order(s, epoch, 0, 1, whole, N), N);
	for (uint32_t i = 0; i < N; i++)
		counts[whole[i]]--;
	for (uint32_t id = 0; id < N; id++)
		cr_assert_eq(counts[id], 0);
}

/* The share of samples that the same node reads in two epochs. */
static double kept(const uint32_t *before, const uint32_t *after)
{
	uint32_t same = 0;

	for (uint32_t id = 0; id < N; id++)
		same += before[id] == after[id];
	return (double)same / N;
}

Test(nodes, read_what_they_have_read)
{
	static const struct {
		const uint32_t *node_of;
		uint32_t world, lookahead;
	} cases[] = { { four, 4, 0 }, { four, 4, 1 }, { uneven, 5, 1 } };

	for (unsigned i = 0; i < 3; i++) {
		struct shade_score_nodes nodes = nodes_of(cases[i].node_of, cases[i].world);
		struct shade_scorer *s = create_on(&nodes, SHADE_SCORE_UNIFORM, cases[i].lookahead);
		uint32_t before[N], after[N];

		for (uint64_t epoch = 0; epoch < 5; epoch++) {
			cr_assert_eq(shade_scorer_begin(s, epoch, NULL), 0, "%s",
				     shade_score_error());
			readers_of(s, &nodes, epoch, after);
			if (epoch)
				cr_assert_gt(kept(before, after), 0.75);
			memcpy(before, after, sizeof(before));
		}
		shade_scorer_destroy(s);
	}
}

/* Who is not asked for nodes deals in turn, as does who is asked for another number of ranks. */
Test(nodes, in_turn_without)
{
	struct shade_score_nodes nodes = nodes_of(four, 4);
	struct shade_scorer *s = create_on(&nodes, SHADE_SCORE_UNIFORM, 0);
	uint32_t whole[N], part[N];

	cr_assert_eq(shade_scorer_begin(s, 0, NULL), 0);
	cr_assert_eq(shade_scorer_order(s, 0, 0, 1, whole, N), N);
	cr_assert_eq(shade_scorer_order(s, 0, 1, 2, part, N), N / 2);
	for (uint32_t i = 0; i < N / 2; i++)
		cr_assert_eq(part[i], whole[2 * i + 1]);
	cr_assert_eq(shade_scorer_nodes(s, NULL), 0);
	cr_assert_eq(shade_scorer_begin(s, 1, NULL), 0);
	cr_assert_eq(shade_scorer_order(s, 1, 0, 1, whole, N), N);
	cr_assert_eq(shade_scorer_order(s, 1, 3, 4, part, N), N / 4);
	for (uint32_t i = 0; i < N / 4; i++)
		cr_assert_eq(part[i], whole[4 * i + 3]);
	shade_scorer_destroy(s);
}

Test(nodes, go_on_after_a_load)
{
	struct shade_score_nodes nodes = nodes_of(four, 4);
	struct shade_scorer *s = create_on(&nodes, SHADE_SCORE_UNIFORM, 1), *resumed;
	uint64_t digests[2];
	uint32_t ids[2][N];
	int64_t size;
	void *state;

	for (uint64_t epoch = 0; epoch < 3; epoch++) {
		train(s, (uint32_t)epoch * 10, 10);
		cr_assert_eq(shade_scorer_begin(s, epoch, NULL), 0);
	}
	size = shade_scorer_save(s, NULL, 0);
	state = malloc((size_t)size);
	cr_assert_eq(shade_scorer_save(s, state, (uint64_t)size), size);
	resumed = create_on(&nodes, SHADE_SCORE_PADS, 0);
	cr_assert_eq(shade_scorer_load(resumed, state, (uint64_t)size), 0, "%s",
		     shade_score_error());
	for (uint64_t epoch = 2; epoch < 6; epoch++) {
		cr_assert_eq(shade_scorer_begin(s, epoch, NULL), 0);
		cr_assert_eq(shade_scorer_begin(resumed, epoch, NULL), 0);
		cr_assert_eq(shade_scorer_order(s, epoch, 2, 4, ids[0], N), N / 4);
		cr_assert_eq(shade_scorer_order(resumed, epoch, 2, 4, ids[1], N), N / 4);
		cr_assert_arr_eq(ids[0], ids[1], N / 4 * sizeof(uint32_t));
		cr_assert_eq(shade_scorer_digest(s, epoch, &digests[0]), 0);
		cr_assert_eq(shade_scorer_digest(resumed, epoch, &digests[1]), 0);
		cr_assert_eq(digests[0], digests[1]);
	}
	shade_scorer_destroy(resumed);
	/* On fewer nodes what the others had goes round, also in orders that were drawn already. */
	nodes = nodes_of(four, 2);
	resumed = create_on(&nodes, SHADE_SCORE_UNIFORM, 0);
	cr_assert_eq(shade_scorer_load(resumed, state, (uint64_t)size), 0, "%s",
		     shade_score_error());
	for (uint64_t epoch = 2; epoch < 6; epoch++) {
		cr_assert_eq(shade_scorer_begin(resumed, epoch, NULL), 0);
		readers_of(resumed, &nodes, epoch, ids[epoch % 2]);
		if (epoch > 2)
			cr_assert_gt(kept(ids[0], ids[1]), 0.75);
	}
	free(state);
	shade_scorer_destroy(resumed);
	shade_scorer_destroy(s);
}

/* Two ranks that have lost their state guess the same. */
Test(nodes, lost_state)
{
	struct shade_score_nodes nodes = nodes_of(four, 4);
	struct shade_scorer *s = create_on(&nodes, SHADE_SCORE_UNIFORM, 0);
	uint32_t first[N], second[N];

	cr_assert_eq(shade_scorer_begin(s, 7, NULL), 0);
	readers_of(s, &nodes, 7, first);
	shade_scorer_destroy(s);
	s = create_on(&nodes, SHADE_SCORE_UNIFORM, 0);
	cr_assert_eq(shade_scorer_begin(s, 9, NULL), 0);
	readers_of(s, &nodes, 9, second);
	cr_assert_gt(kept(first, second), 0.7);
	shade_scorer_destroy(s);
}

/* echo draws for what all nodes hold, and goes on when one of them is gone. */
Test(nodes, capacity_of_all)
{
	struct shade_score_nodes nodes = nodes_of(four, 4);
	struct shade_scorer *s = create_on(&nodes, SHADE_SCORE_ECHO, 1);
	struct shade_scorer_options options = { .size = sizeof(options) };

	for (uint64_t epoch = 0; epoch < 4; epoch++) {
		nodes.capacity = epoch < 2 ? 800 : 60;
		cr_assert_eq(shade_scorer_nodes(s, &nodes), 0);
		cr_assert_eq(shade_scorer_begin(s, epoch, NULL), 0, "%s", shade_score_error());
		cr_assert_eq(shade_scorer_get_options(s, &options), 0);
		cr_assert_eq(options.capacity, nodes.capacity);
	}
	shade_scorer_destroy(s);
}

Test(nodes, that_there_cannot_be)
{
	static const uint32_t far[] = { 0, 2 };
	struct shade_scorer *s = create_mode(SHADE_SCORE_UNIFORM);
	struct shade_score_nodes nodes = nodes_of(four, 0);

	cr_assert_eq(shade_scorer_nodes(s, &nodes), -EINVAL);
	nodes = nodes_of(NULL, 4);
	cr_assert_eq(shade_scorer_nodes(s, &nodes), -EINVAL);
	nodes = nodes_of(far, 2);
	cr_assert_eq(shade_scorer_nodes(s, &nodes), -EINVAL);
	nodes = nodes_of(four, 4);
	nodes.mix = -1;
	cr_assert_eq(shade_scorer_nodes(s, &nodes), -EINVAL);
	nodes.mix = 0;
	nodes.capacity = N + 1;
	cr_assert_eq(shade_scorer_nodes(s, &nodes), -EINVAL);
	nodes.capacity = 0;
	nodes.size--;
	cr_assert_eq(shade_scorer_nodes(s, &nodes), -EINVAL);
	cr_assert_eq(shade_scorer_begin(s, 0, NULL), 0);
	shade_scorer_destroy(s);
}
