/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Who is left out: requests, and with which chance each sample comes. */
#include "skip.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "bits.h"
#include "plain.h"
#include "shade/sched.h"

#define IIS_POWER 0.33
#define IIS_FULL_FIRST 5 /* epochs */
#define IIS_FULL_EVERY 3

static const char *const names[] = { [SKIP_PRUNE] = "prune", [SKIP_IIS] = "iis" };

#define MODE_COUNT (sizeof(names) / sizeof(names[0]))

const char *skip_mode_name(enum skip_mode mode)
{
	return (unsigned)mode < MODE_COUNT ? names[mode] : NULL;
}

int skip_mode_find(const char *name, enum skip_mode *mode)
{
	for (unsigned i = 0; i < MODE_COUNT; i++) {
		if (strcmp(names[i], name))
			continue;
		*mode = (enum skip_mode)i;
		return 0;
	}
	return -EINVAL;
}

/* --- requests ------------------------------------------------------------------------- */

/* 0, -EINVAL or -ENOMEM. */
static int check_neighbours(const struct skip_request *r)
{
	uint64_t *seen;
	uint32_t i = 0;

	if (!r->neighbours)
		return 0;
	seen = array_new(bits_words(r->samples), sizeof(*seen));
	if (!seen)
		return -ENOMEM;
	for (; i < r->samples; i++) {
		if (r->neighbours[i] >= r->samples || bits_test(seen, r->neighbours[i]))
			break;
		bits_set(seen, r->neighbours[i]);
	}
	free(seen);
	return i < r->samples ? -EINVAL : 0;
}

static void fill_in(struct skip_request *r)
{
	r->turn = r->turn ? r->turn : r->epoch + 1;
	r->cover_epochs = r->cover_epochs ? r->cover_epochs : 5;
	r->multiple = r->multiple ? r->multiple : 1;
	r->keep = r->keep != 0 ? r->keep : 0.5;
	/* All of them in one run are as many as there can be. */
	r->package = r->package < r->samples ? r->package : r->samples;
}

int skip_complete(struct skip_request *r)
{
	fill_in(r);
	if (!skip_mode_name(r->mode) || r->samples < 1 || r->samples > SCHED_SAMPLES_MAX ||
	    r->multiple > SCHED_ORDER_MAX || skip_room(r) > SCHED_ORDER_MAX)
		return -EINVAL;
	if (!(r->keep >= PADS_CHANCE_MIN && r->keep <= 1)) /* a NaN is not */
		return -EINVAL;
	return check_neighbours(r);
}

uint32_t skip_room(const struct skip_request *request)
{
	uint32_t multiple = request->multiple ? request->multiple : 1;
	uint32_t rest = request->samples % multiple;

	return request->samples + (rest ? multiple - rest : 0);
}

bool skip_is_full(const struct skip_request *r)
{
	if (r->mode == SKIP_PRUNE)
		return r->epochs && r->epoch >= (uint64_t)r->epochs * 7 / 8;
	return !r->never_full && (r->epoch < IIS_FULL_FIRST || r->epoch % IIS_FULL_EVERY == 0);
}

bool skip_is_overdue(const struct skip_request *r, uint32_t id)
{
	/* An order that is drawn once more may find itself, or a later one, noted already. */
	return r->planned && r->planned[id] < r->turn &&
	       r->turn - r->planned[id] >= r->cover_epochs;
}

/* --- chances -------------------------------------------------------------------------- */

static bool is_unseen(const struct skip_request *r, uint32_t id)
{
	return !r->losses || isnan(r->losses[id]);
}

/* Of those that are known. One that is infinite would be no mean of anything. */
static double mean_loss(const struct skip_request *r)
{
	double sum = 0;
	uint32_t count = 0;

	for (uint32_t id = 0; r->losses && id < r->samples; id++)
		if (isfinite(r->losses[id])) {
			sum += r->losses[id];
			count++;
		}
	return count ? sum / count : 0;
}

static void prune_chances(const struct skip_request *r, float *chances)
{
	double mean = mean_loss(r);

	for (uint32_t id = 0; id < r->samples; id++)
		if (!is_unseen(r, id) && r->losses[id] < mean && !skip_is_overdue(r, id))
			chances[id] = (float)r->keep;
}

int skip_rank_losses(const struct skip_request *r, struct draw_list *ranked)
{
	int rc = draw_list_init(ranked, r->samples);

	if (rc)
		return rc;
	for (uint32_t id = 0; id < r->samples; id++)
		if (!is_unseen(r, id))
			draw_list_add(ranked, draw_sortable(r->losses[id]), id);
	draw_list_sort(ranked);
	return 0;
}

static float iis_chance(size_t up_to, size_t count)
{
	double percentile = (double)up_to / (double)count;

	if (up_to == count)
		return 1;
	return fmaxf((float)plain_exp2(IIS_POWER * plain_log2(percentile)), PADS_CHANCE_MIN);
}

/* The percentile of a loss is the share of samples whose loss is not above it, so the highest one
 * always comes, and equal ones are alike. */
static int iis_chances(const struct skip_request *r, float *chances)
{
	struct draw_list ranked;
	int rc = skip_rank_losses(r, &ranked);

	if (rc)
		return rc;
	for (size_t from = 0, to; from < ranked.count; from = to) {
		float chance;

		for (to = from + 1; to < ranked.count; to++)
			if (draw_list_key(&ranked, to) != draw_list_key(&ranked, from))
				break;
		chance = iis_chance(to, ranked.count);
		for (size_t i = from; i < to; i++) {
			uint32_t id = draw_list_id(&ranked, i);

			if (!r->substitute || !skip_is_overdue(r, id))
				chances[id] = chance;
		}
	}
	draw_list_free(&ranked);
	return 0;
}

int skip_chances(const struct skip_request *request, float *chances)
{
	struct skip_request r = *request;
	int rc = skip_complete(&r);

	if (rc)
		return rc;
	for (uint32_t id = 0; id < r.samples; id++)
		chances[id] = 1;
	if (skip_is_full(&r))
		return 0;
	if (r.mode == SKIP_IIS)
		return iis_chances(&r, chances);
	prune_chances(&r, chances);
	return 0;
}

void skip_mark(uint64_t *planned, uint64_t turn, const uint32_t *order, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		planned[order[i]] = turn;
}
