/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Files that are too large to be fetched whole: each READ is a read of the source.
 *
 * Ranges leave half of the store and two thirds of the budget to whole files, so that neither can
 * starve the other, and one large file that hangs leaves room for the next. What does not fit
 * waits in a queue of its file, and files take turns: however many READs of one file wait, the next
 * one is found in as many steps as the store has ranges.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/threads.h"
#include "cache/internal.h"

#define OF_ONE_FILE 8 /* reads at a time */

/* The ranges of one file; it exists as long as there is one. All fields: cache lock. */
struct range_file {
	struct range_file *next, **before; /* in cache->ranges.files, if some wait */
	struct range *waiting, **end;
	unsigned count;	  /* of all */
	unsigned started; /* the store has so many, */
	uint64_t bytes;	  /* of so many bytes, */
	unsigned late;	  /* and so many more that it was asked to give up */
};

struct range {
	struct range *next, **before; /* cache lock: in cache->ranges.started, or in its file */
	struct cache *cache;
	struct node *node; /* held */
	uint32_t job;	   /* whose it is */
	struct range_file *file;
	struct waiter *waiter; /* cache lock; NULL: it has its answer */
	bool started;	       /* cache lock: the store has it */
	bool late;	       /* cache lock: the store was asked to give it up */
	bool spare;	       /* it began in the spare third of the budget */
	uint64_t deadline_ms;
	struct store_read read;
	struct store_attr expected;
	char *path;
	struct range *next_start; /* between range_pick_locked() and range_submit_all() */
};

/* --- queues -------------------------------------------------------------------------------------
 */

static void unlink_locked(struct range *range)
{
	lock_assert_held(&range->cache->lock);
	*range->before = range->next;
	if (range->next)
		range->next->before = range->before;
}

/* A file that has something waiting comes after all others that have. */
static void queue_file_locked(struct cache *cache, struct range_file *file)
{
	struct ranges *ranges = &cache->ranges;

	lock_assert_held(&cache->lock);
	file->next = NULL;
	file->before = ranges->files_end;
	*ranges->files_end = file;
	ranges->files_end = &file->next;
}

static void unqueue_file_locked(struct cache *cache, struct range_file *file)
{
	lock_assert_held(&cache->lock);
	*file->before = file->next;
	if (file->next)
		file->next->before = file->before;
	else
		cache->ranges.files_end = file->before;
}

/* The range gets its file, a new one if the node has none. 0 or -ENOMEM. */
static int join_file_locked(struct range *range)
{
	struct range_file **file = &range->node->cache.ranges;

	lock_assert_held(&range->cache->lock);
	assert(cache_is_large(range->cache, range->node));
	if (!*file) {
		*file = calloc(1, sizeof(**file));
		if (!*file)
			return -ENOMEM;
		(*file)->end = &(*file)->waiting;
	}
	range->file = *file;
	range->file->count++;
	return 0;
}

static void leave_file_locked(struct range *range)
{
	struct range_file *file = range->file;

	lock_assert_held(&range->cache->lock);
	if (--file->count)
		return;
	range->node->cache.ranges = NULL;
	free(file);
}

static void add_waiting_locked(struct range *range)
{
	struct range_file *file = range->file;

	lock_assert_held(&range->cache->lock);
	if (!file->waiting)
		queue_file_locked(range->cache, file);
	range->next = NULL;
	range->before = file->end;
	*file->end = range;
	file->end = &range->next;
}

static void remove_waiting_locked(struct range *range)
{
	struct range_file *file = range->file;

	lock_assert_held(&range->cache->lock);
	if (file->end == &range->next)
		file->end = range->before;
	unlink_locked(range);
	if (!file->waiting)
		unqueue_file_locked(range->cache, file);
}

static void add_started_locked(struct range *range)
{
	struct range **first = &range->cache->ranges.started;

	lock_assert_held(&range->cache->lock);
	range->next = *first;
	range->before = first;
	if (*first)
		(*first)->before = &range->next;
	*first = range;
	range->started = true;
	range->file->started++;
	range->file->bytes += range->read.size;
}

/* From now on it is none of those that count. */
static void uncount_started_locked(struct range *range)
{
	lock_assert_held(&range->cache->lock);
	range->file->started--;
	range->file->bytes -= range->read.size;
	range->cache->ranges.live--;
	range->cache->ranges.live_bytes -= range->read.size;
}

/* --- ends ---------------------------------------------------------------------------------------
 */

static void end_locked(struct range *range, int rc, uint64_t now_ms)
{
	struct cache *cache = range->cache;

	lock_assert_held(&range->cache->lock);
	unlink_locked(range);
	if (range->late)
		range->file->late--;
	else
		uncount_started_locked(range);
	leave_file_locked(range);
	cache->ranges.running--;
	cache->ranges.bytes -= range->read.size;
	budget_free_buffer(&cache->budget, range->read.size);
	cache->budget.spare_running -= range->spare;
	cache->stats.backend_reads++;
	cache->stats.backend_bytes += range->read.got;
	cache->stats.fetch_errors += rc != 0;
	history_count_locked(cache, range->job, EPOCH_BACKEND_READS, 1);
	history_count_locked(cache, range->job, EPOCH_BACKEND_BYTES, range->read.got);
	history_count_locked(cache, range->job, EPOCH_FETCH_ERRORS, rc != 0);
	if (rc == -ESTALE)
		tree_mark_stale(cache->tree, range->node);
	if (!rc)
		passing_add_locked(cache, range->node, now_ms);
}

static struct waiter *take_waiter_locked(struct range *range, uint64_t now_ms)
{
	struct waiter *waiter = range->waiter;

	lock_assert_held(&range->cache->lock);
	range->waiter = NULL;
	if (waiter) {
		waiter_end_locked(range->cache, waiter, now_ms);
		waiter->next = NULL;
	}
	return waiter;
}

/* In no list. */
static void discard(struct range *range)
{
	tree_release(range->cache->tree, range->node);
	free(range->read.buffer);
	free(range->path);
	free(range);
}

static void range_done(struct store_read *read, int rc)
{
	struct range *range = read->context;
	struct cache *cache = range->cache;
	uint64_t now_ms = clock_now_ms();
	struct waiter *waiter;

	lock_acquire(&cache->lock);
	waits_add_bytes(&cache->waits, rc ? 0 : read->got);
	waiter = take_waiter_locked(range, now_ms);
	lock_release(&cache->lock);
	if (waiter)
		waiter->answer(waiter, rc, read->buffer, rc ? 0 : read->got);
	lock_acquire(&cache->lock);
	end_locked(range, rc, clock_now_ms());
	lock_release(&cache->lock);
	discard(range);
	start_landed(cache, rc == -ENOMEM);
}

static struct range *range_new(struct cache *cache, struct node *node, struct waiter *waiter,
			       uint64_t now_ms)
{
	uint64_t left = waiter->offset < node->attr.size ? node->attr.size - waiter->offset : 0;
	struct range *range = calloc(1, sizeof(*range));
	char *path = node_path(node);

	if (!range || !path) {
		free(range);
		free(path);
		return NULL;
	}
	*range = (struct range){ .cache = cache,
				 .node = node,
				 .waiter = waiter,
				 .deadline_ms = now_ms + cache->options.deadline_ms,
				 .expected = node->attr,
				 .path = path };
	range->read = (struct store_read){ .path = path,
					   .expected = &range->expected,
					   .offset = waiter->offset,
					   .size = waiter->size < left ? waiter->size : left,
					   .from_source = true,
					   .done = range_done,
					   .context = range };
	node_hold(node);
	return range;
}

/* --- starts -------------------------------------------------------------------------------------
 */

/* Ranges leave half of the store and two thirds of the budget to whole files. What the store was
 * asked to give up does not count: it may never end. One range is always possible, however large
 * the READ is. */
static bool is_within_share_locked(const struct cache *cache, uint64_t size)
{
	const struct ranges *ranges = &cache->ranges;

	lock_assert_held(&cache->lock);
	return !ranges->live || (ranges->live < cache->budget.depth / 2 &&
				 ranges->live_bytes + size <= cache->budget.limit_bytes / 3);
}

/* One file leaves half of that to others. */
static bool is_within_files_share_locked(const struct cache *cache, const struct range_file *file,
					 uint64_t size)
{
	lock_assert_held(&cache->lock);
	return !cache->ranges.live || !file->started ||
	       (file->started < OF_ONE_FILE && file->started < cache->budget.depth / 4 &&
		file->bytes + size <= cache->budget.limit_bytes / 6);
}

static bool may_start_locked(struct cache *cache, struct range *range, uint64_t now_ms)
{
	struct need need = { .bytes = range->read.size };

	lock_assert_held(&cache->lock);
	if (start_has_room_locked(cache, need, now_ms))
		return true;
	range->spare = start_use_spare_locked(cache, need, now_ms);
	/* A READ may be larger than all that a tiny `inflight` allows. */
	return range->spare ||
	       (!budget_used(&cache->budget) && cache->budget.running < cache->budget.depth);
}

static void start_locked(struct range *range, uint64_t now_ms)
{
	struct cache *cache = range->cache;

	lock_assert_held(&cache->lock);
	remove_waiting_locked(range);
	add_started_locked(range);
	range->deadline_ms = now_ms + cache->options.deadline_ms;
	cache->ranges.live++;
	cache->ranges.live_bytes += range->read.size;
	cache->ranges.running++;
	cache->ranges.bytes += range->read.size;
	budget_start(&cache->budget, range->read.size, now_ms);
}

/* The first that may start, of the first file that may have one more. That file goes to the end.
 * Files that may not have something started, so they are not many. */
static struct range *next_locked(struct cache *cache, uint64_t now_ms)
{
	lock_assert_held(&cache->lock);
	for (struct range_file *file = cache->ranges.files; file; file = file->next) {
		struct range *range = file->waiting;

		if (!is_within_share_locked(cache, range->read.size))
			return NULL;
		if (!is_within_files_share_locked(cache, file, range->read.size))
			continue;
		if (!may_start_locked(cache, range, now_ms))
			return NULL;
		unqueue_file_locked(cache, file);
		queue_file_locked(cache, file);
		return range;
	}
	return NULL;
}

struct range *range_pick_locked(struct cache *cache, uint64_t now_ms)
{
	struct range *first = NULL, **end = &first, *range;

	lock_assert_held(&cache->lock);
	while ((range = next_locked(cache, now_ms))) {
		start_locked(range, now_ms);
		range->next_start = NULL;
		*end = range;
		end = &range->next_start;
	}
	return first;
}

void range_submit_all(struct range *ranges)
{
	for (struct range *next, *range = ranges; range; range = next) {
		next = range->next_start;
		range->read.buffer = store_buffer(range->read.size);
		if (range->read.buffer)
			store_read(range->cache->store, &range->read);
		else
			range_done(&range->read, -ENOMEM);
	}
}

/* What was given up and has not ended would not fare better a second time. */
static int enter_locked(struct range *range, uint64_t now_ms)
{
	struct cache *cache = range->cache;

	lock_assert_held(&cache->lock);
	if (cache->stopping)
		return -ESHUTDOWN;
	if (range->node->cache.ranges && range->node->cache.ranges->late)
		return -ETIMEDOUT;
	if (join_file_locked(range))
		return -ENOMEM;
	add_waiting_locked(range);
	range->waiter->range = range;
	waiter_begin_locked(cache, range->waiter, range->waiter->job, now_ms);
	range->job = range->waiter->counts_for;
	return 0;
}

void range_read(struct cache *cache, struct node *node, struct waiter *waiter, uint64_t now_ms)
{
	struct range *range = range_new(cache, node, waiter, now_ms);
	struct starts starts = { 0 };
	int rc = -ENOMEM;

	if (range) {
		lock_acquire(&cache->lock);
		rc = enter_locked(range, now_ms);
		if (!rc)
			starts = start_pick_locked(cache, now_ms);
		lock_release(&cache->lock);
	}
	start_submit(cache, starts);
	if (!rc)
		return;
	waiter->answer(waiter, rc, NULL, 0);
	if (range)
		discard(range);
}

/* Its reader may have been interrupted, and then nobody waits. */
static struct waiter *give_up_locked(struct range *range, uint64_t now_ms, struct waiter *waiters)
{
	lock_assert_held(&range->cache->lock);
	uncount_started_locked(range);
	range->late = true;
	range->file->late++;
	store_cancel(range->cache->store, &range->read);
	return waiter_join(take_waiter_locked(range, now_ms), waiters);
}

/* It is not started any more. */
static struct waiter *take_back_locked(struct range *range, uint64_t now_ms)
{
	struct waiter *waiter = take_waiter_locked(range, now_ms);

	lock_assert_held(&range->cache->lock);
	remove_waiting_locked(range);
	leave_file_locked(range);
	discard(range);
	return waiter;
}

/* Those of a file that may wait until `until_ms` at most, which are the first: all wait equally
 * long. */
static struct waiter *take_file_locked(struct cache *cache, struct range_file *file,
				       uint64_t until_ms, uint64_t now_ms, struct waiter *waiters)
{
	lock_assert_held(&cache->lock);
	for (struct range *next, *range = file->waiting; range && range->deadline_ms <= until_ms;
	     range = next) {
		next = range->next;
		waiters = waiter_join(take_back_locked(range, now_ms), waiters);
	}
	return waiters;
}

/* Those who may wait until `until_ms` at most. What waits for its turn is late only while nothing
 * moves. */
static struct waiter *take_until_locked(struct cache *cache, uint64_t until_ms, uint64_t now_ms)
{
	bool stuck = cache->budget.started_ms + cache->options.deadline_ms <= until_ms;
	struct waiter *waiters = NULL;

	lock_assert_held(&cache->lock);
	for (struct range *range = cache->ranges.started; range; range = range->next)
		if (range->deadline_ms <= until_ms && !range->late)
			waiters = give_up_locked(range, now_ms, waiters);
	for (struct range_file *next, *file = cache->ranges.files; file && stuck; file = next) {
		next = file->next;
		waiters = take_file_locked(cache, file, until_ms, now_ms, waiters);
	}
	return waiters;
}

struct waiter *range_take_late_locked(struct cache *cache, uint64_t now_ms)
{
	lock_assert_held(&cache->lock);
	return take_until_locked(cache, now_ms, now_ms);
}

struct waiter *range_take_all_locked(struct cache *cache, uint64_t now_ms)
{
	lock_assert_held(&cache->lock);
	return take_until_locked(cache, UINT64_MAX, now_ms);
}

void range_take_waiter_locked(struct cache *cache, struct waiter *waiter, uint64_t now_ms)
{
	struct range *range = waiter->range;

	lock_assert_held(&cache->lock);
	assert(range->waiter == waiter);
	if (range->started)
		(void)take_waiter_locked(range, now_ms);
	else
		(void)take_back_locked(range, now_ms);
}
