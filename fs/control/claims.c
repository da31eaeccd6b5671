/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "control/claims.h"

#include <assert.h>

#include "shade/sched.h"

#define NOBODY (SCHED_JOB_ANY - 1) /* no claim was found, where ANY means that several were */

/* --- claims -------------------------------------------------------------------------------------
 */

static bool is_same(const struct process *a, const struct process *b)
{
	return a->pid == b->pid && a->start == b->start;
}

static struct claim *find(struct claims *claims, const struct process *process, uint32_t job)
{
	for (unsigned i = 0; i < claims->count; i++)
		if (claims->all[i].job == job && is_same(&claims->all[i].process, process))
			return &claims->all[i];
	return NULL;
}

static void remove_claim(struct claims *claims, struct claim *claim)
{
	*claim = claims->all[--claims->count];
	claims->turn++;
}

/* The oldest of those that have no file open makes way. */
static bool make_room(struct claims *claims)
{
	struct claim *oldest = NULL;

	if (claims->count < CLAIMS_MAX)
		return true;
	for (unsigned i = 0; i < claims->count; i++) {
		struct claim *claim = &claims->all[i];

		if (!claim->opens && (!oldest || claim->turn < oldest->turn))
			oldest = claim;
	}
	if (oldest)
		remove_claim(claims, oldest);
	return oldest;
}

/* Then it matters which files the process has open. Else nobody needs to be looked at again because
 * a file is closed and opened: some trainings do that all the time. */
static bool claims_for_others(const struct claims *claims, const struct claim *claim)
{
	for (unsigned i = 0; i < claims->count; i++)
		if (claims->all[i].job != claim->job &&
		    is_same(&claims->all[i].process, &claim->process))
			return true;
	return false;
}

bool claims_open(struct claims *claims, const struct process *process, uint64_t cgroup,
		 uint32_t job)
{
	struct claim *claim = find(claims, process, job);

	if (!claim && !make_room(claims))
		return false;
	if (!claim) {
		claim = &claims->all[claims->count++];
		*claim = (struct claim){ .process = *process, .job = job, .turn = ++claims->turn };
	}
	claims->turn +=
		(!claim->opens && claims_for_others(claims, claim)) || claim->cgroup != cgroup;
	claim->opens++;
	claim->cgroup = cgroup;
	return true;
}

void claims_close(struct claims *claims, const struct process *process, uint32_t job)
{
	struct claim *claim = find(claims, process, job);

	assert(claim && claim->opens);
	claim->opens--;
	claims->turn += !claim->opens && claims_for_others(claims, claim);
}

bool claims_has(const struct claims *claims, uint32_t job)
{
	for (unsigned i = 0; i < claims->count; i++)
		if (claims->all[i].job == job)
			return true;
	return false;
}

bool claims_has_besides(const struct claims *claims, uint32_t job, const struct process *process)
{
	for (unsigned i = 0; i < claims->count; i++)
		if (claims->all[i].job == job && !is_same(&claims->all[i].process, process))
			return true;
	return false;
}

void claims_forget(struct claims *claims, uint32_t job)
{
	for (unsigned i = claims->count; i-- > 0;)
		if (claims->all[i].job == job)
			remove_claim(claims, &claims->all[i]);
	for (unsigned i = 0; i < CLAIMS_SETS * CLAIMS_WAYS; i++) {
		struct claims_reader *reader = &claims->readers[i];

		if (reader->guess == job)
			reader->guess = SCHED_JOB_ANY;
		if (!reader->thread || reader->job != job)
			continue;
		reader->job = SCHED_JOB_ANY;
		reader->descends = false;
	}
	claims->turn++;
}

unsigned claims_list_closed(const struct claims *claims, struct process gone[CLAIMS_MAX])
{
	unsigned count = 0;

	for (unsigned i = 0; i < claims->count; i++)
		if (!claims->all[i].opens)
			gone[count++] = claims->all[i].process;
	return count;
}

/* It may have opened a file again before it was gone: a child of its keeps that open. */
void claims_end(struct claims *claims, const struct process *process)
{
	for (unsigned i = claims->count; i-- > 0;)
		if (!claims->all[i].opens && is_same(&claims->all[i].process, process))
			remove_claim(claims, &claims->all[i]);
}

/* --- deciding -----------------------------------------------------------------------------------
 */

static uint32_t join(uint32_t found, uint32_t job)
{
	return found == NOBODY || found == job ? job : SCHED_JOB_ANY;
}

static uint32_t job_of_process(const struct claims *claims, const struct process *process)
{
	uint32_t open = NOBODY, closed = NOBODY;

	for (unsigned i = 0; i < claims->count; i++) {
		const struct claim *claim = &claims->all[i];

		if (!is_same(&claim->process, process))
			continue;
		if (claim->opens)
			open = join(open, claim->job);
		else
			closed = join(closed, claim->job);
	}
	return open == NOBODY ? closed : open;
}

static uint32_t job_of_lineage(const struct claims *claims, const struct process *lineage,
			       unsigned length)
{
	uint32_t job = NOBODY;

	for (unsigned i = 0; i < length && job == NOBODY; i++)
		job = job_of_process(claims, &lineage[i]);
	return job;
}

static uint32_t job_of_cgroup(const struct claims *claims, uint64_t cgroup)
{
	uint32_t job = NOBODY;

	for (unsigned i = 0; cgroup && i < claims->count; i++)
		if (claims->all[i].cgroup == cgroup)
			job = join(job, claims->all[i].job);
	return job == NOBODY ? SCHED_JOB_ANY : job;
}

static bool has_cgroups(const struct claims *claims)
{
	for (unsigned i = 0; i < claims->count; i++)
		if (claims->all[i].cgroup)
			return true;
	return false;
}

/* --- readers ------------------------------------------------------------------------------------
 */

static unsigned first_of_set(int32_t thread)
{
	/* Numbers of threads come one after another, so they fill the sets evenly. */
	return (uint32_t)thread % CLAIMS_SETS * CLAIMS_WAYS;
}

static const struct claims_reader *find_reader(const struct claims *claims, int32_t thread)
{
	const struct claims_reader *set = &claims->readers[first_of_set(thread)];

	for (unsigned i = 0; i < CLAIMS_WAYS; i++)
		if (set[i].thread == thread)
			return &set[i];
	return NULL;
}

static void set_unplaced(struct claims *claims, struct claims_reader *reader, bool unplaced)
{
	claims->unplaced += unplaced;
	claims->unplaced -= reader->unplaced;
	reader->unplaced = unplaced;
}

/* The entry of a thread, or that of whoever was looked at the longest ago. */
static struct claims_reader *take_reader(struct claims *claims, int32_t thread)
{
	struct claims_reader *set = &claims->readers[first_of_set(thread)], *oldest = set;

	for (unsigned i = 0; i < CLAIMS_WAYS; i++) {
		if (set[i].thread == thread)
			return &set[i];
		if (set[i].checked_ms < oldest->checked_ms)
			oldest = &set[i];
	}
	set_unplaced(claims, oldest, false);
	*oldest = (struct claims_reader){ .thread = thread, .guess = SCHED_JOB_ANY };
	return oldest;
}

static uint32_t job_of_reader(const struct claims *claims, const struct claims_reader *reader)
{
	return reader->job == SCHED_JOB_ANY && !claims->guesses_yield ? reader->guess : reader->job;
}

bool claims_know(const struct claims *claims, int32_t thread, uint64_t now_ms, uint32_t *job)
{
	const struct claims_reader *reader;

	*job = SCHED_JOB_ANY;
	if (thread <= 0 || !claims->turn)
		return true;
	reader = find_reader(claims, thread);
	if (!reader || reader->turn != claims->turn ||
	    reader->checked_ms + CLAIMS_TRUST_MS <= now_ms)
		return false;
	*job = job_of_reader(claims, reader);
	return true;
}

uint32_t claims_decide(struct claims *claims, int32_t thread, const struct process *lineage,
		       unsigned length, uint64_t now_ms)
{
	uint32_t job = job_of_lineage(claims, lineage, length);
	struct claims_reader *reader = take_reader(claims, thread);
	/* One that is gone by now may have been looked at before. */
	uint64_t start = length ? lineage->start : reader->start;

	set_unplaced(claims, reader, false);
	if (reader->start != start)
		*reader = (struct claims_reader){ .thread = thread,
						  .start = start,
						  .guess = SCHED_JOB_ANY };
	reader->checked_ms = now_ms;
	reader->turn = claims->turn;
	if (job != NOBODY) {
		reader->job = job;
		reader->descends = job != SCHED_JOB_ANY;
	} else if (!reader->descends) {
		reader->job = job_of_cgroup(claims, reader->cgroup);
		set_unplaced(claims, reader, length && has_cgroups(claims));
	}
	return job_of_reader(claims, reader);
}

void claims_guess(struct claims *claims, int32_t thread, uint32_t job)
{
	struct claims_reader *reader = (struct claims_reader *)find_reader(claims, thread);

	if (reader)
		reader->guess = job;
}

int32_t claims_next_unplaced(const struct claims *claims)
{
	for (unsigned i = 0; claims->unplaced && i < CLAIMS_SETS * CLAIMS_WAYS; i++)
		if (claims->readers[i].unplaced)
			return claims->readers[i].thread;
	return 0;
}

void claims_place(struct claims *claims, int32_t thread, uint64_t cgroup)
{
	struct claims_reader *reader = (struct claims_reader *)find_reader(claims, thread);

	if (!reader || !reader->unplaced)
		return;
	set_unplaced(claims, reader, false);
	reader->cgroup = cgroup;
	reader->job = job_of_cgroup(claims, cgroup);
}
