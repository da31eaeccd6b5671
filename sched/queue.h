/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A queue of sample ids, linked through the policy's per-sample data: `struct link` must
 * be its first member. */
#ifndef SHADE_QUEUE_H
#define SHADE_QUEUE_H

#include "core.h"

struct link {
	uint32_t before; /* SAMPLE_NONE: first */
	uint32_t after;	 /* SAMPLE_NONE: last */
};

struct queue {
	uint32_t first; /* valid while count > 0 */
	uint32_t last;
	uint32_t count;
};

static inline struct link *queue_link(const struct sched *s, uint32_t id)
{
	return sched_policy_sample(s, id);
}

static inline void queue_append(struct sched *s, struct queue *queue, uint32_t id)
{
	*queue_link(s, id) = (struct link){ queue->count ? queue->last : SAMPLE_NONE, SAMPLE_NONE };
	if (queue->count)
		queue_link(s, queue->last)->after = id;
	else
		queue->first = id;
	queue->last = id;
	queue->count++;
}

static inline void queue_prepend(struct sched *s, struct queue *queue, uint32_t id)
{
	*queue_link(s, id) =
		(struct link){ SAMPLE_NONE, queue->count ? queue->first : SAMPLE_NONE };
	if (queue->count)
		queue_link(s, queue->first)->before = id;
	else
		queue->last = id;
	queue->first = id;
	queue->count++;
}

static inline void queue_remove(struct sched *s, struct queue *queue, uint32_t id)
{
	struct link link = *queue_link(s, id);

	if (link.before == SAMPLE_NONE)
		queue->first = link.after;
	else
		queue_link(s, link.before)->after = link.after;
	if (link.after == SAMPLE_NONE)
		queue->last = link.before;
	else
		queue_link(s, link.after)->before = link.before;
	queue->count--;
}

static inline uint32_t queue_first(const struct queue *queue)
{
	return queue->count ? queue->first : SAMPLE_NONE;
}

/* How many members a walk from first to last meets, or UINT32_MAX if a link is broken
 * or a member may not leave. */
static inline uint32_t queue_walk(const struct sched *s, const struct queue *queue)
{
	uint32_t before = SAMPLE_NONE, id = queue_first(queue), count = 0;

	for (; id != SAMPLE_NONE; before = id, id = queue_link(s, id)->after)
		if (queue_link(s, id)->before != before || count++ > s->sample_count ||
		    !sample_may_leave(&s->samples[id]))
			return UINT32_MAX;
	return count;
}

#endif
