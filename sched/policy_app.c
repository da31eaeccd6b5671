/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * app: SHADE's adaptive priority-aware prediction. A sample's priority is (rank, frequency),
 * compared in that order; the rank is its score, or with several trainings what ranking.h says.
 * The ghost part, the priority of samples that are not resident, is in the jobs' scores and the
 * sample's frequency.
 *
 * Miss with room: admit. Miss without: the smallest priority leaves, but only for a
 * strictly greater one; a sample that was never scored passes through.
 */
#include <string.h>

#include "policy_heap.h"

/* Ranks are not negative, so their bits compare as they do. */
static uint64_t priority(const struct sched *s, uint32_t id)
{
	float rank = ranking_of(s, id);
	uint32_t bits;

	if (rank < 0)
		return s->samples[id].frequency;
	memcpy(&bits, &rank, sizeof(bits));
	/* One more, so that a score of 0 is above no score at all. */
	return (uint64_t)(bits + 1) << 32 | s->samples[id].frequency;
}

static void enter(struct sched *s, uint32_t id)
{
	heap_insert(policy_heap(s), sched_slots(s), id, priority(s, id));
}

static void rekey(struct sched *s, uint32_t id)
{
	heap_rekey(policy_heap(s), sched_slots(s), id, priority(s, id));
}

static uint32_t victim(struct sched *s, uint32_t newcomer)
{
	const struct heap *heap = policy_heap(s);

	if (!heap->count)
		return SAMPLE_NONE;
	if (newcomer == SAMPLE_NONE)
		return heap_at(heap, 0)->id;
	if (ranking_of(s, newcomer) < 0 || priority(s, newcomer) <= heap_at(heap, 0)->key)
		return SAMPLE_NONE;
	/* Whoever leaves after this one: have it on the way from memory. */
	if (heap->count > 1)
		sched_prefetch_sample(s, heap_second(heap));
	return heap_at(heap, 0)->id;
}

static void look_ahead(const struct sched *s, uint32_t id)
{
	heap_prefetch(policy_heap(s), sched_slots(s), id);
}

static void rebuild(struct sched *s)
{
	for (uint32_t id = sched_next_resident(s, 0); id != SAMPLE_NONE;
	     id = sched_next_resident(s, id + 1))
		if (sample_may_leave(&s->samples[id]))
			rekey(s, id);
}

static const char *check(const struct sched *s)
{
	const struct heap *heap = policy_heap(s);

	for (uint32_t i = 0; i < heap->count; i++)
		if (heap_at(heap, i)->key != priority(s, heap_at(heap, i)->id))
			return "a priority in the heap is not the sample's";
	return policy_heap_check(s);
}

const struct policy policy_app = {
	.name = "app",
	.summary = "SHADE: by score, then frequency",
	.state_bytes = sizeof(struct heap),
	.sample_bytes = sizeof(uint32_t),
	.reserve = policy_heap_reserve,
	.finish = policy_heap_finish,
	.enter = enter,
	.leave = policy_heap_leave,
	.touch = rekey,
	.rescore = rekey,
	.victim = victim,
	.look_ahead = look_ahead,
	.rebuild = rebuild,
	.check = check,
};
