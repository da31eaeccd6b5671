/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Accesses: what readers do, what the policy says to it, and what follows.
 *
 * A front end that is asked for opens calls cache_open() and cache_release(). One that only sees
 * opens afterwards calls cache_saw_open() and cache_saw_close(), and then a READ may be the first
 * that is known of an open: it counts as the access.
 */
#include <assert.h>
#include <errno.h>

#include "base/threads.h"
#include "cache/internal.h"

/* The kernel asks again at once after an error, for smaller parts: it does not get another
 * deadline for each. */
#define LATE_HOLD_MS 200

/* Where nobody knows whose it is, it counts for the first job, as its access does. */
void waiter_begin_locked(struct cache *cache, struct waiter *waiter, uint32_t job, uint64_t now_ms)
{
	lock_assert_held(&cache->lock);
	waiter->counts_for = job < SCHED_JOBS_MAX ? job : 0;
	keyed_add(&cache->waiters, &waiter->keyed, waiter->key);
	waits_begin(&cache->waits, now_ms);
	waits_begin(&cache->jobs[waiter->counts_for].waits, now_ms);
}

void waiter_end_locked(struct cache *cache, struct waiter *waiter, uint64_t now_ms)
{
	lock_assert_held(&cache->lock);
	keyed_remove(&waiter->keyed);
	waits_end(&cache->waits, now_ms);
	waits_end(&cache->jobs[waiter->counts_for].waits, now_ms);
}

void waiter_answer_all(struct waiter *waiters, int rc)
{
	for (struct waiter *next; waiters; waiters = next) {
		next = waiters->next;
		waiters->answer(waiters, rc, NULL, 0);
	}
}

struct waiter *waiter_join(struct waiter *first, struct waiter *list)
{
	struct waiter **end = &first;

	while (*end)
		end = &(*end)->next;
	*end = list;
	return first;
}

/* Whose access it is, or SCHED_JOB_ANY, and who makes it. */
struct reader {
	uint32_t job;
	int32_t thread;
};

static struct reader reader_of(const struct waiter *waiter)
{
	return (struct reader){ waiter->job, waiter->thread };
}

/* --- verdicts -----------------------------------------------------------------------------------
 */

/* Tells the policy of an access. The job may have ended meanwhile. */
static int tell_policy_locked(struct cache *cache, const struct node *node, uint32_t job,
			      struct sched_verdict *verdict)
{
	uint64_t size = cache_policy_size(cache, node);
	int rc;

	lock_assert_held(&cache->lock);
	rc = sched_access(cache->sched, job, node->cache.slot, size, verdict);
	if (rc == -ERANGE && job != SCHED_JOB_ANY)
		rc = sched_access(cache->sched, SCHED_JOB_ANY, node->cache.slot, size, verdict);
	return rc;
}

static void count_access_locked(struct cache *cache, const struct sched_verdict *verdict)
{
	static const enum epoch_counter counters[] = {
		[SCHED_HIT] = EPOCH_HITS,
		[SCHED_ADMIT] = EPOCH_MISSES,
		[SCHED_JOIN] = EPOCH_COALESCED,
		[SCHED_BYPASS] = EPOCH_MISSES,
	};

	lock_assert_held(&cache->lock);
	history_count_locked(cache, verdict->job, EPOCH_ACCESSES, 1);
	history_count_locked(cache, verdict->job, counters[verdict->action], 1);
	history_count_locked(cache, verdict->job, EPOCH_HITS_PREFETCHED, verdict->prefetched);
}

/* The pace of the training, and what the policy is told of it. */
static void keep_pace_locked(struct cache *cache, const struct sched_verdict *verdict,
			     uint64_t now_ms)
{
	struct job_record *job = &cache->jobs[verdict->job];

	lock_assert_held(&cache->lock);
	if (verdict->expected)
		job->read_ms = now_ms;
	if (pace_access(&job->pace, now_ms))
		(void)sched_pace(cache->sched, verdict->job, pace_step_s(&job->pace),
				 pace_benefit(&job->pace));
}

/* For whoever wants to recognise a training. */
static void tell_watcher_locked(struct cache *cache, const struct node *node,
				const struct reader *reader, const struct sched_verdict *verdict,
				uint64_t now_ms)
{
	struct cache_seen seen = { .slot = node->cache.slot,
				   .thread = reader->thread,
				   .job = (uint16_t)verdict->job,
				   .claimed = reader->job != SCHED_JOB_ANY,
				   .expected = verdict->expected,
				   .when_ms = (uint32_t)now_ms };

	lock_assert_held(&cache->lock);
	watch_add(&cache->watch, &seen);
}

/* Asks the policy, and lets those leave whom it named. `*job`: whose access it was. */
static int ask_policy_locked(struct cache *cache, struct node *node, struct reader reader,
			     uint64_t now_ms, uint32_t *job, enum sched_action *action)
{
	struct sched_verdict verdict;
	struct cache_access access;
	int rc;

	lock_assert_held(&cache->lock);
	rc = tell_policy_locked(cache, node, reader.job, &verdict);
	if (rc)
		return rc;
	*job = verdict.job;
	tell_watcher_locked(cache, node, &reader, &verdict, now_ms);
	count_access_locked(cache, &verdict);
	drop_victims_locked(cache, &verdict, now_ms);
	access = (struct cache_access){ .id = numbering_id(&cache->numbering, node->cache.slot),
					.action = verdict.action,
					.thread = reader.thread,
					.size = node->attr.size };
	access_log_add(&cache->log, &access);
	history_access_locked(cache, verdict.job, node->cache.slot, now_ms);
	*action = verdict.action;
	keep_pace_locked(cache, &verdict, now_ms);
	return 0;
}

/* Carries the verdict out as far as that needs no fetch. True: it needs none. */
static bool is_there_locked(struct cache *cache, struct node *node, enum sched_action action)
{
	bool kernel_has_it = !node->attr.size || node->cache.is_passing;
	struct fetch *fetch = node->cache.fetch;

	lock_assert_held(&cache->lock);
	if (action == SCHED_ADMIT && fetch && fetch->state != FETCH_ABANDONED) {
		fetch_reserve_locked(fetch);
		return false;
	}
	if (action == SCHED_ADMIT && kernel_has_it) {
		passing_remove_locked(cache, node);
		(void)sched_commit(cache->sched, node->cache.slot);
	}
	return kernel_has_it || action == SCHED_HIT;
}

/* A fetch for a sample that the policy has answered for with `action`, to a reader of `job`. NULL:
 * there cannot be one, and what the policy has set aside is given back. */
static struct fetch *fetch_for_locked(struct cache *cache, struct node *node, uint32_t job,
				      enum sched_action action, uint64_t now_ms)
{
	struct fetch *fetch = fetch_get_locked(cache, node, FETCH_READ, job, now_ms);

	lock_assert_held(&cache->lock);
	if (fetch && action == SCHED_ADMIT)
		fetch_reserve_locked(fetch);
	else if (action == SCHED_ADMIT)
		(void)sched_cancel(cache->sched, node->cache.slot);
	return fetch;
}

/* --- opens --------------------------------------------------------------------------------------
 */

/* How long ago the source was asked about the node; another thread may have done it just now. */
static uint64_t age_ms(const struct node *node, uint64_t now_ms)
{
	uint64_t then = node_checked_ms(node);

	return now_ms > then ? now_ms - then : 0;
}

/* Has the source asked whether the node, which has no other fetch, is still what it has. The
 * waiter, if there is one, is tried again when the answer is there. 1, or a negative errno. */
static int check_locked(struct cache *cache, struct node *node, struct waiter *waiter,
			uint64_t now_ms)
{
	struct fetch *fetch = fetch_get_locked(cache, node, FETCH_CHECK, 0, now_ms);

	lock_assert_held(&cache->lock);
	if (!fetch)
		return fetch_error_locked(cache, node);
	if (waiter) {
		waiter->retries = true;
		fetch_wait_locked(fetch, waiter, now_ms);
	}
	return 1;
}

/* Decides over an open. 0: answer now; 1: it waits; or a negative errno. */
static int open_locked(struct cache *cache, struct node *node, struct waiter *waiter,
		       uint64_t now_ms)
{
	enum sched_action action;
	struct fetch *fetch;
	int rc;

	lock_assert_held(&cache->lock);
	if (node->cache.slot == SLOT_NONE) {
		cache->stats.slotless_opens++;
		history_count_locked(cache, waiter->job, EPOCH_ACCESSES, 1);
		history_count_locked(cache, waiter->job, EPOCH_MISSES, 1);
		return 0;
	}
	rc = ask_policy_locked(cache, node, reader_of(waiter), now_ms, &waiter->job, &action);
	if (rc)
		return rc;
	if (cache_is_large(cache, node) || is_there_locked(cache, node, action))
		return 0;
	fetch = fetch_for_locked(cache, node, waiter->job, action, now_ms);
	if (!fetch)
		return fetch_error_locked(cache, node);
	/* Storing may have to wait for other files; READs are answered from the buffer. */
	if (fetch->state == FETCH_QUEUED)
		return 0;
	fetch_wait_locked(fetch, waiter, now_ms);
	return 1;
}

/* What is too old waits until the source was asked. What is half as old is asked about, too, but
 * nobody waits: so what is in use never gets too old. */
static int open_checked_locked(struct cache *cache, struct node *node, struct waiter *waiter,
			       uint64_t now_ms)
{
	uint64_t age = age_ms(node, now_ms), limit = cache->options.staleness_ms;
	const struct fetch *fetch = node->cache.fetch;
	int rc;

	lock_assert_held(&cache->lock);
	if (cache->stopping)
		return -ESHUTDOWN;
	if (age > limit &&
	    (!fetch || fetch->purpose == FETCH_CHECK || fetch->state == FETCH_ABANDONED))
		return check_locked(cache, node, waiter, now_ms);
	rc = open_locked(cache, node, waiter, now_ms);
	if (!rc && age > limit / 2 && !node->cache.fetch)
		(void)check_locked(cache, node, NULL, now_ms);
	return rc;
}

void cache_open(struct cache *cache, struct node *node, struct waiter *waiter)
{
	uint64_t now_ms = clock_now_ms();
	struct starts starts = { 0 };
	int rc = -ESTALE;

	assert(node_is_file(node) && waiter->answer && waiter->opens);
	waiter->retries = false;
	lock_acquire(&cache->lock);
	if (!atomic_load(&node->stale))
		rc = open_checked_locked(cache, node, waiter, now_ms);
	if (!rc)
		node->cache.opens++;
	/* Also after a hit: it may have made room to fetch ahead. */
	starts = start_pick_locked(cache, now_ms);
	lock_release(&cache->lock);
	if (rc <= 0)
		waiter->answer(waiter, rc, NULL, 0);
	start_submit(cache, starts);
}

void cache_release(struct cache *cache, struct node *node)
{
	lock_acquire(&cache->lock);
	/* If a daemon died before it had answered a RELEASE, its successor gets that again. */
	node->cache.opens -= node->cache.opens > 0;
	if (!node->cache.opens)
		passing_closed_locked(cache, node, clock_now_ms());
	lock_release(&cache->lock);
}

/* --- opens that are observed --------------------------------------------------------------------
 */

/* The node of an event, which may be gone: the address is only compared. */
static struct node *observed_locked(struct cache *cache, const struct node *node, uint32_t slot)
{
	lock_assert_held(&cache->lock);
	return slot < cache->slots.count && cache->slots.nodes[slot] == node
		       ? cache->slots.nodes[slot]
		       : NULL;
}

/* Every open is an access once: when it is seen, or before that, when its READ arrives. The
 * bytes of one that is admitted are fetched at once; its READ will wait for them. */
static void saw_open_locked(struct cache *cache, struct node *node, struct reader reader,
			    uint64_t now_ms)
{
	enum sched_action action;
	uint32_t job;

	lock_assert_held(&cache->lock);
	node->cache.opens += !node->cache.early;
	node->cache.early = false;
	if (node->cache.counted)
		node->cache.counted = false;
	else if (!ask_policy_locked(cache, node, reader, now_ms, &job, &action) &&
		 !cache_is_large(cache, node) && !is_there_locked(cache, node, action) &&
		 action == SCHED_ADMIT)
		(void)fetch_for_locked(cache, node, job, action, now_ms);
}

void cache_saw_open(struct cache *cache, const struct node *node, uint32_t slot, uint32_t job,
		    int32_t thread)
{
	uint64_t now_ms = clock_now_ms();
	struct starts starts = { 0 };
	struct node *found;

	lock_acquire(&cache->lock);
	found = observed_locked(cache, node, slot);
	if (found && !cache->stopping) {
		saw_open_locked(cache, found, (struct reader){ job, thread }, now_ms);
		starts = start_pick_locked(cache, now_ms);
	}
	lock_release(&cache->lock);
	start_submit(cache, starts);
}

void cache_saw_close(struct cache *cache, const struct node *node, uint32_t slot)
{
	struct node *found;

	lock_acquire(&cache->lock);
	found = observed_locked(cache, node, slot);
	if (found && !cache->stopping) {
		found->cache.opens -= found->cache.opens > 0;
		if (!found->cache.opens)
			passing_closed_locked(cache, found, clock_now_ms());
	}
	lock_release(&cache->lock);
}

void cache_set_observed(struct cache *cache, bool observed)
{
	lock_acquire(&cache->lock);
	cache->options.observed = observed;
	lock_release(&cache->lock);
}

/* --- reads --------------------------------------------------------------------------------------
 */

static bool was_just_late_locked(const struct cache *cache, const struct node *node,
				 uint64_t now_ms)
{
	lock_assert_held(&cache->lock);
	return cache->options.observed && node->cache.late_ms &&
	       now_ms - node->cache.late_ms < LATE_HOLD_MS;
}

/* A READ without a fetch. The kernel would not ask if it had the bytes, so if the sample is
 * resident, they were reclaimed; a direct READ goes around them and tells nothing. */
static int begin_read_locked(struct cache *cache, struct node *node, struct waiter *waiter,
			     uint64_t now_ms)
{
	bool resident = cache_is_resident_locked(cache, node);
	enum sched_action action = SCHED_BYPASS;
	struct fetch *fetch = fetch_get_locked(cache, node, resident ? FETCH_RESTORE : FETCH_READ,
					       waiter->job, now_ms);

	lock_assert_held(&cache->lock);
	if (!fetch)
		return fetch_error_locked(cache, node);
	if (resident) {
		cache->stats.reclaimed += !waiter->direct;
	} else if (cache->options.observed && !node->cache.opens) {
		node->cache.counted = !ask_policy_locked(cache, node, reader_of(waiter), now_ms,
							 &waiter->job, &action);
		fetch->job = waiter->job;
		if (node->cache.counted && action == SCHED_ADMIT)
			fetch_reserve_locked(fetch);
	}
	return 0;
}

/* 0 with a fetch in `*ready`: answer from its buffer; 1: it waits; or a negative errno. */
static int read_locked(struct cache *cache, struct node *node, struct waiter *waiter,
		       uint64_t now_ms, struct fetch **ready)
{
	int rc = 0;

	lock_assert_held(&cache->lock);
	if (cache->stopping)
		return -ESHUTDOWN;
	if (was_just_late_locked(cache, node, now_ms))
		return -ETIMEDOUT;
	if (!node->cache.fetch)
		rc = begin_read_locked(cache, node, waiter, now_ms);
	else if (node->cache.fetch->state == FETCH_ABANDONED)
		rc = fetch_error_locked(cache, node);
	if (rc)
		return rc;
	if (cache->options.observed && !node->cache.opens)
		node->cache.opens = node->cache.early = true;
	if (fetch_use_buffer_locked(node->cache.fetch)) {
		*ready = node->cache.fetch;
		return 0;
	}
	fetch_wait_locked(node->cache.fetch, waiter, now_ms);
	return 1;
}

void cache_read(struct cache *cache, struct node *node, struct waiter *waiter)
{
	uint64_t now_ms = clock_now_ms();
	struct starts starts = { 0 };
	struct fetch *ready = NULL;
	int rc;

	assert(node_is_file(node) && waiter->answer && !waiter->opens);
	if (cache_is_large(cache, node)) {
		range_read(cache, node, waiter, now_ms);
		return;
	}
	lock_acquire(&cache->lock);
	rc = read_locked(cache, node, waiter, now_ms, &ready);
	if (rc > 0)
		starts = start_pick_locked(cache, now_ms);
	lock_release(&cache->lock);
	if (rc < 0) {
		waiter->answer(waiter, rc, NULL, 0);
	} else if (ready) {
		fetch_answer(ready, waiter);
		fetch_put(ready);
	}
	start_submit(cache, starts);
}

struct waiter *cache_take_waiter(struct cache *cache, uint64_t key, waiter_match *is, void *context)
{
	uint64_t now_ms = clock_now_ms();
	struct keyed *at;
	struct waiter *found;

	lock_acquire(&cache->lock);
	at = keyed_find(&cache->waiters, key);
	while (at && !is((struct waiter *)at, context))
		at = keyed_next(at);
	found = (struct waiter *)at;
	if (found && found->range)
		range_take_waiter_locked(cache, found, now_ms);
	else if (found)
		fetch_take_waiter_locked(cache, found, now_ms);
	lock_release(&cache->lock);
	return found;
}
