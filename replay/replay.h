/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A trace through a policy, event by event. Calls exit with a sentence if memory or the trace does
 * not allow what they are asked for. */
#ifndef SHADE_REPLAY_H
#define SHADE_REPLAY_H

#include "shade/sched.h"
#include "trace.h"

/*
 * No policy of its own: Belady's MIN with bypass is what `shade` becomes when the whole future is
 * announced as one order, so replay_begin() announces it, and hints of the trace do not count.
 */
#define REPLAY_MIN "min"

/* An empty cache for the trace, to be given to sched_destroy(). */
struct sched *replay_begin(const struct trace *trace, const char *policy, uint64_t capacity_bytes);
/* An access, which takes no time, or a hint. */
void replay_event(const struct trace *trace, const struct trace_event *event, const char *policy,
		  struct sched *sched);

#endif
