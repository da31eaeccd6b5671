/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pads: SHADE's idea within bounds. An epoch is put together as a count for each sample:
 *
 *   1. What must come comes once: samples that were never scored, and the share of all
 *      samples whose turn it is, a different one in each of `cover_epochs` epochs that are drawn.
 *   2. The rest is drawn by score. Residents that were drawn are repeated `rep` times,
 *      the others make way for that, and nobody gets more than `max_repeats`.
 *   3. All of it is shuffled together, and each rank takes every world-th entry.
 *
 * Counts do not depend on the sequence in which they were added up, so this can be done
 * in parallel with the same result.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "array.h"
#include "bits.h"
#include "draw.h"
#include "multinomial.h"

struct mixed {
	const struct pads_request *request;
	struct multinomial weights;
	uint32_t *counts;	 /* entries of each sample so far */
	uint64_t *turn;		 /* bitmap: whose turn it is */
	struct draw_list must;	 /* candidates for step 1 */
	struct draw_list choice; /* candidates for the rest */
	struct draw_list whole;
};

/* Marks the samples that this epoch must have: every cover_epochs-th of a permutation that
 * stays the same, so that each has its turn and the groups are of one size. */
static int mark_turns(struct mixed *m)
{
	const struct pads_request *request = m->request;
	struct philox_stream stream = { request->seed, 0, PHILOX_COVER };
	uint64_t turn = (request->turn - 1) % request->cover_epochs;

	m->turn = array_new(bits_words(request->samples), sizeof(*m->turn));
	if (!m->turn)
		return -ENOMEM;
	for (uint32_t id = 0; id < request->samples; id++)
		draw_list_add(&m->must, philox_u32(stream, id), id);
	draw_list_sort(&m->must);
	for (uint64_t i = turn; i < request->samples; i += request->cover_epochs)
		bits_set(m->turn, draw_list_id(&m->must, i));
	m->must.count = 0;
	return 0;
}

static int mixed_init(struct mixed *m, const struct pads_request *request)
{
	size_t draws = request->draws, samples = request->samples;
	int rc = multinomial_init(&m->weights, request->scores, request->samples, -1);

	m->request = request;
	m->counts = array_new(samples, sizeof(*m->counts));
	if (!rc && !m->counts)
		rc = -ENOMEM;
	if (!rc)
		rc = draw_list_init(&m->must, samples);
	if (!rc)
		rc = draw_list_init(&m->choice, (size_t)((double)draws * request->rep) + samples);
	if (!rc)
		rc = draw_list_init(&m->whole, draws);
	if (!rc)
		rc = mark_turns(m);
	return rc;
}

static void mixed_free(struct mixed *m)
{
	multinomial_free(&m->weights);
	free(m->counts);
	free(m->turn);
	draw_list_free(&m->must);
	draw_list_free(&m->choice);
	draw_list_free(&m->whole);
}

/* Step 1. If there are more than fit, unseen samples go first. */
static void take_must(struct mixed *m)
{
	const struct pads_request *request = m->request;
	struct philox_stream stream = draw_stream(request, PHILOX_CHOOSE);

	for (uint32_t id = 0; id < request->samples; id++) {
		bool unseen = draw_is_unseen(request, id);

		if (unseen || bits_test(m->turn, id))
			draw_list_add(&m->must,
				      philox_u32(stream, id) >> 1 | (uint32_t)!unseen << 31, id);
	}
	draw_list_sort(&m->must);
	for (size_t i = 0; i < m->must.count && i < request->draws; i++) {
		uint32_t id = draw_list_id(&m->must, i);

		m->counts[id]++;
		draw_list_add(&m->whole, 0, id);
	}
}

/* How often a resident comes that was drawn `drawn` times: fractions by chance. */
static uint32_t repeated(const struct mixed *m, uint32_t id, uint32_t drawn)
{
	double times = (double)drawn * m->request->rep;

	if (!draw_is_resident(m->request, id))
		return drawn;
	return (uint32_t)(times + philox_unit(draw_stream(m->request, PHILOX_ROUND), id));
}

static uint32_t room_of(const struct mixed *m, uint32_t id)
{
	return m->request->max_repeats - m->counts[id];
}

/* Takes up to `want` of the candidates, by chance. */
static void take_choice(struct mixed *m, size_t want, uint64_t purpose_index)
{
	struct philox_stream stream = draw_stream(m->request, PHILOX_CHOOSE);

	stream.seed += purpose_index << 32;
	draw_list_shuffle(&m->choice, stream);
	for (size_t i = 0; i < m->choice.count && i < want; i++) {
		uint32_t id = draw_list_id(&m->choice, i);

		m->counts[id]++;
		draw_list_add(&m->whole, 0, id);
	}
	m->choice.count = 0;
}

/* Candidates: what was drawn of the residents, or of the others. */
static void gather(struct mixed *m, const uint32_t *drawn, bool resident)
{
	for (uint32_t id = 0; id < m->request->samples; id++) {
		uint32_t entries;

		if (!drawn[id] || draw_is_resident(m->request, id) != resident)
			continue;
		entries = repeated(m, id, drawn[id]);
		if (entries > room_of(m, id))
			entries = room_of(m, id);
		while (entries-- > 0)
			draw_list_add(&m->choice, 0, id);
	}
}

static size_t missing(const struct mixed *m)
{
	return m->request->draws - m->whole.count;
}

/* Step 2. */
static int take_drawn(struct mixed *m)
{
	struct philox_stream stream = draw_stream(m->request, PHILOX_DRAW);
	uint32_t *drawn = array_new(m->request->samples, sizeof(*drawn));
	uint32_t ids[MULTINOMIAL_BATCH];
	size_t draws = missing(m);

	if (!drawn)
		return -ENOMEM;
	for (size_t i = 0; i < draws; i++) {
		if (i % MULTINOMIAL_BATCH == 0)
			multinomial_pick(&m->weights, stream, i, ids);
		drawn[ids[i % MULTINOMIAL_BATCH]]++;
	}
	gather(m, drawn, true);
	take_choice(m, missing(m), 1);
	gather(m, drawn, false);
	take_choice(m, missing(m), 2);
	free(drawn);
	return 0;
}

/* What the bound on repeats has left open goes to whoever has room, round by round. */
static void fill_up(struct mixed *m)
{
	for (uint64_t round = 3; missing(m) > 0; round++) {
		for (uint32_t id = 0; id < m->request->samples; id++)
			if (room_of(m, id) > 0)
				draw_list_add(&m->choice, 0, id);
		take_choice(m, missing(m), round);
	}
}

int draw_pads(const struct pads_request *request, uint32_t *order)
{
	struct mixed m = { 0 };
	int rc = mixed_init(&m, request);

	if (!rc) {
		take_must(&m);
		rc = take_drawn(&m);
	}
	if (!rc) {
		fill_up(&m);
		draw_list_shuffle(&m.whole, draw_stream(request, PHILOX_SHUFFLE));
		draw_take_part(request, &m.whole, order);
	}
	mixed_free(&m);
	return rc;
}

/* What a sample may expect of the draw by score, before anybody makes way. */
struct expected {
	double entries; /* within the bound on repeats */
	double open;	/* the probability that the bound leaves room for more */
};

/* Of a sample that must come with the probability `must`: the sum over how often it is drawn,
 * which is binomial. */
static struct expected expect(const struct mixed *m, uint32_t id, double draws, double must)
{
	double bound = m->request->max_repeats, share = multinomial_share(&m->weights, id);
	double times = draw_is_resident(m->request, id) ? m->request->rep : 1;
	double chance = share < 1 ? exp(draws * log1p(-share)) : 0;
	double left = 1, wanted = draws * share * times;
	struct expected e = { 0, 0 };

	/* Drawn so often that it is as good as certain how often. */
	if (chance <= 0) {
		e.entries = must * fmin(wanted, bound - 1) + (1 - must) * fmin(wanted, bound);
		e.open = must * (wanted < bound - 1) + (1 - must) * (wanted < bound);
		return e;
	}
	for (double drawn = 0; drawn <= draws && left > 1e-9; drawn++) {
		wanted = drawn * times;
		if (wanted >= bound)
			break;
		e.entries += chance * (must * fmin(wanted, bound - 1) + (1 - must) * wanted);
		e.open += chance * (must * (wanted < bound - 1) + 1 - must);
		left -= chance;
		chance *= (draws - drawn) / (drawn + 1) * share / (1 - share);
	}
	e.entries += left * (must * (bound - 1) + (1 - must) * fmin(wanted, bound));
	return e;
}

/* The same over all samples. */
struct expectation {
	double must[2];	 /* the probability of step 1 for scored and for unseen samples */
	double draws;	 /* of step 2 */
	double taken[2]; /* the share of what others and residents ask for that they get */
	double filled;	 /* entries that are left for whoever has room */
	double open;	 /* expected number of those */
	double room;	 /* all their room */
};

static double must_of(const struct expectation *all, const struct pads_request *r, uint32_t id)
{
	return all->must[draw_is_unseen(r, id)];
}

static void expect_all(const struct mixed *m, struct expectation *all)
{
	const struct pads_request *r = m->request;
	double asked[2] = { 0, 0 }, unseen = 0, draws = r->draws, must = 0;

	for (uint32_t id = 0; id < r->samples; id++)
		unseen += draw_is_unseen(r, id);
	*all = (struct expectation){ .draws = (double)missing(m), .taken = { 1, 1 } };
	all->must[1] = unseen > draws ? draws / unseen : 1;
	all->must[0] = unseen >= draws ? 0
				       : fmin(1.0 / r->cover_epochs,
					      (draws - unseen) / fmax(1, r->samples - unseen));
	for (uint32_t id = 0; id < r->samples; id++) {
		struct expected e = expect(m, id, all->draws, must_of(all, r, id));

		asked[draw_is_resident(r, id)] += e.entries;
		all->open += e.open;
		must += must_of(all, r, id);
	}
	if (asked[1] > all->draws)
		all->taken[1] = all->draws / asked[1];
	if (asked[0] > 0)
		all->taken[0] = fmin(1, fmax(0, all->draws - asked[1]) / asked[0]);
	all->filled = fmax(0, all->draws - asked[0] - asked[1]);
	all->room = (double)r->samples * r->max_repeats - must - asked[0] - asked[1];
}

/* By the steps above, what is expected of each for the mean: that residents fill the whole
 * epoch by chance alone is not seen. */
static void expected_weights(const struct mixed *m, float *weights)
{
	const struct pads_request *r = m->request;
	struct expectation all;

	expect_all(m, &all);
	for (uint32_t id = 0; id < r->samples; id++) {
		double must = must_of(&all, r, id);
		struct expected e = expect(m, id, all.draws, must);
		double entries = must + e.entries * all.taken[draw_is_resident(r, id)];

		if (all.filled > all.open)
			entries += all.filled * (r->max_repeats - entries) / all.room;
		else if (all.filled > 0)
			entries += all.filled * e.open / all.open;
		weights[id] = entries > 0 ? (float)((double)r->draws / r->samples / entries) : 0;
	}
}

int weights_pads(const struct pads_request *request, float *weights)
{
	struct mixed m = { 0 };
	int rc = mixed_init(&m, request);

	if (!rc) {
		take_must(&m);
		expected_weights(&m, weights);
	}
	mixed_free(&m);
	return rc;
}
