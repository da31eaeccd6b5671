/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Requests, the table of modes, and what the modes share. */
#include "shade/pads.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "bits.h"
#include "draw.h"
#include "radix.h"
#include "shade/sched.h"

#define MODE_COUNT (sizeof(modes) / sizeof(modes[0]))

static const struct {
	const char *name;
	int (*draw)(const struct pads_request *request, uint32_t *order);
	int (*weights)(const struct pads_request *request, float *weights);
} modes[] = {
	[PADS_UNIFORM] = { "uniform", draw_uniform, NULL },
	[PADS_REPLACEMENT] = { "replacement", draw_replacement, NULL },
	[PADS_PAPER] = { "paper", draw_paper, NULL },
	[PADS_PADS] = { "pads", draw_pads, weights_pads },
	[PADS_ECHO] = { "echo", draw_echo, weights_echo },
};

const char *pads_mode_name(enum pads_mode mode)
{
	return (unsigned)mode < MODE_COUNT ? modes[mode].name : NULL;
}

int pads_mode_find(const char *name, enum pads_mode *mode)
{
	for (unsigned i = 0; i < MODE_COUNT; i++) {
		if (strcmp(modes[i].name, name))
			continue;
		*mode = (enum pads_mode)i;
		return 0;
	}
	return -EINVAL;
}

/* --- lists ---------------------------------------------------------------------- */

int draw_list_init(struct draw_list *list, size_t room)
{
	*list = (struct draw_list){ .room = room };
	list->entries = array_new(room, sizeof(*list->entries));
	list->scratch = array_new(room, sizeof(*list->scratch));
	if (list->entries && list->scratch)
		return 0;
	draw_list_free(list);
	return -ENOMEM;
}

void draw_list_free(struct draw_list *list)
{
	free(list->entries);
	free(list->scratch);
	*list = (struct draw_list){ 0 };
}

void draw_list_add(struct draw_list *list, uint32_t key, uint32_t id)
{
	list->entries[list->count++] = radix_entry(key, id);
}

void draw_list_sort(struct draw_list *list)
{
	radix_sort(list->entries, list->scratch, list->count);
}

void draw_list_shuffle(struct draw_list *list, struct philox_stream stream)
{
	for (size_t i = 0; i < list->count; i++)
		list->entries[i] = radix_entry(philox_u32(stream, i), draw_list_id(list, i));
	draw_list_sort(list);
}

/* --- requests ------------------------------------------------------------------- */

static bool scores_are_valid(const struct pads_request *request)
{
	for (uint32_t i = 0; request->scores && i < request->samples; i++)
		if (!isfinite(request->scores[i]))
			return false;
	return true;
}

static bool in_range(double value, double from, double to)
{
	return value >= from && value <= to; /* false for a NaN */
}

static bool chances_are_valid(const struct pads_request *request)
{
	for (uint32_t i = 0; request->chances && i < request->samples; i++)
		if (!in_range(request->chances[i], PADS_CHANCE_MIN, 1))
			return false;
	return true;
}

static void fill_in(struct pads_request *r)
{
	r->draws = r->draws ? r->draws : r->samples;
	r->world = r->world ? r->world : 1;
	r->rep = r->rep != 0 ? r->rep : 1;
	r->uses = r->uses != 0 ? r->uses : 4;
	r->batch = r->batch ? r->batch : 1024;
	r->cover_epochs = r->cover_epochs ? r->cover_epochs : 5;
	r->turn = r->turn ? r->turn : r->epoch + 1;
	if (!r->max_repeats)
		r->max_repeats = r->rep > 2 ? (uint32_t)fmin(2 * r->rep, 1e6) : 4;
}

int draw_complete(struct pads_request *r)
{
	fill_in(r);
	if (r->samples < 1 || r->samples > SCHED_SAMPLES_MAX || r->draws > SCHED_ORDER_MAX ||
	    r->rank >= r->world || r->world > r->draws || !pads_mode_name(r->mode))
		return -EINVAL;
	if (!in_range(r->rep, 1, 1000) || !in_range(r->uses, 1, 1000) ||
	    !in_range(r->strength, 0, 1) || !scores_are_valid(r))
		return -EINVAL;
	if (r->mode == PADS_PADS && (uint64_t)r->max_repeats * r->samples < r->draws)
		return -EINVAL;
	if (r->mode == PADS_ECHO &&
	    (!r->echo || !r->capacity || r->capacity > r->samples || !chances_are_valid(r)))
		return -EINVAL;
	return 0;
}

uint32_t pads_length(const struct pads_request *request)
{
	struct pads_request r = *request;

	fill_in(&r);
	return draw_length(&r);
}

int pads_draw(const struct pads_request *request, uint32_t *order)
{
	struct pads_request r = *request;

	if (draw_complete(&r))
		return -EINVAL;
	return modes[r.mode].draw(&r, order);
}

int pads_weights(const struct pads_request *request, float *weights)
{
	struct pads_request r = *request;

	if (draw_complete(&r) || !modes[r.mode].weights)
		return -EINVAL;
	return modes[r.mode].weights(&r, weights);
}

struct philox_stream draw_stream(const struct pads_request *request, enum philox_purpose purpose)
{
	return (struct philox_stream){ request->seed, request->epoch, purpose };
}

bool draw_is_resident(const struct pads_request *request, uint32_t id)
{
	return request->resident && bits_test(request->resident, id);
}

bool draw_is_unseen(const struct pads_request *request, uint32_t id)
{
	return !request->scores || request->scores[id] < 0;
}

void draw_take_part(const struct pads_request *request, const struct draw_list *whole,
		    uint32_t *order)
{
	uint32_t taken = 0;

	for (uint32_t i = request->rank; i < request->draws; i += request->world)
		order[taken++] = draw_list_id(whole, i);
}

/* --- the two uniform modes -------------------------------------------------------- */

int draw_uniform(const struct pads_request *request, uint32_t *order)
{
	struct philox_stream stream = draw_stream(request, PHILOX_SHUFFLE);
	uint64_t passes = ((uint64_t)request->draws + request->samples - 1) / request->samples;
	struct draw_list list;
	int rc = draw_list_init(&list, passes * request->samples);

	if (rc)
		return rc;
	for (uint64_t pass = 0; pass < passes; pass++) {
		uint64_t base = pass * request->samples;
		struct draw_list one = { list.entries + base, list.scratch, 0, request->samples };

		for (uint32_t id = 0; id < request->samples; id++)
			draw_list_add(&one, philox_u32(stream, base + id), id);
		draw_list_sort(&one);
	}
	draw_take_part(request, &list, order);
	draw_list_free(&list);
	return 0;
}

int draw_replacement(const struct pads_request *request, uint32_t *order)
{
	struct philox_stream stream = draw_stream(request, PHILOX_DRAW);
	uint32_t taken = 0;

	for (uint32_t i = request->rank; i < request->draws; i += request->world)
		order[taken++] =
			(uint32_t)((uint64_t)philox_u32(stream, i) * request->samples >> 32);
	return 0;
}

/* --- scores ----------------------------------------------------------------------- */

float pads_twice_rank_score(uint32_t twice)
{
	return (float)log((double)twice / 2 + 10);
}

float pads_rank_score(uint32_t rank)
{
	return (float)log((double)rank + 10);
}

uint32_t draw_sortable(float value)
{
	uint32_t bits;

	value += 0.0f;
	memcpy(&bits, &value, sizeof(bits));
	return bits & 0x80000000 ? ~bits : bits | 0x80000000;
}

int pads_rank_batch(const float *losses, uint32_t count, float *scores)
{
	struct draw_list list;
	int rc;

	for (uint32_t i = 0; i < count; i++)
		if (isnan(losses[i]))
			return -EINVAL;
	rc = draw_list_init(&list, count);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < count; i++)
		draw_list_add(&list, draw_sortable(losses[i]), i);
	draw_list_sort(&list);
	for (uint32_t less = 0, equal; less < count; less += equal) {
		float score;

		for (equal = 1; less + equal < count; equal++)
			if (draw_list_key(&list, less + equal) != draw_list_key(&list, less))
				break;
		score = pads_twice_rank_score(PADS_TWICE_RANK(less, equal, count));
		for (uint32_t i = less; i < less + equal; i++)
			scores[draw_list_id(&list, i)] = score;
	}
	draw_list_free(&list);
	return 0;
}
