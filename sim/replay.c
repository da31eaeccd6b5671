/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * shade-sim replay: the same trace through one policy after the other.
 *
 * `min` is no policy of its own. Belady's MIN with bypass is what `shade` becomes when
 * the whole future is announced as one order, so replay announces it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "args.h"
#include "fail.h"
#include "option.h"
#include "report.h"
#include "sim.h"
#include "trace.h"

struct replay_options {
	const char *trace;
	struct size capacity;
	struct args_policies policies;
	enum report_format format;
};

static void parse(struct replay_options *options, int argc, char **argv)
{
	static const struct option table[] = {
		{ "trace", required_argument, NULL, 't' },
		{ "capacity", required_argument, NULL, 'c' },
		{ "policy", required_argument, NULL, 'p' },
		{ "json", no_argument, NULL, 'j' },
		{ "csv", no_argument, NULL, 'v' },
		{ NULL, 0, NULL, 0 },
	};
	bool has_capacity = false;
	int c;

	while ((c = option_next(argc, argv, ":", table)) != -1) {
		switch (c) {
		case 't':
			options->trace = optarg;
			break;
		case 'c':
			options->capacity = args_capacity("--capacity", optarg);
			has_capacity = true;
			break;
		case 'p':
			args_policies(&options->policies, "--policy", optarg);
			break;
		case 'j':
			options->format = REPORT_JSON;
			break;
		case 'v':
			options->format = REPORT_CSV;
			break;
		}
	}
	option_end(argc, argv);
	if (!options->trace || !has_capacity)
		fail("replay needs --trace and --capacity");
	if (!options->policies.count)
		options->policies = (struct args_policies){ .names = { "shade" }, .count = 1 };
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

/* Scores, orders and epochs. */
static void hint(const struct trace *trace, const struct trace_event *event, struct sched *sched)
{
	switch ((enum trace_kind)event->kind) {
	case TRACE_SCORE:
		must_do(sched_score(sched, 0, event->id, (float)event->score), "score");
		break;
	case TRACE_ORDER:
		take_order(trace, event, sched);
		break;
	case TRACE_EPOCH:
		must_do(sched_epoch(sched, 0, event->epoch), "epoch");
		break;
	case TRACE_ACCESS:
		break;
	}
}

static void show_progress(const char *policy, size_t done, size_t of)
{
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r\033[K%s: %zu %%%s", policy, done * 100 / of,
			done == of ? "\r\033[K" : "");
}

static struct figures replay(const struct trace *trace, const char *policy, uint64_t capacity)
{
	bool knows_all = !strcmp(policy, POLICY_MIN);
	struct figures figures;
	struct meter meter;
	struct sched *sched;

	must_do(sched_create(&sched, capacity, knows_all ? "shade" : policy), "creating the cache");
	must_do(sched_grow(sched, trace->samples), "creating the cache");
	meter_init(&meter, trace->samples);
	if (knows_all)
		announce_all(trace, sched);
	for (size_t i = 0; i < trace->event_count; i++) {
		const struct trace_event *event = &trace->events[i];

		if (event->kind == TRACE_ACCESS) {
			access_once(sched, event->id, event->size);
			meter_access(&meter, event->id);
		} else if (!knows_all) {
			hint(trace, event, sched);
		}
		if (event->kind == TRACE_EPOCH)
			meter_epoch(&meter);
		if ((i + 1) % 1000000 == 0 || i + 1 == trace->event_count)
			show_progress(policy, i + 1, trace->event_count);
	}
	figures = meter_read(&meter, &sched, 1);
	meter_free(&meter);
	sched_destroy(sched);
	return figures;
}

int replay_main(int argc, char **argv)
{
	static const char *const periods[] = { "", NULL };
	struct replay_options options = { 0 };
	struct report_row rows[ARGS_POLICIES_MAX] = { 0 };
	struct figures figures[ARGS_POLICIES_MAX];
	struct trace trace;
	uint64_t capacity;

	parse(&options, argc, argv);
	trace_read(&trace, options.trace);
	capacity = args_capacity_bytes(options.capacity, trace.distinct_bytes);
	for (size_t i = 0; i < options.policies.count; i++) {
		rows[i].policy = options.policies.names[i];
		figures[i] = replay(&trace, rows[i].policy, capacity);
		rows[i].periods = &figures[i];
	}
	report_print(options.format, rows, options.policies.count, periods, trace.samples);
	trace_free(&trace);
	return 0;
}
