/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "policy_heap.h"

int policy_heap_reserve(struct sched *s, uint32_t held)
{
	return heap_reserve(policy_heap(s), held);
}

void policy_heap_finish(struct sched *s)
{
	heap_free(policy_heap(s));
}

void policy_heap_leave(struct sched *s, uint32_t id)
{
	heap_remove(policy_heap(s), sched_slots(s), id);
}

const char *policy_heap_check(const struct sched *s)
{
	const struct heap *heap = policy_heap(s);
	uint32_t may_leave = 0;

	for (uint32_t id = 0; id < s->sample_count; id++)
		may_leave += sample_may_leave(&s->samples[id]);
	if (heap->count != may_leave)
		return "the heap is not the residents";
	for (uint32_t i = 0; i < heap->count; i++)
		if (!sample_may_leave(&s->samples[heap_at(heap, i)->id]))
			return "the heap holds a sample that may not leave";
	return heap_check(heap, sched_slots(s)) ? "the heap is out of order" : NULL;
}
