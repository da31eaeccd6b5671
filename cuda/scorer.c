/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Scores. They live on the host, whichever backend computes them: orders are drawn and
 * announced from there, so a second copy on a device would only have to be kept equal.
 */
#include "scorer.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "loss.h"
#include "shade/sched.h"

_Static_assert((int)SHADE_SCORE_UNIFORM == (int)PADS_UNIFORM &&
		       (int)SHADE_SCORE_REPLACEMENT == (int)PADS_REPLACEMENT &&
		       (int)SHADE_SCORE_PAPER == (int)PADS_PAPER &&
		       (int)SHADE_SCORE_PADS == (int)PADS_PADS &&
		       (int)SHADE_SCORE_ECHO == (int)PADS_ECHO,
	       "modes are passed on as they are");

/* --- options ---------------------------------------------------------------------------- */

void shade_scorer_defaults(struct shade_scorer_options *options)
{
	*options = (struct shade_scorer_options){
		.size = sizeof(*options),
		.mode = SHADE_SCORE_PADS,
		.rep = 1,
		.most_uses = 8,
		.device = -1,
	};
}

static int check_options_size(const struct shade_scorer_options *o)
{
	if (o->size == sizeof(*o))
		return 0;
	return score_fail(-EINVAL,
			  "the options have %" PRIu32 " bytes, not %zu: header and library do not"
			  " fit together",
			  o->size, sizeof(*o));
}

static bool in_range(double value, double from, double to)
{
	return value >= from && value <= to; /* false for a NaN */
}

static int check_mode(const struct shade_scorer_options *o)
{
	uint32_t repeats = o->max_repeats ? o->max_repeats : (uint32_t)fmax(2 * o->rep, 4);

	if (o->mode != SHADE_SCORE_ADAPT && !scorer_skips(o) &&
	    !pads_mode_name((enum pads_mode)o->mode))
		return score_fail(-EINVAL, "there is no mode %" PRIu32, o->mode);
	if (o->mode == SHADE_SCORE_PADS && (uint64_t)repeats * o->samples < o->draws)
		return score_fail(-EINVAL,
				  "%" PRIu32 " samples at most %" PRIu32 " times each do not"
				  " fill an epoch of %" PRIu32,
				  o->samples, repeats, o->draws);
	if (scorer_echoes(o) && (!o->capacity || o->capacity > o->samples))
		return score_fail(-EINVAL,
				  "mode %s needs a capacity from 1 to %" PRIu32
				  " samples, not %" PRIu32,
				  o->mode == SHADE_SCORE_ECHO ? "echo" : "auto", o->samples,
				  o->capacity);
	return 0;
}

/* What modes that leave samples out have of their own. */
static int check_skips(struct shade_scorer_options *o)
{
	if (o->mode == SHADE_SCORE_PRUNE && o->keep == 0)
		o->keep = 0.5;
	if (o->keep != 0 && !in_range(o->keep, PADS_CHANCE_MIN, 1))
		return score_fail(-EINVAL, "keep is 0.01 to 1, not %g", o->keep);
	if (o->substitute > 1)
		return score_fail(-EINVAL, "substitute is 0 or 1, not %" PRIu32, o->substitute);
	if (o->mode != SHADE_SCORE_IIS && (o->substitute || o->package))
		return score_fail(-EINVAL, "only mode iis has substitutes and packages");
	if (o->mode == SHADE_SCORE_IIS && o->keep != 0)
		return score_fail(-EINVAL, "mode iis keeps samples by their losses, not by keep");
	return 0;
}

/* Epochs that leave samples out are as long as what is left; here is the most that they can be. */
static int fill_in_draws(struct shade_scorer_options *o)
{
	struct skip_request request = { .samples = o->samples, .multiple = o->multiple };
	uint32_t most;

	if (!o->multiple)
		o->multiple = 1;
	if (o->multiple > SCHED_ORDER_MAX)
		return score_fail(-EINVAL, "multiple is too large: %" PRIu32, o->multiple);
	most = skip_room(&request);
	if (scorer_skips(o) && o->draws && o->draws != most)
		return score_fail(-EINVAL,
				  "how many entries an epoch of mode %s has cannot be said before"
				  " it is drawn",
				  o->mode == SHADE_SCORE_IIS ? "iis" : "prune");
	if (scorer_skips(o))
		o->draws = most;
	if (!o->draws)
		o->draws = o->samples < SCHED_ORDER_MAX ? o->samples : SCHED_ORDER_MAX;
	return 0;
}

int scorer_check_options(struct shade_scorer_options *o)
{
	int rc;

	if (o->samples < 1 || o->samples > SCHED_SAMPLES_MAX)
		return score_fail(-EINVAL, "samples are 1 to %u, not %" PRIu32, SCHED_SAMPLES_MAX,
				  o->samples);
	rc = fill_in_draws(o);
	if (rc)
		return rc;
	if (o->draws > SCHED_ORDER_MAX)
		return score_fail(-EINVAL, "draws are at most %u, not %" PRIu32, SCHED_ORDER_MAX,
				  o->draws);
	if (!in_range(o->rep, 1, 1000))
		return score_fail(-EINVAL, "rep is 1 to 1000, not %g", o->rep);
	if (o->uses == 0)
		o->uses = o->mode == SHADE_SCORE_ADAPT ? 1 : 4;
	if (!in_range(o->uses, 1, 1000))
		return score_fail(-EINVAL, "uses are 1 to 1000, not %g", o->uses);
	if (!in_range(o->most_uses, 1, 1000))
		return score_fail(-EINVAL, "most_uses are 1 to 1000, not %g", o->most_uses);
	if (!in_range(o->strength, 0, 1))
		return score_fail(-EINVAL, "strength is 0 to 1, not %g", o->strength);
	if (o->lookahead > 1)
		return score_fail(-EINVAL, "lookahead is 0 or 1, not %" PRIu32, o->lookahead);
	rc = check_skips(o);
	return rc ? rc : check_mode(o);
}

/* --- life ------------------------------------------------------------------------------- */

void scorer_state_free(struct scorer_state *state)
{
	free(state->scores);
	free(state->losses);
	free(state->neighbours);
	progress_free(&state->progress);
	free((void *)state->nodes.node_of);
	for (unsigned i = 0; i < PLANS; i++)
		plan_free(&state->plans[i]);
}

static int open_device(struct shade_scorer *s, const struct device_ops *ops)
{
	float *table = malloc(DEVICE_TABLE * sizeof(*table));
	char why[DEVICE_WHY_MAX] = "";
	int rc = table ? 0 : -ENOMEM;

	for (uint32_t twice = 0; table && twice < DEVICE_TABLE; twice++)
		table[twice] = pads_twice_rank_score(twice);
	if (!rc)
		rc = ops->open(&s->device, s->state.options.device, table, why);
	free(table);
	if (rc)
		return score_fail(rc, "the CUDA device cannot be used: %s",
				  *why ? why : strerror(-rc));
	s->ops = ops;
	return 0;
}

/* With `auto` only a device that answers is taken, and none is no error. */
static int choose_backend(struct shade_scorer *s)
{
	bool must = s->state.options.backend == SHADE_SCORE_CUDA;
	const struct device_ops *ops;
	char why[DEVICE_WHY_MAX] = "";
	int rc;

	if (s->state.options.backend == SHADE_SCORE_CPU)
		return 0;
	if (s->state.options.backend > SHADE_SCORE_CUDA)
		return score_fail(-EINVAL, "there is no backend %" PRIu32,
				  s->state.options.backend);
	rc = module_open(&ops);
	if (rc)
		return must ? rc : 0;
	if (ops->count(why) <= 0)
		return must ? score_fail(-ENODEV,
					 "backend cuda was asked for, but no CUDA device answers"
					 " (%s)",
					 why)
			    : 0;
	rc = open_device(s, ops);
	return must ? rc : 0;
}

int scorer_allocate(struct scorer_state *state)
{
	uint32_t samples = state->options.samples;
	bool losses = scorer_needs_losses(&state->options);

	state->scores = malloc(samples * sizeof(*state->scores));
	if (losses) {
		state->losses = malloc(samples * sizeof(*state->losses));
		state->progress.planned = calloc(samples, sizeof(*state->progress.planned));
	}
	if (!state->scores || (losses && (!state->losses || !state->progress.planned)))
		return score_no_memory();
	for (uint32_t id = 0; id < samples; id++)
		state->scores[id] = SHADE_SCORE_NONE;
	for (uint32_t id = 0; losses && id < samples; id++)
		state->losses[id] = NAN;
	return 0;
}

int shade_scorer_create(struct shade_scorer **out, const struct shade_scorer_options *options)
{
	struct shade_scorer *s;
	int rc = check_options_size(options);

	if (rc)
		return rc;
	s = calloc(1, sizeof(*s));
	if (!s)
		return score_no_memory();
	pthread_mutex_init(&s->lock, NULL);
	s->state.options = *options;
	rc = scorer_check_options(&s->state.options);
	if (!rc)
		rc = scorer_allocate(&s->state);
	if (!rc)
		rc = choose_backend(s);
	if (rc) {
		shade_scorer_destroy(s);
		return rc;
	}
	*out = s;
	return 0;
}

void shade_scorer_destroy(struct shade_scorer *s)
{
	if (!s)
		return;
	if (s->ops)
		s->ops->close(s->device);
	scorer_state_free(&s->state);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

const char *shade_scorer_backend(const struct shade_scorer *s)
{
	return s->ops ? "cuda" : "cpu";
}

int shade_scorer_get_options(struct shade_scorer *s, struct shade_scorer_options *options)
{
	int rc = check_options_size(options);

	if (rc)
		return rc;
	pthread_mutex_lock(&s->lock);
	*options = s->state.options;
	pthread_mutex_unlock(&s->lock);
	options->backend = s->ops ? SHADE_SCORE_CUDA : SHADE_SCORE_CPU;
	return 0;
}

/* --- the device --------------------------------------------------------------------------- */

/* The last visit of a sample counts, so results are applied in the sequence of submission. */
static void apply(float *values, const uint32_t *ids, const float *news, uint32_t count)
{
	for (uint32_t i = 0; values && i < count; i++)
		values[ids[i]] = news[i];
}

int scorer_drain(struct shade_scorer *s, bool wait)
{
	struct device_result result;
	char why[DEVICE_WHY_MAX] = "";
	int rc = 0;

	if (s->device_lost)
		return score_fail(-EIO, "the CUDA device has failed before");
	while (s->ops && (rc = s->ops->take(s->device, wait, &result, why)) > 0) {
		bool rank_only = s->rank_only[s->taken % DEVICE_IN_FLIGHT_MAX];

		assert(s->taken < s->submitted);
		s->taken++;
		if (result.faults) {
			s->left_out++;
			s->faults |= result.faults;
		} else if (!rank_only) {
			apply(s->state.scores, result.ids, result.scores, result.count);
			apply(s->state.losses, result.ids, result.losses, result.count);
		}
	}
	if (rc >= 0)
		return 0;
	s->device_lost = true;
	return score_fail(-EIO, "the CUDA device has failed: %s", why);
}

/* Reports the batches that were left out, once. */
static int tell_left_out(struct shade_scorer *s)
{
	uint32_t left_out = s->left_out, faults = s->faults;

	s->left_out = s->faults = 0;
	if (!left_out)
		return 0;
	if (faults & DEVICE_FAULT_NAN)
		return score_fail(-EINVAL,
				  "%" PRIu32 " batches were left out: a loss is not a number",
				  left_out);
	return score_fail(-ERANGE, "%" PRIu32 " batches were left out: a label is not a class",
			  left_out);
}

int shade_scorer_sync(struct shade_scorer *s)
{
	int rc;

	pthread_mutex_lock(&s->lock);
	rc = scorer_drain(s, true);
	if (!rc)
		rc = tell_left_out(s);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

static int submit(struct shade_scorer *s, const struct shade_score_batch *batch, bool rank_only)
{
	char why[DEVICE_WHY_MAX] = "";
	int rc;

	if (!s->ops)
		return score_fail(-ENOTSUP, "backend cpu takes no device memory");
	rc = scorer_drain(s, false);
	if (rc)
		return rc;
	rc = s->ops->submit(s->device, batch, why);
	if (rc == -EAGAIN)
		return score_fail(rc,
				  "%d batches are in flight on the device; this one is not"
				  " scored",
				  DEVICE_IN_FLIGHT_MAX);
	if (rc == -ENOMEM)
		return score_fail(rc,
				  "the CUDA device has no memory for the batch, which is not"
				  " scored: %s",
				  why);
	if (rc == -EIO)
		s->device_lost = true;
	if (rc)
		return score_fail(rc, "the CUDA device has failed: %s", why);
	s->rank_only[s->submitted % DEVICE_IN_FLIGHT_MAX] = rank_only;
	s->submitted++;
	assert(s->submitted - s->taken <= DEVICE_IN_FLIGHT_MAX);
	return 0;
}

/* --- batches ------------------------------------------------------------------------------ */

static int check_ids(const struct shade_scorer *s, const uint32_t *ids, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (ids[i] >= s->state.options.samples)
			return score_fail(-ERANGE,
					  "there is no sample %" PRIu32 " (entry %" PRIu32
					  " of the batch), only %" PRIu32,
					  ids[i], i, s->state.options.samples);
	return 0;
}

static int check_batch(const struct shade_scorer *s, const struct shade_score_batch *b)
{
	if (b->size != sizeof(*b))
		return score_fail(-EINVAL,
				  "the batch has %" PRIu32 " bytes, not %zu: header and"
				  " library do not fit together",
				  b->size, sizeof(*b));
	if (b->count < 1 || b->count > SHADE_SCORE_BATCH_MAX)
		return score_fail(-EINVAL, "a batch has 1 to %u samples, not %" PRIu32,
				  SHADE_SCORE_BATCH_MAX, b->count);
	if (!b->ids || (b->logits ? !b->labels : !b->losses) || b->memory > SHADE_SCORE_DEVICE)
		return score_fail(-EINVAL, "the batch lacks ids, labels or losses");
	if (b->logits && (b->dtype > SHADE_SCORE_BF16 || b->classes < 1 ||
			  (b->label_bytes != 4 && b->label_bytes != 8) ||
			  (b->row_stride && b->row_stride < b->classes)))
		return score_fail(-EINVAL, "the shape or type of the logits makes no sense");
	return check_ids(s, b->ids, b->count);
}

static int check_labels(const struct shade_score_batch *b)
{
	for (uint32_t i = 0; i < b->count; i++) {
		int64_t label = loss_label(b, i);

		if (label < 0 || label >= b->classes)
			return score_fail(-ERANGE,
					  "the label of entry %" PRIu32 " (sample %" PRIu32
					  ") is %" PRId64 ", of %" PRIu32 " classes",
					  i, b->ids[i], label, b->classes);
	}
	return 0;
}

/* Losses that can be ranked: -0 becomes 0. `to` may be `from`. */
static int clean_losses(const struct shade_score_batch *b, const float *from, float *to)
{
	for (uint32_t i = 0; i < b->count; i++) {
		if (isnan(from[i]))
			return score_fail(-EINVAL,
					  "the loss of entry %" PRIu32 " (sample %" PRIu32
					  ") is not a number",
					  i, b->ids[i]);
		to[i] = from[i] + 0.0f;
	}
	return 0;
}

/* `losses` and `scores` are room for the batch. */
static int score_on_host(struct shade_scorer *s, const struct shade_score_batch *b, bool rank_only,
			 float *losses, float *scores)
{
	/* Batches in flight were submitted before this one, so their scores come first. */
	int rc = scorer_drain(s, true);

	if (!rc && b->logits)
		rc = check_labels(b);
	if (!rc && b->logits)
		loss_rows(b, losses);
	if (!rc)
		rc = clean_losses(b, b->logits ? losses : b->losses, losses);
	if (rc)
		return rc;
	rc = pads_rank_batch(losses, b->count, scores);
	if (rc)
		return score_fail(rc, "out of memory");
	if (!rank_only) {
		apply(s->state.scores, b->ids, scores, b->count);
		apply(s->state.losses, b->ids, losses, b->count);
	}
	if (b->losses_out)
		memcpy(b->losses_out, losses, b->count * sizeof(*losses));
	if (b->scores_out)
		memcpy(b->scores_out, scores, b->count * sizeof(*scores));
	return 0;
}

static int score_batch(struct shade_scorer *s, const struct shade_score_batch *b, bool rank_only)
{
	float *room;
	int rc = check_batch(s, b);

	if (rc)
		return rc;
	if (rank_only && !b->scores_out)
		return score_fail(-EINVAL, "there is no room for the scores of the batch");
	if (b->memory == SHADE_SCORE_DEVICE)
		return submit(s, b, rank_only);
	room = malloc(2 * (size_t)b->count * sizeof(*room));
	if (!room)
		return score_no_memory();
	rc = score_on_host(s, b, rank_only, room, room + b->count);
	free(room);
	return rc;
}

int shade_scorer_update_batch(struct shade_scorer *s, const struct shade_score_batch *batch)
{
	int rc;

	pthread_mutex_lock(&s->lock);
	rc = score_batch(s, batch, false);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

int shade_scorer_rank_batch(struct shade_scorer *s, const struct shade_score_batch *batch)
{
	int rc;

	pthread_mutex_lock(&s->lock);
	rc = score_batch(s, batch, true);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

int shade_scorer_update(struct shade_scorer *s, const uint32_t *ids, const float *losses,
			uint32_t count, float *scores_out)
{
	struct shade_score_batch batch = {
		.size = sizeof(batch),
		.count = count,
		.ids = ids,
		.losses = losses,
		.scores_out = scores_out,
	};

	return shade_scorer_update_batch(s, &batch);
}

static int merge(struct shade_scorer *s, const uint32_t *ids, const float *scores, uint32_t count)
{
	int rc = check_ids(s, ids, count);

	for (uint32_t i = 0; !rc && i < count; i++)
		if (!isfinite(scores[i]) || scores[i] < 0)
			rc = score_fail(-EINVAL, "the score of sample %" PRIu32 " is %g", ids[i],
					(double)scores[i]);
	if (!rc)
		rc = scorer_drain(s, true);
	if (!rc)
		apply(s->state.scores, ids, scores, count);
	return rc;
}

int shade_scorer_merge(struct shade_scorer *s, const uint32_t *ids, const float *scores,
		       uint32_t count)
{
	int rc;

	pthread_mutex_lock(&s->lock);
	rc = merge(s, ids, scores, count);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

int shade_scorer_scores(struct shade_scorer *s, float *scores)
{
	int rc;

	pthread_mutex_lock(&s->lock);
	rc = scorer_drain(s, true);
	if (!rc)
		memcpy(scores, s->state.scores, s->state.options.samples * sizeof(*scores));
	pthread_mutex_unlock(&s->lock);
	return rc;
}

static int merge_losses(struct shade_scorer *s, const uint32_t *ids, const float *losses,
			uint32_t count)
{
	int rc = check_ids(s, ids, count);

	for (uint32_t i = 0; !rc && i < count; i++)
		if (isnan(losses[i]))
			rc = score_fail(-EINVAL, "the loss of sample %" PRIu32 " is not a number",
					ids[i]);
	if (!rc)
		rc = scorer_drain(s, true);
	if (!rc)
		apply(s->state.losses, ids, losses, count);
	return rc;
}

int shade_scorer_merge_losses(struct shade_scorer *s, const uint32_t *ids, const float *losses,
			      uint32_t count)
{
	int rc;

	pthread_mutex_lock(&s->lock);
	rc = merge_losses(s, ids, losses, count);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

int shade_scorer_losses(struct shade_scorer *s, float *losses)
{
	int rc;

	pthread_mutex_lock(&s->lock);
	rc = scorer_drain(s, true);
	if (!s->state.losses)
		rc = score_fail(-ENOTSUP, "this mode keeps no losses");
	else if (!rc)
		memcpy(losses, s->state.losses, s->state.options.samples * sizeof(*losses));
	pthread_mutex_unlock(&s->lock);
	return rc;
}
