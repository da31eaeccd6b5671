/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "job.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "bits.h"

/* Scores as integers, so that their sum does not depend on the sequence of updates. */
#define WEIGHT_UNIT 65536.0f
#define WEIGHT_MAX ((float)(1u << 31))

static uint64_t score_weight(float score)
{
	float weight = score * WEIGHT_UNIT;

	if (score < 0)
		return 0;
	return (uint64_t)(weight < WEIGHT_MAX ? weight : WEIGHT_MAX);
}

int job_init(struct job *job, uint32_t number, size_t stride, const struct sched_memory *memory)
{
	*job = (struct job){ .number = number,
			     .memory = memory,
			     .period = 1,
			     .scan = PLACE_NONE,
			     .benefit = -1,
			     .pace = 1,
			     .stride = stride ? stride : sizeof(struct job_sample),
			     .owns_samples = !stride };
	return percentiles_init(&job->percentiles);
}

static void order_free(const struct job *job, struct order *order)
{
	job->memory->give_back(job->memory->context, order->block);
	free(order->next);
	posset_free(&order->resident);
	*order = (struct order){ 0 };
}

void job_free(struct job *job)
{
	for (unsigned i = 0; i < SCHED_ORDERS_MAX; i++)
		order_free(job, &job->orders[i]);
	percentiles_free(&job->percentiles);
	if (job->owns_samples)
		free(job->samples);
}

int job_reserve(struct job *job, uint32_t samples)
{
	return job->owns_samples ? array_resize(&job->samples, samples, job->stride) : 0;
}

void job_attach(struct job *job, void *samples)
{
	job->samples = samples;
}

void job_grow(struct job *job, uint32_t samples)
{
	for (uint32_t i = job->sample_count; i < samples; i++)
		*job_sample(job, i) =
			(struct job_sample){ .score = SCORE_NONE, .head = PLACE_NONE };
	job->sample_count = samples;
}

void job_score(struct job *job, uint32_t id, float score)
{
	struct job_sample *sample = job_sample(job, id);

	score = score > 0 || score < 0 ? score : 0.0f; /* -0 is 0 */
	job->scored += (score >= 0) - (sample->score >= 0);
	job->score_sum += score_weight(score) - score_weight(sample->score);
	if (sample->score >= 0)
		percentiles_remove(&job->percentiles, sample->score);
	if (score >= 0)
		percentiles_add(&job->percentiles, score);
	sample->score = score;
}

void job_forget(struct job *job, uint32_t id)
{
	job_score(job, id, SCORE_NONE);
}

/* --- orders ------------------------------------------------------------------- */

static struct order_block *block_new(const struct job *job, uint64_t epoch, const uint32_t *ids,
				     uint32_t count)
{
	size_t words = bits_words(count);
	struct order_block *block = job->memory->get(
		job->memory->context,
		sizeof(*block) + words * sizeof(*block->words) + count * sizeof(*ids));

	if (!block)
		return NULL;
	block->number = job->announced + 1;
	block->epoch = epoch;
	block->job = job->number;
	block->count = count;
	memcpy(block->words + words, ids, count * sizeof(*ids));
	return block;
}

/* The order has the block from now on, even if there is no memory for the rest. */
static int order_init(const struct job *job, struct order *order, struct order_block *block)
{
	uint32_t count = block->count;

	*order = (struct order){ .block = block,
				 .epoch = block->epoch,
				 .count = count,
				 .left = count,
				 .consumed = block->words,
				 .ids = (uint32_t *)(block->words + bits_words(count)),
				 .next = array_new(count, sizeof(*order->next)) };
	if (!order->next || posset_init(&order->resident, count)) {
		order_free(job, order);
		return -ENOMEM;
	}
	return 0;
}

void job_name(struct job *job, uint32_t id)
{
	struct job_sample *sample = job_sample(job, id);

	if (sample->named)
		return;
	sample->named = 1;
	job->named++;
	job->covered_named += sample->seen == job->period;
}

void job_unname(struct job *job)
{
	for (uint32_t id = 0; id < job->sample_count; id++)
		job_sample(job, id)->named = 0;
	job->named = job->covered_named = 0;
}

/* Hangs the entries of an order that are not consumed behind the chains of their
 * samples. All orders before it are linked already. */
static void link_order(struct job *job, uint32_t slot)
{
	struct order *order = &job->orders[slot];

	for (uint32_t i = 0; i < order->count; i++) {
		struct job_sample *sample = job_sample(job, order->ids[i]);
		uint32_t place = place_make(slot, i);

		if (bits_test(order->consumed, i))
			continue;
		if (sample->head == PLACE_NONE)
			sample->head = place;
		else
			job->orders[place_slot(sample->tail)].next[place_index(sample->tail)] =
				place;
		sample->tail = place;
		order->next[i] = PLACE_NONE;
	}
}

/* Builds all chains anew: for the rare cases that are no plain append. */
static void relink(struct job *job)
{
	for (uint32_t i = 0; i < job->sample_count; i++)
		job_sample(job, i)->head = PLACE_NONE;
	for (unsigned i = 0; i < job->order_count; i++)
		link_order(job, job->sequence[i]);
	job->scan = PLACE_NONE;
}

/* Sorts the slots in use by epoch. */
static void resequence(struct job *job)
{
	job->order_count = 0;
	for (uint8_t slot = 0; slot < SCHED_ORDERS_MAX; slot++) {
		unsigned at = job->order_count;

		if (!job->orders[slot].count)
			continue;
		for (; at > 0; at--) {
			uint8_t before = job->sequence[at - 1];

			if (job->orders[before].epoch < job->orders[slot].epoch)
				break;
			job->sequence[at] = before;
		}
		job->sequence[at] = slot;
		job->order_count++;
	}
	for (uint8_t i = 0; i < job->order_count; i++)
		job->rank[job->sequence[i]] = i;
}

static struct order *find_order(struct job *job, uint64_t epoch)
{
	for (unsigned i = 0; i < SCHED_ORDERS_MAX; i++)
		if (job->orders[i].count && job->orders[i].epoch == epoch)
			return &job->orders[i];
	return NULL;
}

/* A slot that is free, or whose order has been read to its end. */
static struct order *free_slot(struct job *job)
{
	for (unsigned i = 0; i < SCHED_ORDERS_MAX; i++)
		if (!job->orders[i].count)
			return &job->orders[i];
	for (unsigned i = 0; i < SCHED_ORDERS_MAX; i++)
		if (!job->orders[i].left)
			return &job->orders[i];
	return NULL;
}

/* An order replaces another one of its epoch. */
static void keep_consumed(struct order *fresh, const struct order *old)
{
	for (uint32_t i = 0; i < fresh->count && i < old->count; i++) {
		if (fresh->ids[i] != old->ids[i])
			return;
		if (!bits_test(old->consumed, i))
			continue;
		bits_set(fresh->consumed, i);
		fresh->left--;
	}
}

/* `slot` has the order `fresh` from now on, or none. One that is kept is there before the one that
 * it replaces goes. */
static void place_order(struct job *job, struct order *slot, const struct order *fresh)
{
	bool is_new = !slot->count || slot->epoch != fresh->epoch;

	if (fresh->block)
		job->memory->keep(job->memory->context, fresh->block);
	if (job->scan != PLACE_NONE && place_slot(job->scan) == slot - job->orders)
		job->scan = PLACE_NONE;
	order_free(job, slot);
	*slot = *fresh;
	resequence(job);
	if (is_new && fresh->count && job->sequence[job->order_count - 1] == slot - job->orders)
		link_order(job, (uint32_t)(slot - job->orders));
	else
		relink(job);
}

static int new_order(struct job *job, struct order *fresh, uint64_t epoch, const uint32_t *ids,
		     uint32_t count)
{
	struct order_block *block = block_new(job, epoch, ids, count);

	if (!block || order_init(job, fresh, block))
		return -ENOMEM;
	job->announced = block->number;
	return 0;
}

int job_order(struct job *job, uint64_t epoch, const uint32_t *ids, uint32_t count)
{
	struct order *old = find_order(job, epoch);
	struct order *slot = old ? old : free_slot(job);
	struct order fresh = { .epoch = epoch };

	if (epoch < job->epoch)
		return -ERANGE;
	if (count && !slot)
		return -ENOSPC;
	if (count && new_order(job, &fresh, epoch, ids, count))
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++)
		job_name(job, ids[i]);
	if (!slot)
		return 0;
	if (old && !old->block->is_anew)
		keep_consumed(&fresh, old);
	place_order(job, slot, &fresh);
	return 0;
}

/* What comes from elsewhere may be anything. */
static bool is_for(const struct job *job, const struct order_block *block)
{
	const uint32_t *ids = (const uint32_t *)(block->words + bits_words(block->count));

	if (!block->count || block->epoch < job->epoch || block->job != job->number)
		return false;
	for (uint32_t i = 0; i < block->count; i++)
		if (ids[i] >= job->sample_count)
			return false;
	return true;
}

int job_adopt(struct job *job, struct order_block *block)
{
	struct order *old = find_order(job, block->epoch);
	struct order *slot = old ? old : free_slot(job);
	struct order fresh;

	if (block->number > job->announced)
		job->announced = block->number;
	if (!is_for(job, block) || !slot || (old && old->block->number > block->number)) {
		job->memory->give_back(job->memory->context, block);
		return 0;
	}
	if (order_init(job, &fresh, block))
		return -ENOMEM;
	for (uint32_t i = 0; i < fresh.count; i++) {
		fresh.left -= bits_test(fresh.consumed, i);
		job_name(job, fresh.ids[i]);
	}
	place_order(job, slot, &fresh);
	return 0;
}

/* Drops the orders of earlier epochs, or all. */
static bool drop_orders(struct job *job, uint64_t before, bool all)
{
	bool dropped = false;

	for (unsigned i = 0; i < SCHED_ORDERS_MAX; i++) {
		struct order *order = &job->orders[i];

		if (!order->count || (order->epoch >= before && !all))
			continue;
		dropped |= order->left > 0;
		if (job->scan != PLACE_NONE && place_slot(job->scan) == i)
			job->scan = PLACE_NONE;
		order_free(job, order);
	}
	resequence(job);
	if (dropped)
		relink(job);
	return dropped;
}

bool job_drop_orders(struct job *job)
{
	return drop_orders(job, 0, true);
}

void job_epoch(struct job *job, uint64_t epoch, bool *dropped)
{
	struct order *same = epoch == job->epoch ? find_order(job, epoch) : NULL;

	if (same)
		same->block->is_anew = 1;
	*dropped = drop_orders(job, epoch, epoch < job->epoch);
	if (epoch != job->epoch) {
		job->period++;
		job->covered = job->covered_named = 0;
	}
	job->epoch = epoch;
}

/* Whether readers can have got as far as the order at `place`: what comes before it is
 * read but for a rest that workers may still be at. A stray read in the middle of an epoch
 * must not use up the next one's entry, or the sample would be an epoch off for good. */
bool job_within_reach(const struct job *job, uint32_t place)
{
	for (unsigned rank = 0; rank < job->rank[place_slot(place)]; rank++) {
		const struct order *before = &job->orders[job->sequence[rank]];

		if (before->left > before->count / 16 + 8)
			return false;
	}
	return true;
}

uint32_t job_consume(struct job *job, uint32_t id)
{
	struct job_sample *sample = job_sample(job, id);
	uint32_t place = sample->head, index = place_index(place);
	struct order *order;

	if (sample->seen != job->period) {
		sample->seen = job->period;
		job->covered++;
		job->covered_named += sample->named;
	}
	if (place == PLACE_NONE || !job_within_reach(job, place))
		return PLACE_NONE;
	order = &job->orders[place_slot(place)];
	bits_set(order->consumed, index);
	order->left--;
	sample->head = order->next[index];
	return place;
}

/* --- questions ---------------------------------------------------------------- */

bool job_place_after(const struct job *job, uint32_t a, uint32_t b)
{
	uint8_t rank_a = job->rank[place_slot(a)];
	uint8_t rank_b = job->rank[place_slot(b)];

	if (rank_a != rank_b)
		return rank_a > rank_b;
	return place_index(a) > place_index(b);
}

/* The job has got as far as it has consumed, so all distances shrink alike and keep the
 * sequence of the places. */
double job_distance(const struct job *job, uint32_t place, double share)
{
	double distance = 0, draws = job->sample_count;
	unsigned ranks = place == PLACE_NONE ? job->order_count : job->rank[place_slot(place)];

	for (unsigned rank = 0; rank < job->order_count; rank++) {
		const struct order *order = &job->orders[job->sequence[rank]];

		distance -= order->count - order->left;
		if (rank < ranks)
			distance += order->count;
		draws = order->count;
	}
	if (place != PLACE_NONE)
		return job->pace * (distance + place_index(place));
	if (!job->order_count && !job->scored)
		return INFINITY; /* a job that has said nothing expects nothing */
	return job->pace * (distance + draws / (draws * share + 1));
}

double job_score_share(const struct job *job, float score)
{
	return job->score_sum ? (double)score_weight(score) / (double)job->score_sum : 0;
}

float job_score_ratio(const struct job *job, float score)
{
	if (!job->score_sum)
		return 1.0f; /* all are 0 */
	return (float)((double)score_weight(score) * job->scored / (double)job->score_sum);
}

void job_look_again(struct job *job, uint32_t id)
{
	uint32_t head = job_sample(job, id)->head;

	if (head != PLACE_NONE && job->scan != PLACE_NONE && job_place_after(job, job->scan, head))
		job->scan = head;
}

uint32_t job_read(const struct job *job)
{
	for (unsigned i = 0; i < job->order_count; i++) {
		const struct order *order = &job->orders[job->sequence[i]];

		if (order->epoch == job->epoch)
			return order->count - order->left;
	}
	return 0;
}

uint64_t job_ahead(const struct job *job)
{
	uint64_t ahead = 0;

	for (unsigned i = 0; i < job->order_count; i++)
		ahead += job->orders[job->sequence[i]].left;
	return ahead;
}

uint64_t job_order_bytes(const struct job *job)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < job->order_count; i++) {
		const struct order *order = &job->orders[job->sequence[i]];

		bytes += sizeof(*order->block) +
			 order->count * (sizeof(*order->ids) + sizeof(*order->next)) +
			 bits_words(order->count) * sizeof(*order->consumed) +
			 posset_bytes(&order->resident);
	}
	return bytes;
}

uint32_t job_scan(const struct job *job, uint32_t *scan, uint32_t *steps)
{
	unsigned rank = *scan == PLACE_NONE ? 0 : job->rank[place_slot(*scan)];
	uint32_t index = *scan == PLACE_NONE ? 0 : place_index(*scan);

	for (; rank < job->order_count; rank++, index = 0) {
		uint32_t slot = job->sequence[rank];
		const struct order *order = &job->orders[slot];

		for (; index < order->count; index++) {
			*scan = place_make(slot, index);
			if (!*steps)
				return PLACE_NONE;
			--*steps;
			if (!bits_test(order->consumed, index))
				return *scan;
		}
		*scan = place_make(slot, order->count);
	}
	return PLACE_NONE;
}

/* --- self-check --------------------------------------------------------------- */

static const char *check_order(const struct job *job, unsigned rank, uint32_t *cursor)
{
	uint32_t slot = job->sequence[rank];
	const struct order *order = &job->orders[slot];
	uint32_t left = 0;

	if (job->rank[slot] != rank)
		return "an order's rank does not match the sequence";
	if (rank && job->orders[job->sequence[rank - 1]].epoch >= order->epoch)
		return "orders are not sorted by epoch";
	for (uint32_t i = 0; i < order->count; i++) {
		uint32_t id = order->ids[i];

		if (id >= job->sample_count)
			return "an order names an unknown sample";
		if (bits_test(order->consumed, i))
			continue;
		left++;
		if (cursor[id] != place_make(slot, i))
			return "a chain is not the unconsumed entries in sequence";
		cursor[id] = order->next[i];
	}
	return left == order->left ? NULL : "an order's count of unconsumed entries is off";
}

static const char *check_chains(const struct job *job, uint32_t *cursor)
{
	for (uint32_t i = 0; i < job->sample_count; i++)
		cursor[i] = job_sample(job, i)->head;
	for (unsigned rank = 0; rank < job->order_count; rank++) {
		const char *wrong = check_order(job, rank, cursor);

		if (wrong)
			return wrong;
	}
	for (uint32_t i = 0; i < job->sample_count; i++)
		if (cursor[i] != PLACE_NONE)
			return "a chain goes on past the orders";
	return NULL;
}

const char *job_check(const struct job *job)
{
	uint32_t *cursor = array_new(job->sample_count, sizeof(*cursor));
	uint32_t scored = 0, covered = 0, named = 0, covered_named = 0;
	uint64_t sum = 0;
	const char *wrong;

	if (!cursor)
		return "no memory for the check";
	wrong = check_chains(job, cursor);
	free(cursor);
	if (wrong)
		return wrong;
	for (uint32_t i = 0; i < job->sample_count; i++) {
		scored += job_sample(job, i)->score >= 0;
		sum += score_weight(job_sample(job, i)->score);
		covered += job_sample(job, i)->seen == job->period;
		named += job_sample(job, i)->named;
		covered_named +=
			job_sample(job, i)->named && job_sample(job, i)->seen == job->period;
	}
	if (scored != job->scored || sum != job->score_sum)
		return "a job's scores do not add up";
	if (named != job->named || covered_named != job->covered_named)
		return "what a job has said to read does not add up";
	return covered == job->covered ? NULL : "a job's coverage is off";
}
