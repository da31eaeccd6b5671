/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The policies that need only a queue: lru, fifo and minio. They differ in two questions:
 * does a hit move a sample to the end, and does anybody ever leave for a newcomer?
 *
 * minio is CoorDL's: what came first stays. With one use a sample and epoch that is the
 * best one can do without knowing anything, and hits c of the time (c = cache / data).
 */
#include "queue.h"

static struct queue *queue_of(const struct sched *s)
{
	return s->policy_state;
}

static void enter(struct sched *s, uint32_t id)
{
	queue_append(s, queue_of(s), id);
}

static void leave(struct sched *s, uint32_t id)
{
	queue_remove(s, queue_of(s), id);
}

static void restore(struct sched *s, uint32_t id)
{
	queue_prepend(s, queue_of(s), id);
}

static void move_to_end(struct sched *s, uint32_t id)
{
	queue_remove(s, queue_of(s), id);
	queue_append(s, queue_of(s), id);
}

static uint32_t oldest(struct sched *s, uint32_t newcomer)
{
	(void)newcomer;
	return queue_first(queue_of(s));
}

static uint32_t nobody(struct sched *s, uint32_t newcomer)
{
	return newcomer == SAMPLE_NONE ? queue_first(queue_of(s)) : SAMPLE_NONE;
}

static const char *check(const struct sched *s)
{
	uint32_t may_leave = 0;

	for (uint32_t id = 0; id < s->sample_count; id++)
		may_leave += sample_may_leave(&s->samples[id]);
	return queue_walk(s, queue_of(s)) == may_leave ? NULL : "the queue is not the residents";
}

const struct policy policy_lru = {
	.name = "lru",
	.summary = "least recently used leaves",
	.state_bytes = sizeof(struct queue),
	.sample_bytes = sizeof(struct link),
	.enter = enter,
	.leave = leave,
	.restore = restore,
	.touch = move_to_end,
	.victim = oldest,
	.check = check,
};

const struct policy policy_fifo = {
	.name = "fifo",
	.summary = "first in leaves first",
	.state_bytes = sizeof(struct queue),
	.sample_bytes = sizeof(struct link),
	.enter = enter,
	.leave = leave,
	.restore = restore,
	.victim = oldest,
	.check = check,
};

const struct policy policy_minio = {
	.name = "minio",
	.summary = "CoorDL: what came first stays",
	.state_bytes = sizeof(struct queue),
	.sample_bytes = sizeof(struct link),
	.enter = enter,
	.leave = leave,
	.restore = restore,
	.victim = nobody,
	.check = check,
};
