/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The life of jobs: who reads for which, and when one has ended.
 *
 * A training lives while it has its control file open, while a process that has opened it lives, or
 * while somebody reads what it has announced; a grace time after that it has ended. Then its job is
 * removed, as by rmdir. Job 0 stays, with its scores, and loses its orders.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "control/internal.h"

#define LOOK_MS 500	    /* between two looks at who lives */
#define PLACED_AT_A_TIME 64 /* readers whose control group is looked at */

/* --- who reads for whom -------------------------------------------------------------------------
 */

void job_claim(struct control_file *file, int32_t thread, uint64_t start)
{
	struct control *control = file->control;
	struct process lineage[PROCESS_DEPTH];
	uint64_t cgroup;

	if (!process_lineage(thread, lineage) || (start && lineage->start != start))
		return;
	cgroup = process_cgroup(thread);
	lock_acquire(&control->claims_lock);
	file->claims = claims_open(&control->claims, lineage, cgroup, file->job);
	lock_release(&control->claims_lock);
	file->process = *lineage;
}

void job_unclaim(struct control_file *file)
{
	struct control *control = file->control;

	if (!file->claims)
		return;
	lock_acquire(&control->claims_lock);
	claims_close(&control->claims, &file->process, file->job);
	lock_release(&control->claims_lock);
}

uint32_t control_job_of(struct control *control, int32_t thread)
{
	uint64_t now_ms = clock_now_ms();
	struct process lineage[PROCESS_DEPTH];
	unsigned length;
	uint32_t job;
	bool known;

	lock_acquire(&control->claims_lock);
	known = claims_know(&control->claims, thread, now_ms, &job);
	lock_release(&control->claims_lock);
	if (known)
		return job;
	length = process_lineage(thread, lineage);
	lock_acquire(&control->claims_lock);
	job = claims_decide(&control->claims, thread, lineage, length, now_ms);
	lock_release(&control->claims_lock);
	return job;
}

/* Not while the reader waits: the kernel's lock on all control groups may be held for long. */
static void place_readers(struct control *control)
{
	for (unsigned i = 0; i < PLACED_AT_A_TIME; i++) {
		uint64_t cgroup;
		int32_t thread;

		lock_acquire(&control->claims_lock);
		thread = claims_next_unplaced(&control->claims);
		lock_release(&control->claims_lock);
		if (!thread)
			return;
		cgroup = process_cgroup(thread);
		lock_acquire(&control->claims_lock);
		claims_place(&control->claims, thread, cgroup);
		lock_release(&control->claims_lock);
	}
}

/* Forgets the claims of processes that are gone. */
static void look_who_lives(struct control *control)
{
	struct process closed[CLAIMS_MAX];
	unsigned count;

	lock_acquire(&control->claims_lock);
	count = claims_list_closed(&control->claims, closed);
	lock_release(&control->claims_lock);
	for (unsigned i = 0; i < count; i++) {
		if (process_lives(&closed[i]))
			continue;
		lock_acquire(&control->claims_lock);
		claims_end(&control->claims, &closed[i]);
		lock_release(&control->claims_lock);
	}
}

/* --- the end of a job ---------------------------------------------------------------------------
 */

static void forget_claims(struct control *control, uint32_t job)
{
	lock_acquire(&control->claims_lock);
	claims_forget(&control->claims, job);
	lock_release(&control->claims_lock);
}

int job_end_locked(struct control *control, unsigned dir)
{
	uint32_t job = control->jobs[dir].id;

	lock_assert_held(&control->jobs_lock);
	assert(dir && !control->jobs[dir].opens);
	*control->jobs[dir].name = 0;
	heirs_keep_dir_locked(control, dir);
	forget_claims(control, job);
	return cache_job_end(control->options.cache, job);
}

static bool is_alive_locked(const struct control *control, unsigned dir)
{
	lock_assert_held(&control->jobs_lock);
	return control->jobs[dir].controls || claims_has(&control->claims, control->jobs[dir].id);
}

/* Whether its training has ended. Somebody may read what a process announced that is gone. */
static bool has_ended_locked(struct control *control, unsigned dir, uint64_t now_ms)
{
	uint64_t *alive_ms = &control->jobs[dir].alive_ms, read_ms;
	bool alive;

	lock_assert_held(&control->jobs_lock);
	lock_acquire(&control->claims_lock);
	alive = is_alive_locked(control, dir);
	lock_release(&control->claims_lock);
	read_ms = cache_job_read_ms(control->options.cache, control->jobs[dir].id);
	if (alive)
		*alive_ms = now_ms;
	else if (read_ms > *alive_ms)
		*alive_ms = read_ms;
	return now_ms >= *alive_ms + control->options.grace_ms && !alive;
}

static void end_jobs(struct control *control, uint64_t now_ms)
{
	lock_acquire(&control->jobs_lock);
	if (has_ended_locked(control, 0, now_ms))
		cache_job_rest(control->options.cache, 0, now_ms - control->options.grace_ms);
	for (unsigned dir = 1; dir <= JOBS_MAX; dir++) {
		if (!*control->jobs[dir].name || !has_ended_locked(control, dir, now_ms) ||
		    control->jobs[dir].opens)
			continue;
		log_say(LOG_NOTES, "job %s has ended: nobody reads for it any more",
			control->jobs[dir].name);
		(void)job_end_locked(control, dir);
	}
	lock_release(&control->jobs_lock);
}

/* --- by hand ------------------------------------------------------------------------------------
 */

/* Whether a process besides the one that asks uses the job. What it has opened counts, not what is
 * read: nobody says how soon the next read comes. */
static bool is_used_locked(struct control *control, unsigned dir, const struct control_file *asks)
{
	unsigned own = asks->dir == dir;
	bool used;

	lock_assert_held(&control->jobs_lock);
	lock_acquire(&control->claims_lock);
	used = control->jobs[dir].controls > own ||
	       claims_has_besides(&control->claims, control->jobs[dir].id, &asks->process);
	lock_release(&control->claims_lock);
	return used;
}

/* One that is in use stays, without what it has said so far. */
static int forget_locked(struct control *control, unsigned dir)
{
	lock_assert_held(&control->jobs_lock);
	if (dir && !control->jobs[dir].opens)
		return job_end_locked(control, dir);
	return cache_job_forget(control->options.cache, control->jobs[dir].id);
}

static int forget_named_locked(struct control *control, const char *name)
{
	lock_assert_held(&control->jobs_lock);
	for (unsigned dir = 1; dir <= JOBS_MAX; dir++)
		if (!strcmp(control->jobs[dir].name, name))
			return forget_locked(control, dir);
	return strcmp(name, "0") ? -ENOENT : forget_locked(control, 0);
}

int jobs_forget(const struct control_file *file, const char *name)
{
	struct control *control = file->control;
	int rc = 0;

	look_who_lives(control);
	lock_acquire(&control->jobs_lock);
	if (*name)
		rc = forget_named_locked(control, name);
	for (unsigned dir = 0; !*name && !rc && dir <= JOBS_MAX; dir++)
		if ((!dir || *control->jobs[dir].name) && !is_used_locked(control, dir, file))
			rc = forget_locked(control, dir);
	lock_release(&control->jobs_lock);
	return rc;
}

/* Whether a training that nobody reads for by claims has announced something: shadectl may have
 * done that for others, or a launcher that has ended. */
static bool is_unclaimed_locked(struct control *control, unsigned dir)
{
	uint32_t job = dir ? control->jobs[dir].id : 0;
	struct sched_job_stats stats;
	bool claimed;

	lock_assert_held(&control->jobs_lock);
	if ((dir && !*control->jobs[dir].name) || control->jobs[dir].guess)
		return false;
	lock_acquire(&control->claims_lock);
	claimed = claims_has(&control->claims, job);
	lock_release(&control->claims_lock);
	return !claimed && !cache_job_stats(control->options.cache, job, &stats) &&
	       stats.order_ahead;
}

/* Such an order wins over what was only recognised. */
static void let_guesses_yield(struct control *control)
{
	bool yield = false;

	lock_acquire(&control->jobs_lock);
	for (unsigned dir = 0; dir <= JOBS_MAX; dir++)
		yield |= is_unclaimed_locked(control, dir);
	lock_release(&control->jobs_lock);
	lock_acquire(&control->claims_lock);
	control->claims.guesses_yield = yield;
	lock_release(&control->claims_lock);
}

void jobs_tick(struct control *control)
{
	uint64_t now_ms = clock_now_ms();

	place_readers(control);
	if (now_ms < control->looked_ms + LOOK_MS)
		return;
	control->looked_ms = now_ms;
	look_who_lives(control);
	end_jobs(control, now_ms);
	let_guesses_yield(control);
}
