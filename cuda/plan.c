/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Orders. Beginning an epoch freezes scores and residency into a plan and draws from that, so
 * what was announced stays true whatever is scored later.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scorer.h"
#include "shade/sched.h"

size_t plan_words(const struct shade_scorer_options *options)
{
	return ((size_t)options->samples + 63) / 64;
}

void plan_free(struct plan *plan)
{
	free(plan->scores);
	free(plan->resident);
	free(plan->order);
	free(plan->chances);
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

struct pads_request plan_request(const struct scorer_state *state, const struct plan *plan,
				 uint32_t rank, uint32_t world)
{
	const struct shade_scorer_options *o = &state->options;

	return (struct pads_request){
		.mode = scorer_echoes(o) ? PADS_ECHO : (enum pads_mode)o->mode,
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
		.uses = plan->uses,
		.strength = o->strength,
		.capacity = o->capacity,
		.batch = state->batch,
		.chances = plan->chances,
		/* With single uses an epoch is a permutation, if it is long enough. */
		.anew = plan->uses <= 1 && !plan->start && o->draws >= o->samples,
	};
}

/* --- beginning an epoch ------------------------------------------------------------- */

int echo_copy(struct pads_echo *to, const struct pads_echo *from)
{
	size_t bytes = from->use_count * sizeof(*from->uses);

	*to = *from;
	to->uses = malloc(bytes + 1);
	if (!to->uses)
		return score_no_memory();
	if (from->use_count)
		memcpy(to->uses, from->uses, bytes);
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

int plan_init(struct plan *plan, const struct scorer_state *state, uint64_t epoch,
	      const uint8_t *resident)
{
	const struct shade_scorer_options *o = &state->options;

	*plan = (struct plan){ .epoch = epoch, .uses = o->uses, .count = o->draws };
	plan->scores = malloc(o->samples * sizeof(*plan->scores));
	if (resident)
		plan->resident = calloc(plan_words(o), sizeof(*plan->resident));
	if (o->mode != SHADE_SCORE_PAPER)
		plan->order = malloc(o->draws * sizeof(*plan->order));
	if (scorer_needs_losses(o))
		plan->chances = malloc(o->samples * sizeof(*plan->chances));
	if (!plan->scores || (resident && !plan->resident) ||
	    (o->mode != SHADE_SCORE_PAPER && !plan->order) ||
	    (scorer_needs_losses(o) && !plan->chances))
		return score_no_memory();
	memcpy(plan->scores, state->scores, o->samples * sizeof(*plan->scores));
	if (resident)
		copy_bitmap(plan->resident, resident, o->samples);
	return 0;
}

/* A pass through the data set is an epoch; with echo it takes several, as entries are uses. */
static uint32_t cover_turns(const struct shade_scorer_options *o, const struct plan *plan)
{
	uint32_t cover = o->cover_epochs ? o->cover_epochs : 5;
	double epochs = scorer_echoes(o) ? plan->uses * o->samples / o->draws : 1;

	return (uint32_t)fmin(ceil(cover * fmax(epochs, 1)), UINT32_MAX);
}

static struct skip_request skip_request_of(const struct scorer_state *state,
					   const struct plan *plan, const uint64_t *planned)
{
	const struct shade_scorer_options *o = &state->options;

	return (struct skip_request){
		.mode = o->mode == SHADE_SCORE_IIS ? SKIP_IIS : SKIP_PRUNE,
		.samples = o->samples,
		.losses = state->losses,
		.planned = planned,
		.turn = plan->turn,
		.seed = o->seed,
		.epoch = plan->epoch,
		.cover_epochs = cover_turns(o, plan),
		.multiple = o->multiple,
		.keep = o->keep,
		.epochs = o->epochs,
		.substitute = o->substitute,
		.package = o->package,
		.resident = plan->resident,
		.neighbours = state->neighbours,
	};
}

/* Draws the order of a plan, unless each rank draws its own. 0 or a negative errno. */
static int draw_order(struct plan *plan, const struct scorer_state *state,
		      struct progress *progress)
{
	struct skip_request skips = skip_request_of(state, plan, progress->planned);
	struct pads_request request = plan_request(state, plan, 0, 1);
	int rc = plan->chances ? skip_chances(&skips, plan->chances) : 0;

	request.echo = &progress->echo;
	if (rc || !plan->order)
		return rc;
	rc = scorer_skips(&state->options)
		     ? skip_draw(&skips, plan->chances, plan->order, &plan->count)
		     : pads_draw(&request, plan->order);
	if (!rc && progress->planned)
		skip_mark(progress->planned, plan->turn, plan->order, plan->count);
	return rc;
}

/* The first turn: when samples were read whose losses are known already, nobody knows. */
static void count_from(struct progress *progress, uint32_t samples, uint64_t turn)
{
	for (uint32_t id = 0; progress->planned && id < samples; id++)
		progress->planned[id] = turn - 1;
}

int plan_draw(struct plan *plan, const struct scorer_state *state, uint64_t epoch,
	      const uint8_t *resident, struct progress *progress)
{
	int rc = plan_init(plan, state, epoch, resident);

	/* The first epoch has the turn of its number, so that trainings that know no more than that
	 * number do not all begin with the same one. */
	plan->turn = progress->turn ? progress->turn : epoch + 1;
	if (!progress->turn)
		count_from(progress, state->options.samples, plan->turn);
	progress->turn = plan->turn + 1;
	if (!rc && scorer_echoes(&state->options))
		rc = echo_copy(&plan->echo, &progress->echo);
	if (rc)
		return rc;
	rc = draw_order(plan, state, progress);
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
	uint32_t nodes = 0;
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
	plan->parts = malloc(plan->count * sizeof(*plan->parts));
	rc = plan->parts ? assign_order(assigned, &request, plan->order, plan->count, plan->parts)
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
		return score_no_memory();
	memcpy(plan->scores, from->scores, o->samples * sizeof(*plan->scores));
	memcpy(plan->order, from->order, from->count * sizeof(*plan->order));
	if (plan->chances)
		memcpy(plan->chances, from->chances, o->samples * sizeof(*plan->chances));
	plan->count = from->count;
	if (from->resident)
		memcpy(plan->resident, from->resident, plan_words(o) * sizeof(*plan->resident));
	plan->turn = from->turn;
	plan->start = from->start;
	plan->uses = from->uses;
	plan->drawn = true;
	return scorer_echoes(o) ? echo_copy(&plan->echo, &from->echo) : 0;
}

/* A training resumes on other ranks than the order was assigned to. */
static bool is_for_others(const struct scorer_state *state, const struct plan *plan)
{
	return state->nodes.world && plan->parts && plan->world != state->nodes.world;
}

/* What the first epoch after a begin or a load is like tells how the next one should be drawn. */
static unsigned lookahead_of(const struct scorer_state *state)
{
	bool first = !state->plans[0].drawn && state->options.mode == SHADE_SCORE_ADAPT;

	return first ? 0 : state->options.lookahead;
}

/* Draws the orders that must be known when `epoch` begins, and are not yet. */
static int draw_plans(const struct scorer_state *state, uint64_t epoch, const uint8_t *resident,
		      struct plan *plans, struct progress *progress)
{
	assert(state->options.lookahead < PLANS);
	for (unsigned i = 0; i <= lookahead_of(state); i++) {
		const struct plan *drawn = plan_find(state, epoch + i);
		int rc;

		if (drawn && !is_for_others(state, drawn))
			continue;
		rc = drawn ? plan_copy(&plans[i], drawn, state)
			   : plan_draw(&plans[i], state, epoch + i, resident, progress);
		if (!rc)
			rc = plan_assign(&plans[i], state, &progress->assigned);
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
	return state->progress.turn;
}

void progress_free(struct progress *progress)
{
	pads_echo_free(&progress->echo);
	assign_free(&progress->assigned);
	free(progress->planned);
	*progress = (struct progress){ 0 };
}

static int assigned_copy(struct assign_state *to, const struct assign_state *from, uint32_t samples)
{
	*to = (struct assign_state){ 0 };
	if (assign_grow(to, samples))
		return score_no_memory();
	if (!from->samples)
		return 0;
	to->position = from->position;
	memcpy(to->owner, from->owner, samples * sizeof(*to->owner));
	memcpy(to->last, from->last, samples * sizeof(*to->last));
	return 0;
}

int planned_copy(struct progress *to, const struct scorer_state *from)
{
	size_t bytes = from->options.samples * sizeof(*to->planned);

	if (!from->progress.planned)
		return 0;
	to->planned = malloc(bytes);
	if (!to->planned)
		return score_no_memory();
	memcpy(to->planned, from->progress.planned, bytes);
	return 0;
}

/* What the next draw begins with. Free it, also on failure. */
static int progress_copy(struct progress *to, const struct scorer_state *state, uint64_t epoch)
{
	const struct progress *from = &state->progress;
	int rc;

	*to = (struct progress){ .turn = next_turn(state, epoch) };
	rc = echo_copy(&to->echo, &from->echo);
	/* Without nodes nothing is assigned, but there may be nodes again. */
	if (!rc && (state->nodes.world || from->assigned.samples))
		rc = assigned_copy(&to->assigned, &from->assigned, state->options.samples);
	return rc ? rc : planned_copy(to, state);
}

static int begin(struct shade_scorer *s, uint64_t epoch, const uint8_t *resident)
{
	struct plan fresh[PLANS] = { 0 };
	struct progress progress;
	int rc = scorer_drain(s, true);

	if (rc)
		return rc;
	if (epoch == UINT64_MAX)
		return score_fail(-ERANGE, "epoch %" PRIu64 " is too large", epoch);
	rc = progress_copy(&progress, &s->state, epoch);
	if (!rc)
		rc = draw_plans(&s->state, epoch, resident, fresh, &progress);
	if (rc) {
		for (unsigned i = 0; i < PLANS; i++)
			plan_free(&fresh[i]);
		progress_free(&progress);
		return rc;
	}
	replace_plans(&s->state, epoch, fresh);
	progress_free(&s->state.progress);
	s->state.progress = progress;
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
