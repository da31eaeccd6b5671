/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* shade-sim replay: the same trace through one policy after the other. */
#include <stdio.h>
#include <unistd.h>

#include "args.h"
#include "fail.h"
#include "option.h"
#include "replay.h"
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

static void show_progress(const char *policy, size_t done, size_t of)
{
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r\033[K%s: %zu %%%s", policy, done * 100 / of,
			done == of ? "\r\033[K" : "");
}

static struct figures replay(const struct trace *trace, const char *policy, uint64_t capacity)
{
	struct sched *sched = replay_begin(trace, policy, capacity);
	struct figures figures;
	struct meter meter;

	meter_init(&meter, trace->samples);
	for (size_t i = 0; i < trace->event_count; i++) {
		const struct trace_event *event = &trace->events[i];

		replay_event(trace, event, policy, sched);
		if (event->kind == TRACE_ACCESS)
			meter_access(&meter, event->id);
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
