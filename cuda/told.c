/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a training tells of itself: its nodes, its batches and its source. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "scorer.h"
#include "shade/sched.h"

static int check_nodes(const struct shade_scorer *s, const struct shade_score_nodes *nodes)
{
	if (nodes->size != sizeof(*nodes))
		return score_fail(-EINVAL, "struct shade_score_nodes has another size here");
	if (!nodes->node_of)
		return score_fail(-EINVAL, "nobody says which node each rank is on");
	if (!nodes->world || nodes->world > s->state.options.draws)
		return score_fail(-EINVAL, "there cannot be %" PRIu32 " ranks", nodes->world);
	if (scorer_skips(&s->state.options) && s->state.options.multiple % nodes->world)
		return score_fail(-EINVAL,
				  "the entries of an epoch are a multiple of %" PRIu32
				  ", not of %" PRIu32 " ranks: say so in the options",
				  s->state.options.multiple, nodes->world);
	if (nodes->capacity > s->state.options.samples)
		return score_fail(-EINVAL, "a capacity of %" PRIu32 " is more than all samples",
				  nodes->capacity);
	if (!(nodes->mix >= 0 && nodes->mix <= 1))
		return score_fail(-EINVAL, "mix is a share from 0 to 1");
	for (uint32_t rank = 0; rank < nodes->world; rank++)
		if (nodes->node_of[rank] >= nodes->world ||
		    nodes->node_of[rank] >= ASSIGN_NODES_MAX)
			return score_fail(-EINVAL, "rank %" PRIu32 " is on node %" PRIu32, rank,
					  nodes->node_of[rank]);
	return 0;
}

/* Ranks of one node take turns, which needs no owners. */
static bool is_one_node(const struct shade_score_nodes *nodes)
{
	for (uint32_t rank = 1; rank < nodes->world; rank++)
		if (nodes->node_of[rank] != nodes->node_of[0])
			return false;
	return true;
}

static int set_nodes(struct shade_scorer *s, const struct shade_score_nodes *nodes)
{
	uint32_t *node_of = NULL;
	int rc = nodes ? check_nodes(s, nodes) : 0;

	if (rc)
		return rc;
	if (nodes && nodes->capacity && scorer_echoes(&s->state.options))
		s->state.options.capacity = nodes->capacity;
	if (nodes && is_one_node(nodes))
		nodes = NULL;
	if (nodes) {
		node_of = malloc(nodes->world * sizeof(*node_of));
		if (!node_of)
			return score_no_memory();
		memcpy(node_of, nodes->node_of, nodes->world * sizeof(*node_of));
	}
	free((void *)s->state.nodes.node_of);
	s->state.nodes = (struct assign_request){ 0 };
	if (nodes)
		s->state.nodes = (struct assign_request){ .world = nodes->world,
							  .node_of = node_of,
							  .block = nodes->block,
							  .mix = nodes->mix };
	return 0;
}

int shade_scorer_nodes(struct shade_scorer *s, const struct shade_score_nodes *nodes)
{
	int rc;

	pthread_mutex_lock(&s->lock);
	rc = set_nodes(s, nodes);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

int shade_scorer_batch(struct shade_scorer *s, uint32_t entries)
{
	if (entries > SCHED_ORDER_MAX)
		return score_fail(-EINVAL, "a step cannot have %" PRIu32 " entries", entries);
	pthread_mutex_lock(&s->lock);
	s->state.batch = entries;
	pthread_mutex_unlock(&s->lock);
	return 0;
}

/* --- neighbours ------------------------------------------------------------------------- */

static int check_neighbours(const uint32_t *ids, uint32_t samples)
{
	uint8_t *seen = calloc(samples, 1);
	int rc = 0;

	if (!seen)
		return score_no_memory();
	for (uint32_t i = 0; !rc && i < samples; i++) {
		if (ids[i] >= samples)
			rc = score_fail(-ERANGE, "there is no sample %" PRIu32, ids[i]);
		else if (seen[ids[i]]++)
			rc = score_fail(-EINVAL, "sample %" PRIu32 " is a neighbour twice", ids[i]);
	}
	free(seen);
	return rc;
}

static int set_neighbours(struct scorer_state *state, const uint32_t *ids)
{
	uint32_t samples = state->options.samples, *copy = NULL;
	int rc = ids ? check_neighbours(ids, samples) : 0;

	if (rc)
		return rc;
	if (ids) {
		copy = malloc(samples * sizeof(*copy));
		if (!copy)
			return score_no_memory();
		memcpy(copy, ids, samples * sizeof(*copy));
	}
	free(state->neighbours);
	state->neighbours = copy;
	return 0;
}

int shade_scorer_neighbours(struct shade_scorer *s, const uint32_t *ids)
{
	int rc;

	pthread_mutex_lock(&s->lock);
	rc = set_neighbours(&s->state, ids);
	pthread_mutex_unlock(&s->lock);
	return rc;
}
