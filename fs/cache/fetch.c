/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One fetch: it brings one file, whole, for however many wait, and ends when the bytes are where
 * they should be and nobody reads the buffer any more. A node has one fetch at a time.
 *
 *	state		event						next state
 *	-----		-----						----------
 *	WAITING		there is room; the purpose is a check		CHECKING
 *	WAITING		there is room; any other purpose		READING
 *	WAITING		nothing was started for a deadline		(end) ETIMEDOUT
 *	CHECKING	the version is there; bytes are wanted by now	WAITING, to read
 *	CHECKING	the version is there; nobody wants bytes	(end) opens are tried again
 *	CHECKING	an error, or another version			(end) the error
 *	CHECKING	the deadline passes				ABANDONED, ETIMEDOUT
 *	READING		the bytes are there, and somebody waits		STORING
 *	READING		the bytes are there, nobody waits, they stay	QUEUED
 *	READING		the bytes are there, and nobody wants them	(end)
 *	READING		an error, or another version			(end) the error
 *	READING		the deadline passes				ABANDONED, ETIMEDOUT
 *	STORING		the kernel has the bytes, or refused them	STORED, opens are answered
 *	QUEUED		the kernel has the bytes, or refused them	STORED
 *	STORED		the last READ has its bytes			(end)
 *	ABANDONED	the store is done with it			(end)
 *
 * A failure reaches only the current waiters and is not cached: the next open tries again. An
 * abandoned fetch stays the node's until it ends, because a second one would hang, too.
 */
#include <assert.h>
#include <stdlib.h>

#include "base/threads.h"
#include "cache/internal.h"

static void on_checked(struct store_read *read, int rc);
static void on_read(struct store_read *read, int rc);

/* --- begin and end ------------------------------------------------------------------------------
 */

static void add_waiting_locked(struct fetch *fetch, struct fetch **before)
{
	struct cache *cache = fetch->cache;

	lock_assert_held(&cache->lock);
	fetch->next_waiting = *before;
	fetch->before_waiting = before;
	*before = fetch;
	if (fetch->next_waiting)
		fetch->next_waiting->before_waiting = &fetch->next_waiting;
	else
		cache->waiting_end = &fetch->next_waiting;
}

static void remove_waiting_locked(struct fetch *fetch)
{
	lock_assert_held(&fetch->cache->lock);
	*fetch->before_waiting = fetch->next_waiting;
	if (fetch->next_waiting)
		fetch->next_waiting->before_waiting = fetch->before_waiting;
	else
		fetch->cache->waiting_end = fetch->before_waiting;
}

/* One that waits again was before all that wait now. */
static void enter_locked(struct fetch *fetch, enum fetch_state next)
{
#define TO(state) (1u << (state))
	static const unsigned allowed[] = {
		[FETCH_WAITING] = TO(FETCH_CHECKING) | TO(FETCH_READING),
		[FETCH_CHECKING] = TO(FETCH_WAITING) | TO(FETCH_ABANDONED),
		[FETCH_READING] = TO(FETCH_STORING) | TO(FETCH_QUEUED) | TO(FETCH_ABANDONED),
		[FETCH_STORING] = TO(FETCH_STORED),
		[FETCH_QUEUED] = TO(FETCH_STORED),
		[FETCH_STORED] = 0,
		[FETCH_ABANDONED] = 0,
	};
#undef TO

	lock_assert_held(&fetch->cache->lock);
	assert(allowed[fetch->state] & 1u << next);
	if (fetch->state == FETCH_WAITING)
		remove_waiting_locked(fetch);
	if (next == FETCH_WAITING)
		add_waiting_locked(fetch, &fetch->cache->waiting);
	fetch->state = next;
}

/* At the end of the list: first come, first served. */
static void link_locked(struct cache *cache, struct fetch *fetch)
{
	lock_assert_held(&cache->lock);
	fetch->before = cache->fetches ? cache->fetches->before : fetch;
	if (cache->fetches) {
		cache->fetches->before->next = fetch;
		cache->fetches->before = fetch;
	} else {
		cache->fetches = fetch;
	}
}

static void unlink_locked(struct cache *cache, struct fetch *fetch)
{
	lock_assert_held(&cache->lock);
	if (fetch == cache->fetches) {
		cache->fetches = fetch->next;
		if (cache->fetches)
			cache->fetches->before = fetch->before;
	} else {
		fetch->before->next = fetch->next;
		if (fetch->next)
			fetch->next->before = fetch->before;
		else
			cache->fetches->before = fetch->before;
	}
}

struct fetch *fetch_get_locked(struct cache *cache, struct node *node, enum fetch_purpose purpose,
			       uint32_t job, uint64_t now_ms)
{
	struct fetch *fetch = node->cache.fetch;

	lock_assert_held(&cache->lock);
	if (fetch)
		return fetch->state == FETCH_ABANDONED ? NULL : fetch;
	fetch = calloc(1, sizeof(*fetch));
	if (!fetch)
		return NULL;
	fetch->cache = cache;
	fetch->node = node;
	fetch->purpose = purpose;
	fetch->job = job;
	fetch->size = node->attr.size;
	fetch->expected = node->attr;
	fetch->deadline_ms = now_ms + cache->options.deadline_ms;
	node_hold(node);
	node->cache.fetch = fetch;
	link_locked(cache, fetch);
	add_waiting_locked(fetch, cache->waiting_end);
	return fetch;
}

int fetch_error_locked(const struct cache *cache, const struct node *node)
{
	lock_assert_held(&cache->lock);
	return node->cache.fetch ? -ETIMEDOUT : -ENOMEM;
}

static void free_fetch(struct fetch *fetch)
{
	free(fetch->buffer);
	free(fetch->path);
	free(fetch);
}

static void end_locked(struct fetch *fetch)
{
	struct cache *cache = fetch->cache;

	lock_assert_held(&cache->lock);
	assert(!fetch->waiters && !fetch->users && !fetch->reserved && !fetch->warms);
	assert(!fetch->storing_bytes);
	unlink_locked(cache, fetch);
	if (fetch->state == FETCH_WAITING)
		remove_waiting_locked(fetch);
	if (fetch->node->cache.fetch == fetch)
		fetch->node->cache.fetch = NULL;
	budget_free_buffer(&cache->budget, fetch->buffer_bytes);
	budget_set_arriving(&cache->budget, fetch->arriving_bytes, 0);
	cache->budget.spare_running -= fetch->spare;
	tree_release(cache->tree, fetch->node);
	free_fetch(fetch);
}

void fetch_free_all(struct cache *cache)
{
	for (struct fetch *next, *fetch = cache->fetches; fetch; fetch = next) {
		next = fetch->next;
		free_fetch(fetch);
	}
	cache->fetches = NULL;
}

/* --- reservations -------------------------------------------------------------------------------
 */

/* Whether the policy counts the pages that the fetch will fill. */
static bool is_counted_locked(const struct fetch *fetch)
{
	lock_assert_held(&fetch->cache->lock);
	return fetch->reserved || cache_is_resident_locked(fetch->cache, fetch->node);
}

/* Reserved bytes become resident when they are stored; those of a full or filling buffer need
 * memory already. */
static void recount_storing_locked(struct fetch *fetch, uint64_t memory)
{
	lock_assert_held(&fetch->cache->lock);
	fetch->cache->storing_bytes -= fetch->storing_bytes;
	fetch->storing_bytes = fetch->reserved && fetch->state != FETCH_WAITING ? memory : 0;
	fetch->cache->storing_bytes += fetch->storing_bytes;
}

void fetch_recount_locked(struct fetch *fetch)
{
	struct budget *budget = &fetch->cache->budget;
	uint64_t memory = cache_memory_of(fetch->cache, fetch->node);
	bool fills = fetch->state == FETCH_STORING || fetch->state == FETCH_QUEUED ||
		     (fetch->state == FETCH_READING && !budget_is_big(budget, memory));
	uint64_t bytes = fills && !is_counted_locked(fetch) ? memory : 0;

	lock_assert_held(&fetch->cache->lock);
	budget_set_arriving(budget, fetch->arriving_bytes, bytes);
	fetch->arriving_bytes = bytes;
	recount_storing_locked(fetch, memory);
}

struct need fetch_need_locked(const struct fetch *fetch)
{
	uint64_t bytes = cache_memory_of(fetch->cache, fetch->node);
	struct need need = { 0 };

	lock_assert_held(&fetch->cache->lock);
	if (fetch->purpose == FETCH_CHECK)
		return need;
	need.is_big = budget_is_big(&fetch->cache->budget, bytes);
	need.bytes = need.is_big || is_counted_locked(fetch) ? bytes : 2 * bytes;
	return need;
}

void fetch_reserve_locked(struct fetch *fetch)
{
	lock_assert_held(&fetch->cache->lock);
	fetch->reserved = true;
	fetch_recount_locked(fetch);
}

/* The bytes that were set aside are needed no more, or are resident from now on. */
static void unreserve_locked(struct fetch *fetch, int (*how)(struct sched *sched, uint32_t sample))
{
	lock_assert_held(&fetch->cache->lock);
	if (fetch->reserved && fetch->node->cache.slot != SLOT_NONE)
		(void)how(fetch->cache->sched, fetch->node->cache.slot);
	fetch->reserved = false;
	fetch_recount_locked(fetch);
}

void fetch_unreserve_locked(struct fetch *fetch)
{
	lock_assert_held(&fetch->cache->lock);
	unreserve_locked(fetch, sched_cancel);
}

static void count_warm_locked(struct fetch *fetch, int rc)
{
	lock_assert_held(&fetch->cache->lock);
	if (fetch->warms)
		warm_done_locked(fetch->cache, fetch->warm_bytes, rc);
	fetch->warms = false;
}

/* --- waiters ------------------------------------------------------------------------------------
 */

void fetch_wait_locked(struct fetch *fetch, struct waiter *waiter, uint64_t now_ms)
{
	lock_assert_held(&fetch->cache->lock);
	assert(fetch->state != FETCH_ABANDONED && fetch->state != FETCH_STORED);
	/* Whoever comes first waits for all of it. */
	waiter->since_ns = fetch->purpose == FETCH_READ && !fetch->waiters ? clock_now_ns() : 0;
	waiter->range = NULL;
	waiter->next = fetch->waiters;
	waiter->before = &fetch->waiters;
	if (waiter->next)
		waiter->next->before = &waiter->next;
	fetch->waiters = waiter;
	waiter_begin_locked(fetch->cache, waiter,
			    waiter->job == SCHED_JOB_ANY ? fetch->job : waiter->job, now_ms);
}

/* These have got what they waited for. */
static void measure_locked(struct cache *cache, const struct waiter *waiters, uint64_t now_ns)
{
	lock_assert_held(&cache->lock);
	for (; waiters; waiters = waiters->next)
		if (waiters->since_ns && now_ns > waiters->since_ns)
			pace_miss(&cache->jobs[waiters->counts_for].pace,
				  (double)(now_ns - waiters->since_ns) / 1e9);
}

static bool wants_bytes(const struct waiter *waiter, void *context)
{
	(void)context;
	return !waiter->opens;
}

static bool waits_for_check(const struct waiter *waiter, void *context)
{
	(void)context;
	return waiter->retries;
}

void fetch_take_waiter_locked(struct cache *cache, struct waiter *waiter, uint64_t now_ms)
{
	lock_assert_held(&cache->lock);
	*waiter->before = waiter->next;
	if (waiter->next)
		waiter->next->before = waiter->before;
	waiter_end_locked(cache, waiter, now_ms);
}

/* Takes those out that `is` recognises. */
static struct waiter *take_locked(struct fetch *fetch, waiter_match *is, uint64_t now_ms)
{
	struct waiter *taken = NULL;

	lock_assert_held(&fetch->cache->lock);
	for (struct waiter *next, *waiter = fetch->waiters; waiter; waiter = next) {
		next = waiter->next;
		if (!is(waiter, NULL))
			continue;
		fetch_take_waiter_locked(fetch->cache, waiter, now_ms);
		waiter->next = taken;
		taken = waiter;
	}
	return taken;
}

static struct waiter *take_everybody_locked(struct fetch *fetch, uint64_t now_ms)
{
	struct waiter *waiters = fetch->waiters;

	lock_assert_held(&fetch->cache->lock);
	for (struct waiter *waiter = waiters; waiter; waiter = waiter->next)
		waiter_end_locked(fetch->cache, waiter, now_ms);
	fetch->waiters = NULL;
	return waiters;
}

bool fetch_use_buffer_locked(struct fetch *fetch)
{
	lock_assert_held(&fetch->cache->lock);
	if (fetch->state != FETCH_STORING && fetch->state != FETCH_QUEUED)
		return false;
	fetch->users++;
	return true;
}

void fetch_answer(const struct fetch *fetch, struct waiter *waiter)
{
	size_t left = waiter->offset < fetch->size ? fetch->size - waiter->offset : 0;

	waiter->answer(waiter, 0, (const char *)fetch->buffer + (left ? waiter->offset : 0),
		       left < waiter->size ? left : waiter->size);
}

static void put_locked(struct fetch *fetch)
{
	lock_assert_held(&fetch->cache->lock);
	assert(fetch->users > 0);
	if (--fetch->users == 0)
		end_locked(fetch);
}

void fetch_put(struct fetch *fetch)
{
	struct cache *cache = fetch->cache;
	struct starts starts;

	lock_acquire(&cache->lock);
	put_locked(fetch);
	starts = start_pick_locked(cache, clock_now_ms()); /* the buffer may have made room */
	lock_release(&cache->lock);
	start_submit(cache, starts);
}

/* --- into the kernel ----------------------------------------------------------------------------
 */

/* The kernel has the bytes, or would not take them. What was not admitted only passes through. So
 * does a file of which the kernel refused a part: a store that fails may have stored some pages,
 * READs may have brought others, and a drop that was queued has been taken back for the store. */
static void stored_locked(struct fetch *fetch, int rc, uint64_t now_ms)
{
	struct cache *cache = fetch->cache;
	struct node *node = fetch->node;

	lock_assert_held(&cache->lock);
	if (!rc && !fetch->young)
		atomic_store(&node->pages.there, PAGES_WHOLE);
	unreserve_locked(fetch, rc || fetch->young ? sched_cancel : sched_commit);
	count_warm_locked(fetch, rc);
	enter_locked(fetch, FETCH_STORED);
	probe_forget_locked(cache, node);
	fetch_recount_locked(fetch);
	node->cache.fetch = NULL; /* from now on the kernel has it, or has to be given it anew */
	if (fetch->young && !node->cache.young)
		drop_locked(cache, node, now_ms);
	else if (!cache_is_resident_locked(cache, node))
		passing_add_locked(cache, node, now_ms);
	drop_excess_locked(cache, now_ms); /* the capacity may be lower than when it was reserved */
}

/* Answers those who open it: they came before it was stored, or meanwhile. */
static void finish_store(struct fetch *fetch, int rc)
{
	struct cache *cache = fetch->cache;
	uint64_t now_ns = clock_now_ns(), now_ms = now_ns / 1000000;
	struct waiter *opens;

	lock_acquire(&cache->lock);
	opens = take_everybody_locked(fetch, now_ms);
	measure_locked(cache, opens, now_ns);
	for (struct waiter *waiter = opens; waiter; waiter = waiter->next)
		fetch->node->cache.opens++;
	stored_locked(fetch, rc, now_ms);
	put_locked(fetch);
	lock_release(&cache->lock);
	waiter_answer_all(opens, 0);
}

/* Called by the page cache's thread. */
static void on_stored(struct page_store *store, int rc)
{
	struct fetch *fetch = store->context;
	struct cache *cache = fetch->cache;

	finish_store(fetch, rc);
	lock_acquire(&cache->lock);
	start_soon_locked(cache);
	lock_release(&cache->lock);
}

/* READs get their bytes at once, since storing waits for the folio locks that a READ holds. What a
 * READ brings from the beginning of the file need not be stored once more: returns how much. */
static size_t answer_reads(const struct fetch *fetch, struct waiter *reads)
{
	size_t given = 0;

	for (struct waiter *next; reads; reads = next) {
		next = reads->next;
		if (reads->offset == 0 && !reads->direct && reads->size > given)
			given = reads->size;
		fetch_answer(fetch, reads);
	}
	return given < fetch->size ? given : fetch->size;
}

/* Opens are answered when the kernel has all bytes, and need not ask for them. If somebody waits,
 * the kernel knows the file, so it is stored here; else the kernel may have to be told of it,
 * which may wait for the source: that is for the page cache's own thread. */
static void deliver(struct fetch *fetch, struct waiter *reads)
{
	struct page_cache *page_cache = fetch->cache->page_cache;
	bool queued = fetch->state == FETCH_QUEUED;
	size_t given = answer_reads(fetch, reads);

	fetch->store = (struct page_store){ .node = fetch->node,
					    .data = (char *)fetch->buffer + given,
					    .size = fetch->size - given,
					    .offset = given,
					    .done = on_stored,
					    .context = fetch };
	if (queued) {
		page_cache_store(page_cache, &fetch->store);
	} else if (given == fetch->size) {
		page_cache_keep(page_cache, fetch->node);
		finish_store(fetch, 0);
	} else {
		finish_store(fetch, page_cache_store_now(page_cache, &fetch->store));
	}
}

/* --- what comes from the store ------------------------------------------------------------------
 */

static void fail_locked(struct fetch *fetch, int rc)
{
	struct cache *cache = fetch->cache;

	lock_assert_held(&cache->lock);
	cache->stats.fetch_errors++;
	history_count_locked(cache, fetch->job, EPOCH_FETCH_ERRORS, 1);
	if (rc == -ESTALE || rc == -ENOENT) {
		cache->stats.stale_drops++;
		tree_mark_stale(cache->tree, fetch->node);
	}
	fetch_unreserve_locked(fetch);
	count_warm_locked(fetch, rc);
}

/* Ends a fetch that the store failed, or that was abandoned. */
static void fail(struct fetch *fetch, int rc)
{
	struct cache *cache = fetch->cache;
	uint64_t now_ms = clock_now_ms();
	struct waiter *waiters;

	lock_acquire(&cache->lock);
	if (fetch->state != FETCH_ABANDONED)
		fail_locked(fetch, rc);
	waiters = take_everybody_locked(fetch, now_ms);
	end_locked(fetch);
	lock_release(&cache->lock);
	waiter_answer_all(waiters, rc);
}

/* The bytes are there. `*reads`: who gets them from the buffer. False: nobody wants them any more,
 * and the fetch has ended. */
static bool succeed_locked(struct fetch *fetch, uint64_t now_ns, struct waiter **reads)
{
	struct cache *cache = fetch->cache;
	uint64_t now_ms = now_ns / 1000000;

	lock_assert_held(&cache->lock);
	if (!fetch->read.unchecked) {
		cache->stats.backend_reads++;
		cache->stats.backend_bytes += fetch->size;
		history_count_locked(cache, fetch->job, EPOCH_BACKEND_READS, 1);
		history_count_locked(cache, fetch->job, EPOCH_BACKEND_BYTES, fetch->size);
		waits_add_bytes(&cache->waits, fetch->size);
		node_set_checked_ms(fetch->node, now_ms);
	}
	if (!fetch->waiters && !is_counted_locked(fetch)) {
		count_warm_locked(fetch, -ECANCELED);
		end_locked(fetch);
		return false;
	}
	enter_locked(fetch, fetch->waiters ? FETCH_STORING : FETCH_QUEUED);
	fetch_recount_locked(fetch);
	fetch->users = 1; /* whoever stores it */
	*reads = take_locked(fetch, wants_bytes, now_ms);
	measure_locked(cache, *reads, now_ns);
	return true;
}

static void on_read(struct store_read *read, int rc)
{
	struct fetch *fetch = read->context;
	struct cache *cache = fetch->cache;
	struct waiter *reads = NULL;
	uint64_t now_ns = clock_now_ns();
	bool failed, stays = false;

	lock_acquire(&cache->lock);
	failed = rc || fetch->state == FETCH_ABANDONED;
	if (!failed)
		stays = succeed_locked(fetch, now_ns, &reads);
	lock_release(&cache->lock);
	if (failed)
		fail(fetch, rc ? rc : -ETIMEDOUT);
	else if (stays)
		deliver(fetch, reads);
	start_landed(cache, rc == -ENOMEM);
}

/* The version is still there. If somebody wants the bytes by now, they are fetched; opens that
 * only waited for the check are returned. */
static struct waiter *end_check_locked(struct fetch *fetch, uint64_t now_ms)
{
	struct waiter *retries = take_locked(fetch, waits_for_check, now_ms);

	lock_assert_held(&fetch->cache->lock);
	node_set_checked_ms(fetch->node, now_ms);
	if (fetch->waiters || fetch->reserved) {
		fetch->purpose = FETCH_READ;
		enter_locked(fetch, FETCH_WAITING);
		fetch_recount_locked(fetch);
	} else {
		count_warm_locked(fetch, -ECANCELED); /* another version came meanwhile */
		end_locked(fetch);
	}
	return retries;
}

static void on_checked(struct store_read *read, int rc)
{
	struct fetch *fetch = read->context;
	struct cache *cache = fetch->cache;
	struct node *node = fetch->node;
	struct waiter *retries = NULL;
	uint64_t now_ms = clock_now_ms();
	bool alive;

	lock_acquire(&cache->lock);
	alive = !rc && fetch->state == FETCH_CHECKING;
	if (alive) {
		node_hold(node);
		retries = end_check_locked(fetch, now_ms);
	}
	lock_release(&cache->lock);
	if (!alive)
		fail(fetch, rc ? rc : -ETIMEDOUT);
	for (struct waiter *next; retries; retries = next) {
		next = retries->next;
		cache_open(cache, node, retries);
	}
	if (alive)
		tree_release(cache->tree, node);
	/* Only now: cache_stop() waits for this and then closes what the answers went through. */
	start_landed(cache, rc == -ENOMEM);
}

/* --- into the store -----------------------------------------------------------------------------
 */

/* Whoever waits for it has counted as its use already. */
static float worth_locked(const struct fetch *fetch)
{
	lock_assert_held(&fetch->cache->lock);
	if (fetch->node->cache.slot == SLOT_NONE)
		return 0; /* its name is gone */
	return ratings_worth_locked(fetch->cache, fetch->node, !fetch->waiters, fetch->reserved);
}

/* What a tier has was right when somebody put it there: the source is not asked. That will do while
 * the tree's knowledge of the version is younger than `staleness`, so never if that is 0. */
static bool needs_source_locked(const struct fetch *fetch, uint64_t now_ms)
{
	uint64_t checked_ms = node_checked_ms(fetch->node);
	uint64_t age_ms = now_ms > checked_ms ? now_ms - checked_ms : 0;

	lock_assert_held(&fetch->cache->lock);
	return fetch->young || age_ms >= fetch->cache->options.staleness_ms;
}

/* `read` is complete but for path and buffer, so that fetch_take_late_locked() may cancel it before
 * fetch_submit() hands it over. */
void fetch_start_locked(struct fetch *fetch, uint64_t now_ms)
{
	struct cache *cache = fetch->cache;
	bool checks = fetch->purpose == FETCH_CHECK;

	lock_assert_held(&cache->lock);
	enter_locked(fetch, checks ? FETCH_CHECKING : FETCH_READING);
	fetch->young = fetch->node->cache.young;
	fetch->deadline_ms = now_ms + cache->options.deadline_ms;
	fetch->buffer_bytes = checks ? 0 : cache_memory_of(cache, fetch->node);
	budget_start(&cache->budget, fetch->buffer_bytes, now_ms);
	fetch_recount_locked(fetch);
	fetch->read = (struct store_read){ .expected = &fetch->expected,
					   .size = checks ? 0 : fetch->size,
					   .awaited = fetch->waiters,
					   .worth = worth_locked(fetch),
					   .from_source = needs_source_locked(fetch, now_ms),
					   .done = checks ? on_checked : on_read,
					   .context = fetch };
}

void fetch_submit(struct fetch *fetch)
{
	bool checks = fetch->read.done == on_checked;

	if (!fetch->path)
		fetch->path = node_path(fetch->node);
	if (!checks)
		fetch->buffer = store_buffer(fetch->size);
	fetch->read.path = fetch->path;
	fetch->read.buffer = fetch->buffer;
	if (fetch->path && (checks || fetch->buffer))
		store_read(fetch->cache->store, &fetch->read);
	else
		fetch->read.done(&fetch->read, -ENOMEM);
}

/* --- deadlines and the end ----------------------------------------------------------------------
 */

static bool store_has(const struct fetch *fetch)
{
	return fetch->state == FETCH_CHECKING || fetch->state == FETCH_READING;
}

/* A fetch has its deadline from its start; what waits for its turn is late only while nothing
 * else is started either, since all that the store has may hang. */
static bool is_late_locked(const struct fetch *fetch, uint64_t now_ms)
{
	const struct cache *cache = fetch->cache;

	lock_assert_held(&cache->lock);
	if (fetch->deadline_ms > now_ms)
		return false;
	return store_has(fetch) ||
	       (fetch->state == FETCH_WAITING &&
		cache->budget.started_ms + cache->options.deadline_ms <= now_ms);
}

struct waiter *fetch_take_late_locked(struct cache *cache, uint64_t now_ms, struct node **late)
{
	struct fetch *fetch = cache->fetches;
	struct waiter *waiters;

	lock_assert_held(&cache->lock);
	while (fetch && !is_late_locked(fetch, now_ms))
		fetch = fetch->next;
	*late = fetch ? fetch->node : NULL;
	if (!fetch)
		return NULL;
	node_hold(fetch->node);
	waiters = take_everybody_locked(fetch, now_ms);
	fail_locked(fetch, -ETIMEDOUT);
	if (!cache_is_large(cache, fetch->node))
		fetch->node->cache.late_ms = now_ms;
	if (fetch->state == FETCH_WAITING) {
		end_locked(fetch);
	} else {
		enter_locked(fetch, FETCH_ABANDONED);
		fetch_recount_locked(fetch);
		store_cancel(cache->store, &fetch->read);
	}
	return waiters;
}

struct waiter *fetch_take_all_locked(struct cache *cache, uint64_t now_ms)
{
	struct waiter *waiters = NULL;

	lock_assert_held(&cache->lock);
	for (struct fetch *fetch = cache->fetches; fetch; fetch = fetch->next) {
		waiters = waiter_join(take_everybody_locked(fetch, now_ms), waiters);
		if (store_has(fetch))
			store_cancel(cache->store, &fetch->read);
	}
	return waiters;
}
