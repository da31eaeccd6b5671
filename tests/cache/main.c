/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The cache without a kernel, threads or a clock: the real code of fs/cache, fs/names and sched/ in
 * a world that is made up and driven by a seed.
 *
 *	cache-test SEED			one run, to replay it
 *	cache-test FIRST LAST		runs with these seeds
 *	cache-test --seconds N		fresh seeds for so long
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/threads.h"
#include "cache/internal.h"
#include "world.h"

struct world world;
static bool is_replay; /* one run: it is told of */

static bool flip(void)
{
	return one_in(2);
}

/* Some runs are calm, so that nothing excuses an error or a delay. */
static void draw_plan(struct plan *plan)
{
	bool calm = one_in(4);

	*plan = (struct plan){
		.observed = flip(),
		.changes = !calm && flip(),
		.faults = !calm && one_in(4),
		.hangs = !calm && flip(),
		.dirs_hang = !calm && one_in(6),
		.deaf = flip(),
		.reclaims = flip(),
		.stores_fail = one_in(4),
		.hints = flip(),
		.resizes = one_in(4),
		.jobs = flip(),
		.interrupts = one_in(4),
		.stops_early = one_in(3),
		.readers = 1 + draw(READERS_MAX),
		.holders = draw(2) ? draw(12) : 0,
		.large = (int)(one_in(4) ? draw(FILES) : 3),
		.opens = 20 + draw(100),
		.latency_ms = draw(3) ? draw(20) : 0,
		.inflight_pages = 18 + draw(30),
		.staleness_ms = flip() ? 100000 : 50 + draw(400),
		.deadline_ms = 4000,
		.policy = sched_policy_name(draw(7)),
	};
	plan->capacity_pages = 2 * plan->inflight_pages + draw(50);
	plan->prefetch_pages = draw(20);
	plan->jobs_end = plan->jobs && flip();
}

/* For whoever replays it. */
static void print_plan(const struct plan *plan)
{
	printf("%s policy=%s capacity=%llu inflight=%llu prefetch=%llu pages, staleness=%llu ms, "
	       "latency=%u ms, %u readers x %u, %u holders:%s%s%s%s%s%s%s%s%s%s%s%s%s\n",
	       plan->observed ? "native" : "portable", plan->policy,
	       (unsigned long long)plan->capacity_pages, (unsigned long long)plan->inflight_pages,
	       (unsigned long long)plan->prefetch_pages, (unsigned long long)plan->staleness_ms,
	       plan->latency_ms, plan->readers, plan->opens, plan->holders,
	       plan->changes ? " changes" : "", plan->faults ? " faults" : "",
	       plan->hangs ? " hangs" : "", plan->dirs_hang ? " dirs_hang" : "",
	       plan->deaf ? " deaf" : "", plan->reclaims ? " reclaims" : "",
	       plan->stores_fail ? " stores_fail" : "", plan->hints ? " hints" : "",
	       plan->resizes ? " resizes" : "", plan->jobs ? " jobs" : "",
	       plan->jobs_end ? " jobs_end" : "", plan->interrupts ? " interrupts" : "",
	       plan->stops_early ? " stops_early" : "");
}

static void tick(void *context)
{
	(void)context;
}

static void begin(void)
{
	const struct plan *plan = &world.plan;
	struct cache_options options = {
		.capacity_bytes = plan->capacity_pages * PAGE,
		.inflight_bytes = plan->inflight_pages * PAGE,
		.prefetch_bytes = plan->prefetch_pages * PAGE,
		.staleness_ms = plan->staleness_ms,
		.deadline_ms = plan->deadline_ms,
		.observed = plan->observed,
		.readers = DIRS + 1,
		.depth = 4 + draw(16),
		.policy = plan->policy,
		.tick = tick,
	};
	struct cache *cache;

	world.limit_bytes = options.capacity_bytes;
	world.store = source_open();
	kernel_reset();
	if (cache_create(&cache, world.store, &options) || cache_start(cache, &kernel_ops, NULL))
		fail_run("the cache does not begin");
	for (int i = 0; plan->jobs && i < JOBS; i++)
		if (cache_job_begin(cache, &world.jobs[i]))
			fail_run("a job does not begin");
	if (plan->jobs && cache_job_begin(cache, &world.silent))
		fail_run("a job does not begin");
	world.tree = cache_tree(cache);
	world.cache = cache;
}

/* The fiber that tells of accesses ends last. */
static unsigned plan_stays(void)
{
	return world.plan.observed;
}

/* Everybody has come through, or the daemon is told to end while they read. */
static void run_until_end(void)
{
	if (world.plan.stops_early) {
		fiber_sleep_ms(draw(3000));
	} else {
		while (world.readers_left)
			fiber_wait(&world.readers_left, "readers");
		/* What was begun for nobody ends, too, and what passes through unseen. */
		while (world.helpers_left > plan_stays())
			fiber_sleep_ms(10);
		/* What is warmed may evict what passes through then: a queue of these ends first.
		 */
		for (int i = 0; i < 6000 && world.cache->stats.warm_pending; i++)
			fiber_sleep_ms(10);
		fiber_sleep_ms(30000);
		check_rest();
	}
}

static void print_figures(void)
{
	struct cache_stats stats;

	cache_get_stats(world.cache, &stats);
	if (!is_replay)
		return;
	printf("%llu accesses: %llu hits, %llu admitted, %llu joined, %llu bypassed; %llu fetched "
	       "ahead, %llu evicted, %llu reclaimed, %llu fetches, %llu failed, %llu stale\n",
	       (unsigned long long)stats.sched.accesses, (unsigned long long)stats.sched.hits,
	       (unsigned long long)stats.sched.admissions, (unsigned long long)stats.sched.joins,
	       (unsigned long long)stats.sched.bypasses, (unsigned long long)stats.sched.prefetches,
	       (unsigned long long)stats.sched.evictions, (unsigned long long)stats.reclaimed,
	       (unsigned long long)stats.backend_reads, (unsigned long long)stats.fetch_errors,
	       (unsigned long long)stats.stale_drops);
}

static void end(void)
{
	struct cache *cache = world.cache;

	print_figures();
	atomic_store(&world.stopping, true);
	cache_stop(cache);
	world.limit_bytes = UINT64_MAX / 2; /* nothing is dropped any more: the mount goes */
	source_calm();
	while (world.readers_left)
		fiber_wait(&world.readers_left, "readers");
	kernel_end();
	while (world.helpers_left)
		fiber_sleep_ms(10);
	cache_join(cache);
	world.cache = NULL;
	store_close(world.store);
	cache_destroy(cache);
}

static void run(void *unused)
{
	(void)unused;
	world = (struct world){ 0 };
	draw_plan(&world.plan);
	if (is_replay)
		print_plan(&world.plan);
	begin();
	people_start();
	run_until_end();
	end();
}

static uint64_t *turns; /* of all runs; shared with children */

/* In a process of its own, so that memory is laid out as when it is replayed: a node may get the
 * address of one that is gone, and the kernel's events tell nodes by their addresses. */
static void run_seed(uint64_t seed)
{
	pid_t child = fork();
	int status;

	if (child < 0) {
		perror("fork");
		exit(1);
	}
	if (!child) {
		fibers_run(seed, run, NULL, check_step);
		*turns += fibers_turns();
		exit(0);
	}
	if (waitpid(child, &status, 0) != child || status)
		exit(1);
}

static uint64_t number(const char *text)
{
	char *rest;
	uint64_t value = strtoull(text, &rest, 10);

	if (!*text || *rest) {
		fprintf(stderr, "usage: cache-test SEED | FIRST LAST | --seconds N\n");
		exit(2);
	}
	return value;
}

static uint64_t run_fresh(uint64_t seconds)
{
	time_t until = time(NULL) + (time_t)seconds;
	uint64_t seed = (uint64_t)time(NULL) * 1000000 + (uint64_t)getpid() % 1000 * 1000;
	uint64_t runs = 0;

	printf("fresh seeds from %llu on\n", (unsigned long long)seed);
	for (; time(NULL) < until; runs++)
		run_seed(seed++);
	return runs;
}

int main(int argc, char **argv)
{
	uint64_t runs = 0;

	turns = mmap(NULL, sizeof(*turns), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	fibers_replay = argv[0];
	log_setup(LOG_ERRORS, false); /* files that hang are no news here */
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 3 && !strcmp(argv[1], "--seconds")) {
		runs = run_fresh(number(argv[2]));
	} else if (argc == 2 || argc == 3) {
		uint64_t last = number(argv[argc - 1]);

		is_replay = argc == 2;
		for (uint64_t seed = number(argv[1]); seed <= last; seed++, runs++)
			run_seed(seed);
	} else {
		(void)number("");
	}
	printf("%llu runs, %llu turns\n", (unsigned long long)runs, (unsigned long long)*turns);
	return 0;
}
