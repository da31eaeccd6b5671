/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "shade/assign.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "philox.h"
#include "radix.h"
#include "shade/sched.h"

/* One call of assign_order(). */
struct assignment {
	struct assign_state *state;
	const struct assign_request *request;
	uint32_t nodes, block;
	uint32_t *rank_list;  /* the ranks, by node and then by number */
	uint32_t *rank_start; /* by node, where its ranks begin there; nodes + 1 of them */
	uint32_t *turn;	      /* by node: how many of its entries its ranks have taken */
	uint32_t *quota;      /* by node, in this window */
	uint32_t *taken;      /* by node, in this window */
	uint32_t *left;	      /* by rank: entries that it may still take in this window */
	uint32_t **next;      /* by rank: where its next entry goes */
	uint16_t *node;	      /* by entry of the window */
	uint64_t *ages;	      /* of entries that have an owner, and as many again to sort them */
};

/* --- the state ---------------------------------------------------------------------------------*/

int assign_grow(struct assign_state *state, uint32_t samples)
{
	uint16_t *owner;
	uint64_t *last;

	if (samples > SCHED_SAMPLES_MAX)
		return -EINVAL;
	if (samples <= state->samples)
		return 0;
	owner = realloc(state->owner, samples * sizeof(*owner));
	if (!owner)
		return -ENOMEM;
	state->owner = owner;
	last = realloc(state->last, samples * sizeof(*last));
	if (!last)
		return -ENOMEM;
	state->last = last;
	for (uint32_t id = state->samples; id < samples; id++) {
		owner[id] = ASSIGN_NOBODY;
		last[id] = 0;
	}
	state->samples = samples;
	return 0;
}

void assign_guess(struct assign_state *state, uint32_t nodes)
{
	static const struct philox_stream stream = { .purpose = PHILOX_ASSIGN };

	assert(nodes > 0 && nodes <= ASSIGN_NODES_MAX);
	for (uint32_t id = 0; id < state->samples; id++) {
		state->owner[id] = (uint16_t)(philox_u32(stream, id) % nodes);
		state->last[id] = 0;
	}
}

void assign_free(struct assign_state *state)
{
	free(state->owner);
	free(state->last);
	*state = (struct assign_state){ 0 };
}

uint32_t assign_length(const struct assign_request *request, uint32_t count, uint32_t rank)
{
	return count / request->world + (rank < count % request->world);
}

/* --- begin and end -----------------------------------------------------------------------------*/

static uint32_t node_of(const struct assign_request *request, uint32_t rank)
{
	return request->node_of ? request->node_of[rank] : 0;
}

/* The number of nodes, or 0 if the request makes no sense. */
static uint32_t count_nodes(const struct assign_request *request)
{
	uint32_t nodes = 1;

	if (!request->world || !(request->mix >= 0 && request->mix <= 1))
		return 0;
	for (uint32_t rank = 0; rank < request->world; rank++) {
		uint32_t node = node_of(request, rank);

		if (node >= ASSIGN_NODES_MAX)
			return 0;
		if (node >= nodes)
			nodes = node + 1;
	}
	return nodes;
}

static void assignment_free(struct assignment *a)
{
	free(a->rank_list);
	free(a->rank_start);
	free(a->turn);
	free(a->quota);
	free(a->taken);
	free(a->left);
	free(a->next);
	free(a->node);
	free(a->ages);
}

static int allocate(struct assignment *a, uint32_t world, size_t window)
{
	a->rank_list = calloc(world, sizeof(*a->rank_list));
	a->rank_start = calloc(a->nodes + 1, sizeof(*a->rank_start));
	a->turn = calloc(a->nodes, sizeof(*a->turn));
	a->quota = calloc(a->nodes, sizeof(*a->quota));
	a->taken = calloc(a->nodes, sizeof(*a->taken));
	a->left = calloc(world, sizeof(*a->left));
	a->next = calloc(world, sizeof(*a->next));
	a->node = calloc(window, sizeof(*a->node));
	a->ages = calloc(2 * window, sizeof(*a->ages));
	if (a->rank_list && a->rank_start && a->turn && a->quota && a->taken && a->left &&
	    a->next && a->node && a->ages)
		return 0;
	assignment_free(a);
	return -ENOMEM;
}

/* Lists the ranks of each node, and where each rank's part begins. */
static void index_ranks(struct assignment *a, uint32_t count, uint32_t *parts)
{
	const struct assign_request *request = a->request;

	for (uint32_t rank = 0; rank < request->world; rank++) {
		a->rank_start[node_of(request, rank) + 1]++;
		a->next[rank] = parts;
		parts += assign_length(request, count, rank);
	}
	for (uint32_t node = 0; node < a->nodes; node++)
		a->rank_start[node + 1] += a->rank_start[node];
	for (uint32_t rank = 0; rank < request->world; rank++) {
		uint32_t node = node_of(request, rank);

		a->rank_list[a->rank_start[node] + a->turn[node]++] = rank;
	}
}

static bool are_known(const struct assign_state *state, const uint32_t *order, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (order[i] >= state->samples)
			return false;
	return true;
}

/* --- a window ----------------------------------------------------------------------------------*/

/* What each rank gets of a window of `count` entries, and so each node. */
static void set_quotas(struct assignment *a, uint32_t count)
{
	memset(a->quota, 0, a->nodes * sizeof(*a->quota));
	memset(a->taken, 0, a->nodes * sizeof(*a->taken));
	memset(a->turn, 0, a->nodes * sizeof(*a->turn));
	for (uint32_t rank = 0; rank < a->request->world; rank++) {
		a->left[rank] = assign_length(a->request, count, rank);
		a->quota[node_of(a->request, rank)] += a->left[rank];
	}
}

static bool is_mixed(const struct assignment *a, uint64_t index)
{
	struct philox_stream stream = { .seed = a->request->seed,
					.epoch = a->request->epoch,
					.purpose = PHILOX_ASSIGN };

	return a->request->mix > 0 && philox_unit(stream, index) < a->request->mix;
}

/* Gives each entry to its owner. `from`: its position in the order. */
static void give_to_owners(struct assignment *a, const uint32_t *window, uint32_t count,
			   uint32_t from)
{
	for (uint32_t i = 0; i < count; i++) {
		uint16_t owner = a->state->owner[window[i]];

		if (owner >= a->nodes || is_mixed(a, (uint64_t)from + i))
			owner = ASSIGN_NOBODY;
		else
			a->taken[owner]++;
		a->node[i] = owner;
	}
}

static bool is_over_quota(const struct assignment *a, uint16_t node)
{
	return node != ASSIGN_NOBODY && a->taken[node] > a->quota[node];
}

/* Takes from nodes that have too many what was not read for the longest time. */
static void take_back(struct assignment *a, const uint32_t *window, uint32_t count)
{
	uint64_t *ages = a->ages, *scratch = a->ages + count;
	size_t listed = 0;

	for (uint32_t i = 0; i < count; i++) {
		uint64_t age = a->state->position - a->state->last[window[i]];

		/* The oldest sort first. */
		if (is_over_quota(a, a->node[i]))
			ages[listed++] =
				radix_entry(age < UINT32_MAX ? UINT32_MAX - (uint32_t)age : 0, i);
	}
	if (listed)
		radix_sort(ages, scratch, listed);
	for (size_t k = 0; k < listed; k++) {
		uint32_t i = (uint32_t)ages[k];

		if (is_over_quota(a, a->node[i])) {
			a->taken[a->node[i]]--;
			a->node[i] = ASSIGN_NOBODY;
		}
	}
}

/* What nobody has goes round the nodes that have room. */
static void give_to_others(struct assignment *a, uint32_t count)
{
	uint32_t node = 0;

	for (uint32_t i = 0; i < count; i++) {
		if (a->node[i] != ASSIGN_NOBODY)
			continue;
		while (a->taken[node] >= a->quota[node])
			node = (node + 1) % a->nodes;
		a->taken[node]++;
		a->node[i] = (uint16_t)node;
		node = (node + 1) % a->nodes;
	}
}

/* The ranks of a node take turns; only in the last window some get an entry less than others. */
static uint32_t next_rank(struct assignment *a, uint32_t node)
{
	uint32_t first = a->rank_start[node], ranks = a->rank_start[node + 1] - first, rank;

	do {
		rank = a->rank_list[first + a->turn[node]++ % ranks];
	} while (!a->left[rank]);
	a->left[rank]--;
	return rank;
}

static void hand_out(struct assignment *a, const uint32_t *window, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		*a->next[next_rank(a, a->node[i])]++ = window[i];
		a->state->owner[window[i]] = a->node[i];
		a->state->last[window[i]] = a->state->position + i;
	}
	a->state->position += count;
}

int assign_order(struct assign_state *state, const struct assign_request *request,
		 const uint32_t *order, uint32_t count, uint32_t *parts)
{
	struct assignment a = { .state = state,
				.request = request,
				.nodes = count_nodes(request),
				.block = request->block ? request->block : ASSIGN_BLOCK };
	uint64_t size = (uint64_t)a.block * request->world;
	uint32_t window = size < count ? (uint32_t)size : count;
	int rc;

	if (!a.nodes || count > SCHED_ORDER_MAX || !are_known(state, order, count))
		return -EINVAL;
	rc = allocate(&a, request->world, (size_t)window + 1);
	if (rc)
		return rc;
	index_ranks(&a, count, parts);
	for (uint32_t from = 0; from < count; from += window) {
		uint32_t now = count - from < window ? count - from : window;

		set_quotas(&a, now);
		give_to_owners(&a, order + from, now, from);
		take_back(&a, order + from, now);
		give_to_others(&a, now);
		hand_out(&a, order + from, now);
	}
	assignment_free(&a);
	return 0;
}
