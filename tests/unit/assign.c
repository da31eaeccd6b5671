/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the assignment of orders to ranks promises: exact parts, the rule, and its gain. */
#include "shade/assign.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "helpers.h"
#include "shade/pads.h"

#define N 3000
#define RANKS_MAX 16

static void draw(uint64_t epoch, uint32_t *order)
{
	struct pads_request request = {
		.mode = PADS_UNIFORM, .samples = N, .seed = 7, .epoch = epoch
	};

	cr_assert_eq(pads_draw(&request, order), 0);
}

/* --- a naive twin -------------------------------------------------------------------------------
 */

/* The rule, word by word. */
struct twin {
	int owner[N];
	long last[N], position;
};

static void twin_begin(struct twin *twin)
{
	for (int id = 0; id < N; id++)
		twin->owner[id] = -1;
	twin->position = 0;
}

static int ranks_on(const struct assign_request *r, int node)
{
	int ranks = 0;

	for (uint32_t rank = 0; rank < r->world; rank++)
		ranks += r->node_of[rank] == (uint32_t)node;
	return ranks;
}

/* Whole windows only: quotas have no remainder. */
static void twin_window(struct twin *twin, const struct assign_request *r, int nodes,
			const uint32_t *ids, int count, int *node)
{
	int taken[RANKS_MAX] = { 0 }, at = 0;

	for (int i = 0; i < count; i++) {
		node[i] = twin->owner[ids[i]];
		if (node[i] >= 0)
			taken[node[i]]++;
	}
	for (int n = 0; n < nodes; n++)
		while (taken[n] > (int)r->block * ranks_on(r, n)) {
			int oldest = -1;

			for (int i = 0; i < count; i++)
				if (node[i] == n &&
				    (oldest < 0 || twin->last[ids[i]] < twin->last[ids[oldest]]))
					oldest = i;
			node[oldest] = -1;
			taken[n]--;
		}
	for (int i = 0; i < count; i++) {
		if (node[i] >= 0)
			continue;
		while (taken[at] == (int)r->block * ranks_on(r, at))
			at = (at + 1) % nodes;
		node[i] = at;
		taken[at]++;
		at = (at + 1) % nodes;
	}
	for (int i = 0; i < count; i++) {
		twin->owner[ids[i]] = node[i];
		twin->last[ids[i]] = twin->position++;
	}
}

/* A rank's part: every so many-th entry of its node's. */
static int twin_part(const struct assign_request *r, uint32_t rank, const uint32_t *ids, int count,
		     const int *node, uint32_t *part)
{
	int before = 0, seen = 0, length = 0;

	for (uint32_t other = 0; other < rank; other++)
		before += r->node_of[other] == r->node_of[rank];
	for (int i = 0; i < count; i++)
		if (node[i] == (int)r->node_of[rank] && seen++ % ranks_on(r, node[i]) == before)
			part[length++] = ids[i];
	return length;
}

Test(assign, is_what_the_rule_says)
{
	static const uint32_t layouts[][RANKS_MAX] = { { 0, 1, 2 }, { 0, 0, 1 }, { 1, 0, 1 } };
	static uint32_t order[N], parts[N], part[N];
	static int node[N];
	static struct twin twin;

	for (unsigned layout = 0; layout < 3; layout++) {
		struct assign_request r = { .world = 3, .node_of = layouts[layout], .block = 50 };
		struct assign_state state = { 0 };
		int nodes = layout ? 2 : 3;

		twin_begin(&twin);
		cr_assert_eq(assign_grow(&state, N), 0);
		for (uint64_t epoch = 0; epoch < 5; epoch++) {
			uint32_t starts[3] = { 0, N / 3, 2 * N / 3 };

			draw(epoch, order);
			cr_assert_eq(assign_order(&state, &r, order, N, parts), 0);
			for (int from = 0; from < N; from += 150) {
				twin_window(&twin, &r, nodes, order + from, 150, node);
				for (uint32_t rank = 0; rank < 3; rank++) {
					int length =
						twin_part(&r, rank, order + from, 150, node, part);

					cr_assert_eq(length, 50);
					cr_assert_arr_eq(parts + starts[rank], part,
							 50 * sizeof(*part));
					starts[rank] += 50;
				}
			}
			for (int id = 0; id < N; id++)
				cr_assert_eq(state.owner[id], twin.owner[id]);
		}
		assign_free(&state);
	}
}

/* --- parts -------------------------------------------------------------------------------------
 */

/* Whatever the sizes: each entry is somebody's, once, and each rank gets its exact number. */
Test(assign, parts_are_exact)
{
	static uint32_t order[N], parts[N], counts[N];
	uint32_t node_of[RANKS_MAX];

	for (uint32_t world = 1; world <= RANKS_MAX; world++)
		for (uint32_t count = N - 40; count < N; count += 13) {
			struct assign_request r = { .world = world,
						    .node_of = node_of,
						    .block = 1 + count % 70,
						    .mix = world % 3 * 0.3 };
			struct assign_state state = { 0 };
			uint32_t sum = 0;

			for (uint32_t rank = 0; rank < world; rank++) {
				node_of[rank] = rank * rank % 5; /* some nodes have none */
				sum += assign_length(&r, count, rank);
			}
			cr_assert_eq(sum, count);
			cr_assert_eq(assign_grow(&state, N), 0);
			for (uint64_t epoch = 0; epoch < 3; epoch++) {
				draw(epoch, order);
				r.epoch = epoch;
				memset(counts, 0, sizeof(counts));
				cr_assert_eq(assign_order(&state, &r, order, count, parts), 0);
				for (uint32_t i = 0; i < count; i++) {
					counts[order[i]]++;
					counts[parts[i]]--;
				}
				for (uint32_t id = 0; id < N; id++)
					cr_assert_eq(counts[id], 0);
			}
			assign_free(&state);
		}
}

/* One node: its ranks take turns, as they always did. */
Test(assign, one_node_takes_turns)
{
	static uint32_t order[N], parts[N], part[N];
	struct assign_request r = { .world = 7 };
	struct assign_state state = { 0 };
	uint32_t at = 0;

	cr_assert_eq(assign_grow(&state, N), 0);
	draw(1, order);
	cr_assert_eq(assign_order(&state, &r, order, N, parts), 0);
	for (uint32_t rank = 0; rank < 7; rank++) {
		struct pads_request request = { .mode = PADS_UNIFORM,
						.samples = N,
						.seed = 7,
						.epoch = 1,
						.rank = rank,
						.world = 7 };

		cr_assert_eq(pads_draw(&request, part), 0);
		cr_assert_arr_eq(parts + at, part, pads_length(&request) * sizeof(*part));
		at += pads_length(&request);
	}
	assign_free(&state);
}

/* --- owners ------------------------------------------------------------------------------------
 */

/* The share of entries that the node gets that has read them before. */
static double kept(struct assign_state *state, const struct assign_request *r, uint64_t epoch)
{
	static uint32_t order[N], parts[N];
	static uint16_t before[N];
	uint32_t same = 0;

	memcpy(before, state->owner, sizeof(before));
	draw(epoch, order);
	cr_assert_eq(assign_order(state, r, order, N, parts), 0);
	for (uint32_t id = 0; id < N; id++)
		same += before[id] == state->owner[id];
	return (double)same / N;
}

Test(assign, most_samples_stay_where_they_are)
{
	static const uint32_t node_of[] = { 0, 1, 2, 3 };
	struct assign_request r = { .world = 4, .node_of = node_of, .block = 150 };
	struct assign_state state = { 0 };
	double share;

	cr_assert_eq(assign_grow(&state, N), 0);
	cr_assert_eq(kept(&state, &r, 0), 0);
	for (uint64_t epoch = 1; epoch < 6; epoch++)
		cr_assert_gt(kept(&state, &r, epoch), 0.85);
	/* A quarter of what is mixed comes to its owner by chance. */
	r.mix = 0.5;
	r.epoch = 6;
	share = kept(&state, &r, 6);
	cr_assert_float_eq(share, 0.6, 0.06);
	r.mix = 1;
	r.epoch = 7;
	share = kept(&state, &r, 7);
	cr_assert_float_eq(share, 0.25, 0.06);
	assign_free(&state);
}

Test(assign, a_guess_is_as_good_as_an_epoch)
{
	static const uint32_t node_of[] = { 0, 1, 2, 3 };
	struct assign_request r = { .world = 4, .node_of = node_of, .block = 150 };
	struct assign_state state = { 0 };

	cr_assert_eq(assign_grow(&state, N), 0);
	assign_guess(&state, 4);
	cr_assert_gt(kept(&state, &r, 0), 0.85);
	assign_free(&state);
}

/* Those of a node that is gone go to the others. */
Test(assign, fewer_nodes)
{
	static const uint32_t four[] = { 0, 1, 2, 3 }, three[] = { 0, 1, 2 };
	struct assign_request r = { .world = 4, .node_of = four, .block = 100 };
	struct assign_state state = { 0 };
	double share;

	cr_assert_eq(assign_grow(&state, N), 0);
	for (uint64_t epoch = 0; epoch < 3; epoch++)
		kept(&state, &r, epoch);
	r.world = 3;
	r.node_of = three;
	share = kept(&state, &r, 3);
	cr_assert_float_eq(share, 0.75, 0.05);
	cr_assert_gt(kept(&state, &r, 4), 0.85);
	assign_free(&state);
}

Test(assign, what_makes_no_sense_changes_nothing)
{
	static const uint32_t node_of[] = { 0, ASSIGN_NODES_MAX }, none_of[] = { UINT32_MAX, 0 };
	uint32_t order[] = { 0, 1, 9 }, parts[3] = { 5, 5, 5 };
	struct assign_state state = { 0 };
	struct assign_request none = { .world = 0 }, far = { .world = 2, .node_of = node_of },
			      much = { .world = 1, .mix = 1.5 }, good = { .world = 1 };

	cr_assert_eq(assign_grow(&state, 9), 0);
	cr_assert_eq(assign_order(&state, &none, order, 2, parts), -EINVAL);
	cr_assert_eq(assign_order(&state, &far, order, 2, parts), -EINVAL);
	cr_assert_eq(assign_order(&state, &much, order, 2, parts), -EINVAL);
	far.node_of = none_of;
	cr_assert_eq(assign_order(&state, &far, order, 2, parts), -EINVAL);
	cr_assert_eq(assign_order(&state, &good, order, 3, parts), -EINVAL, "9 is not known");
	cr_assert_eq(parts[0], 5);
	cr_assert_eq(state.position, 0);
	cr_assert_eq(assign_order(&state, &good, order, 0, parts), 0, "an empty order");
	assign_free(&state);
}
