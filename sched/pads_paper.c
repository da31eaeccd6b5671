/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * paper: SHADE's procedure, kept as it is for comparison. Draw from multinomial(score)
 * with replacement; of the draw, repeat what is resident `rep` times (half a time: the
 * first half of it once more); all of that first, then the others, cut to the length of
 * the epoch.
 *
 * Also kept: a sample that was never scored weighs 1.0, less than any scored one; nothing
 * bounds repetition; and each rank draws for itself, so ranks overlap.
 */
#include <stdlib.h>

#include "array.h"
#include "draw.h"
#include "multinomial.h"

#define UNSEEN_SCORE 1.0f

struct paper {
	struct multinomial weights;
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
}

/* Ranks draw from streams of their own. */
static struct philox_stream rank_stream(const struct pads_request *request,
					enum philox_purpose purpose)
{
	struct philox_stream stream = draw_stream(request, purpose);

	stream.seed += (uint64_t)request->rank << 32;
	return stream;
}

static void draw_and_split(struct paper *p, const struct pads_request *request)
{
	struct philox_stream stream = rank_stream(request, PHILOX_DRAW);
	uint32_t ids[MULTINOMIAL_BATCH];

	for (uint32_t i = 0; i < p->length; i++) {
		uint32_t at = i % MULTINOMIAL_BATCH, id;

		if (at == 0)
			multinomial_pick(&p->weights, stream, i, ids);
		id = ids[at];
		draw_list_add(draw_is_resident(request, id) ? &p->hits : &p->misses, 0, id);
	}
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

	if (!rc) {
		draw_and_split(&p, request);
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
