/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Jobs of trainings that were recognised. They give way: the last free directory is not for them,
 * and if there is none, a training that announces itself gets one of theirs.
 */
#include <errno.h>
#include <stdio.h>

#include "base/log.h"
#include "control/internal.h"

bool guess_make_way_locked(struct control *control)
{
	lock_assert_held(&control->jobs_lock);
	for (unsigned dir = 1; dir <= JOBS_MAX; dir++) {
		if (!*control->jobs[dir].name || !control->jobs[dir].guess ||
		    control->jobs[dir].opens)
			continue;
		log_say(LOG_NOTES, "job %s makes way for a training that announces itself",
			control->jobs[dir].name);
		return !job_end_locked(control, dir);
	}
	return false;
}

static unsigned free_dirs_locked(const struct control *control)
{
	unsigned count = 0;

	lock_assert_held(&control->jobs_lock);
	for (unsigned dir = 1; dir <= JOBS_MAX; dir++)
		count += !*control->jobs[dir].name;
	return count;
}

static bool is_there_locked(const struct control *control, const struct control_guess *guess)
{
	lock_assert_held(&control->jobs_lock);
	return guess->number && *control->jobs[guess->dir].name &&
	       control->jobs[guess->dir].guess == guess->number;
}

/* What a daemon that has died had recognised is recognised anew. Until then its orders are as good
 * as before. */
static void end_inherited_locked(struct control *control)
{
	lock_assert_held(&control->jobs_lock);
	for (unsigned dir = 1; dir <= JOBS_MAX; dir++) {
		uint64_t guess = control->jobs[dir].guess;

		if (!*control->jobs[dir].name || !guess || guess > control->inherited_guesses)
			continue;
		if (control->jobs[dir].opens)
			(void)cache_drop_orders(control->options.cache, control->jobs[dir].id);
		else
			(void)job_end_locked(control, dir);
	}
}

static int begin_locked(struct control *control, struct control_guess *guess)
{
	char name[32] = "predicted";
	int rc = -EEXIST;

	lock_assert_held(&control->jobs_lock);
	end_inherited_locked(control);
	if (free_dirs_locked(control) < 2)
		return -ENOSPC;
	for (unsigned i = 2; rc == -EEXIST && i <= JOBS_MAX + 1; i++) {
		rc = job_make_locked(control, name, &guess->dir);
		snprintf(name, sizeof(name), "predicted-%u", i);
	}
	if (rc)
		return rc;
	guess->number = ++control->guesses;
	atomic_store(&control->options.heritage->guesses, control->guesses);
	guess->job = control->jobs[guess->dir].id;
	control->jobs[guess->dir].guess = guess->number;
	heirs_keep_dir_locked(control, guess->dir);
	return cache_job_guess(control->options.cache, guess->job);
}

bool control_is_guess(struct control *control, uint32_t job)
{
	bool is_guess = false;

	lock_acquire(&control->jobs_lock);
	for (unsigned dir = 1; dir <= JOBS_MAX; dir++)
		is_guess |= *control->jobs[dir].name && control->jobs[dir].id == job &&
			    control->jobs[dir].guess;
	lock_release(&control->jobs_lock);
	return is_guess;
}

int control_guess_begin(struct control *control, struct control_guess *guess)
{
	int rc;

	lock_acquire(&control->jobs_lock);
	rc = begin_locked(control, guess);
	lock_release(&control->jobs_lock);
	return rc;
}

void control_guess_end(struct control *control, const struct control_guess *guess)
{
	lock_acquire(&control->jobs_lock);
	if (is_there_locked(control, guess)) {
		/* While somebody reads its files it stays, as one that nobody reads for. */
		if (control->jobs[guess->dir].opens)
			(void)cache_drop_orders(control->options.cache, guess->job);
		else
			(void)job_end_locked(control, guess->dir);
	}
	lock_release(&control->jobs_lock);
}

bool control_guess_is_there(struct control *control, const struct control_guess *guess, bool lives)
{
	bool there;

	lock_acquire(&control->jobs_lock);
	there = is_there_locked(control, guess);
	if (there && lives)
		control->jobs[guess->dir].alive_ms = clock_now_ms();
	lock_release(&control->jobs_lock);
	return there;
}

int control_guess_order(struct control *control, const struct control_guess *guess, uint64_t epoch,
			const uint32_t *ids, uint32_t count, uint64_t at)
{
	int rc = -ENOENT;

	lock_acquire(&control->jobs_lock);
	if (is_there_locked(control, guess))
		rc = cache_order_since(control->options.cache, guess->job, epoch, ids, count, at);
	lock_release(&control->jobs_lock);
	return rc;
}

int control_guess_epoch(struct control *control, const struct control_guess *guess, uint64_t epoch)
{
	int rc = -ENOENT;

	lock_acquire(&control->jobs_lock);
	if (is_there_locked(control, guess))
		rc = cache_epoch(control->options.cache, guess->job, epoch);
	lock_release(&control->jobs_lock);
	return rc;
}

void control_guess_reader(struct control *control, const struct control_guess *guess,
			  int32_t thread)
{
	struct process lineage[PROCESS_DEPTH];
	unsigned length = process_lineage(thread, lineage);
	uint64_t now_ms = clock_now_ms();

	if (!length)
		return;
	lock_acquire(&control->jobs_lock);
	lock_acquire(&control->claims_lock);
	if (is_there_locked(control, guess)) {
		control->claims.turn += !control->claims.turn; /* there is something to know */
		(void)claims_decide(&control->claims, thread, lineage, length, now_ms);
		claims_guess(&control->claims, thread, guess->job);
	}
	lock_release(&control->claims_lock);
	lock_release(&control->jobs_lock);
}
