/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * lfu: the least frequently used leaves; among equals, the one whose last use is oldest.
 * Frequencies are those of all time ("perfect" LFU): what comes back is remembered.
 */
#include "policy_heap.h"

struct lfu_sample {
	uint32_t slot;
	uint64_t key;
};

static uint64_t key_of(const struct sched *s, uint32_t id)
{
	uint64_t frequency = s->samples[id].frequency;
	uint64_t now = s->stats.accesses & (((uint64_t)1 << 40) - 1);

	return (frequency < 1u << 24 ? frequency : (1u << 24) - 1) << 40 | now;
}

static struct lfu_sample *own(const struct sched *s, uint32_t id)
{
	return sched_policy_sample(s, id);
}

static void restore(struct sched *s, uint32_t id)
{
	heap_insert(policy_heap(s), sched_slots(s), id, own(s, id)->key);
}

static void enter(struct sched *s, uint32_t id)
{
	own(s, id)->key = key_of(s, id);
	restore(s, id);
}

static void touch(struct sched *s, uint32_t id)
{
	own(s, id)->key = key_of(s, id);
	heap_rekey(policy_heap(s), sched_slots(s), id, own(s, id)->key);
}

static uint32_t victim(struct sched *s, uint32_t newcomer)
{
	(void)newcomer;
	return policy_heap(s)->count ? heap_at(policy_heap(s), 0)->id : SAMPLE_NONE;
}

const struct policy policy_lfu = {
	.name = "lfu",
	.summary = "least frequently used leaves",
	.state_bytes = sizeof(struct heap),
	.sample_bytes = sizeof(struct lfu_sample),
	.reserve = policy_heap_reserve,
	.finish = policy_heap_finish,
	.enter = enter,
	.leave = policy_heap_leave,
	.restore = restore,
	.touch = touch,
	.victim = victim,
	.check = policy_heap_check,
};
