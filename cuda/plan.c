/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Orders. Beginning an epoch freezes scores and residency into a plan and draws from that, so
 * what was announced stays true whatever is scored later.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "scorer.h"
#include "shade/sched.h"

static int say_no_memory(void)
{
	return score_fail(-ENOMEM, "out of memory");
}

size_t plan_words(const struct shade_scorer_options *options)
{
	return ((size_t)options->samples + 63) / 64;
}

void plan_free(struct plan *plan)
{
	free(plan->scores);
	free(plan->resident);
	free(plan->order);
	free(plan->weights);
	free(plan->parts);
	pads_echo_free(&plan->echo);
	*plan = (struct plan){ 0 };
}

const struct plan *plan_find(const struct scorer_state *state, uint64_t epoch)
{
	for (unsigned i = 0; i < PLANS; i++)
		if (state->plans[i].drawn && state->plans[i].epoch == epoch)
			return &state->plans[i];
	return NULL;
}

static struct pads_request request_of(const struct scorer_state *state, const struct plan *plan,
				      uint32_t rank, uint32_t world)
{
	const struct shade_scorer_options *o = &state->options;

	return (struct pads_request){
		.mode = (enum pads_mode)o->mode,
		.samples = o->samples,
		.scores = plan->scores,
		.resident = plan->resident,
		.seed = o->seed,
		.epoch = plan->epoch,
		.draws = o->draws,
		.rank = rank,
		.world = world,
		.rep = o->rep,
		.max_repeats = o->max_repeats,
		.cover_epochs = o->cover_epochs,
		.turn = plan->turn,
		.uses = o->uses,
		.strength = o->strength,
		.capacity = o->capacity,
		.batch = state->batch,
	};
}

/* --- beginning an epoch ------------------------------------------------------------- */

static int echo_copy(struct pads_echo *to, const struct pads_echo *from)
{
	size_t bytes = from->use_count * sizeof(*from->uses);

	*to = *from;
	to->uses = malloc(bytes + 1);
	if (!to->uses)
		return say_no_memory();
	if (from->use_count)
		memcpy(to->uses, from->uses, bytes);
	return 0;
}

static int assigned_copy(struct assign_state *to, const struct assign_state *from, uint32_t samples)
{
	*to = (struct assign_state){ 0 };
	if (assign_grow(to, samples))
		return say_no_memory();
	if (!from->samples)
		return 0;
	to->position = from->position;
	memcpy(to->owner, from->owner, samples * sizeof(*to->owner));
	memcpy(to->last, from->last, samples * sizeof(*to->last));
	return 0;
}

/* Clears the bits beyond the last sample: nothing reads them, but they would be saved. */
static void copy_bitmap(uint64_t *to, const uint8_t *from, uint32_t samples)
{
	for (uint32_t byte = 0; byte < (samples + 7) / 8; byte++) {
		uint32_t left = samples - byte * 8;
		uint8_t bits = left < 8 ? from[byte] & ((1u << left) - 1) : from[byte];

		to[byte / 8] |= (uint64_t)bits << byte % 8 * 8;
	}
}

static int plan_init(struct plan *plan, const struct scorer_state *state, uint64_t epoch,
		     const uint8_t *resident)
{
	const struct shade_scorer_options *o = &state->options;

	*plan = (struct plan){ .epoch = epoch };
	plan->scores = malloc(o->samples * sizeof(*plan->scores));
	if (resident)
		plan->resident = calloc(plan_words(o), sizeof(*plan->resident));
	if (o->mode != SHADE_SCORE_PAPER)
		plan->order = malloc(o->draws * sizeof(*plan->order));
	if (!plan->scores || (resident && !plan->resident) ||
	    (o->mode != SHADE_SCORE_PAPER && !plan->order))
		return say_no_memory();
	memcpy(plan->scores, state->scores, o->samples * sizeof(*plan->scores));
	if (resident)
		copy_bitmap(plan->resident, resident, o->samples);
	return 0;
}

/* Draws into an empty plan; `turn` and `echo` advance. */
static int plan_draw(struct plan *plan, const struct scorer_state *state, uint64_t epoch,
		     const uint8_t *resident, uint64_t *turn, struct pads_echo *echo)
{
	struct pads_request request;
	int rc = plan_init(plan, state, epoch, resident);

	/* The first epoch has the turn of its number, so that trainings that know no more than that
	 * number do not all begin with the same one. */
	plan->turn = *turn ? *turn : epoch + 1;
	*turn = plan->turn + 1;
	if (!rc && state->options.mode == SHADE_SCORE_ECHO)
		rc = echo_copy(&plan->echo, echo);
	if (rc)
		return rc;
	request = request_of(state, plan, 0, 1);
	request.echo = echo;
	if (plan->order)
		rc = pads_draw(&request, plan->order);
	if (rc)
		return score_fail(rc, "the order of epoch %" PRIu64 " cannot be drawn: %s", epoch,
				  strerror(-rc));
	plan->drawn = true;
	return 0;
}

/* Assigns an order that was drawn; `assigned` advances. */
static int plan_assign(struct plan *plan, const struct scorer_state *state,
		       struct assign_state *assigned)
{
	struct assign_request request = state->nodes;
	uint32_t draws = state->options.draws, nodes = 0;
	int rc;

	if (!request.world || !plan->order)
		return 0;
	for (uint32_t rank = 0; rank < request.world; rank++)
		if (request.node_of[rank] >= nodes)
			nodes = request.node_of[rank] + 1;
	if (!assigned->position && plan->epoch)
		assign_guess(assigned, nodes);
	request.seed = state->options.seed;
	request.epoch = plan->epoch;
	plan->world = request.world;
	plan->parts = malloc(draws * sizeof(*plan->parts));
	rc = plan->parts ? assign_order(assigned, &request, plan->order, draws, plan->parts)
			 : -ENOMEM;
	return rc ? score_fail(rc, "the order of epoch %" PRIu64 " cannot be assigned: %s",
			       plan->epoch, strerror(-rc))
		  : 0;
}

/* The same order, to be assigned to another number of ranks. */
static int plan_copy(struct plan *plan, const struct plan *from, const struct scorer_state *state)
{
	const struct shade_scorer_options *o = &state->options;
	int rc = plan_init(plan, state, from->epoch, NULL);

	if (rc)
		return rc;
	assert(plan->order && from->order); /* it was assigned */
	if (from->resident)
		plan->resident = malloc(plan_words(o) * sizeof(*plan->resident));
	if (from->resident && !plan->resident)
		return say_no_memory();
	memcpy(plan->scores, from->scores, o->samples * sizeof(*plan->scores));
	memcpy(plan->order, from->order, o->draws * sizeof(*plan->order));
	if (from->resident)
		memcpy(plan->resident, from->resident, plan_words(o) * sizeof(*plan->resident));
	plan->turn = from->turn;
	plan->drawn = true;
	return o->mode == SHADE_SCORE_ECHO ? echo_copy(&plan->echo, &from->echo) : 0;
}

/* A training resumes on other ranks than the order was assigned to. */
static bool is_for_others(const struct scorer_state *state, const struct plan *plan)
{
	return state->nodes.world && plan->parts && plan->world != state->nodes.world;
}

/* Draws the orders that must be known when `epoch` begins, and are not yet. */
static int draw_plans(const struct scorer_state *state, uint64_t epoch, const uint8_t *resident,
		      struct plan *plans, uint64_t *turn, struct pads_echo *echo,
		      struct assign_state *assigned)
{
	assert(state->options.lookahead < PLANS);
	for (unsigned i = 0; i <= state->options.lookahead; i++) {
		const struct plan *drawn = plan_find(state, epoch + i);
		int rc;

		if (drawn && !is_for_others(state, drawn))
			continue;
		rc = drawn ? plan_copy(&plans[i], drawn, state)
			   : plan_draw(&plans[i], state, epoch + i, resident, turn, echo);
		if (!rc)
			rc = plan_assign(&plans[i], state, assigned);
		if (rc)
			return rc;
	}
	return 0;
}

/* Takes over what was drawn, and frees plans of epochs that have passed. */
static void replace_plans(struct scorer_state *state, uint64_t epoch, struct plan *fresh)
{
	for (unsigned i = 0; i < PLANS; i++) {
		struct plan *old = &state->plans[i];

		for (unsigned k = 0; k < PLANS; k++)
			if (old->drawn && !fresh[k].drawn && old->epoch == epoch + k) {
				fresh[k] = *old;
				*old = (struct plan){ 0 };
			}
		plan_free(old);
	}
	memcpy(state->plans, fresh, sizeof(state->plans));
}

/* The turn of the next draw. One that was drawn ahead for an epoch that was passed over is nobody's
 * yet. */
static uint64_t next_turn(const struct scorer_state *state, uint64_t epoch)
{
	const struct plan *ahead = &state->plans[1];

	if (ahead->drawn && ahead->epoch != epoch && ahead->epoch != epoch + 1)
		return ahead->turn;
	return state->turn;
}

static int begin(struct shade_scorer *s, uint64_t epoch, const uint8_t *resident)
{
	struct plan fresh[PLANS] = { 0 };
	uint64_t turn = next_turn(&s->state, epoch);
	struct pads_echo echo = { 0 };
	struct assign_state assigned = { 0 };
	int rc = scorer_drain(s, true);

	if (rc)
		return rc;
	if (epoch == UINT64_MAX)
		return score_fail(-ERANGE, "epoch %" PRIu64 " is too large", epoch);
	rc = echo_copy(&echo, &s->state.echo);
	if (!rc && s->state.nodes.world)
		rc = assigned_copy(&assigned, &s->state.assigned, s->state.options.samples);
	if (!rc)
		rc = draw_plans(&s->state, epoch, resident, fresh, &turn, &echo, &assigned);
	if (rc) {
		for (unsigned i = 0; i < PLANS; i++)
			plan_free(&fresh[i]);
		pads_echo_free(&echo);
		assign_free(&assigned);
		return rc;
	}
	replace_plans(&s->state, epoch, fresh);
	pads_echo_free(&s->state.echo);
	s->state.echo = echo;
	s->state.turn = turn;
	if (s->state.nodes.world) {
		assign_free(&s->state.assigned);
		s->state.assigned = assigned;
	}
	return 0;
}

/* --- nodes ---------------------------------------------------------------------------- */

static int check_nodes(const struct shade_scorer *s, const struct shade_score_nodes *nodes)
{
	if (nodes->size != sizeof(*nodes))
		return score_fail(-EINVAL, "struct shade_score_nodes has another size here");
	if (!nodes->node_of)
		return score_fail(-EINVAL, "nobody says which node each rank is on");
	if (!nodes->world || nodes->world > s->state.options.draws)
		return score_fail(-EINVAL, "there cannot be %" PRIu32 " ranks", nodes->world);
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
	if (nodes && nodes->capacity && s->state.options.mode == SHADE_SCORE_ECHO)
		s->state.options.capacity = nodes->capacity;
	if (nodes && is_one_node(nodes))
		nodes = NULL;
	if (nodes) {
		node_of = malloc(nodes->world * sizeof(*node_of));
		if (!node_of)
			return say_no_memory();
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

int shade_scorer_begin(struct shade_scorer *s, uint64_t epoch, const uint8_t *resident)
{
	int rc;

	pthread_mutex_lock(&s->lock);
	rc = begin(s, epoch, resident);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

/* --- what was drawn ------------------------------------------------------------------- */

static uint32_t part_length(const struct shade_scorer_options *o, uint32_t rank, uint32_t world)
{
	if (rank >= world || world > o->draws)
		return 0;
	return o->draws / world + (rank < o->draws % world);
}

/* Where that part begins if they follow each other. */
static size_t part_start(const struct shade_scorer_options *o, uint32_t rank, uint32_t world)
{
	uint32_t rest = o->draws % world;

	return (size_t)rank * (o->draws / world) + (rank < rest ? rank : rest);
}

uint32_t shade_scorer_length(struct shade_scorer *s, uint32_t rank, uint32_t world)
{
	uint32_t length;

	pthread_mutex_lock(&s->lock);
	length = part_length(&s->state.options, rank, world);
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
	const struct shade_scorer_options *o = &s->state.options;
	const struct plan *plan = need_plan(s, epoch);
	uint32_t length = part_length(o, rank, world), taken = 0;
	struct pads_request request;
	int rc;

	if (!plan)
		return -ENOENT;
	if (!length)
		return score_fail(-ERANGE, "there is no rank %" PRIu32 " of %" PRIu32, rank, world);
	if (room < length)
		return score_fail(-ENOSPC, "the part has %" PRIu32 " entries", length);
	if (plan->parts && plan->world == world) {
		memcpy(ids, plan->parts + part_start(o, rank, world), length * sizeof(*ids));
		return length;
	}
	if (plan->order) {
		for (uint32_t i = rank; i < o->draws; i += world)
			ids[taken++] = plan->order[i];
		return length;
	}
	request = request_of(&s->state, plan, rank, world);
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
	struct pads_request request = request_of(state, plan, 0, 1);
	float *weights;
	int rc = 0;

	if (plan->weights)
		return 0;
	weights = malloc(o->samples * sizeof(*weights));
	if (!weights)
		return say_no_memory();
	request.echo = &plan->echo;
	if (o->mode == SHADE_SCORE_PADS || o->mode == SHADE_SCORE_ECHO)
		rc = pads_weights(&request, weights);
	else
		for (uint32_t id = 0; id < o->samples; id++)
			weights[id] = 1;
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
	uint64_t numbers[] = { o->samples,  o->seed,	    o->mode,
			       o->draws,    o->max_repeats, o->cover_epochs,
			       o->capacity, plan->epoch,    !!plan->resident };
	double reals[] = { o->rep, o->uses, o->strength };
	uint64_t hash = score_hash(0, numbers, sizeof(numbers));

	hash = score_hash(hash, reals, sizeof(reals));
	hash = score_hash(hash, plan->scores, o->samples * sizeof(*plan->scores));
	if (plan->resident)
		hash = score_hash(hash, plan->resident, plan_words(o) * sizeof(*plan->resident));
	/* echo's order comes from its past as well. */
	if (plan->order)
		hash = score_hash(hash, plan->order, o->draws * sizeof(*plan->order));
	if (plan->parts)
		hash = score_hash(hash, plan->parts, o->draws * sizeof(*plan->parts));
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
