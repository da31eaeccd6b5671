/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Mode adapt: what was measured, and the rest of an epoch that is drawn once more. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "scorer.h"

double shade_score_rate(double before, const struct shade_score_span *span)
{
	struct reuse_span own = { .seconds = span->seconds,
				  .limited = span->limited,
				  .limited_bytes = span->limited_bytes };

	return reuse_rate(before, &own);
}

static int measured(struct shade_scorer *s, const struct shade_score_span *spans, uint32_t count)
{
	struct shade_scorer_options *o = &s->state.options;
	struct reuse *reuse = &s->state.reuse;
	struct reuse_span *own = malloc((count + (size_t)1) * sizeof(*own));
	double before = s->state.plans[0].drawn ? s->state.plans[0].uses : o->uses;

	if (!own)
		return score_no_memory();
	for (uint32_t i = 0; i < count; i++)
		own[i] = (struct reuse_span){ .seconds = spans[i].seconds,
					      .waited = spans[i].waited,
					      .read = spans[i].read,
					      .bytes = spans[i].bytes,
					      .limited = spans[i].limited,
					      .limited_bytes = spans[i].limited_bytes,
					      .rate = spans[i].rate };
	reuse->uses = o->uses;
	reuse->most = o->most_uses;
	reuse_adapt(reuse, before, own, count);
	free(own);
	o->uses = reuse->uses;
	return o->uses > before * 1.1 || o->uses < before * 0.9;
}

int shade_scorer_measured(struct shade_scorer *s, const struct shade_score_span *spans,
			  uint32_t count)
{
	int rc = 0;

	pthread_mutex_lock(&s->lock);
	if (s->state.options.mode == SHADE_SCORE_ADAPT)
		rc = measured(s, spans, count);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

/* What echo owed when the plan had come to `position`: draws as far as that once more. */
static int echo_at(struct pads_echo *echo, const struct scorer_state *state,
		   const struct plan *plan, uint32_t position)
{
	struct pads_request request = plan_request(state, plan, 0, 1);
	uint32_t *ids;
	int rc = echo_copy(echo, &plan->echo);

	if (rc || position == plan->start)
		return rc;
	request.draws = position - plan->start;
	request.echo = echo;
	ids = malloc(request.draws * sizeof(*ids));
	rc = ids ? pads_draw(&request, ids) : -ENOMEM;
	free(ids);
	return rc ? score_fail(rc, "an order cannot be drawn once more: %s", strerror(-rc)) : 0;
}

/* An epoch from `position` on; `echo` is what is owed there, and advances. */
static int plan_go_on(struct plan *plan, const struct scorer_state *state, const struct plan *old,
		      uint32_t position, const uint8_t *resident, struct pads_echo *echo)
{
	struct pads_request request;
	int rc = plan_init(plan, state, old->epoch, resident);

	if (!rc)
		rc = echo_copy(&plan->echo, echo);
	if (rc)
		return rc;
	memcpy(plan->order, old->order, position * sizeof(*plan->order));
	if (plan->chances) /* who is left out stays so */
		memcpy(plan->chances, old->chances,
		       state->options.samples * sizeof(*plan->chances));
	plan->turn = old->turn;
	plan->start = position;
	request = plan_request(state, plan, 0, 1);
	request.draws = state->options.draws - position;
	request.echo = echo;
	rc = pads_draw(&request, plan->order + position);
	plan->drawn = !rc;
	return rc ? score_fail(rc, "the rest of epoch %" PRIu64 " cannot be drawn: %s", old->epoch,
			       strerror(-rc))
		  : 0;
}

/* The plan that can be drawn once more from `position` on, or NULL and why not. */
static const struct plan *need_redrawable(const struct scorer_state *state, uint64_t epoch,
					  uint32_t position, int *rc)
{
	const struct plan *plan = plan_find(state, epoch);

	if (!plan || plan != &state->plans[0])
		*rc = score_fail(-ENOENT, "epoch %" PRIu64 " was not begun last", epoch);
	else if (!scorer_echoes(&state->options) || plan->parts)
		*rc = score_fail(-ENOTSUP, "only modes echo and auto on one node draw an epoch"
					   " once more");
	else if (position < plan->start || position >= state->options.draws)
		*rc = score_fail(-ERANGE, "epoch %" PRIu64 " cannot be drawn from %" PRIu32 " on",
				 epoch, position);
	else
		return plan;
	return NULL;
}

static int redraw(struct scorer_state *state, const struct plan *old, uint32_t position,
		  const uint8_t *resident)
{
	struct plan fresh[PLANS] = { 0 };
	struct progress progress = { .turn = old->turn + 1 };
	int rc = echo_at(&progress.echo, state, old, position);

	if (!rc)
		rc = planned_copy(&progress, state);
	if (!rc)
		rc = plan_go_on(&fresh[0], state, old, position, resident, &progress.echo);
	if (!rc && progress.planned)
		skip_mark(progress.planned, old->turn, fresh[0].order, fresh[0].count);
	if (!rc && state->options.lookahead)
		rc = plan_draw(&fresh[1], state, old->epoch + 1, resident, &progress);
	if (rc) {
		for (unsigned i = 0; i < PLANS; i++)
			plan_free(&fresh[i]);
		progress_free(&progress);
		return rc;
	}
	for (unsigned i = 0; i < PLANS; i++) {
		plan_free(&state->plans[i]);
		state->plans[i] = fresh[i];
	}
	/* Only one node draws once more, so nothing was assigned. */
	progress.assigned = state->progress.assigned;
	state->progress.assigned = (struct assign_state){ 0 };
	progress_free(&state->progress);
	state->progress = progress;
	return 0;
}

int shade_scorer_redraw(struct shade_scorer *s, uint64_t epoch, uint32_t position,
			const uint8_t *resident)
{
	const struct plan *plan;
	int rc;

	pthread_mutex_lock(&s->lock);
	rc = scorer_drain(s, true);
	plan = rc ? NULL : need_redrawable(&s->state, epoch, position, &rc);
	if (plan)
		rc = redraw(&s->state, plan, position, resident);
	pthread_mutex_unlock(&s->lock);
	return rc;
}
