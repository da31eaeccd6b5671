/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "replay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"

static bool knows_all(const char *policy)
{
	return !strcmp(policy, REPLAY_MIN);
}

/* Announces every access of the trace as one order. */
static void announce_all(const struct trace *trace, struct sched *sched)
{
	uint32_t *ids = must(malloc(trace->accesses * sizeof(*ids)));
	uint32_t count = 0;

	if (trace->accesses > SCHED_ORDER_MAX)
		fail("min takes a trace of at most %u accesses", SCHED_ORDER_MAX);
	for (size_t i = 0; i < trace->event_count; i++)
		if (trace->events[i].kind == TRACE_ACCESS)
			ids[count++] = trace->events[i].id;
	must_do(sched_order(sched, 0, 0, ids, count), "announcing the trace");
	free(ids);
}

struct sched *replay_begin(const struct trace *trace, const char *policy, uint64_t capacity_bytes)
{
	struct sched *sched;

	must_do(sched_create(&sched, capacity_bytes, knows_all(policy) ? "shade" : policy),
		"creating the cache");
	must_do(sched_grow(sched, trace->samples), "creating the cache");
	if (knows_all(policy))
		announce_all(trace, sched);
	return sched;
}

static void access_once(struct sched *sched, uint32_t id, uint64_t size)
{
	struct sched_verdict verdict;

	must_do(sched_access(sched, 0, id, size, &verdict), "access");
	if (verdict.action == SCHED_ADMIT)
		must_do(sched_commit(sched, id), "commit");
}

static void take_order(const struct trace *trace, const struct trace_event *event,
		       struct sched *sched)
{
	int rc = sched_order(sched, 0, trace_order_epoch(trace, event),
			     trace_order_ids(trace, event), event->id);

	if (rc == -ERANGE)
		return; /* an order that comes too late is no error of the trace */
	if (rc == -ENOSPC)
		fail_at(trace->name, event->line, "more than %d orders are ahead",
			SCHED_ORDERS_MAX);
	must_do(rc, "order");
}

void replay_event(const struct trace *trace, const struct trace_event *event, const char *policy,
		  struct sched *sched)
{
	if (event->kind != TRACE_ACCESS && knows_all(policy))
		return;
	switch ((enum trace_kind)event->kind) {
	case TRACE_ACCESS:
		access_once(sched, event->id, event->size);
		break;
	case TRACE_SCORE:
		must_do(sched_score(sched, 0, event->id, (float)event->score), "score");
		break;
	case TRACE_ORDER:
		take_order(trace, event, sched);
		break;
	case TRACE_EPOCH:
		must_do(sched_epoch(sched, 0, event->epoch), "epoch");
		break;
	}
}
