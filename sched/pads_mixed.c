/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pads: SHADE's idea within bounds. An epoch is put together as a count for each sample:
 *
 *   1. What must come comes once: samples that were never scored, and the share of all
 *      samples whose turn it is, a different one in each of `cover_epochs` epochs that are drawn.
 *   2. The rest is drawn by score. Residents that were drawn are repeated `rep` times,
 *      the others make way for that, and nobody gets more than `max_repeats`. If the others
 *      leave too little room for that, each resident comes as often as it was drawn, and
 *      chance says who is repeated; so where everything is resident `rep` changes nothing.
 *   3. All of it is shuffled together, and each rank takes every world-th entry.
 *
 * Counts do not depend on the sequence in which they were added up, so this can be done
 * in parallel with the same result.
 */
#include <errno.h>
#include <stdlib.h>

#include "array.h"
#include "bits.h"
#include "mixed.h"

/* What candidates are chosen for: each has random numbers of its own. */
enum choice {
	CHOICE_RESIDENTS = 1,
	CHOICE_OTHERS,
	CHOICE_FILL, /* and one more each round, fewer than CHOICE_DRAWN in all */
	CHOICE_DRAWN = INT32_MAX
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

int mixed_init(struct mixed *m, const struct pads_request *request)
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

void mixed_free(struct mixed *m)
{
	multinomial_free(&m->weights);
	free(m->counts);
	free(m->turn);
	draw_list_free(&m->must);
	draw_list_free(&m->choice);
	draw_list_free(&m->whole);
}

/* Step 1. If there are more than fit, unseen samples go first. */
void mixed_take_must(struct mixed *m)
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

/* Candidates: the residents as often as they were drawn, and then their repeats. */
static void gather_apart(struct mixed *m, const uint32_t *drawn, bool repeats)
{
	for (uint32_t id = 0; id < m->request->samples; id++) {
		uint32_t entries = drawn[id];

		if (!drawn[id] || !draw_is_resident(m->request, id))
			continue;
		if (repeats)
			entries = repeated(m, id, drawn[id]) - drawn[id];
		if (entries > room_of(m, id))
			entries = room_of(m, id);
		while (entries-- > 0)
			draw_list_add(&m->choice, 0, id);
	}
}

static void take_residents(struct mixed *m, const uint32_t *drawn)
{
	gather(m, drawn, true);
	if (m->choice.count > mixed_missing(m)) {
		m->choice.count = 0;
		gather_apart(m, drawn, false);
		take_choice(m, mixed_missing(m), CHOICE_DRAWN);
		gather_apart(m, drawn, true);
	}
	take_choice(m, mixed_missing(m), CHOICE_RESIDENTS);
}

/* Step 2. */
static int take_drawn(struct mixed *m)
{
	struct philox_stream stream = draw_stream(m->request, PHILOX_DRAW);
	uint32_t *drawn = array_new(m->request->samples, sizeof(*drawn));
	uint32_t ids[MULTINOMIAL_BATCH];
	size_t draws = mixed_missing(m);

	if (!drawn)
		return -ENOMEM;
	for (size_t i = 0; i < draws; i++) {
		if (i % MULTINOMIAL_BATCH == 0)
			multinomial_pick(&m->weights, stream, i, ids);
		drawn[ids[i % MULTINOMIAL_BATCH]]++;
	}
	take_residents(m, drawn);
	gather(m, drawn, false);
	take_choice(m, mixed_missing(m), CHOICE_OTHERS);
	free(drawn);
	return 0;
}

/* What the bound on repeats has left open goes to whoever has room, round by round. */
static void fill_up(struct mixed *m)
{
	for (uint64_t round = CHOICE_FILL; mixed_missing(m) > 0; round++) {
		for (uint32_t id = 0; id < m->request->samples; id++)
			if (room_of(m, id) > 0)
				draw_list_add(&m->choice, 0, id);
		take_choice(m, mixed_missing(m), round);
	}
}

int draw_pads(const struct pads_request *request, uint32_t *order)
{
	struct mixed m = { 0 };
	int rc = mixed_init(&m, request);

	if (!rc) {
		mixed_take_must(&m);
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
