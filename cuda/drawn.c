/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What was drawn: the orders of the plans, their weights and their digests. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "scorer.h"

/* Of `count` entries. */
static uint32_t part_length(uint32_t count, uint32_t rank, uint32_t world)
{
	if (rank >= world || world > count)
		return 0;
	return count / world + (rank < count % world);
}

/* Where that part begins if they follow each other. */
static size_t part_start(uint32_t count, uint32_t rank, uint32_t world)
{
	uint32_t rest = count % world;

	return (size_t)rank * (count / world) + (rank < rest ? rank : rest);
}

uint32_t shade_scorer_length(struct shade_scorer *s, uint32_t rank, uint32_t world)
{
	uint32_t length;

	pthread_mutex_lock(&s->lock);
	length = part_length(s->state.options.draws, rank, world);
	pthread_mutex_unlock(&s->lock);
	return length;
}

/* The plan of `epoch`, or NULL and the sentence. */
static struct plan *need_plan(struct shade_scorer *s, uint64_t epoch)
{
	struct plan *plan = (struct plan *)plan_find(&s->state, epoch);

	if (!plan)
		score_fail(-ENOENT, "epoch %" PRIu64 " was not begun", epoch);
	return plan;
}

static int64_t order(struct shade_scorer *s, uint64_t epoch, uint32_t rank, uint32_t world,
		     uint32_t *ids, uint64_t room)
{
	const struct plan *plan = need_plan(s, epoch);
	uint32_t length = plan ? part_length(plan->count, rank, world) : 0, taken = 0;
	struct pads_request request;
	int rc;

	if (!plan)
		return -ENOENT;
	if (!length)
		return score_fail(-ERANGE, "there is no rank %" PRIu32 " of %" PRIu32, rank, world);
	if (!ids)
		return length;
	if (room < length)
		return score_fail(-ENOSPC, "the part has %" PRIu32 " entries", length);
	if (plan->parts && plan->world == world) {
		memcpy(ids, plan->parts + part_start(plan->count, rank, world),
		       length * sizeof(*ids));
		return length;
	}
	if (plan->order) {
		for (uint32_t i = rank; i < plan->count; i += world)
			ids[taken++] = plan->order[i];
		return length;
	}
	request = plan_request(&s->state, plan, rank, world);
	rc = pads_draw(&request, ids);
	if (rc)
		return score_fail(rc, "the order of epoch %" PRIu64 " cannot be drawn: %s", epoch,
				  strerror(-rc));
	return length;
}

int64_t shade_scorer_order(struct shade_scorer *s, uint64_t epoch, uint32_t rank, uint32_t world,
			   uint32_t *ids, uint64_t room)
{
	int64_t rc;

	pthread_mutex_lock(&s->lock);
	rc = order(s, epoch, rank, world, ids, room);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

/* Computed once a plan: it costs about as much as the draw. */
static int fill_weights(const struct scorer_state *state, struct plan *plan)
{
	const struct shade_scorer_options *o = &state->options;
	struct pads_request request = plan_request(state, plan, 0, 1);
	float *weights;
	int rc = 0;

	if (plan->weights)
		return 0;
	weights = malloc(o->samples * sizeof(*weights));
	if (!weights)
		return score_no_memory();
	request.echo = &plan->echo;
	if (o->mode == SHADE_SCORE_PADS || scorer_echoes(o))
		rc = pads_weights(&request, weights);
	else
		for (uint32_t id = 0; id < o->samples; id++)
			weights[id] = plan->chances ? 1 / plan->chances[id] : 1;
	if (rc) {
		free(weights);
		return score_fail(rc, "weights cannot be computed: %s", strerror(-rc));
	}
	plan->weights = weights;
	return 0;
}

static int weights_of(struct shade_scorer *s, uint64_t epoch, const uint32_t *ids, float *weights,
		      uint32_t count)
{
	const struct shade_scorer_options *o = &s->state.options;
	struct plan *plan = need_plan(s, epoch);
	int rc;

	if (!plan)
		return -ENOENT;
	if (o->mode == SHADE_SCORE_PAPER)
		return score_fail(-ENOTSUP, "mode paper has no weights");
	if (o->substitute)
		return score_fail(-ENOTSUP, "no weights make up for substitutes");
	for (uint32_t i = 0; i < count; i++)
		if (ids[i] >= o->samples)
			return score_fail(-ERANGE, "there is no sample %" PRIu32, ids[i]);
	rc = fill_weights(&s->state, plan);
	for (uint32_t i = 0; !rc && i < count; i++)
		weights[i] = plan->weights[ids[i]];
	return rc;
}

int shade_scorer_weights(struct shade_scorer *s, uint64_t epoch, const uint32_t *ids,
			 float *weights, uint32_t count)
{
	int rc;

	pthread_mutex_lock(&s->lock);
	rc = weights_of(s, epoch, ids, weights, count);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

static uint64_t digest_plan(const struct shade_scorer_options *o, const struct plan *plan)
{
	uint64_t numbers[] = { o->samples,	 o->seed,	  o->mode,     o->draws,
			       o->max_repeats,	 o->cover_epochs, o->capacity, plan->epoch,
			       !!plan->resident, plan->start,	  o->epochs,   o->multiple,
			       o->substitute,	 o->package,	  plan->count };
	double reals[] = { o->rep, plan->uses, o->strength, o->keep };
	uint64_t hash = score_hash(0, numbers, sizeof(numbers));

	hash = score_hash(hash, reals, sizeof(reals));
	hash = score_hash(hash, plan->scores, o->samples * sizeof(*plan->scores));
	if (plan->chances)
		hash = score_hash(hash, plan->chances, o->samples * sizeof(*plan->chances));
	if (plan->resident)
		hash = score_hash(hash, plan->resident, plan_words(o) * sizeof(*plan->resident));
	/* echo's order comes from its past as well, and so do those that leave samples out. */
	if (plan->order)
		hash = score_hash(hash, plan->order, plan->count * sizeof(*plan->order));
	if (plan->parts)
		hash = score_hash(hash, plan->parts, plan->count * sizeof(*plan->parts));
	return hash;
}

int shade_scorer_digest(struct shade_scorer *s, uint64_t epoch, uint64_t *digest)
{
	const struct plan *plan;

	pthread_mutex_lock(&s->lock);
	plan = need_plan(s, epoch);
	if (plan)
		*digest = digest_plan(&s->state.options, plan);
	pthread_mutex_unlock(&s->lock);
	return plan ? 0 : -ENOENT;
}
