/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The history has all accesses of some samples. A cache whose capacity is smaller by the share of
 * the data that these samples are treats them as the whole one treats all.
 *
 * An access takes no time here, and nothing is fetched ahead: what counts is which bytes the source
 * has to give again. The first epoch only fills the cache.
 */
#include "capacities.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replay.h"

#define LEAST_COUNTED 32 /* accesses after the first epoch, or that counts, too */

/* The number in a line `# KEY NUMBER` of the head; NaN: there is none. */
static double head_number(const char *history, const char *key)
{
	size_t length = strlen(key);
	const char *line = history;

	while (line && line[0] == '#' && line[1] == ' ') {
		if (!strncmp(line + 2, key, length) && line[2 + length] == ' ')
			return strtod(line + 2 + length, NULL);
		line = strchr(line, '\n');
		line += line != NULL;
	}
	return NAN;
}

/* --- what is replayed ---------------------------------------------------------------------------
 */

/* Where the second epoch begins, if enough comes after it; else 0. */
static size_t find_start(const struct trace *trace)
{
	uint64_t before = 0;

	for (size_t i = 0; i < trace->event_count; i++) {
		if (trace->events[i].kind == TRACE_ACCESS)
			before++;
		else if (trace->events[i].kind == TRACE_EPOCH && before)
			return trace->accesses - before < LEAST_COUNTED ? 0 : i;
	}
	return 0;
}

/* Epochs that have accesses, up to an event and from there on, and orders. */
static void count_epochs(struct capacities *capacities, const struct trace *trace, size_t start)
{
	bool empty = true;

	capacities->epochs = capacities->warm_up = capacities->ordered = 0;
	for (size_t i = 0; i < trace->event_count; i++) {
		enum trace_kind kind = trace->events[i].kind;

		capacities->ordered += kind == TRACE_ORDER;
		if (kind == TRACE_ACCESS && empty)
			*(i < start ? &capacities->warm_up : &capacities->epochs) += 1;
		empty = kind == TRACE_EPOCH || (kind != TRACE_ACCESS && empty);
	}
}

static void replay(const struct trace *trace, size_t start, uint64_t capacity_bytes,
		   struct capacity_curve *curve, unsigned point, uint64_t *accesses)
{
	struct sched *sched = replay_begin(trace, curve->policy, capacity_bytes);
	struct sched_stats before = { 0 }, after;

	for (size_t i = 0; i < trace->event_count; i++) {
		if (i == start)
			sched_get_stats(sched, &before);
		replay_event(trace, &trace->events[i], curve->policy, sched);
	}
	sched_get_stats(sched, &after);
	*accesses = after.accesses - before.accesses;
	curve->hit_ratio[point] = (double)(after.hits - before.hits) / (double)*accesses;
	curve->missed_bytes[point] = (double)(after.bytes_missed - before.bytes_missed);
	sched_destroy(sched);
}

/* --- capacities and policies --------------------------------------------------------------------
 */

/* Up to the one that has room for all the data, but always with the present one. */
static void set_points(struct capacities *capacities)
{
	static const double factors[] = { 0.125, 0.25, 0.5, 1, 1.5, 2, 3, 4 };
	double all = capacities->data_bytes / capacities->capacity_bytes;
	unsigned count = 0;

	for (unsigned i = 0; i < sizeof(factors) / sizeof(factors[0]); i++) {
		if (factors[i] > 1 && factors[i] >= all)
			break;
		if (factors[i] == 1)
			capacities->present = count;
		capacities->factors[count++] = factors[i];
	}
	/* A point that is nearly there already says nothing new. */
	if (all > capacities->factors[count - 1] * 1.02 && all < 4)
		capacities->factors[count++] = all;
	capacities->point_count = count;
}

static bool is_policy(const char *name)
{
	const char *known;

	for (unsigned i = 0; (known = sched_policy_name(i)); i++)
		if (!strcmp(known, name))
			return true;
	return false;
}

/* The four, and the mount's own if that is another one. */
static void set_curves(struct capacities *capacities, const char *policy)
{
	static const char *const names[] = { "shade", "app", "minio", "lru" };

	capacities->own = 0;
	capacities->curve_count = 0;
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!strcmp(policy, names[i]))
			capacities->own = i;
		strcpy(capacities->curves[capacities->curve_count++].policy, names[i]);
	}
	if (!strcmp(policy, names[capacities->own]) || !is_policy(policy) ||
	    strlen(policy) >= sizeof(capacities->curves[0].policy))
		return;
	capacities->own = capacities->curve_count;
	strcpy(capacities->curves[capacities->curve_count++].policy, policy);
}

static bool makes_sense(const struct capacities *capacities, double share)
{
	return capacities->capacity_bytes >= 1 && capacities->capacity_bytes < 0x1p60 &&
	       capacities->data_bytes >= 1 && capacities->data_bytes < 0x1p60 && share > 0 &&
	       share <= 1;
}

void capacities_replay(struct capacities *capacities, const char *history, const char *name,
		       const char *policy)
{
	double share = head_number(history, "picked_bytes") / head_number(history, "data_bytes");
	struct trace trace;
	size_t start;

	*capacities = (struct capacities){ .rate = head_number(history, "rate"),
					   .capacity_bytes = head_number(history, "capacity_bytes"),
					   .data_bytes = head_number(history, "data_bytes") };
	if (!makes_sense(capacities, share) || !strstr(history, "\na "))
		return;
	trace_read_text(&trace, name, history, strlen(history));
	start = find_start(&trace);
	count_epochs(capacities, &trace, start);
	set_points(capacities);
	set_curves(capacities, policy);
	for (unsigned i = 0; i < capacities->curve_count; i++)
		for (unsigned j = 0; j < capacities->point_count; j++)
			replay(&trace, start,
			       (uint64_t)(capacities->capacity_bytes * share *
					  capacities->factors[j]),
			       &capacities->curves[i], j, &capacities->accesses);
	trace_free(&trace);
}

double capacities_saved(const struct capacities *capacities, unsigned curve, unsigned point)
{
	double now = capacities->curves[capacities->own].missed_bytes[capacities->present];

	return now > 0 ? 1 - capacities->curves[curve].missed_bytes[point] / now : NAN;
}
