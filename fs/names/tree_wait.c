/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who reads directories, and who waits for that. A directory has one reading at a time, in a state
 * of its own:
 *
 *	state		event				next state
 *	-----		-----				----------
 *	(none)		a directory is unknown or old	QUEUED
 *	QUEUED		a reader is free		RUNNING
 *	RUNNING		the source has told everything,	OVER
 *			or there was an error
 *	QUEUED		the tree ends			OVER
 *
 * A reading that is QUEUED or RUNNING is late when the source has not answered for a deadline.
 * Those who wait for it then take what is known, but the reading goes on, since nothing ends a call
 * of the source that hangs. It keeps its reader's thread, and only that.
 *
 * A request waits as a struct tree_wait in the list of its reading and holds no thread. The reader
 * calls its ready() when the reading is over, or the cache's clock when it is late. The scan and
 * commands of .shade have threads of their own, and wait on a condition.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/threads.h"
#include "names/tree_internal.h"

/* --- readings -----------------------------------------------------------------------------------
 */

/* Nodes are aligned. */
static uint64_t key_of(const struct node *dir, bool attr_only)
{
	return (uintptr_t)dir | attr_only;
}

static struct reading *find_locked(struct tree *tree, const struct node *dir, bool attr_only)
{
	struct reading *reading =
		(struct reading *)keyed_find(&tree->reading_of, key_of(dir, attr_only));

	lock_assert_held(&tree->lock);
	assert(attr_only || !reading == !dir->dir.reading);
	return reading;
}

/* Those that a reader has begun come first, and are as many as there are readers at most. */
static struct reading *find_queued_locked(const struct tree *tree)
{
	struct reading *reading = tree->readings;

	lock_assert_held(&tree->lock);
	while (reading && reading->state != READING_QUEUED)
		reading = reading->next;
	return reading;
}

static uint64_t late_ms(const struct tree *tree, const struct reading *reading)
{
	return atomic_load(&reading->progress_ms) + tree->options.deadline_ms;
}

static void put_locked(const struct tree *tree, struct reading *reading)
{
	lock_assert_held(&tree->lock);
	if (--reading->users == 0)
		free(reading);
}

static void remove_wait_locked(const struct tree *tree, struct tree_wait *wait)
{
	lock_assert_held(&tree->lock);
	*wait->before = wait->next;
	if (wait->next)
		wait->next->before = wait->before;
	keyed_remove(&wait->keyed);
}

/* Those who wait for a reading, with what they are told, in front of `others`. */
static struct tree_wait *take_waits_locked(const struct tree *tree, struct reading *reading, int rc,
					   struct tree_wait *others)
{
	lock_assert_held(&tree->lock);
	while (reading->waits) {
		struct tree_wait *wait = reading->waits;

		remove_wait_locked(tree, wait);
		wait->rc = rc;
		wait->next = others;
		others = wait;
	}
	return others;
}

static void answer_all(struct tree_wait *waits)
{
	for (struct tree_wait *next; waits; waits = next) {
		next = waits->next;
		waits->ready(waits, waits->rc);
	}
}

/* The caller calls answer_all(). */
static struct tree_wait *end_locked(struct tree *tree, struct reading *reading, int rc)
{
	struct tree_wait *waits = take_waits_locked(tree, reading, rc, NULL);

	lock_assert_held(&tree->lock);
	*reading->before = reading->next;
	if (reading->next)
		reading->next->before = reading->before;
	else
		tree->readings_end = reading->before;
	keyed_remove(&reading->keyed);
	tree->queued -= reading->state == READING_QUEUED;
	reading->state = READING_OVER;
	reading->rc = rc;
	if (!reading->attr_only)
		reading->dir->dir.reading = false;
	tree_release(tree, reading->dir);
	put_locked(tree, reading);
	cond_wake_all(&tree->read);
	return waits;
}

/* --- readers ------------------------------------------------------------------------------------
 */

static int read_one_locked(struct tree *tree, struct reading *reading)
{
	char *path;
	int rc;

	lock_assert_held(&tree->lock);
	if (!reading->attr_only)
		return tree_read_dir_locked(tree, reading);
	lock_release(&tree->lock);
	path = node_path(reading->dir);
	rc = path ? store_stat(tree->store, path, &reading->attr) : -ENOMEM;
	free(path);
	lock_acquire(&tree->lock);
	return rc;
}

static void read_dirs(void *argument)
{
	struct tree *tree = argument;

	lock_acquire(&tree->lock);
	while (!tree->stopping) {
		struct reading *reading = find_queued_locked(tree);
		struct tree_wait *waits;

		if (!reading) {
			tree->idle++;
			cond_wait(&tree->wanted, &tree->lock);
			tree->idle--;
			continue;
		}
		reading->state = READING_RUNNING;
		tree->queued--;
		waits = end_locked(tree, reading, read_one_locked(tree, reading));
		tree->answering++;
		lock_release(&tree->lock);
		answer_all(waits);
		lock_acquire(&tree->lock);
		tree->answering--;
		if (tree->stopping)
			cond_wake_all(&tree->read);
	}
	lock_release(&tree->lock);
}

/* Whether a reading that is queued now would have to wait for others. */
static bool are_all_busy_locked(const struct tree *tree)
{
	lock_assert_held(&tree->lock);
	return tree->reader_count == tree->options.readers && tree->queued >= tree->idle;
}

static void want_reader_locked(struct tree *tree)
{
	lock_assert_held(&tree->lock);
	if (tree->queued > tree->idle && tree->reader_count < tree->options.readers &&
	    !thread_start(&tree->readers[tree->reader_count], "shade-dirs", read_dirs, tree))
		tree->reader_count++;
	cond_wake_one(&tree->wanted);
}

/* The reading of a directory, a new one if it has none. NULL: no memory. */
static struct reading *begin_locked(struct tree *tree, struct node *dir, bool attr_only,
				    uint64_t now_ms)
{
	struct reading *reading = find_locked(tree, dir, attr_only);

	lock_assert_held(&tree->lock);
	if (reading)
		return reading;
	reading = calloc(1, sizeof(*reading));
	if (!reading)
		return NULL;
	reading->dir = dir;
	reading->attr_only = attr_only;
	reading->began_ms = now_ms;
	atomic_store(&reading->progress_ms, now_ms);
	reading->users = 1;
	node_hold(dir);
	if (!attr_only)
		dir->dir.reading = true;
	reading->before = tree->readings_end;
	*tree->readings_end = reading;
	tree->readings_end = &reading->next;
	tree->queued++;
	keyed_add(&tree->reading_of, &reading->keyed, key_of(dir, attr_only));
	want_reader_locked(tree);
	return reading;
}

/* --- waiting ------------------------------------------------------------------------------------
 */

/* What is answered without waiting for the directory any longer. */
static int known_rc(const struct node *dir)
{
	return dir->dir.children ? 0 : -ETIMEDOUT;
}

/* A file that is written in place does not change its directory: what is old is read again, whether
 * or not the directory has changed. */
int tree_check_dir_locked(const struct tree *tree, const struct node *dir, uint64_t now_ms,
			  bool fresh)
{
	uint64_t staleness_ms = tree->options.staleness_ms;

	lock_assert_held(&tree->lock);
	if (!node_is_dir(dir))
		return -ENOTDIR;
	if (dir->detached)
		return -ENOENT;
	if (!fresh)
		return known_rc(dir);
	if (!dir->dir.children || tree_is_older(dir, now_ms, staleness_ms))
		return -EAGAIN;
	return !dir->dir.reading && tree_is_older(dir, now_ms, staleness_ms / 2) ? -EAGAIN : 0;
}

/* 0: what is known of the directory is the answer; 1: it comes from `*out`; or a negative errno. */
static int begin_waiting_locked(struct tree *tree, struct node *dir, uint64_t now_ms,
				struct reading **out)
{
	int rc = tree_check_dir_locked(tree, dir, now_ms, true);
	struct reading *reading;

	lock_assert_held(&tree->lock);
	if (rc != -EAGAIN)
		return rc;
	if (tree->stopping)
		return -ESHUTDOWN;
	reading = begin_locked(tree, dir, false, now_ms);
	if (!reading)
		return -ENOMEM;
	/* Half as old as it may be: nobody waits. */
	if (dir->dir.children && !tree_is_older(dir, now_ms, tree->options.staleness_ms))
		return 0;
	if (late_ms(tree, reading) <= now_ms)
		return known_rc(dir);
	*out = reading;
	return 1;
}

int tree_await(struct tree *tree, struct node *dir, uint64_t now_ms, struct tree_wait *wait)
{
	struct reading *reading;
	int rc;

	assert(wait->ready);
	lock_acquire(&tree->lock);
	rc = begin_waiting_locked(tree, dir, now_ms, &reading);
	if (rc == 1) {
		wait->next = reading->waits;
		wait->before = &reading->waits;
		if (wait->next)
			wait->next->before = &wait->next;
		reading->waits = wait;
		keyed_add(&tree->waits, &wait->keyed, wait->key);
	}
	lock_release(&tree->lock);
	return rc;
}

/* Waits by the condition. `attr`, if it is not NULL, gets what the reading has found out about the
 * directory itself. The deadline moves on whenever the source answers. */
static int wait_here_locked(struct tree *tree, struct reading *reading, uint64_t until_ms,
			    struct store_attr *attr)
{
	int rc;

	lock_assert_held(&tree->lock);
	reading->users++;
	node_hold(reading->dir);
	while (reading->state != READING_OVER && !tree->stopping) {
		uint64_t at_ms = late_ms(tree, reading);

		at_ms = at_ms < until_ms ? at_ms : until_ms;
		if (clock_now_ms() >= at_ms)
			break;
		(void)cond_wait_until(&tree->read, &tree->lock, at_ms);
	}
	if (reading->state == READING_OVER)
		rc = reading->rc;
	else
		rc = tree->stopping ? -ESHUTDOWN : -ETIMEDOUT;
	if (!rc && attr)
		*attr = reading->attr;
	tree_release(tree, reading->dir);
	put_locked(tree, reading);
	return rc;
}

int tree_await_here_locked(struct tree *tree, struct node *dir, uint64_t now_ms)
{
	struct reading *reading;
	int rc = begin_waiting_locked(tree, dir, now_ms, &reading);

	lock_assert_held(&tree->lock);
	if (rc != 1)
		return rc;
	rc = wait_here_locked(tree, reading, UINT64_MAX, NULL);
	return rc == -ETIMEDOUT ? known_rc(dir) : rc;
}

int tree_await_here(struct tree *tree, struct node *dir, uint64_t now_ms)
{
	int rc;

	lock_acquire(&tree->lock);
	rc = tree_await_here_locked(tree, dir, now_ms);
	lock_release(&tree->lock);
	return rc;
}

bool tree_is_old(const struct tree *tree, const struct node *dir, uint64_t now_ms)
{
	return tree_is_older(dir, now_ms, tree->options.staleness_ms);
}

/* A reading that is under way may have looked at a name before it changed: whoever wants to know
 * what there is now waits for its end, and for one more. */
static int wait_for_running_locked(struct tree *tree, struct node *dir)
{
	struct reading *reading = find_locked(tree, dir, false);
	int rc = 0;

	lock_assert_held(&tree->lock);
	if (reading && reading->state == READING_RUNNING)
		rc = wait_here_locked(tree, reading, UINT64_MAX, NULL);
	return rc == -ETIMEDOUT || rc == -ESHUTDOWN ? rc : 0;
}

int tree_read_again_locked(struct tree *tree, struct node *dir, uint64_t now_ms,
			   uint64_t patience_ms)
{
	struct reading *reading;
	int rc = patience_ms == TREE_PATIENT ? wait_for_running_locked(tree, dir) : 0;

	lock_assert_held(&tree->lock);
	if (rc)
		return rc;
	if (dir->detached)
		return -ENOENT;
	if (tree->stopping)
		return -ESHUTDOWN;
	/* All that hangs has a reader; what lookups need is not to wait behind a walk. */
	if (patience_ms != TREE_PATIENT && !dir->dir.reading && are_all_busy_locked(tree))
		return -EBUSY;
	reading = begin_locked(tree, dir, false, now_ms);
	if (!reading)
		return -ENOMEM;
	return wait_here_locked(tree, reading,
				patience_ms < UINT64_MAX - reading->began_ms
					? reading->began_ms + patience_ms
					: UINT64_MAX,
				NULL);
}

/* False: the source told of another directory. The kernel is not notified: it ignores an answer
 * about an inode that a notification has overtaken, and would go by what it knew before. The answer
 * is the notification. */
static bool adopt_attr_locked(struct tree *tree, struct node *dir, const struct store_attr *found,
			      struct store_attr *attr)
{
	lock_assert_held(&tree->lock);
	if (!store_same_file(found, &dir->attr)) {
		tree_mark_stale(tree, dir); /* perhaps it is no more, or no more there */
		return false;
	}
	*attr = *found;
	if (dir->dir.reading || store_same_attr(&dir->attr, found))
		return true;
	dir->attr = *found;
	node_set_checked_ms(dir, 0); /* names may have changed, too */
	return true;
}

bool tree_ask_attr(struct tree *tree, struct node *dir, uint64_t now_ms, struct store_attr *attr)
{
	struct reading *reading = NULL;
	struct store_attr found;
	bool is_told;

	lock_acquire(&tree->lock);
	*attr = dir->attr;
	if (!tree->stopping && !dir->detached && !find_locked(tree, dir, true))
		reading = begin_locked(tree, dir, true, now_ms);
	is_told = reading && !wait_here_locked(tree, reading, UINT64_MAX, &found);
	if (is_told)
		is_told = adopt_attr_locked(tree, dir, &found, attr);
	lock_release(&tree->lock);
	return is_told;
}

struct tree_wait *tree_take_wait(struct tree *tree, uint64_t key, tree_wait_match *is,
				 void *context)
{
	struct keyed *at;

	lock_acquire(&tree->lock);
	at = keyed_find(&tree->waits, key);
	while (at && !is((struct tree_wait *)at, context))
		at = keyed_next(at);
	if (at)
		remove_wait_locked(tree, (struct tree_wait *)at);
	lock_release(&tree->lock);
	return (struct tree_wait *)at;
}

/* Those who wait for readings that are late. `*untold`: the first that the log is to be told of,
 * held, or NULL; `*others`: how many more there are. */
static struct tree_wait *take_late_locked(struct tree *tree, uint64_t now_ms, struct node **untold,
					  unsigned *others)
{
	struct tree_wait *waits = NULL;

	lock_assert_held(&tree->lock);
	for (struct reading *late = tree->readings; late; late = late->next) {
		if (late_ms(tree, late) > now_ms)
			continue;
		waits = take_waits_locked(tree, late, known_rc(late->dir), waits);
		if (!late->told && !*untold) {
			*untold = late->dir;
			node_hold(*untold);
		} else {
			*others += !late->told;
		}
		late->told = true;
	}
	return waits;
}

void tree_answer_late(struct tree *tree, uint64_t now_ms)
{
	struct tree_wait *waits;
	struct node *untold = NULL;
	unsigned others = 0;
	char more[64] = "";

	lock_acquire(&tree->lock);
	waits = take_late_locked(tree, now_ms, &untold, &others);
	lock_release(&tree->lock);
	if (others)
		snprintf(more, sizeof(more), " and %u others", others);
	if (untold) {
		log_say(LOG_WARNINGS, "no answer for the directory %s%s within %llu s",
			*untold->name ? untold->name : "/", more,
			(unsigned long long)tree->options.deadline_ms / 1000);
		tree_release(tree, untold);
	}
	answer_all(waits);
}

/* --- the end ------------------------------------------------------------------------------------
 */

void tree_stop(struct tree *tree)
{
	lock_acquire(&tree->lock);
	tree->stopping = true;
	cond_wake_all(&tree->read);
	cond_wake_all(&tree->wanted);
	for (struct reading *reading = tree->readings; reading; reading = tree->readings) {
		struct tree_wait *waits;

		while (reading && !reading->waits && reading->state == READING_RUNNING)
			reading = reading->next;
		if (!reading)
			break;
		waits = reading->state == READING_QUEUED
				? end_locked(tree, reading, -ESHUTDOWN)
				: take_waits_locked(tree, reading, -ESHUTDOWN, NULL);
		lock_release(&tree->lock);
		answer_all(waits);
		lock_acquire(&tree->lock);
	}
	/* What they answer through may be closed after this. */
	while (tree->answering)
		cond_wait(&tree->read, &tree->lock);
	lock_release(&tree->lock);
}

void tree_join(struct tree *tree)
{
	/* No reader is started any more. */
	assert(tree->stopping);
	while (tree->reader_count)
		thread_join(&tree->readers[--tree->reader_count]);
}
