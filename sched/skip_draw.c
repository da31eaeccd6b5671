/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who comes, and in what sequence.
 *
 *   1. Each sample comes by its chance.
 *   2. iis: those that came are H or L, and absent L samples may name others instead.
 *   3. iis: absent L samples become runs of neighbours. Runs and other entries are shuffled.
 *   4. The order is filled up to a multiple.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "bits.h"
#include "skip.h"

#define H_PERCENT 70 /* of those that come */
#define NAMED_MAX 2u /* entries of a substitute */

/* What candidates are shuffled for: each has random numbers of its own. */
enum choice { CHOICE_ABSENT = 1, CHOICE_FRESH, CHOICE_AGAIN };

struct skip {
	const struct skip_request *request;
	const float *chances;
	uint8_t *times; /* by id: entries */
	uint64_t *low;	/* bitmap by id: L */
	uint32_t *runs; /* absent L samples, as neighbours */
	uint32_t run_entries;
	uint32_t first_run;	/* entries of the first one */
	struct draw_list items; /* ids; from `samples` on, runs */
};

static struct philox_stream stream_for(const struct skip_request *r, enum philox_purpose purpose)
{
	return (struct philox_stream){ r->seed, r->epoch, purpose };
}

static bool is_resident(const struct skip *s, uint32_t id)
{
	return s->request->resident && bits_test(s->request->resident, id);
}

static bool is_absent_low(const struct skip *s, uint32_t id)
{
	return bits_test(s->low, id) && !is_resident(s, id);
}

static int skip_init(struct skip *s, const struct skip_request *request, const float *chances)
{
	*s = (struct skip){ .request = request, .chances = chances };
	s->times = array_new(request->samples, sizeof(*s->times));
	s->low = array_new(bits_words(request->samples), sizeof(*s->low));
	if (request->package)
		s->runs = array_new(request->samples, sizeof(*s->runs));
	if (!s->times || !s->low || (request->package && !s->runs))
		return -ENOMEM;
	return draw_list_init(&s->items, request->samples);
}

static void skip_free(struct skip *s)
{
	free(s->times);
	free(s->low);
	free(s->runs);
	draw_list_free(&s->items);
}

/* Step 1. */
static uint32_t take_by_chance(struct skip *s)
{
	struct philox_stream stream = stream_for(s->request, PHILOX_CHOOSE);
	uint32_t taken = 0;

	for (uint32_t id = 0; id < s->request->samples; id++) {
		s->times[id] = philox_unit(stream, id) < s->chances[id];
		taken += s->times[id];
	}
	return taken;
}

/* --- H and L ---------------------------------------------------------------------------- */

/* Of those that came the lower 30 % are L, and so are all others with such losses. Whose loss is
 * not known is H. */
static int find_low(struct skip *s, uint32_t taken)
{
	uint32_t low = taken - (uint32_t)((uint64_t)taken * H_PERCENT / 100), came = 0;
	struct draw_list ranked;
	int rc = skip_rank_losses(s->request, &ranked);

	if (rc)
		return rc;
	for (size_t i = 0; i < ranked.count && came < low; i++) {
		uint32_t id = draw_list_id(&ranked, i);

		bits_set(s->low, id);
		came += s->times[id];
	}
	draw_list_free(&ranked);
	return 0;
}

static void shuffle_for(struct skip *s, struct draw_list *list, enum choice choice)
{
	struct philox_stream stream = stream_for(s->request, PHILOX_ROUND);

	stream.seed += (uint64_t)choice << 32;
	draw_list_shuffle(list, stream);
}

/* L samples that came, are absent and were in an order lately. */
static void gather_absent(struct skip *s, struct draw_list *list)
{
	for (uint32_t id = 0; id < s->request->samples; id++)
		if (s->times[id] && is_absent_low(s, id) && !skip_is_overdue(s->request, id))
			draw_list_add(list, 0, id);
	shuffle_for(s, list, CHOICE_ABSENT);
}

/* Those resident L samples that have fewer than `most` entries name one each, as long as there are
 * absent ones from `from` on. Returns where the next one is. */
static size_t name_residents(struct skip *s, const struct draw_list *absent, size_t from,
			     uint32_t most, struct draw_list *list)
{
	list->count = 0;
	for (uint32_t id = 0; id < s->request->samples; id++)
		if (bits_test(s->low, id) && is_resident(s, id) && s->times[id] < most)
			draw_list_add(list, 0, id);
	shuffle_for(s, list, most == 1 ? CHOICE_FRESH : CHOICE_AGAIN);
	for (size_t i = 0; i < list->count && from < absent->count; i++, from++) {
		s->times[draw_list_id(absent, from)] = 0;
		s->times[draw_list_id(list, i)]++;
	}
	return from;
}

static int substitute(struct skip *s)
{
	struct draw_list absent = { 0 }, list = { 0 };
	int rc = draw_list_init(&absent, s->request->samples);

	if (!rc)
		rc = draw_list_init(&list, s->request->samples);
	if (!rc) {
		size_t next = 0;

		gather_absent(s, &absent);
		for (uint32_t most = 1; most <= NAMED_MAX; most++)
			next = name_residents(s, &absent, next, most, &list);
	}
	draw_list_free(&absent);
	draw_list_free(&list);
	return rc;
}

/* --- the sequence ----------------------------------------------------------------------- */

/* Absent L samples as neighbours. Where the first run ends is by chance, so that not the same ones
 * are together in every epoch. */
static void form_runs(struct skip *s)
{
	const struct skip_request *r = s->request;
	uint32_t runs, chance = philox_u32(stream_for(r, PHILOX_SPREAD), 0);

	for (uint32_t i = 0; i < r->samples; i++) {
		uint32_t id = r->neighbours ? r->neighbours[i] : i;

		if (s->times[id] && is_absent_low(s, id)) {
			s->runs[s->run_entries++] = id;
			s->times[id] = 0;
		}
	}
	s->first_run = 1 + (uint32_t)((uint64_t)chance * r->package >> 32);
	if (!s->run_entries)
		return;
	runs = 1;
	if (s->run_entries > s->first_run)
		runs += (s->run_entries - s->first_run + r->package - 1) / r->package;
	for (uint32_t run = 0; run < runs; run++)
		draw_list_add(&s->items, 0, r->samples + run);
}

static uint32_t put_run(const struct skip *s, uint32_t run, uint32_t *order)
{
	uint32_t package = s->request->package;
	uint32_t from = run ? s->first_run + (run - 1) * package : 0;
	uint32_t count = run ? package : s->first_run;

	if (count > s->run_entries - from)
		count = s->run_entries - from;
	memcpy(order, s->runs + from, count * sizeof(*order));
	return count;
}

/* Step 3. */
static uint32_t arrange(struct skip *s, uint32_t *order)
{
	uint32_t samples = s->request->samples, count = 0;

	if (s->request->package)
		form_runs(s);
	for (uint32_t id = 0; id < samples; id++)
		for (uint32_t i = 0; i < s->times[id]; i++)
			draw_list_add(&s->items, 0, id);
	draw_list_shuffle(&s->items, stream_for(s->request, PHILOX_SHUFFLE));
	for (size_t i = 0; i < s->items.count; i++) {
		uint32_t item = draw_list_id(&s->items, i);

		if (item < samples)
			order[count++] = item;
		else
			count += put_run(s, item - samples, order + count);
	}
	return count;
}

static int draw(struct skip *s, uint32_t *order, uint32_t *count)
{
	const struct skip_request *r = s->request;
	bool classes = r->mode == SKIP_IIS && (r->substitute || r->package);
	uint32_t taken = take_by_chance(s), drawn;
	int rc = 0;

	if (!taken)
		return -EINVAL;
	if (classes)
		rc = find_low(s, taken);
	if (!rc && classes && r->substitute && !skip_is_full(r))
		rc = substitute(s);
	if (rc)
		return rc;
	drawn = taken = arrange(s, order);
	for (; taken % r->multiple; taken++)
		order[taken] = order[taken % drawn];
	*count = taken;
	return 0;
}

int skip_draw(const struct skip_request *request, const float *chances, uint32_t *order,
	      uint32_t *count)
{
	struct skip_request r = *request;
	struct skip s = { 0 };
	int rc = skip_complete(&r);

	if (rc)
		return rc;
	if (r.mode != SKIP_IIS)
		r.package = 0;
	rc = skip_init(&s, &r, chances);
	if (!rc)
		rc = draw(&s, order, count);
	skip_free(&s);
	return rc;
}
