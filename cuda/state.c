/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The state as bytes: little endian, a head, arrays, and a fingerprint of it all. Loading fills
 * a state of its own and looks at every value before anything of the scorer changes.
 *
 *     "SHADESCR", u32 version, u32 samples, u64 seed, u32 mode, lookahead, draws,
 *     max_repeats, cover_epochs, capacity, f64 rep, uses, strength, most_uses, keep,
 *     u32 epochs, multiple, substitute, package,
 *     echo: u64 introduced, u32 count, u64 accesses, then count of (u32 id, due, left, f32 weight),
 *     u32 batch, u64 turn,
 *     assigned: u64 position, and unless that is 0 u32 owner[samples], u64 last[samples],
 *     f32 scores[samples], if losses are needed f32 losses[samples], u64 planned[samples],
 *     u32 plans, then each plan:
 *       u64 epoch, u64 turn, u32 parts, u32 count, f32 scores[samples], u64 resident[words],
 *       if losses are needed f32 chances[samples],
 *       u32 order[count], u32 world, assigned[count], echo as above with u32 start, f64 uses,
 *     u64 fingerprint
 *
 * Version 4 is read as well: no mode had losses, counts were draws, and there was nothing after
 * most_uses. So is version 3, which had no most_uses, and no start and uses in a plan, and version
 * 2, which had "echo: u64 introduced, u32 next_due, u32 count, then count of (u32 id, u32 due)",
 * one for each use, no batch, and in a plan no echo; turns were epochs + 1.
 */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scorer.h"
#include "shade/sched.h"

#define MAGIC "SHADESCR"
#define VERSION 5u
#define VERSION_WHOLE 4u /* no epoch left samples out */
#define VERSION_FIXED 3u /* uses never changed */
#define VERSION_USES 2u	 /* with each use of echo apart */
#define FINGERPRINT_SEED 0x5ade

enum { PART_RESIDENT = 1, PART_ORDER = 2, PART_ASSIGNED = 4, PART_ECHO = 8 };

/* --- bytes ---------------------------------------------------------------------------- */

/* Writes as far as there is room, and counts in any case. */
struct writer {
	unsigned char *to;
	uint64_t room, used;
};

static void put(struct writer *w, const void *bytes, size_t size)
{
	if (size <= w->room && w->used <= w->room - size)
		memcpy(w->to + w->used, bytes, size);
	w->used += size;
}

static void put_u32(struct writer *w, uint32_t value)
{
	value = htole32(value);
	put(w, &value, sizeof(value));
}

static void put_u64(struct writer *w, uint64_t value)
{
	value = htole64(value);
	put(w, &value, sizeof(value));
}

static void put_f64(struct writer *w, double value)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	put_u64(w, bits);
}

/* An array of 32-bit values, whatever they are. */
static void put_array(struct writer *w, const void *values, size_t count)
{
	const unsigned char *from = values;

	for (size_t i = 0; i < count; i++) {
		uint32_t value;

		memcpy(&value, from + i * sizeof(value), sizeof(value));
		put_u32(w, value);
	}
}

struct reader {
	const unsigned char *from;
	uint64_t left;
	uint32_t version;
	bool failed; /* something was read beyond the end */
};

static void get(struct reader *r, void *bytes, size_t size)
{
	if (r->failed || size > r->left) {
		r->failed = true;
		memset(bytes, 0, size);
		return;
	}
	memcpy(bytes, r->from, size);
	r->from += size;
	r->left -= size;
}

static uint32_t get_u32(struct reader *r)
{
	uint32_t value;

	get(r, &value, sizeof(value));
	return le32toh(value);
}

static uint64_t get_u64(struct reader *r)
{
	uint64_t value;

	get(r, &value, sizeof(value));
	return le64toh(value);
}

static double get_f64(struct reader *r)
{
	uint64_t bits = get_u64(r);
	double value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static float get_f32(struct reader *r)
{
	uint32_t bits = get_u32(r);
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* A new array of 32-bit values; NULL without memory, or if there are not so many. */
static void *get_array(struct reader *r, size_t count)
{
	unsigned char *values;

	if (r->failed || count > r->left / 4) {
		r->failed = true;
		return NULL;
	}
	values = malloc(count * 4 + 1);
	for (size_t i = 0; values && i < count; i++) {
		uint32_t value = get_u32(r);

		memcpy(values + i * 4, &value, sizeof(value));
	}
	return values;
}

/* --- saving --------------------------------------------------------------------------- */

static void save_options(struct writer *w, const struct shade_scorer_options *o)
{
	put(w, MAGIC, 8);
	put_u32(w, VERSION);
	put_u32(w, o->samples);
	put_u64(w, o->seed);
	put_u32(w, o->mode);
	put_u32(w, o->lookahead);
	put_u32(w, o->draws);
	put_u32(w, o->max_repeats);
	put_u32(w, o->cover_epochs);
	put_u32(w, o->capacity);
	put_f64(w, o->rep);
	put_f64(w, o->uses);
	put_f64(w, o->strength);
	put_f64(w, o->most_uses);
	put_f64(w, o->keep);
	put_u32(w, o->epochs);
	put_u32(w, o->multiple);
	put_u32(w, o->substitute);
	put_u32(w, o->package);
}

static void save_echo(struct writer *w, const struct pads_echo *echo)
{
	put_u64(w, echo->introduced);
	put_u32(w, echo->use_count);
	put_u64(w, echo->accesses);
	for (uint32_t i = 0; i < echo->use_count; i++) {
		put_u32(w, echo->uses[i].id);
		put_u32(w, echo->uses[i].due);
		put_u32(w, echo->uses[i].left);
		put_array(w, &echo->uses[i].weight, 1);
	}
}

static void save_plan(struct writer *w, const struct shade_scorer_options *o,
		      const struct plan *plan)
{
	put_u64(w, plan->epoch);
	put_u64(w, plan->turn);
	put_u32(w, (plan->resident ? PART_RESIDENT : 0) | (plan->order ? PART_ORDER : 0) |
			   (plan->parts ? PART_ASSIGNED : 0) | (scorer_echoes(o) ? PART_ECHO : 0));
	put_u32(w, plan->count);
	put_array(w, plan->scores, o->samples);
	for (size_t i = 0; plan->resident && i < plan_words(o); i++)
		put_u64(w, plan->resident[i]);
	if (plan->chances)
		put_array(w, plan->chances, o->samples);
	if (plan->order)
		put_array(w, plan->order, plan->count);
	if (plan->parts) {
		put_u32(w, plan->world);
		put_array(w, plan->parts, plan->count);
	}
	if (!scorer_echoes(o))
		return;
	save_echo(w, &plan->echo);
	put_u32(w, plan->start);
	put_f64(w, plan->uses);
}

static void save_assigned(struct writer *w, const struct assign_state *assigned)
{
	put_u64(w, assigned->position);
	for (uint32_t id = 0; assigned->position && id < assigned->samples; id++)
		put_u32(w, assigned->owner[id]);
	for (uint32_t id = 0; assigned->position && id < assigned->samples; id++)
		put_u64(w, assigned->last[id]);
}

static void save_losses(struct writer *w, const struct scorer_state *state)
{
	uint32_t samples = state->options.samples;

	if (!state->losses)
		return;
	put_array(w, state->losses, samples);
	for (uint32_t id = 0; id < samples; id++)
		put_u64(w, state->progress.planned[id]);
}

static void save_state(struct writer *w, const struct scorer_state *state)
{
	uint32_t plans = 0;

	save_options(w, &state->options);
	save_echo(w, &state->progress.echo);
	put_u32(w, state->batch);
	put_u64(w, state->progress.turn);
	save_assigned(w, &state->progress.assigned);
	put_array(w, state->scores, state->options.samples);
	save_losses(w, state);
	for (unsigned i = 0; i < PLANS; i++)
		plans += state->plans[i].drawn;
	put_u32(w, plans);
	for (unsigned i = 0; i < PLANS; i++)
		if (state->plans[i].drawn)
			save_plan(w, &state->options, &state->plans[i]);
}

int64_t shade_scorer_save(struct shade_scorer *s, void *buffer, uint64_t room)
{
	struct writer w = { .to = buffer, .room = buffer ? room : 0 };
	bool fits;

	pthread_mutex_lock(&s->lock);
	/* If the device is lost, so are the scores that it had; the rest can be saved. */
	(void)scorer_drain(s, true);
	save_state(&w, &s->state);
	pthread_mutex_unlock(&s->lock);
	fits = w.used + 8 <= w.room;
	put_u64(&w, fits ? score_hash(FINGERPRINT_SEED, buffer, w.used) : 0);
	if (buffer && !fits)
		return score_fail(-ENOSPC, "the state has %" PRIu64 " bytes", w.used);
	return (int64_t)w.used;
}

/* --- loading -------------------------------------------------------------------------- */

static int say_bad(const char *what)
{
	return score_fail(-EINVAL, "this is not a usable scorer state: %s", what);
}

/* The error of an array that could not be read. */
static int say_missing(const struct reader *r)
{
	return r->failed ? say_bad("it is cut off") : score_no_memory();
}

/* What modes that leave samples out have of their own. */
static void load_skips(struct reader *r, struct shade_scorer_options *o)
{
	o->keep = 0;
	o->epochs = o->substitute = o->package = 0;
	if (r->version <= VERSION_WHOLE)
		return;
	o->keep = get_f64(r);
	o->epochs = get_u32(r);
	o->multiple = get_u32(r);
	o->substitute = get_u32(r);
	o->package = get_u32(r);
}

static int load_options(struct reader *r, struct shade_scorer_options *o)
{
	uint32_t samples = o->samples;
	char magic[8];

	get(r, magic, sizeof(magic));
	if (memcmp(magic, MAGIC, sizeof(magic)))
		return say_bad("it does not begin like one");
	r->version = get_u32(r);
	if (r->version < VERSION_USES || r->version > VERSION)
		return say_bad("it is of a version that is not known here");
	o->samples = get_u32(r);
	o->seed = get_u64(r);
	o->mode = get_u32(r);
	o->lookahead = get_u32(r);
	o->draws = get_u32(r);
	o->max_repeats = get_u32(r);
	o->cover_epochs = get_u32(r);
	o->capacity = get_u32(r);
	o->rep = get_f64(r);
	o->uses = get_f64(r);
	o->strength = get_f64(r);
	if (r->version > VERSION_FIXED)
		o->most_uses = get_f64(r);
	load_skips(r, o);
	if (r->failed)
		return say_bad("it is cut off");
	if (o->samples != samples)
		return score_fail(-EINVAL,
				  "the state is of %" PRIu32 " samples, the scorer of %" PRIu32,
				  o->samples, samples);
	if (o->uses == 0) /* which would mean the default */
		return say_bad("its samples have no uses");
	return scorer_check_options(o);
}

static bool scores_are_sound(const float *scores, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (!isfinite(scores[i]) || (scores[i] < 0 && scores[i] != SHADE_SCORE_NONE))
			return false;
	return true;
}

static int load_scores(struct reader *r, uint32_t samples, float **scores)
{
	*scores = get_array(r, samples);
	if (!*scores)
		return say_missing(r);
	return scores_are_sound(*scores, samples) ? 0 : say_bad("a score is none");
}

static int compare_ids(const void *a, const void *b)
{
	uint32_t x = ((const struct pads_echo_use *)a)->id,
		 y = ((const struct pads_echo_use *)b)->id;

	return x < y ? -1 : x > y;
}

/* Of version 2: one entry for each use, in the sequence of their dues. The uses of a sample become
 * one entry that is due with the first of them. All had the same weight. */
static void join_uses(struct pads_echo *echo, uint32_t samples)
{
	struct pads_echo_use *uses = echo->uses;
	uint32_t count = 0, latest = pads_echo_due_max(samples);

	qsort(uses, echo->use_count, sizeof(*uses), compare_ids);
	for (uint32_t i = 0; i < echo->use_count; i++) {
		if (!count || uses[count - 1].id != uses[i].id) {
			uses[count] = uses[i];
			uses[count++].left = 0;
		}
		if (uses[i].due < uses[count - 1].due)
			uses[count - 1].due = uses[i].due;
		if (uses[count - 1].due > latest)
			uses[count - 1].due = latest;
		uses[count - 1].left++;
	}
	echo->use_count = count;
}

static int load_echo(struct reader *r, const struct shade_scorer_options *o, struct pads_echo *echo)
{
	uint64_t entry = r->version > VERSION_USES ? 16 : 8;
	uint32_t count;

	echo->introduced = get_u64(r);
	if (r->version == VERSION_USES)
		(void)get_u32(r);
	count = get_u32(r);
	if (r->version > VERSION_USES)
		echo->accesses = get_u64(r);
	if (r->failed || count > r->left / entry)
		return say_bad("it is cut off");
	echo->uses = malloc(count * sizeof(*echo->uses) + 1);
	if (!echo->uses)
		return score_no_memory();
	for (echo->use_count = 0; echo->use_count < count; echo->use_count++) {
		struct pads_echo_use *use = &echo->uses[echo->use_count];

		*use = (struct pads_echo_use){ .id = get_u32(r), .left = 1, .weight = 1 };
		use->due = get_u32(r);
		if (r->version == VERSION_USES)
			continue;
		use->left = get_u32(r);
		use->weight = get_f32(r);
	}
	if (r->version == VERSION_USES)
		join_uses(echo, o->samples);
	return pads_echo_is_sound(echo, o->samples)
		       ? 0
		       : say_bad("the uses that are due make no sense");
}

static int load_assigned(struct reader *r, struct scorer_state *state)
{
	struct assign_state *assigned = &state->progress.assigned;
	uint32_t samples = state->options.samples;
	uint64_t position = get_u64(r);

	if (r->failed || !position)
		return r->failed ? say_bad("it is cut off") : 0;
	if (samples > r->left / 12)
		return say_bad("it is cut off");
	if (assign_grow(assigned, samples))
		return score_no_memory();
	assigned->position = position;
	for (uint32_t id = 0; id < samples; id++) {
		uint32_t owner = get_u32(r);

		if (owner > ASSIGN_NOBODY)
			return say_bad("a sample is on a node that there cannot be");
		assigned->owner[id] = (uint16_t)owner;
	}
	for (uint32_t id = 0; id < samples; id++) {
		assigned->last[id] = get_u64(r);
		if (assigned->last[id] >= position)
			return say_bad("a sample will have been read later");
	}
	return 0;
}

static int load_losses(struct reader *r, struct scorer_state *state)
{
	uint32_t samples = state->options.samples;

	if (!scorer_needs_losses(&state->options))
		return 0;
	state->losses = get_array(r, samples); /* any number is one */
	if (!state->losses)
		return say_missing(r);
	if (samples > r->left / 8)
		return say_bad("it is cut off");
	state->progress.planned = malloc(samples * sizeof(*state->progress.planned));
	if (!state->progress.planned)
		return score_no_memory();
	for (uint32_t id = 0; id < samples; id++)
		state->progress.planned[id] = get_u64(r);
	return 0;
}

static int load_chances(struct reader *r, uint32_t samples, float **chances)
{
	*chances = get_array(r, samples);
	if (!*chances)
		return say_missing(r);
	for (uint32_t id = 0; id < samples; id++)
		if (!((*chances)[id] >= PADS_CHANCE_MIN && (*chances)[id] <= 1))
			return say_bad("a chance is none");
	return 0;
}

static int load_batch(struct reader *r, struct scorer_state *state)
{
	if (r->version > VERSION_USES) {
		state->batch = get_u32(r);
		state->progress.turn = get_u64(r);
	}
	return state->batch <= SCHED_ORDER_MAX ? 0 : say_bad("a batch is too large");
}

static int load_bitmap(struct reader *r, const struct shade_scorer_options *o, uint64_t **bitmap)
{
	size_t words = plan_words(o);

	if (r->failed || words > r->left / 8)
		return say_bad("it is cut off");
	*bitmap = malloc(words * sizeof(**bitmap));
	if (!*bitmap)
		return score_no_memory();
	for (size_t i = 0; i < words; i++)
		(*bitmap)[i] = get_u64(r);
	return 0;
}

/* An array of ids, one for each entry of an epoch. */
static int load_ids(struct reader *r, const struct shade_scorer_options *o, uint32_t count,
		    uint32_t **ids)
{
	*ids = get_array(r, count);
	if (!*ids)
		return say_missing(r);
	for (uint32_t i = 0; i < count; i++)
		if ((*ids)[i] >= o->samples)
			return say_bad("an order has an id that is out of range");
	return 0;
}

/* Whether a plan may consist of these parts. */
static bool parts_are_sound(const struct reader *r, const struct shade_scorer_options *o,
			    uint32_t parts)
{
	bool echo = scorer_echoes(o) && r->version > VERSION_USES;

	return !(parts & PART_ORDER) == (o->mode == SHADE_SCORE_PAPER) &&
	       (parts & PART_ORDER || !(parts & PART_ASSIGNED)) && !(parts & PART_ECHO) == !echo &&
	       parts <= (PART_RESIDENT | PART_ORDER | PART_ASSIGNED | PART_ECHO);
}

static bool count_is_sound(const struct shade_scorer_options *o, uint32_t count)
{
	if (!scorer_skips(o))
		return count == o->draws;
	return count && count <= o->draws && count % o->multiple == 0;
}

/* How the plan was drawn, as far as that may differ from the options. */
static int load_uses(struct reader *r, const struct shade_scorer_options *o, struct plan *plan)
{
	plan->uses = o->uses;
	if (!scorer_echoes(o) || r->version <= VERSION_FIXED)
		return 0;
	plan->start = get_u32(r);
	plan->uses = get_f64(r);
	return plan->start < o->draws && plan->uses >= 1 && plan->uses <= 1000
		       ? 0
		       : say_bad("an order was drawn in no possible way");
}

static int load_plan(struct reader *r, const struct shade_scorer_options *o, struct plan *plan)
{
	uint32_t parts;
	int rc;

	plan->epoch = get_u64(r);
	plan->turn = r->version > VERSION_USES ? get_u64(r) : plan->epoch + 1;
	parts = get_u32(r);
	plan->drawn = true;
	if (!parts_are_sound(r, o, parts))
		return say_bad("an order is missing");
	plan->count = r->version > VERSION_WHOLE ? get_u32(r) : o->draws;
	if (!count_is_sound(o, plan->count))
		return say_bad("an order has another length");
	rc = load_scores(r, o->samples, &plan->scores);
	if (!rc && parts & PART_RESIDENT)
		rc = load_bitmap(r, o, &plan->resident);
	if (!rc && scorer_needs_losses(o))
		rc = load_chances(r, o->samples, &plan->chances);
	if (!rc && parts & PART_ORDER)
		rc = load_ids(r, o, plan->count, &plan->order);
	if (!rc && parts & PART_ASSIGNED) {
		plan->world = get_u32(r);
		rc = load_ids(r, o, plan->count, &plan->parts);
	}
	if (!rc && parts & PART_ECHO)
		rc = load_echo(r, o, &plan->echo);
	return rc ? rc : load_uses(r, o, plan);
}

static int load_state(struct reader *r, struct scorer_state *state)
{
	uint32_t plans;
	int rc = load_options(r, &state->options);

	if (!rc)
		rc = load_echo(r, &state->options, &state->progress.echo);
	if (!rc)
		rc = load_batch(r, state);
	if (!rc)
		rc = load_assigned(r, state);
	if (!rc)
		rc = load_scores(r, state->options.samples, &state->scores);
	if (!rc)
		rc = load_losses(r, state);
	if (rc)
		return rc;
	plans = get_u32(r);
	if (r->failed || plans > PLANS)
		return say_bad("it has too many orders, or is cut off");
	for (uint32_t i = 0; !rc && i < plans; i++)
		rc = load_plan(r, &state->options, &state->plans[i]);
	if (!rc && plans == 2 && state->plans[1].epoch != state->plans[0].epoch + 1)
		rc = say_bad("its orders do not follow each other");
	if (!rc && r->left)
		rc = say_bad("it is too long");
	if (!rc && r->version == VERSION_USES && plans)
		state->progress.turn = state->plans[plans - 1].turn + 1;
	return rc;
}

/* How long an epoch is depends on how many ranks share it, and a training may resume on fewer.
 * Orders of another length are of no use then and are drawn anew, with the turns that they had; all
 * else goes on. */
static int keep_draws(struct scorer_state *state, const struct shade_scorer_options *own)
{
	bool fits = state->options.draws == own->draws &&
		    (state->options.multiple == own->multiple || !scorer_skips(&state->options));

	state->options.draws = own->draws;
	state->options.multiple = own->multiple;
	if (fits)
		return 0;
	if (state->plans[0].drawn)
		state->progress.turn = state->plans[0].turn;
	for (unsigned i = 0; i < PLANS; i++)
		plan_free(&state->plans[i]);
	return scorer_check_options(&state->options);
}

static int load(struct shade_scorer *s, const void *buffer, uint64_t size)
{
	struct reader r = { .from = buffer, .left = size - 8 };
	struct scorer_state state = { .options = s->state.options };
	/* Where the ranks run now, and what the source is like. */
	struct assign_request nodes = s->state.nodes;
	uint32_t *neighbours = s->state.neighbours;
	uint64_t fingerprint;
	int rc = load_state(&r, &state);

	memcpy(&fingerprint, (const unsigned char *)buffer + size - 8, 8);
	if (!rc && le64toh(fingerprint) != score_hash(FINGERPRINT_SEED, buffer, size - 8))
		rc = say_bad("its fingerprint is wrong");
	if (!rc)
		rc = keep_draws(&state, &s->state.options);
	if (rc) {
		scorer_state_free(&state);
		return rc;
	}
	/* Batches in flight belong to the state that is replaced. */
	(void)scorer_drain(s, true);
	s->state.nodes.node_of = NULL;
	s->state.neighbours = NULL;
	scorer_state_free(&s->state);
	s->state = state;
	s->state.nodes = nodes;
	s->state.neighbours = neighbours;
	return 0;
}

int shade_scorer_load(struct shade_scorer *s, const void *buffer, uint64_t size)
{
	int rc;

	if (!buffer || size < 8)
		return say_bad("it is cut off");
	pthread_mutex_lock(&s->lock);
	rc = load(s, buffer, size);
	pthread_mutex_unlock(&s->lock);
	return rc;
}
