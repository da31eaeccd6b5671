/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Every allocation of a scenario fails once: the call must say -ENOMEM, leave the state as
 * it was, and work when it is made again. A plain program: the linker sends malloc, calloc
 * and realloc of sched/ here.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shade/assign.h"
#include "shade/pads.h"
#include "shade/sched.h"
#include "shade/skip.h"

static long until_failure = -1; /* -1: never */
static long failures;

static bool fails(void)
{
	if (until_failure < 0 || until_failure-- > 0)
		return false;
	failures++;
	return true;
}

#include "../failing_alloc.h"

static void expect(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "no_memory: %s\n", what);
	exit(1);
}

struct state {
	struct sched *s; /* NULL before the first step */
	struct pads_echo echo;
	struct assign_state assigned;
	uint32_t job;
	const char *policy;
};

static int do_create(struct state *state)
{
	return sched_create(&state->s, 40, state->policy);
}

static int do_grow(struct state *state)
{
	return sched_grow(state->s, 100);
}

static int do_grow_more(struct state *state)
{
	return sched_grow(state->s, 5000);
}

static int do_access(struct state *state)
{
	struct sched_verdict verdict;
	struct sched_stats stats;
	uint32_t id;
	int rc;

	sched_get_stats(state->s, &stats);
	id = (uint32_t)(stats.accesses * 7 % stats.samples);
	rc = sched_access(state->s, 0, id, 1, &verdict);
	if (!rc && verdict.action == SCHED_ADMIT)
		expect(sched_commit(state->s, id) == 0, "commit failed");
	return rc;
}

static int do_order(struct state *state)
{
	static const uint32_t ids[] = { 5, 17, 5, 99, 0, 1, 2 };

	return sched_order(state->s, 0, 3, ids, 7);
}

static int do_warm(struct state *state)
{
	struct sched_verdict verdict;

	return sched_warm(state->s, 77, 1, &verdict);
}

static int do_job(struct state *state)
{
	return sched_job_begin(state->s, &state->job);
}

static int do_policy(struct state *state)
{
	return sched_set_policy(state->s, strcmp(state->policy, "lfu") ? "lfu" : "shade");
}

static int do_policy_back(struct state *state)
{
	return sched_set_policy(state->s, state->policy);
}

static int do_draw(struct state *state, enum pads_mode mode)
{
	static uint32_t order[100];
	struct pads_request request = { .mode = mode,
					.samples = 100,
					.echo = &state->echo,
					.capacity = 20,
					.rep = 2,
					.strength = 1 };

	return pads_draw(&request, order);
}

static int do_paper(struct state *state)
{
	return do_draw(state, PADS_PAPER);
}

static int do_pads(struct state *state)
{
	return do_draw(state, PADS_PADS);
}

static int do_echo(struct state *state)
{
	return do_draw(state, PADS_ECHO);
}

static int do_weights(struct state *state)
{
	static float weights[100];
	struct pads_request request = { .mode = PADS_PADS, .samples = 100 };

	(void)state;
	return pads_weights(&request, weights);
}

static int do_skip(struct state *state)
{
	static uint32_t order[100], neighbours[100];
	static float losses[100], chances[100];
	struct skip_request request = { .mode = SKIP_IIS,
					.samples = 100,
					.losses = losses,
					.epoch = 7,
					.substitute = true,
					.package = 4,
					.neighbours = neighbours };
	uint32_t count;
	int rc;

	(void)state;
	for (uint32_t id = 0; id < 100; id++) {
		losses[id] = (float)id;
		neighbours[id] = 99 - id;
	}
	rc = skip_chances(&request, chances);
	return rc ? rc : skip_draw(&request, chances, order, &count);
}

static int do_assign(struct state *state)
{
	static const uint32_t order[] = { 3, 1, 2, 4, 0 }, node_of[] = { 0, 1 };
	struct assign_request request = { .world = 2, .node_of = node_of, .block = 1 };
	uint32_t parts[5];
	int rc = assign_grow(&state->assigned, 5);

	return rc ? rc : assign_order(&state->assigned, &request, order, 5, parts);
}

static int (*const steps[])(struct state *) = {
	do_create,	do_grow,   do_access, do_access,    do_access, do_order,  do_access,
	do_warm,	do_job,	   do_access, do_grow_more, do_access, do_policy, do_access,
	do_policy_back, do_order,  do_access, do_paper,	    do_pads,   do_echo,	  do_echo,
	do_weights,	do_assign, do_assign, do_skip,
};

/* Everything a caller can see, to compare. */
static void snapshot(const struct state *state, char *text, size_t room)
{
	struct sched_stats stats;
	struct sched_job_stats job;
	uint32_t ahead[16], count;
	int length;

	memset(text, 0, room);
	if (!state->s)
		return;
	sched_get_stats(state->s, &stats);
	(void)sched_get_job_stats(state->s, 0, &job);
	count = sched_get_ahead(state->s, 0, ahead, 16);
	length = snprintf(text, room, "%s %lu %lu %lu %lu %u %u %lu %lu %u %u %lu %lu",
			  sched_policy(state->s), stats.accesses, stats.hits, stats.resident_bytes,
			  stats.reserved_bytes, stats.samples, stats.resident_samples, job.epoch,
			  job.order_ahead, job.covered, state->echo.use_count,
			  state->echo.introduced, state->assigned.position);
	for (uint32_t i = 0; i < count; i++)
		length += snprintf(text + length, room - (size_t)length, " %u", ahead[i]);
}

/* Fails the nth allocation of the whole scenario. False: it has fewer. */
static bool play(const char *policy, long nth)
{
	struct state state = { .policy = policy };
	bool failed = false;

	until_failure = nth;
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		char before[512], after[512];
		long failures_before = failures;
		int rc;

		snapshot(&state, before, sizeof(before));
		rc = steps[i](&state);
		snapshot(&state, after, sizeof(after));
		if (failures == failures_before) {
			expect(rc == 0, "a step failed without a cause");
			continue;
		}
		failed = true;
		expect(rc == -ENOMEM, "a failed allocation was not reported");
		expect(!memcmp(before, after, sizeof(before)), "a failed call left a trace");
		expect(!state.s || !sched_check(state.s), "a failed call broke an invariant");
		until_failure = -1;
		expect(steps[i](&state) == 0, "the call does not work when made again");
		expect(!sched_check(state.s), "an invariant is broken afterwards");
	}
	until_failure = -1;
	sched_destroy(state.s);
	pads_echo_free(&state.echo);
	assign_free(&state.assigned);
	return failed;
}

int main(void)
{
	for (unsigned i = 0; sched_policy_name(i); i++) {
		long nth = 0;

		while (play(sched_policy_name(i), nth))
			nth++;
		expect(nth > 20, "hardly anything was allocated: are the wrappers linked in?");
		printf("%s: each of %ld allocations failed once\n", sched_policy_name(i), nth);
	}
	return 0;
}
