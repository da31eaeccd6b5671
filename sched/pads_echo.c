/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * echo: read every sample once, and use it several times while it is there.
 *
 * A stream of fresh permutations introduces samples. Each gets a number of uses, `uses`
 * on the mean; its first is at once, the others at random times within the following
 * 2 * capacity accesses; then it is not needed any more. The next sample is introduced
 * when as many accesses have passed as the last one has uses, so that introductions keep
 * pace with accesses by themselves, and hits tend to 1 - 1/uses.
 *
 * An epoch is the next `draws` uses by time. Uses that are due later go into the state,
 * and samples that would have been introduced later go back to the stream.
 *
 * With strength 1 a sample of rank percentile r has as many uses on the mean as if it
 * stayed for another with probability r^(1/(uses-1)), bounded, and scaled so that the
 * mean over the samples remains `uses`; strength 0 gives all samples the same mean.
 * Fractions are rounded by chance.
 */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "draw.h"
#include "radix.h"

#define SPREAD 2	   /* uses spread over this many times the capacity */
#define BOUND 8		   /* expected further uses: at most so many times the mean */
#define PERCENTILES 1024   /* ranks are told apart so finely */
#define CARRIED UINT32_MAX /* no introduction of this epoch */

struct event {
	uint32_t id;
	uint32_t introduction; /* which of this epoch's, or CARRIED */
};

struct echo {
	const struct pads_request *request;
	float *further;		      /* expected uses after the first, by id */
	struct draw_list permutation; /* of `pass` */
	uint64_t pass;
	struct event *events;
	size_t event_room;
	struct draw_list schedule; /* due time, index of event */
	uint32_t next_now;	   /* when the next introduction after these is due */
};

/* --- arithmetic that is the same everywhere ----------------------------------------- */

/* log2 of a value in (0, 1]: IEEE operations only, to about 1e-12. */
static double plain_log2(double value)
{
	int exponent;
	double m = frexp(value, &exponent), z = (m - 1) / (m + 1), z2 = z * z, sum = 0;

	for (int i = 35; i > 0; i -= 2)
		sum = sum * z2 + 1.0 / i;
	return exponent + 2 * z * sum * 1.4426950408889634;
}

/* 2 to a power not above 0. */
static double plain_exp2(double power)
{
	/* Less than that is 0, and may be less than an int can be. */
	int whole = power > -2000 ? (int)power : -2000;
	double x = (power > -2000 ? power - whole : 0) * 0.6931471805599453, sum = 1;

	for (int i = 18; i > 0; i--)
		sum = 1 + sum * x / i;
	return ldexp(sum, whole);
}

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

/* --- the schedule ----------------------------------------------------------------------- */

static int echo_init(struct echo *e, const struct pads_request *request)
{
	/* Introductions go on for draws + spread accesses, the last one with all its uses. */
	size_t spread = (size_t)SPREAD * request->capacity;
	size_t bound = (size_t)(BOUND * request->uses * BOUND) + 2;
	int rc;

	*e = (struct echo){ .request = request, .pass = UINT64_MAX };
	e->event_room = request->draws + spread + bound + request->echo->use_count;
	if (e->event_room > UINT32_MAX)
		return -EINVAL;
	e->further = array_new(request->samples, sizeof(*e->further));
	e->events = array_new(e->event_room, sizeof(*e->events));
	if (!e->further || !e->events)
		return -ENOMEM;
	rc = draw_list_init(&e->permutation, request->samples);
	if (!rc)
		rc = draw_list_init(&e->schedule, e->event_room);
	return rc;
}

static void echo_free(struct echo *e)
{
	free(e->further);
	free(e->events);
	draw_list_free(&e->permutation);
	draw_list_free(&e->schedule);
}

static void add_event(struct echo *e, uint32_t due, uint32_t id, uint32_t introduction)
{
	assert(e->schedule.count < e->event_room);
	e->events[e->schedule.count] = (struct event){ id, introduction };
	draw_list_add(&e->schedule, due, (uint32_t)e->schedule.count);
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

/* One sample's uses, the first at `now`. Returns how many. */
static uint32_t introduce(struct echo *e, uint32_t introduction, uint32_t now)
{
	uint64_t index = e->request->echo->introduced + introduction;
	uint32_t id = stream_sample(e, index);
	struct philox_stream round = { e->request->seed, index, PHILOX_ROUND };
	struct philox_stream spread = { e->request->seed, index, PHILOX_SPREAD };
	uint32_t further = (uint32_t)(e->further[id] + philox_unit(round, 0));
	uint64_t window = (uint64_t)SPREAD * e->request->capacity;

	add_event(e, now, id, introduction);
	for (uint32_t i = 0; i < further; i++)
		add_event(e, now + 1 + (uint32_t)(philox_u32(spread, i) * window >> 32), id,
			  introduction);
	return 1 + further;
}

static void fill_schedule(struct echo *e)
{
	const struct pads_echo *state = e->request->echo;
	uint64_t end = e->request->draws + (uint64_t)SPREAD * e->request->capacity;
	uint32_t introduction = 0;
	uint64_t now = state->next_due;

	for (uint32_t i = 0; i < state->use_count; i++)
		add_event(e, state->uses[i].due, state->uses[i].id, CARRIED);
	/* A sample with more uses than an epoch has entries puts the next one far off: the
	 * epoch is filled all the same. */
	while (now <= end || e->schedule.count < e->request->draws)
		now += introduce(e, introduction++, (uint32_t)now);
	e->next_now = (uint32_t)now;
	draw_list_sort(&e->schedule);
}

static const struct event *event_at(const struct echo *e, size_t index)
{
	return &e->events[draw_list_id(&e->schedule, index)];
}

/* How many introductions the epoch's entries hold. */
static uint32_t count_introduced(const struct echo *e)
{
	uint32_t introduced = 0;

	for (size_t i = 0; i < e->request->draws; i++) {
		uint32_t introduction = event_at(e, i)->introduction;

		if (introduction != CARRIED && introduction >= introduced)
			introduced = introduction + 1;
	}
	return introduced;
}

/* What the next epoch takes over: later uses of samples that were introduced. */
static int carry_over(struct echo *e)
{
	struct pads_echo *state = e->request->echo;
	uint32_t introduced = count_introduced(e), count = 0, next_due = CARRIED;
	uint32_t end = (uint32_t)(e->schedule.entries[e->request->draws - 1] >> 32);
	struct pads_echo_use *uses =
		array_new(e->schedule.count - e->request->draws, sizeof(*uses));

	if (!uses)
		return -ENOMEM;
	for (size_t i = e->request->draws; i < e->schedule.count; i++) {
		const struct event *event = event_at(e, i);
		uint32_t due = (uint32_t)(e->schedule.entries[i] >> 32);

		/* The first event of an introduction is its first use. */
		if (event->introduction == introduced && next_due == CARRIED)
			next_due = due - end;
		if (event->introduction == CARRIED || event->introduction < introduced)
			uses[count++] = (struct pads_echo_use){ event->id, due - end };
	}
	if (next_due == CARRIED)
		next_due = e->next_now - end;
	free(state->uses);
	*state = (struct pads_echo){ state->introduced + introduced, next_due, count, uses };
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
		fill_schedule(&e);
		rc = carry_over(&e);
	}
	if (!rc)
		for (uint32_t i = request->rank; i < request->draws; i += request->world)
			order[taken++] = event_at(&e, i)->id;
	echo_free(&e);
	return rc;
}

void pads_echo_free(struct pads_echo *echo)
{
	free(echo->uses);
	*echo = (struct pads_echo){ 0 };
}
