/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * paper: SHADE's procedure, kept as it is for comparison. Draw from multinomial(score)
 * with replacement; of the draw, repeat what is resident `rep` times (half a time: the
 * first half of it once more); all of that first, then the others, cut to the length of
 * the epoch.
 *
 * On several ranks each rank draws a whole epoch for itself and keeps the head of it, as long
 * as its part: the samples that were drawn most often come first, with all their entries, and
 * of samples that were drawn equally often those with the smaller ids. SHADE calls that
 * aggressive. In the first epoch, before anything was scored, a rank keeps any part of its draw.
 *
 * Also kept: a sample that was never scored weighs 1.0, less than any scored one; nothing
 * bounds repetition; and ranks overlap, since they draw alike and keep what is likely.
 */
#include <errno.h>
#include <stdlib.h>

#include "array.h"
#include "draw.h"
#include "multinomial.h"

#define UNSEEN_SCORE 1.0f

struct paper {
	struct multinomial weights;
	struct draw_list drawn; /* on several ranks: the head of the draw */
	struct draw_list hits;
	struct draw_list misses;
	uint32_t length;
};

static int paper_init(struct paper *p, const struct pads_request *request)
{
	int rc = multinomial_init(&p->weights, request->scores, request->samples, UNSEEN_SCORE);

	p->length = draw_length(request);
	if (!rc)
		rc = draw_list_init(&p->misses, p->length);
	if (!rc)
		rc = draw_list_init(&p->hits, (size_t)((double)p->length * request->rep) + 1);
	return rc;
}

static void paper_free(struct paper *p)
{
	multinomial_free(&p->weights);
	draw_list_free(&p->misses);
	draw_list_free(&p->hits);
	draw_list_free(&p->drawn);
}

/* Ranks draw from streams of their own. */
static struct philox_stream rank_stream(const struct pads_request *request,
					enum philox_purpose purpose)
{
	struct philox_stream stream = draw_stream(request, purpose);

	stream.seed += (uint64_t)request->rank << 32;
	return stream;
}

static void split(struct paper *p, const struct pads_request *request, uint32_t id)
{
	draw_list_add(draw_is_resident(request, id) ? &p->hits : &p->misses, 0, id);
}

static void draw_and_split(struct paper *p, const struct pads_request *request)
{
	struct philox_stream stream = rank_stream(request, PHILOX_DRAW);
	uint32_t ids[MULTINOMIAL_BATCH];

	for (uint32_t i = 0; i < p->length; i++) {
		uint32_t at = i % MULTINOMIAL_BATCH;

		if (at == 0)
			multinomial_pick(&p->weights, stream, i, ids);
		split(p, request, ids[at]);
	}
}

/* How often each sample comes in a draw of a whole epoch. */
static uint32_t *count_draws(const struct paper *p, const struct pads_request *request)
{
	struct philox_stream stream = rank_stream(request, PHILOX_DRAW);
	uint32_t *counts = array_new(request->samples, sizeof(*counts));
	uint32_t ids[MULTINOMIAL_BATCH];

	for (uint32_t i = 0; counts && i < request->draws; i++) {
		if (i % MULTINOMIAL_BATCH == 0)
			multinomial_pick(&p->weights, stream, i, ids);
		counts[ids[i % MULTINOMIAL_BATCH]]++;
	}
	return counts;
}

/* The aggressive selection: what was drawn most often, as much as this rank reads. */
static int select_head(struct paper *p, const struct pads_request *request)
{
	uint32_t *counts = count_draws(p, request);
	struct draw_list by_count = { 0 };
	int rc = counts ? draw_list_init(&by_count, request->samples) : -ENOMEM;

	if (!rc)
		rc = draw_list_init(&p->drawn, p->length);
	for (uint32_t id = 0; !rc && id < request->samples; id++)
		if (counts[id])
			draw_list_add(&by_count, UINT32_MAX - counts[id], id);
	if (!rc)
		draw_list_sort(&by_count);
	for (size_t i = 0; !rc && i < by_count.count; i++) {
		uint32_t id = draw_list_id(&by_count, i);

		while (counts[id]-- > 0 && p->drawn.count < p->length)
			draw_list_add(&p->drawn, 0, id);
	}
	draw_list_free(&by_count);
	free(counts);
	return rc;
}

static bool is_first_epoch(const struct pads_request *request)
{
	for (uint32_t id = 0; id < request->samples; id++)
		if (!draw_is_unseen(request, id))
			return false;
	return request->epoch == 0;
}

/* One rank keeps all that it draws, in whatever sequence. */
static int fill_lists(struct paper *p, const struct pads_request *request)
{
	int rc;

	if (request->world == 1 || is_first_epoch(request)) {
		draw_and_split(p, request);
		return 0;
	}
	rc = select_head(p, request);
	if (rc)
		return rc;
	draw_list_shuffle(&p->drawn, rank_stream(request, PHILOX_ROUND));
	for (size_t i = 0; i < p->drawn.count; i++)
		split(p, request, draw_list_id(&p->drawn, i));
	return 0;
}

static void repeat_hits(struct draw_list *hits, double rep)
{
	size_t once = hits->count, total = (size_t)((double)once * rep);

	for (size_t i = once; i < total; i++)
		draw_list_add(hits, 0, draw_list_id(hits, i - once));
}

int draw_paper(const struct pads_request *request, uint32_t *order)
{
	struct paper p = { 0 };
	uint32_t taken = 0;
	int rc = paper_init(&p, request);

	if (!rc)
		rc = fill_lists(&p, request);
	if (!rc) {
		repeat_hits(&p.hits, request->rep);
		draw_list_shuffle(&p.hits, rank_stream(request, PHILOX_SHUFFLE));
		draw_list_shuffle(&p.misses, rank_stream(request, PHILOX_CHOOSE));
		for (size_t i = 0; i < p.hits.count && taken < p.length; i++)
			order[taken++] = draw_list_id(&p.hits, i);
		for (size_t i = 0; i < p.misses.count && taken < p.length; i++)
			order[taken++] = draw_list_id(&p.misses, i);
	}
	paper_free(&p);
	return rc;
}
