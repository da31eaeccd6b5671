/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * icache: the cache of iCACHE, as far as a filesystem can have it.
 *
 * Nine tenths of the capacity (H) are a heap by importance, one tenth (L) a queue for
 * what is not important enough. The importance that H goes by is a snapshot: scores
 * that change during an epoch gather aside (the paper's shadow heap) and take effect
 * together when the next epoch begins.
 *
 * iCACHE answers a miss of an unimportant sample with another that is in L. A filesystem
 * must return the bytes that were asked for, so here such a sample is fetched, and L
 * keeps the most recent of them.
 */
#include <string.h>

#include "queue.h"

#define L_SHARE 10 /* L is a 10th of the capacity */

enum part { PART_H, PART_L };

struct icache_sample {
	struct link link; /* in L; in H, `link.before` is the heap slot */
	float importance; /* the snapshot; SCORE_NONE: none */
	uint32_t part;
};

struct icache {
	struct heap important;
	struct queue rest;
	uint64_t important_bytes;
	uint64_t rest_bytes;
};

static struct icache *state_of(const struct sched *s)
{
	return s->policy_state;
}

static struct icache_sample *own(const struct sched *s, uint32_t id)
{
	return sched_policy_sample(s, id);
}

/* The snapshot of a sample that has not been in one (bytes of 0xff) is a NaN. */
static float importance(const struct sched *s, uint32_t id)
{
	float value = own(s, id)->importance;

	return value >= 0 ? value : SCORE_NONE;
}

static uint64_t key_of(const struct sched *s, uint32_t id)
{
	float value = importance(s, id);
	uint32_t bits;

	if (value < 0)
		return id;
	memcpy(&bits, &value, sizeof(bits));
	return (uint64_t)(bits + 1) << 32 | id;
}

static int reserve(struct sched *s, uint32_t held)
{
	return heap_reserve(&state_of(s)->important, held);
}

static void finish(struct sched *s)
{
	heap_free(&state_of(s)->important);
}

static void enter_part(struct sched *s, uint32_t id, enum part part, bool first)
{
	struct icache *state = state_of(s);

	own(s, id)->part = part;
	if (part == PART_H) {
		heap_insert(&state->important, sched_slots(s), id, key_of(s, id));
		state->important_bytes += s->samples[id].size;
		return;
	}
	state->rest_bytes += s->samples[id].size;
	(first ? queue_prepend : queue_append)(s, &state->rest, id);
}

static void enter(struct sched *s, uint32_t id)
{
	uint64_t capacity = s->stats.capacity_bytes;
	uint64_t after = state_of(s)->important_bytes + s->samples[id].size;

	enter_part(s, id, after <= capacity - capacity / L_SHARE ? PART_H : PART_L, false);
}

static void restore(struct sched *s, uint32_t id)
{
	enter_part(s, id, own(s, id)->part, true);
}

static void leave(struct sched *s, uint32_t id)
{
	struct icache *state = state_of(s);

	if (own(s, id)->part == PART_H) {
		heap_remove(&state->important, sched_slots(s), id);
		state->important_bytes -= s->samples[id].size;
	} else {
		queue_remove(s, &state->rest, id);
		state->rest_bytes -= s->samples[id].size;
	}
}

static uint32_t victim(struct sched *s, uint32_t newcomer)
{
	struct icache *state = state_of(s);
	uint32_t least = state->important.count ? heap_at(&state->important, 0)->id : SAMPLE_NONE;
	bool outranks = newcomer != SAMPLE_NONE && least != SAMPLE_NONE &&
			importance(s, newcomer) > importance(s, least);

	if (outranks && state->rest_bytes <= s->stats.capacity_bytes / L_SHARE)
		return least;
	if (state->rest.count || newcomer != SAMPLE_NONE)
		return queue_first(&state->rest);
	return least;
}

/* The shadow heap becomes the heap. */
static void epoch(struct sched *s)
{
	struct heap *heap = &state_of(s)->important;
	uint32_t count = heap->count;

	for (uint32_t id = 0; id < s->sample_count; id++)
		own(s, id)->importance = ranking_of(s, id);
	heap->count = 0;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t id = heap_at(heap, i)->id;

		heap_insert(heap, sched_slots(s), id, key_of(s, id));
	}
}

static const char *check(const struct sched *s)
{
	const struct icache *state = state_of(s);
	uint64_t important_bytes = 0, rest_bytes = 0;
	uint32_t may_leave = 0;

	for (uint32_t id = 0; id < s->sample_count; id++) {
		if (!sample_may_leave(&s->samples[id]))
			continue;
		may_leave++;
		if (own(s, id)->part == PART_H)
			important_bytes += s->samples[id].size;
		else
			rest_bytes += s->samples[id].size;
	}
	if (important_bytes != state->important_bytes || rest_bytes != state->rest_bytes)
		return "the bytes of the two parts do not add up";
	if (queue_walk(s, &state->rest) != may_leave - state->important.count)
		return "the two parts are not the residents";
	return heap_check(&state->important, sched_slots(s)) ? "the heap is out of order" : NULL;
}

const struct policy policy_icache = {
	.name = "icache",
	.summary = "iCACHE: by last epoch's score, and a tenth for the rest",
	.state_bytes = sizeof(struct icache),
	.sample_bytes = sizeof(struct icache_sample),
	.reserve = reserve,
	.finish = finish,
	.enter = enter,
	.leave = leave,
	.restore = restore,
	.victim = victim,
	.epoch = epoch,
	.check = check,
};
