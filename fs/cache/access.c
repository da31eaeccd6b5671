/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Accesses: what the front end reports, and what follows from it. */
#include "base/threads.h"
#include "cache/cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "cache/internal.h"

#define LATE_HOLD_MS 200
#define PASSING_OLD_MS 5000
#define STORE_MAX ((uint64_t)1 << 30) /* the kernel takes less than 4 GiB at once */

struct tree *cache_tree(struct cache *cache)
{
	return cache->tree;
}

void waiter_answer_all(struct waiter *waiters, int rc)
{
	for (struct waiter *next; waiters; waiters = next) {
		next = waiters->next;
		waiters->answer(waiters, rc, NULL, 0);
	}
}

/* --- what leaves the kernel ------------------------------------------------------------------ */

/* Too large to be fetched whole: read by ranges. Always so for one node: if some of its READs had
 * to wait for ranges and others for a fetch, storing what the fetch brought would wait for folios
 * that a range is to fill, in the thread that ends ranges. */
static bool is_large(const struct cache *cache, const struct node *node)
{
	return node->attr.size > cache->range_bytes;
}

/* What a file counts for while it passes through or leaves. What the kernel keeps of a large one
 * is its reader's, as of any file: nobody knows how much that is. */
static uint64_t charge_of(const struct cache *cache, const struct node *node)
{
	return node_is_file(node) && !is_large(cache, node) ? cache_memory_of(node) : 0;
}

static void drop_locked(struct cache *cache, struct node *node)
{
	if (page_cache_drop(cache->page_cache, node) <= 0)
		return;
	if (!cache->leaving_bytes)
		cache->dropped_ms = clock_now_ms();
	cache->leaving_bytes += charge_of(cache, node);
}

static void dropped(void *context, struct node *node)
{
	struct cache *cache = context;

	lock_acquire(&cache->lock);
	cache->dropped_ms = clock_now_ms();
	cache->leaving_bytes -= charge_of(cache, node);
	if (!cache->leaving_bytes)
		cond_wake_all(&cache->changed);
	lock_release(&cache->lock);
	fetch_start_soon(cache);
}

void cache_drop_victims_locked(struct cache *cache, const struct sched_verdict *verdict)
{
	for (uint32_t i = 0; i < verdict->victim_count; i++) {
		struct node *node = cache->nodes[verdict->victims[i]];

		/* Whoever has it open has hardly read it yet. */
		if (node && node->opens)
			cache_pass_locked(cache, node);
		else if (node)
			drop_locked(cache, node);
	}
}

/* It has been admitted meanwhile, is dropped, or gone. */
static void unpass_locked(struct cache *cache, struct node *node)
{
	if (!node->passing)
		return;
	node->passing = false;
	cache->passing_bytes -= charge_of(cache, node);
}

bool cache_is_resident_locked(const struct cache *cache, const struct node *node)
{
	return node->slot != SLOT_NONE && sched_resident(cache->sched, node->slot);
}

static void drop_passing_locked(struct cache *cache, struct node *node)
{
	if (!node->passing)
		return;
	unpass_locked(cache, node);
	if (!cache_is_resident_locked(cache, node))
		drop_locked(cache, node);
}

/* The oldest entry; it may have been dropped long ago. */
static void drop_oldest_locked(struct cache *cache)
{
	struct node *node = cache->passing[cache->passing_first];

	cache->passing_first = (cache->passing_first + 1) % PASSING_MAX;
	cache->passing_count--;
	node->in_passing = false;
	drop_passing_locked(cache, node);
	tree_release(cache->tree, node);
}

void cache_hurry_locked(struct cache *cache, uint64_t bytes)
{
	uint64_t limit = cache->options.inflight_bytes;

	while (cache->passing_count && cache->inflight_bytes + cache->passing_bytes + bytes > limit)
		drop_oldest_locked(cache);
}

void cache_drop_old_passing(struct cache *cache)
{
	uint64_t now = clock_now_ms();

	lock_acquire(&cache->lock);
	while (cache->options.observed && cache->passing_count &&
	       now > cache->passing_since[cache->passing_first] + PASSING_OLD_MS)
		drop_oldest_locked(cache);
	lock_release(&cache->lock);
}

void cache_pass_locked(struct cache *cache, struct node *node)
{
	uint32_t at;

	if (node->passing)
		return;
	if (!node->opens) {
		drop_locked(cache, node); /* closed already */
		return;
	}
	node->passing = true;
	cache->passing_bytes += charge_of(cache, node);
	if (node->in_passing)
		return;
	if (cache->passing_count == PASSING_MAX)
		drop_oldest_locked(cache);
	node_hold(node);
	node->in_passing = true;
	at = (cache->passing_first + cache->passing_count++) % PASSING_MAX;
	cache->passing[at] = node;
	cache->passing_since[at] = clock_now_ms();
}

/* --- files come and go: called by the tree --------------------------------------------------- */

/* What the policy is told: what is read by ranges fits nowhere. */
static uint64_t policy_size(const struct cache *cache, const struct node *node)
{
	return is_large(cache, node) ? UINT64_MAX : cache_memory_of(node);
}

static void set_slot_locked(struct cache *cache, struct node *node, uint32_t slot)
{
	cache->nodes[slot] = node;
	__atomic_store_n(&node->slot, slot, __ATOMIC_RELAXED);
}

static int make_slot_locked(struct cache *cache, struct node *node)
{
	if (cache->slot_count == cache->slot_room) {
		uint32_t room = cache->slot_room ? cache->slot_room + cache->slot_room / 4 + 1 : 64;
		struct node **grown = realloc(cache->nodes, room * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		cache->nodes = grown;
		cache->slot_room = room;
	}
	if (sched_grow(cache->sched, cache->slot_count + 1) ||
	    sched_size(cache->sched, cache->slot_count, policy_size(cache, node)))
		return -ENOMEM;
	set_slot_locked(cache, node, cache->slot_count++);
	return 0;
}

/* Without a slot a file is never admitted: slow, but right. */
static void file_added(void *context, struct node *node)
{
	struct cache *cache = context;

	lock_acquire(&cache->lock);
	(void)make_slot_locked(cache, node);
	lock_release(&cache->lock);
}

/* The bytes and the name of the old version are of no use to whoever opens from now on. */
static void forget_version_locked(struct cache *cache, struct node *old)
{
	bool was_resident = old->slot != SLOT_NONE && !sched_evict(cache->sched, old->slot);

	cache->stats.stale_drops += was_resident;
	if (was_resident || old->passing || old->lookups) {
		unpass_locked(cache, old);
		drop_locked(cache, old);
	}
	if (old->fetch && old->fetch->admitted && old->slot != SLOT_NONE) {
		old->fetch->admitted = false;
		(void)sched_cancel(cache->sched, old->slot);
	}
}

/* A new version of a known name keeps its slot. */
static void file_replaced(void *context, struct node *old, struct node *fresh)
{
	struct cache *cache = context;

	lock_acquire(&cache->lock);
	forget_version_locked(cache, old);
	if (old->slot != SLOT_NONE) {
		set_slot_locked(cache, fresh, old->slot);
		(void)sched_size(cache->sched, old->slot, policy_size(cache, fresh));
	}
	__atomic_store_n(&old->slot, SLOT_NONE, __ATOMIC_RELAXED);
	lock_release(&cache->lock);
}

static void file_removed(void *context, struct node *node)
{
	struct cache *cache = context;

	lock_acquire(&cache->lock);
	forget_version_locked(cache, node);
	if (node->slot != SLOT_NONE) {
		(void)sched_remove(cache->sched, node->slot);
		cache->nodes[node->slot] = NULL;
	}
	__atomic_store_n(&node->slot, SLOT_NONE, __ATOMIC_RELAXED);
	lock_release(&cache->lock);
}

/* What the kernel remembers of it, its listing too, holds no more. */
static void dir_changed(void *context, struct node *dir)
{
	struct cache *cache = context;

	(void)page_cache_drop(cache->page_cache, dir);
}

static const struct tree_events tree_events = { file_added, file_replaced, file_removed,
						dir_changed };

/* --- accesses ------------------------------------------------------------------------------------
 */

/* How long ago the source was asked about the node; another thread may just have done it. */
static uint64_t age_ms(const struct node *node)
{
	uint64_t now = clock_now_ms(), then = __atomic_load_n(&node->checked_ms, __ATOMIC_RELAXED);

	return now > then ? now - then : 0;
}

/* Has the source asked whether the node, which has no other fetch, is still what it has. The
 * waiter, if there is one, is tried again when the answer is there. 1, or a negative errno. */
static int check_locked(struct cache *cache, struct node *node, struct waiter *waiter)
{
	struct fetch *fetch = fetch_get_locked(cache, node);

	if (!fetch)
		return fetch_error(node);
	fetch->checking = true;
	if (waiter) {
		waiter->retries = true;
		waiter->next = fetch->waiters;
		fetch->waiters = waiter;
	}
	return 1;
}

/* Asks the policy, and lets those leave whom it named. */
static int access_locked(struct cache *cache, struct node *node, enum sched_action *action)
{
	struct sched_verdict verdict;
	int rc = sched_access(cache->sched, SCHED_JOB_ANY, node->slot, policy_size(cache, node),
			      &verdict);

	if (rc)
		return rc;
	cache_drop_victims_locked(cache, &verdict);
	cache_trace_locked(cache, node, verdict.action);
	*action = verdict.action;
	return 0;
}

/* True: the verdict over a sample needs no fetch, and is carried out. */
static bool settle_verdict_locked(struct cache *cache, struct node *node, enum sched_action action)
{
	bool there = !node->attr.size || node->passing; /* the kernel has the bytes */

	if (action == SCHED_ADMIT && node->fetch && !node->fetch->abandoned) {
		node->fetch->admitted = true;
		return false;
	}
	if (action == SCHED_ADMIT && there) {
		unpass_locked(cache, node);
		(void)sched_commit(cache->sched, node->slot);
	}
	return there || action == SCHED_HIT;
}

/* Decides over an open. 0: answer now; 1: it waits; or a negative errno. */
static int open_locked(struct cache *cache, struct node *node, struct waiter *waiter)
{
	enum sched_action action;
	struct fetch *fetch;
	int rc;

	if (node->slot == SLOT_NONE) {
		cache->stats.slotless_opens++;
		return 0;
	}
	rc = access_locked(cache, node, &action);
	if (rc)
		return rc;
	if (is_large(cache, node) || settle_verdict_locked(cache, node, action))
		return 0;
	fetch = fetch_get_locked(cache, node);
	if (!fetch) {
		if (action == SCHED_ADMIT)
			(void)sched_cancel(cache->sched, node->slot);
		return fetch_error(node);
	}
	if (action == SCHED_ADMIT)
		fetch->admitted = true;
	/* It may have to wait for others to be stored; READs are answered from the buffer. */
	if (fetch->state == FETCH_READY && fetch->queued)
		return 0;
	waiter->next = fetch->waiters;
	fetch->waiters = waiter;
	return 1;
}

/* What is too old waits until the source was asked. What is half as old is asked about, too,
 * but nobody waits: so what is in use never gets too old. */
static int open_checked_locked(struct cache *cache, struct node *node, struct waiter *waiter)
{
	uint64_t age = age_ms(node), limit = cache->options.staleness_ms;
	int rc;

	if (cache->stopping)
		return -ESHUTDOWN;
	if (age > limit && (!node->fetch || node->fetch->checking || node->fetch->abandoned))
		return check_locked(cache, node, waiter);
	rc = open_locked(cache, node, waiter);
	if (!rc && age > limit / 2 && !node->fetch)
		(void)check_locked(cache, node, NULL);
	return rc;
}

void cache_open(struct cache *cache, struct node *node, struct waiter *waiter)
{
	int rc = -ESTALE;

	waiter->retries = false;
	if (!atomic_load(&node->stale)) {
		lock_acquire(&cache->lock);
		rc = open_checked_locked(cache, node, waiter);
		if (!rc)
			node->opens++;
		lock_release(&cache->lock);
	}
	if (rc <= 0)
		waiter->answer(waiter, rc, NULL, 0);
	/* Also after a hit: it may have made room to fetch ahead. */
	fetch_start_all(cache);
}

/* --- accesses that are observed ----------------------------------------------------------------
 */

static struct node *observed_locked(struct cache *cache, const struct node *node, uint32_t slot)
{
	return slot < cache->slot_count && cache->nodes[slot] == node ? cache->nodes[slot] : NULL;
}

/* Every open is an access once: when it is seen, or before that, when its READ arrives. The
 * bytes of one that is admitted are fetched at once; its READ will wait for them. */
static void saw_open_locked(struct cache *cache, struct node *node)
{
	enum sched_action action;

	node->opens += !node->early;
	node->early = false;
	if (node->counted) {
		node->counted = false;
	} else if (!access_locked(cache, node, &action) && !is_large(cache, node) &&
		   !settle_verdict_locked(cache, node, action) && action == SCHED_ADMIT) {
		struct fetch *fetch = fetch_get_locked(cache, node);

		if (fetch)
			fetch->admitted = true;
		else
			(void)sched_cancel(cache->sched, node->slot);
	}
}

void cache_saw_open(struct cache *cache, const struct node *node, uint32_t slot)
{
	struct node *found;

	lock_acquire(&cache->lock);
	found = observed_locked(cache, node, slot);
	if (found && !cache->stopping)
		saw_open_locked(cache, found);
	lock_release(&cache->lock);
	fetch_start_all(cache);
}

void cache_saw_close(struct cache *cache, const struct node *node, uint32_t slot)
{
	struct node *found;

	lock_acquire(&cache->lock);
	found = observed_locked(cache, node, slot);
	if (found && !cache->stopping) {
		found->opens -= found->opens > 0;
		if (!found->opens)
			drop_passing_locked(cache, found);
	}
	lock_release(&cache->lock);
}

void cache_set_observed(struct cache *cache, bool observed)
{
	lock_acquire(&cache->lock);
	cache->options.observed = observed;
	lock_release(&cache->lock);
}

/* The kernel asks again at once after an error, for smaller parts: not another deadline each. */
static bool is_late_locked(const struct cache *cache, const struct node *node)
{
	return cache->options.observed && node->late_ms &&
	       clock_now_ms() - node->late_ms < LATE_HOLD_MS;
}

/* The kernel asks for bytes. It would not if it had them, so if the sample counts as
 * resident, they were reclaimed. */
static int read_locked(struct cache *cache, struct node *node, struct waiter *waiter,
		       struct fetch **ready)
{
	bool is_new = !node->fetch;
	enum sched_action action;
	struct fetch *fetch;

	if (cache->stopping)
		return -ESHUTDOWN;
	if (is_late_locked(cache, node))
		return -ETIMEDOUT;
	fetch = fetch_get_locked(cache, node);
	if (!fetch)
		return fetch_error(node);
	if (is_new && cache_is_resident_locked(cache, node)) {
		fetch->restoring = true;
		cache->stats.reclaimed++;
	} else if (is_new && cache->options.observed && !node->opens) {
		/* Its open was not seen yet. */
		node->counted = !access_locked(cache, node, &action);
		fetch->admitted |= node->counted && action == SCHED_ADMIT;
	}
	if (cache->options.observed && !node->opens)
		node->opens = node->early = true;
	if (fetch->state == FETCH_READY) {
		fetch->users++;
		*ready = fetch;
		return 0;
	}
	waiter->next = fetch->waiters;
	fetch->waiters = waiter;
	return 1;
}

void cache_read(struct cache *cache, struct node *node, struct waiter *waiter)
{
	struct fetch *ready = NULL;
	int rc;

	if (is_large(cache, node)) {
		range_read(cache, node, waiter);
		return;
	}
	lock_acquire(&cache->lock);
	rc = read_locked(cache, node, waiter, &ready);
	lock_release(&cache->lock);
	if (rc < 0) {
		waiter->answer(waiter, rc, NULL, 0);
	} else if (rc > 0) {
		fetch_start_all(cache);
	} else {
		fetch_answer(ready, waiter);
		lock_acquire(&cache->lock);
		fetch_put_locked(ready);
		lock_release(&cache->lock);
		fetch_start_all(cache); /* the buffer may have been what others wait for */
	}
}

void cache_release(struct cache *cache, struct node *node)
{
	lock_acquire(&cache->lock);
	node->opens--;
	if (!node->opens)
		drop_passing_locked(cache, node);
	lock_release(&cache->lock);
}

static void forgotten(void *context, struct node *node)
{
	struct cache *cache = context;

	if (!node_is_file(node))
		return;
	lock_acquire(&cache->lock);
	unpass_locked(cache, node);
	if (node->slot != SLOT_NONE && node->attr.size && !sched_evict(cache->sched, node->slot))
		cache->stats.reclaimed++;
	lock_release(&cache->lock);
}

void cache_forget(struct cache *cache, struct node *node, uint64_t count)
{
	tree_forget(cache->tree, node, count, forgotten, cache);
}

struct waiter *cache_take_waiter(struct cache *cache,
				 bool (*is)(const struct waiter *waiter, void *context),
				 void *context)
{
	struct waiter *found;

	lock_acquire(&cache->lock);
	found = range_take_waiter_locked(cache, is, context);
	for (struct fetch *fetch = cache->fetches; fetch && !found; fetch = fetch->next)
		for (struct waiter **at = &fetch->waiters; *at; at = &(*at)->next)
			if (is(*at, context)) {
				found = *at;
				*at = found->next;
				break;
			}
	lock_release(&cache->lock);
	return found;
}

/* --- begin and end
 * ---------------------------------------------------------------------------------- */

int cache_create(struct cache **out, struct store *store, const struct cache_options *options)
{
	struct cache *cache = calloc(1, sizeof(*cache));
	int rc;

	if (!cache)
		return -ENOMEM;
	cache->options = *options;
	cache->store = store;
	cache->range_bytes = options->capacity_bytes / 8;
	if (cache->range_bytes > options->inflight_bytes / 2)
		cache->range_bytes = options->inflight_bytes / 2;
	if (cache->range_bytes > STORE_MAX)
		cache->range_bytes = STORE_MAX;
	lock_init(&cache->lock, LOCK_CACHE);
	cond_init(&cache->changed);
	rc = sched_create(&cache->sched, options->capacity_bytes - options->inflight_bytes,
			  options->policy);
	if (!rc)
		rc = tree_open(&cache->tree, store, options->staleness_ms, &tree_events, cache);
	if (rc) {
		sched_destroy(cache->sched);
		free(cache);
		return rc;
	}
	*out = cache;
	return 0;
}

int cache_start(struct cache *cache, const struct page_cache_kernel *kernel, void *context)
{
	int rc = page_cache_open(&cache->page_cache, cache->tree, kernel, context, dropped, cache);

	if (rc)
		return rc;
	rc = thread_start(&cache->clock, "shade-clock", cache_clock, cache);
	if (rc) {
		page_cache_stop(cache->page_cache);
		page_cache_close(cache->page_cache);
	}
	return rc;
}

void cache_stop(struct cache *cache)
{
	struct waiter *waiters;

	lock_acquire(&cache->lock);
	cache->stopping = true;
	waiters = range_take_late_locked(cache, UINT64_MAX);
	for (struct fetch *fetch = cache->fetches; fetch; fetch = fetch->next) {
		struct waiter **end = &fetch->waiters;

		while (*end)
			end = &(*end)->next;
		*end = waiters;
		waiters = fetch->waiters;
		fetch->waiters = NULL;
		if (fetch->state == FETCH_RUNNING)
			store_cancel(cache->store, &fetch->read);
	}
	cond_wake_all(&cache->changed);
	lock_release(&cache->lock);
	waiter_answer_all(waiters, -ESHUTDOWN);
	thread_join(&cache->clock);
	lock_acquire(&cache->lock);
	while (cache->running)
		cond_wait(&cache->changed, &cache->lock);
	lock_release(&cache->lock);
	page_cache_stop(cache->page_cache);
}

void cache_destroy(struct cache *cache)
{
	page_cache_close(cache->page_cache);
	for (struct fetch *next, *fetch = cache->fetches; fetch; fetch = next) {
		next = fetch->next;
		free(fetch->buffer);
		free(fetch->path);
		free(fetch);
	}
	while (cache->passing_count--)
		tree_release(cache->tree, cache->passing[cache->passing_first++ % PASSING_MAX]);
	tree_close(cache->tree);
	sched_destroy(cache->sched);
	free(cache->nodes);
	free(cache->numbering);
	free(cache->ids);
	free(cache->warm_queue);
	free(cache->trace);
	lock_destroy(&cache->lock);
	cond_destroy(&cache->changed);
	free(cache);
}
