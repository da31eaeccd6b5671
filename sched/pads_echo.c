/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * echo: read every sample once, and use it several times while it is there.
 *
 * A stream of fresh permutations introduces samples. Each gets a number of uses, `uses`
 * on the mean; its first is at once, and each other one a gap after the one before it. A gap is
 * at least a batch, so that no batch has a sample twice, but never more than the cache can hold:
 * a sample is resident for (uses - 1) gaps and one comes every `uses` accesses, so `capacity`
 * samples are resident if a gap is capacity * uses / (uses - 1). Where a batch is less than what
 * the capacity allows, gaps vary by chance, so that samples meet others each time.
 *
 * Each access is the use that was due first; an introduction, if fewer uses are owed than gaps of
 * that mean make, or if nothing is due. So introductions keep pace with accesses by themselves:
 * each sample gets its uses, and hits tend to 1 - 1/uses. A sample that the stream brings while
 * uses of it are owed, or within a gap after its last, only gets more of them.
 *
 * An epoch is the next `draws` accesses. What is owed then goes into the state, unless the next one
 * begins anew: with one use for each sample it is a permutation then, as without echo.
 *
 * With strength 1 a sample of rank percentile r has as many uses on the mean as if it
 * stayed for another with probability r^(1/(uses-1)), bounded, and scaled so that the
 * mean over the samples remains `uses`; strength 0 gives all samples the same mean.
 * Fractions are rounded by chance.
 *
 * The stream may leave samples out, each by a chance of its own (see skip.h). One that stays then
 * counts for those times that it did not.
 */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "draw.h"
#include "plain.h"
#include "radix.h"
#include "shade/sched.h"

#define BOUND 8		 /* expected further uses: at most so many times the mean */
#define PERCENTILES 1024 /* ranks are told apart so finely */
#define TRIES 64	 /* introductions to find a sample that may come now */
#define NOBODY UINT32_MAX

/* Positions within an epoch, and dues beyond its end, are 32 bits. */
_Static_assert(SCHED_ORDER_MAX + 2ull * SCHED_SAMPLES_MAX + 2 < UINT32_MAX,
	       "positions do not wrap");

/* Gaps between the uses of a sample, in accesses. */
struct rhythm {
	uint32_t least;
	uint32_t spread; /* by chance, up to so much more */
};

/* What is owed of a sample. */
struct debt {
	uint32_t due;  /* its next use comes at this position or later */
	uint32_t left; /* uses; 0: it only rests until then */
	uint32_t next; /* the next one that is due then, plus 1 */
	float weight;  /* of each of these uses */
};

struct echo {
	const struct pads_request *request;
	float *further;		      /* expected uses after the first, by id */
	struct draw_list permutation; /* of `pass` */
	uint64_t pass;
	struct rhythm rhythm;
	struct debt *debts; /* by id */
	uint32_t *due;	    /* by position: the first sample that is due then, plus 1 */
	size_t positions;
	size_t served;	     /* before this position nothing is due any more */
	uint64_t owed;	     /* uses of all samples */
	uint64_t target;     /* how many should be */
	uint64_t introduced; /* as in the state */
};

/* --- how many uses -------------------------------------------------------------------- */

static uint32_t score_bits(float score)
{
	uint32_t bits;

	score += 0.0f; /* -0 is 0 */
	memcpy(&bits, &score, sizeof(bits));
	return bits;
}

/* The ids that have a score, sorted by it. */
static void rank_by_score(struct draw_list *list, const struct pads_request *request)
{
	for (uint32_t id = 0; id < request->samples; id++)
		if (!draw_is_unseen(request, id))
			draw_list_add(list, score_bits(request->scores[id]), id);
	draw_list_sort(list);
}

static double stay_uses(double percentile, double uses)
{
	double stay = plain_exp2(plain_log2(percentile) / (uses - 1));
	double bound = BOUND * (uses - 1), further = stay / (1 - stay);

	return further < bound ? further : bound;
}

/* Each sample's expected number of uses after the first. One that was never scored has
 * the mean, so that the stream keeps its pace while a training begins. */
static int expect_uses(struct echo *e)
{
	const struct pads_request *r = e->request;
	double mean = r->uses - 1, sum = 0, stay[PERCENTILES];
	struct draw_list ranked;
	uint64_t count;
	int rc;

	for (uint32_t id = 0; id < r->samples; id++)
		e->further[id] = (float)mean;
	if (r->strength <= 0 || mean <= 0)
		return 0;
	rc = draw_list_init(&ranked, r->samples);
	if (rc)
		return rc;
	rank_by_score(&ranked, r);
	count = ranked.count;
	for (uint64_t step = 0; step < PERCENTILES; step++)
		stay[step] = stay_uses(((double)step + 0.5) / PERCENTILES, r->uses);
	for (uint64_t rank = 0; rank < count; rank++)
		sum += stay[rank * PERCENTILES / count];
	if (sum <= 0) /* nobody stays, or nobody has a score */
		count = 0;
	for (uint64_t rank = 0; rank < count; rank++) {
		double own = stay[rank * PERCENTILES / count] * (double)count / sum;

		e->further[draw_list_id(&ranked, rank)] =
			(float)(mean * (1 - r->strength + r->strength * own));
	}
	draw_list_free(&ranked);
	return 0;
}

/* --- rhythm --------------------------------------------------------------------------- */

/* Without need for longer gaps half of the capacity is enough: the rest is the policy's. */
static double usual_gap(const struct pads_request *r)
{
	return fmin(2.0 * r->capacity / r->uses, r->capacity);
}

/* The mean gap, and the least one. A batch may fill all of the capacity but a 32nd, and what is
 * less than a batch all but an eighth: there must be room for those that come by chance. */
static double mean_gap(const struct pads_request *r, double *least)
{
	double most = r->uses > 1 ? r->capacity * r->uses / (r->uses - 1) : INFINITY;

	*least = fmin(r->batch, floor(r->samples / 2.0));
	if (*least > most * 31 / 32) {
		*least = most * 13 / 16;
		return most * 7 / 8;
	}
	most = most * 31 / 32;
	return fmax(usual_gap(r), fmin(*least + (most - *least) / 4, *least * 9 / 8));
}

/* How many uses are owed if gaps have that mean: a sample with f further ones owes f for a gap,
 * then one less, and so on. */
static double expect_owed(const struct echo *e, double gap)
{
	const struct pads_request *r = e->request;
	double sum = 0;

	for (uint32_t id = 0; id < r->samples; id++) {
		double whole = floor(e->further[id]), part = e->further[id] - whole;

		sum += whole * (whole + 1) / 2 + part * (whole + 1);
	}
	return gap * sum / r->samples / r->uses;
}

static void find_rhythm(struct echo *e)
{
	double least, mean = mean_gap(e->request, &least);

	e->rhythm.least = least > 1 ? (uint32_t)least : 1;
	e->rhythm.spread = mean > e->rhythm.least ? (uint32_t)(2 * (mean - e->rhythm.least)) : 0;
	e->target = (uint64_t)expect_owed(e, mean);
	assert(e->rhythm.least + (uint64_t)e->rhythm.spread <=
	       pads_echo_due_max(e->request->samples));
}

/* --- the schedule ----------------------------------------------------------------------- */

static int echo_init(struct echo *e, const struct pads_request *request)
{
	*e = (struct echo){ .request = request, .pass = UINT64_MAX };
	e->introduced = request->echo->introduced;
	e->further = array_new(request->samples, sizeof(*e->further));
	e->debts = array_new(request->samples, sizeof(*e->debts));
	if (!e->further || !e->debts)
		return -ENOMEM;
	return draw_list_init(&e->permutation, request->samples);
}

static void echo_free(struct echo *e)
{
	free(e->further);
	free(e->debts);
	free(e->due);
	draw_list_free(&e->permutation);
}

static void make_due(struct echo *e, uint32_t id, uint32_t position)
{
	struct debt *debt = &e->debts[id];

	assert(position < e->positions && position >= e->served && debt->left);
	debt->due = position;
	debt->next = e->due[position];
	e->due[position] = id + 1;
}

/* Takes over what the state owes. Gaps may have been longer when that was drawn. */
static int begin_schedule(struct echo *e)
{
	const struct pads_echo *state = e->request->echo;
	uint32_t longest = e->rhythm.least + e->rhythm.spread;

	e->positions = (size_t)e->request->draws + longest + 1;
	e->due = array_new(e->positions, sizeof(*e->due));
	if (!e->due)
		return -ENOMEM;
	if (e->request->anew) {
		uint64_t samples = e->request->samples;

		e->introduced = (e->introduced + samples - 1) / samples * samples;
		return 0;
	}
	for (uint32_t i = 0; i < state->use_count; i++) {
		const struct pads_echo_use *use = &state->uses[i];
		uint32_t due = use->due < longest ? use->due : longest;

		e->debts[use->id] = (struct debt){ due, use->left, 0, use->weight };
		e->owed += use->left;
		if (use->left)
			make_due(e, use->id, due);
	}
	return 0;
}

/* The sample at `index` of the endless stream of permutations. */
static uint32_t stream_sample(struct echo *e, uint64_t index)
{
	uint64_t pass = index / e->request->samples;

	if (pass != e->pass) {
		struct philox_stream stream = { e->request->seed, pass, PHILOX_SHUFFLE };

		e->permutation.count = 0;
		for (uint32_t id = 0; id < e->request->samples; id++)
			draw_list_add(&e->permutation, philox_u32(stream, id), id);
		draw_list_sort(&e->permutation);
		e->pass = pass;
	}
	return draw_list_id(&e->permutation, index % e->request->samples);
}

/* What the stream leaves out, those that stay make up for. */
static float weight_of(const struct echo *e, uint32_t id)
{
	double chance = e->request->chances ? e->request->chances[id] : 1;

	return (float)(e->request->uses / (1 + (double)e->further[id]) / chance);
}

/* One use of a sample, here. What follows is a gap away, and so is its next introduction. */
static uint32_t use(struct echo *e, uint32_t id, uint32_t now)
{
	struct philox_stream stream = { e->request->seed, e->request->echo->accesses + now,
					PHILOX_SPREAD };
	uint64_t chance = philox_u32(stream, 0) * ((uint64_t)e->rhythm.spread + 1) >> 32;
	struct debt *debt = &e->debts[id];

	assert(debt->left && e->owed);
	debt->left--;
	e->owed--;
	debt->due = now + e->rhythm.least;
	if (debt->left)
		make_due(e, id, debt->due + (uint32_t)chance);
	return id;
}

/* Where the stream has its next sample, without those that it leaves out. */
static uint64_t next_index(struct echo *e)
{
	const float *chances = e->request->chances;
	uint64_t index = e->introduced++;

	while (chances) {
		struct philox_stream choose = { e->request->seed, index, PHILOX_CHOOSE };

		if (philox_unit(choose, 0) < chances[stream_sample(e, index)])
			break;
		index = e->introduced++;
	}
	return index;
}

/* The next sample of the stream. Returns it after its first use; NOBODY: it was used less than a
 * gap ago, or will be used anyway, and its uses come later. */
static uint32_t introduce(struct echo *e, uint32_t now)
{
	uint64_t index = next_index(e);
	uint32_t id = stream_sample(e, index), before = e->debts[id].left;
	struct philox_stream round = { e->request->seed, index, PHILOX_ROUND };
	uint32_t uses = 1 + (uint32_t)(e->further[id] + philox_unit(round, 0));
	struct debt *debt = &e->debts[id];

	debt->weight = ((float)before * debt->weight + (float)uses * weight_of(e, id)) /
		       (float)(before + uses);
	debt->left += uses;
	e->owed += uses;
	if (!before && debt->due <= now)
		return use(e, id, now);
	if (!before)
		make_due(e, id, debt->due);
	return NOBODY;
}

/* Takes the sample that is due first, up to a position; NOBODY: none is. */
static uint32_t take_due(struct echo *e, size_t last)
{
	for (size_t position = e->served; position <= last && position < e->positions; position++) {
		uint32_t id = e->due[position] - 1;

		if (id == NOBODY)
			continue;
		e->due[position] = e->debts[id].next;
		return id;
	}
	return NOBODY;
}

static uint32_t next_access(struct echo *e, uint32_t now)
{
	uint64_t most = e->target + e->request->samples;
	uint32_t id = NOBODY;

	while (e->served < now && !e->due[e->served])
		e->served++;
	while (id == NOBODY && e->owed < e->target)
		id = introduce(e, now);
	if (id != NOBODY)
		return id;
	id = take_due(e, now);
	if (id != NOBODY)
		return use(e, id, now);
	for (int i = 0; i < TRIES && id == NOBODY && e->owed <= most; i++)
		id = introduce(e, now);
	if (id != NOBODY)
		return id;
	/* Nearly all samples were used a moment ago: one of them comes too early. The stream must
	 * not run ahead to find another one. */
	id = take_due(e, e->positions);
	assert(id != NOBODY);
	return use(e, id, now);
}

static bool is_owed(const struct echo *e, uint32_t id)
{
	return e->debts[id].left || e->debts[id].due > e->request->draws;
}

/* What the next epoch takes over. */
static int carry_over(struct echo *e)
{
	struct pads_echo *state = e->request->echo;
	uint32_t count = 0, draws = e->request->draws;
	struct pads_echo_use *uses;

	for (uint32_t id = 0; id < e->request->samples; id++)
		count += is_owed(e, id);
	uses = array_new((size_t)count + 1, sizeof(*uses));
	if (!uses)
		return -ENOMEM;
	count = 0;
	for (uint32_t id = 0; id < e->request->samples; id++) {
		const struct debt *debt = &e->debts[id];

		if (is_owed(e, id))
			uses[count++] =
				(struct pads_echo_use){ id,
							debt->due > draws ? debt->due - draws : 0,
							debt->left, debt->weight };
	}
	free(state->uses);
	*state = (struct pads_echo){ e->introduced, state->accesses + draws, count, uses };
	return 0;
}

int draw_echo(const struct pads_request *request, uint32_t *order)
{
	struct echo e;
	uint32_t taken = 0;
	int rc = echo_init(&e, request);

	if (!rc)
		rc = expect_uses(&e);
	if (!rc) {
		find_rhythm(&e);
		rc = begin_schedule(&e);
	}
	for (uint32_t now = 0; !rc && now < request->draws; now++) {
		uint32_t id = next_access(&e, now);

		if (now % request->world == request->rank)
			order[taken++] = id;
	}
	if (!rc)
		rc = carry_over(&e);
	echo_free(&e);
	return rc;
}

/* --- weights -------------------------------------------------------------------------- */

int weights_echo(const struct pads_request *request, float *weights)
{
	const struct pads_echo *state = request->echo;
	struct echo e;
	int rc = echo_init(&e, request);

	if (!rc)
		rc = expect_uses(&e);
	for (uint32_t id = 0; !rc && id < request->samples; id++)
		weights[id] = weight_of(&e, id);
	for (uint32_t i = 0; !rc && i < state->use_count; i++)
		if (state->uses[i].left)
			weights[state->uses[i].id] = state->uses[i].weight;
	echo_free(&e);
	return rc;
}

/* --- states --------------------------------------------------------------------------- */

uint32_t pads_echo_due_max(uint32_t samples)
{
	return 1 + 2 * samples;
}

bool pads_echo_is_sound(const struct pads_echo *echo, uint32_t samples)
{
	for (uint32_t i = 0; i < echo->use_count; i++) {
		const struct pads_echo_use *use = &echo->uses[i];

		if (use->id >= samples || (i && use->id <= use[-1].id) ||
		    use->due > pads_echo_due_max(samples) || use->left > PADS_ECHO_LEFT_MAX ||
		    (!use->left && !use->due) ||
		    !(use->weight > 0 && use->weight <= PADS_ECHO_WEIGHT_MAX))
			return false;
	}
	return true;
}

void pads_echo_free(struct pads_echo *echo)
{
	free(echo->uses);
	*echo = (struct pads_echo){ 0 };
}
