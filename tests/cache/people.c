/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Those who use the mount and the source: readers, writers, faults, reclaim, hints, settings, and
 * the thread that numbers samples and reads directories again. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/threads.h"
#include "cache/internal.h"
#include "world.h"

/* What a reader may have to wait for if its own file is in order: other files, several times. */
#define PATIENCE_MS(plan) (2000 + 60 * (uint64_t)(plan)->latency_ms)

static bool is_over(void)
{
	return atomic_load(&world.stopping) || !world.readers_left;
}

/* --- readers ------------------------------------------------------------------------------------
 */

static void check_result(const struct file *file, int rc, uint64_t began_ms)
{
	uint64_t took_ms = clock_now_ms() - began_ms;

	if (rc && rc != -EINTR && !atomic_load(&world.stopping) && !source_explains(file, began_ms))
		fail_run("%s: error %d, and nothing was wrong with it", file->name, -rc);
	if (took_ms > PATIENCE_MS(&world.plan) && !source_may_delay(file, began_ms))
		fail_run("%s took %llu ms, and nothing was wrong with it", file->name,
			 (unsigned long long)took_ms);
	/* Readers of one page that hangs wait behind each other, each for a deadline. */
	if (took_ms > (world.plan.readers + world.plan.holders + 2) * world.plan.deadline_ms)
		fail_run("%s took %llu ms, more than any deadline", file->name,
			 (unsigned long long)took_ms);
}

/* A training that has ended meanwhile may be another one's number, or nobody's. */
static uint32_t some_job(void)
{
	uint32_t which = draw(JOBS + 1);

	if (!world.plan.jobs)
		return SCHED_JOB_ANY;
	return which < JOBS ? world.jobs[which] : 0;
}

static void read_files(void *unused)
{
	(void)unused;
	for (unsigned i = 0; i < world.plan.opens && !atomic_load(&world.stopping); i++) {
		const struct file *file = &files[draw(one_in(3) ? FILES / 3 : FILES)];
		uint64_t began_ms = clock_now_ms();
		struct reader reader = { .job = some_job(), .direct = one_in(10) };
		int rc = kernel_read_file(file->dir, file->name, &reader);

		check_result(file, rc, began_ms);
		if (one_in(8))
			fiber_sleep_ms(draw(one_in(4) ? 400 : 10));
	}
	world.readers_left--;
	fiber_wake(&world.readers_left);
}

/* Has files open for long. */
static void hold_files(void *unused)
{
	(void)unused;
	while (!is_over()) {
		const struct file *file = &files[draw(FILES)];
		struct reader reader = { .job = some_job(), .hold_ms = draw(5000) };

		(void)kernel_read_file(file->dir, file->name, &reader);
		fiber_sleep_ms(1 + draw(20));
	}
	world.helpers_left--;
}

/* --- the source's -------------------------------------------------------------------------------
 */

static void change_source(void *unused)
{
	(void)unused;
	while (!is_over()) {
		fiber_sleep_ms(1 + draw(60));
		source_change();
	}
	world.helpers_left--;
}

static void fault_source(void *unused)
{
	(void)unused;
	while (!is_over()) {
		source_fault();
		/* Often longer than the deadline. */
		fiber_sleep_ms(1 + draw(one_in(2) ? 400 : 3 * (uint32_t)world.plan.deadline_ms));
	}
	/* What hears a cancel must end by that. What does not keeps the daemon until it is killed,
	 * which is not for this test. */
	if (world.plan.deaf || !atomic_load(&world.stopping))
		source_calm();
	world.helpers_left--;
}

/* --- the kernel's -------------------------------------------------------------------------------
 */

static void reclaim(void *unused)
{
	(void)unused;
	while (!is_over()) {
		fiber_sleep_ms(draw(15));
		kernel_reclaim();
	}
	world.helpers_left--;
}

/* --- hints and settings -------------------------------------------------------------------------
 */

/* What nobody reads stays ahead. */
static void announce_silently(const uint32_t *ids, uint32_t count)
{
	if (!world.plan.jobs || world.silent_ahead)
		return;
	world.silent_ahead = SILENT_UNKNOWN;
	world.silent_ahead = cache_order(world.cache, world.silent, 0, ids, count) ? 0 : count;
}

static void announce(uint64_t epoch)
{
	uint32_t ids[3 * FILES], samples = cache_samples(world.cache), count = 0;
	uint32_t job = world.plan.jobs ? some_job() : 0;

	if (!cache_scan_complete(world.cache) || !samples)
		return;
	while (count < 3 * FILES && count < 2 * samples)
		ids[count++] = draw(samples);
	(void)cache_order(world.cache, job, epoch, ids, count);
	(void)cache_epoch(world.cache, job, epoch);
	announce_silently(ids, count);
	if (one_in(8))
		(void)cache_drop_orders(world.cache, job);
}

static void give_hint(uint64_t *epoch)
{
	const struct file *file = &files[draw(FILES)];
	float score = (float)draw(100);
	uint32_t id = draw(FILES);
	char path[32];

	if (one_in(4))
		snprintf(path, sizeof(path), "d%d", file->dir);
	else
		snprintf(path, sizeof(path), "d%d/%s", file->dir, file->name);
	switch (draw(6)) {
	case 0:
		announce((*epoch)++);
		break;
	case 1:
		(void)cache_warm(world.cache, path);
		break;
	case 2:
		(void)cache_evict(world.cache, path);
		break;
	case 3:
		(void)cache_pin(world.cache, path, one_in(3));
		break;
	default:
		(void)cache_score(world.cache, 0, &id, &score, 1);
	}
}

static void hint(void *unused)
{
	uint64_t epoch = 1;

	(void)unused;
	while (!is_over()) {
		fiber_sleep_ms(1 + draw(40));
		give_hint(&epoch);
	}
	world.helpers_left--;
}

/* Trainings end, and others begin, which get their numbers. */
static void change_jobs(void *unused)
{
	(void)unused;
	while (!is_over()) {
		uint32_t *job = &world.jobs[draw(JOBS)];

		fiber_sleep_ms(1 + draw(200));
		if (cache_job_end(world.cache, *job) || cache_job_begin(world.cache, job))
			fail_run("job %u does not end, or no other begins", *job);
	}
	world.helpers_left--;
}

/* What is reserved under a higher capacity may still come, and what is open is dropped when it is
 * closed: a lower capacity holds when that has had its time. */
static void resize(void)
{
	const struct plan *plan = &world.plan;
	uint64_t pages = plan->inflight_pages + 1 + draw((uint32_t)plan->capacity_pages);
	uint64_t bytes = pages * PAGE, began_ms = clock_now_ms();

	if (bytes > world.limit_bytes)
		world.limit_bytes = bytes;
	if (cache_set_capacity(world.cache, bytes))
		return;
	while (check_memory_bytes() > bytes && !atomic_load(&world.stopping)) {
		fiber_sleep_ms(10);
		if (clock_now_ms() > began_ms + (plan->readers + 4) * plan->deadline_ms)
			fail_run("a capacity of %llu pages is still exceeded",
				 (unsigned long long)bytes / PAGE);
	}
	if (!atomic_load(&world.stopping))
		world.limit_bytes = bytes;
}

static void set_things(void *unused)
{
	(void)unused;
	while (!is_over()) {
		fiber_sleep_ms(1 + draw(200));
		if (one_in(2))
			resize();
		else
			(void)cache_set_policy(world.cache, sched_policy_name(draw(7)));
	}
	world.helpers_left--;
}

/* As the daemon's scanner: numbers the samples, and in native mode reads directories again. */
static void scan(void *unused)
{
	(void)unused;
	while (!is_over()) {
		(void)cache_scan(world.cache, &world.stopping);
		fiber_sleep_ms(1 + draw(100));
		if (world.plan.observed)
			(void)tree_refresh(world.tree, clock_now_ms(), world.plan.staleness_ms / 2,
					   500, &world.stopping);
	}
	world.helpers_left--;
}

static void help(const char *name, void (*run)(void *unused), bool wanted)
{
	if (!wanted)
		return;
	world.helpers_left++;
	fiber_start(name, run, NULL);
}

void people_start(void)
{
	static const char *const names[READERS_MAX] = { "reader 0", "reader 1", "reader 2",
							"reader 3", "reader 4", "reader 5",
							"reader 6", "reader 7" };
	const struct plan *plan = &world.plan;

	world.readers_left = plan->readers;
	for (unsigned i = 0; i < plan->readers; i++)
		fiber_start(names[i], read_files, NULL);
	for (unsigned i = 0; i < plan->holders; i++)
		help("holder", hold_files, true);
	help("writer", change_source, plan->changes);
	help("faults", fault_source, plan->hangs || plan->dirs_hang);
	help("reclaim", reclaim, plan->reclaims);
	help("hints", hint, plan->hints);
	help("jobs", change_jobs, plan->jobs_end);
	help("settings", set_things, plan->resizes);
	help("scanner", scan, true);
	help("fanotify", kernel_tell_accesses, plan->observed);
}
