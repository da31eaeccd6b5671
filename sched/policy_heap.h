/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the policies share that keep all residents in one heap: lfu, app. The policy's
 * state is the heap, its per-sample data the slot. */
#ifndef SHADE_POLICY_HEAP_H
#define SHADE_POLICY_HEAP_H

#include "core.h"

static inline struct heap *policy_heap(const struct sched *s)
{
	return s->policy_state;
}

int policy_heap_reserve(struct sched *s, uint32_t held);
void policy_heap_finish(struct sched *s);
void policy_heap_leave(struct sched *s, uint32_t id);
/* Heap order, slots, and that the members are the samples that may leave. */
const char *policy_heap_check(const struct sched *s);

#endif
