/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What must be so after every turn, and when everything is at rest. */
#include <string.h>

#include "cache/internal.h"
#include "world.h"

/* Big files that only pass through come on top; without them the capacity is the limit. */
static uint64_t allowed_bytes(const struct cache *cache)
{
	const struct budget *budget = &cache->budget;

	for (uint64_t pages = 1; (pages - 1) * PAGE < cache->range_bytes && pages <= PAGES_MAX;
	     pages++)
		if (page_counts[pages] && budget_is_big(budget, pages * PAGE))
			return world.limit_bytes + 2 * budget->limit_bytes;
	return world.limit_bytes;
}

/* Pages of the kernel and buffers of the daemon, as they are and not as they are counted. */
static uint64_t memory_bytes(const struct cache *cache)
{
	uint64_t bytes = kernel_pages() * PAGE;

	for (const struct fetch *fetch = cache->fetches; fetch; fetch = fetch->next)
		bytes += fetch->buffer_bytes;
	return bytes + cache->ranges.bytes;
}

uint64_t check_memory_bytes(void)
{
	uint64_t real = memory_bytes(world.cache), counted;

	lock_acquire(&world.cache->lock);
	counted = report_memory_locked(world.cache);
	lock_release(&world.cache->lock);
	return real > counted ? real : counted;
}

static void check_memory(const struct cache *cache)
{
	uint64_t bytes = memory_bytes(cache);
	const struct budget *budget = &cache->budget;
	struct sched_stats stats;

	if (bytes <= allowed_bytes(cache))
		return;
	sched_get_stats(cache->sched, &stats);
	fail_run("%llu pages of %llu: %llu in the kernel, the rest buffers; counted: %llu "
		 "resident, %llu reserved, and of %llu pages in flight %llu buffers, %llu passing, "
		 "%llu leaving",
		 (unsigned long long)bytes / PAGE, (unsigned long long)world.limit_bytes / PAGE,
		 (unsigned long long)kernel_pages(),
		 (unsigned long long)stats.resident_bytes / PAGE,
		 (unsigned long long)stats.reserved_bytes / PAGE,
		 (unsigned long long)budget->limit_bytes / PAGE,
		 (unsigned long long)budget->buffer_bytes / PAGE,
		 (unsigned long long)budget->passing_bytes / PAGE,
		 (unsigned long long)budget->leaving_bytes / PAGE);
}

static void check_fetch(const struct cache *cache, const struct fetch *fetch)
{
	bool full = fetch->state == FETCH_STORING || fetch->state == FETCH_QUEUED;

	if ((fetch->state == FETCH_STORED) != (fetch->node->cache.fetch != fetch))
		fail_run("%s: a node and its fetch do not know each other", fetch->node->name);
	if (full && !fetch->users)
		fail_run("%s: nobody stores a full buffer", fetch->node->name);
	if (!full && fetch->state != FETCH_STORED && fetch->users)
		fail_run("%s: somebody uses a buffer that is not full", fetch->node->name);
	if (fetch->waiters && (fetch->state == FETCH_ABANDONED || fetch->state == FETCH_STORED ||
			       fetch->state == FETCH_QUEUED))
		fail_run("%s: somebody waits for a fetch that answers nobody", fetch->node->name);
	if (fetch->reserved && fetch->state == FETCH_ABANDONED)
		fail_run("%s: bytes are set aside for an abandoned fetch", fetch->node->name);
	(void)cache;
}

static bool is_found(struct cache *cache, const struct waiter *waiter)
{
	const struct keyed *at = keyed_find(&cache->waiters, waiter->key);

	while (at && at != &waiter->keyed)
		at = keyed_next(at);
	return at;
}

/* Whoever waits is found by key, and what waits for room is in its list. */
static void check_waiting(struct cache *cache)
{
	int waiting = 0;
	unsigned readers = 0;

	for (const struct fetch *fetch = cache->fetches; fetch; fetch = fetch->next) {
		waiting += fetch->state == FETCH_WAITING;
		for (const struct waiter *waiter = fetch->waiters; waiter; waiter = waiter->next) {
			readers++;
			if (!is_found(cache, waiter))
				fail_run("somebody waits and is not found");
		}
	}
	/* Those who wait for ranges come on top. */
	if (readers > cache->waits.waiting)
		fail_run("%u readers wait, and %u are counted", readers, cache->waits.waiting);
	for (const struct fetch *fetch = cache->waiting; fetch; fetch = fetch->next_waiting)
		waiting--;
	if (waiting)
		fail_run("%d more fetches wait for room than are in the list", waiting);
}

/* Nobody waits any more. */
static bool is_empty(const struct keyed_table *table)
{
	static const struct keyed_table empty;

	return !memcmp(table, &empty, sizeof(empty));
}

/* The counters are the sums of what they count. */
static void check_sums(struct cache *cache)
{
	uint64_t buffers = cache->ranges.bytes, arriving = 0, passing = 0, storing = 0;
	unsigned running = cache->ranges.running;

	for (const struct fetch *fetch = cache->fetches; fetch; fetch = fetch->next) {
		check_fetch(cache, fetch);
		buffers += fetch->buffer_bytes;
		arriving += fetch->arriving_bytes;
		storing += fetch->reserved && fetch->state != FETCH_WAITING
				   ? cache_memory_of(cache, fetch->node)
				   : 0;
		running += fetch->state == FETCH_CHECKING || fetch->state == FETCH_READING ||
			   fetch->state == FETCH_ABANDONED;
	}
	for (uint32_t i = 0; i < cache->passing.count; i++) {
		const struct node *node =
			cache->passing.nodes[(cache->passing.first + i) % PASSING_MAX];

		if (node->cache.is_passing && !cache_is_large(cache, node))
			passing += cache_memory_of(cache, node);
	}
	check_waiting(cache);
	if (storing != cache->storing_bytes)
		fail_run("%llu bytes that are stored are counted as %llu",
			 (unsigned long long)storing, (unsigned long long)cache->storing_bytes);
	if (buffers != cache->budget.buffer_bytes)
		fail_run("%llu bytes of buffers are counted as %llu", (unsigned long long)buffers,
			 (unsigned long long)cache->budget.buffer_bytes);
	if (arriving != cache->budget.arriving_bytes)
		fail_run("%llu bytes that arrive are counted as %llu", (unsigned long long)arriving,
			 (unsigned long long)cache->budget.arriving_bytes);
	if (passing != cache->budget.passing_bytes)
		fail_run("%llu bytes that pass through are counted as %llu",
			 (unsigned long long)passing,
			 (unsigned long long)cache->budget.passing_bytes);
	/* A read that has ended is counted until its waiters are answered. */
	if (running > cache->budget.running)
		fail_run("%u reads are counted as %u", running, cache->budget.running);
}

/* Who reads for one training leaves what others have announced alone. If a training has ended, its
 * readers may be anybody's. */
static void check_jobs(const struct cache *cache)
{
	struct sched_job_stats stats;

	if (!world.plan.jobs || world.plan.jobs_end || world.silent_ahead == SILENT_UNKNOWN)
		return;
	if (sched_get_job_stats(cache->sched, world.silent, &stats))
		fail_run("a training is gone");
	if (stats.order_ahead != world.silent_ahead)
		fail_run("%llu samples are ahead of a training that reads none of its %llu",
			 (unsigned long long)stats.order_ahead,
			 (unsigned long long)world.silent_ahead);
}

/* What all trainings do together is what the mount counts. */
static void check_counts(const struct cache *cache)
{
	uint64_t sums[EPOCH_COUNTERS] = { 0 }, waits = 0;
	unsigned waiting = 0;
	struct sched_stats stats;

	sched_get_stats(cache->sched, &stats);
	for (unsigned job = 0; job < SCHED_JOBS_MAX; job++) {
		for (unsigned i = 0; i < EPOCH_COUNTERS; i++)
			sums[i] += cache->jobs[job].counts.values[i];
		waits += cache->jobs[job].waits.count;
		waiting += cache->jobs[job].waits.waiting;
	}
	if (sums[EPOCH_ACCESSES] != stats.accesses + cache->stats.slotless_opens ||
	    sums[EPOCH_HITS] != stats.hits ||
	    sums[EPOCH_HITS_PREFETCHED] != stats.hits_prefetched ||
	    sums[EPOCH_COALESCED] != stats.joins ||
	    sums[EPOCH_MISSES] != stats.admissions + stats.bypasses + cache->stats.slotless_opens)
		fail_run("accesses of all jobs are not those of the mount");
	if (sums[EPOCH_BACKEND_READS] != cache->stats.backend_reads ||
	    sums[EPOCH_BACKEND_BYTES] != cache->stats.backend_bytes ||
	    sums[EPOCH_FETCH_ERRORS] != cache->stats.fetch_errors)
		fail_run("fetches of all jobs are not those of the mount");
	if (waits != cache->waits.count || waiting != cache->waits.waiting)
		fail_run("%u readers wait, %u of the mount", waiting, cache->waits.waiting);
}

void check_step(void)
{
	struct cache *cache = world.cache;
	const char *wrong = NULL;

	if (!cache)
		return;
	check_memory(cache);
	if (cache->lock.holder)
		return; /* in the middle of a change */
	check_sums(cache);
	check_jobs(cache);
	check_counts(cache);
	/* Names that come and go between two scans leave one that is numbered, at most. */
	if (cache->slots.count > 2 * FILES)
		fail_run("%u slots for %d names", cache->slots.count, FILES);
	if (report_memory_locked(cache) > allowed_bytes(cache))
		fail_run("%llu pages are counted of %llu",
			 (unsigned long long)report_memory_locked(cache) / PAGE,
			 (unsigned long long)world.limit_bytes / PAGE);
	if (!world.plan.dirs_hang && !atomic_load(&world.stopping))
		kernel_check_names();
	if (fibers_turns() % 64 == 0)
		wrong = sched_check(cache->sched);
	if (wrong)
		fail_run("the policy core: %s", wrong);
}

void check_rest(void)
{
	const struct cache *cache = world.cache;
	struct sched_stats stats;

	sched_get_stats(cache->sched, &stats);
	if (stats.reserved_bytes)
		fail_run("at rest %llu bytes are set aside",
			 (unsigned long long)stats.reserved_bytes);
	if (cache->stats.warm_pending && cache->warm.first == cache->warm.end)
		fail_run("at rest %llu warm files are waited for",
			 (unsigned long long)cache->stats.warm_pending);
	if (cache->fetches || cache->ranges.started || cache->ranges.files ||
	    !is_empty(&cache->waiters) || cache->waits.waiting)
		fail_run("nobody reads any more, and something is still fetched");
	if (cache->budget.passing_bytes)
		fail_run("nobody reads any more, and %llu bytes still pass through",
			 (unsigned long long)cache->budget.passing_bytes);
	/* What the kernel took has been noticed, too. */
	if (kernel_pages() * PAGE != stats.resident_bytes)
		fail_run("at rest the kernel has %llu pages, and %llu are resident",
			 (unsigned long long)kernel_pages(),
			 (unsigned long long)stats.resident_bytes / PAGE);
	if (cache->budget.running || cache->budget.buffer_bytes || cache->budget.leaving_bytes)
		fail_run("at rest %u reads run, %llu bytes of buffers and %llu leaving are counted",
			 cache->budget.running, (unsigned long long)cache->budget.buffer_bytes,
			 (unsigned long long)cache->budget.leaving_bytes);
}
