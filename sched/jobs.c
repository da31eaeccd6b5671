/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The trainings of a handle: they begin and end, and say what they find important and will read. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "core.h"

static bool is_expected(const struct sched *s, uint32_t id)
{
	for (unsigned i = 0; i < s->job_end; i++)
		if (s->jobs[i] && job_sample(s->jobs[i], id)->head != PLACE_NONE)
			return true;
	return false;
}

/* Whether whoever it was fetched ahead for will not need it before a later order. */
static bool is_far(const struct sched *s, uint32_t id)
{
	const struct job *job = s->jobs[s->samples[id].prefetcher];
	uint32_t head = job ? job_sample(job, id)->head : PLACE_NONE;

	return head != PLACE_NONE && !job_within_reach(job, head);
}

/* What was fetched ahead for an order or a job that is gone does not count as fetched ahead. */
static void horizon_changed(struct sched *s)
{
	for (uint32_t id = 0; s->stats.prefetched_bytes && id < s->sample_count; id++)
		if (s->samples[id].flags & SAMPLE_PREFETCHED &&
		    (!s->jobs[s->samples[id].prefetcher] || !is_expected(s, id) || is_far(s, id)))
			core_clear_flag(s, id, SAMPLE_PREFETCHED);
	core_rebuild(s);
}

/* Distances in different jobs are compared in time. Whoever was not measured goes as fast as the
 * others do on the mean; if none was, all go as fast as each other. */
static void set_paces(struct sched *s)
{
	double sum = 0, mean;
	unsigned known = 0;

	for (unsigned i = 0; i < s->job_end; i++)
		if (s->jobs[i] && s->jobs[i]->seconds > 0) {
			sum += s->jobs[i]->seconds;
			known++;
		}
	mean = known ? sum / known : 1;
	for (unsigned i = 0; i < s->job_end; i++)
		if (s->jobs[i])
			s->jobs[i]->pace = s->jobs[i]->seconds > 0 ? s->jobs[i]->seconds : mean;
}

/* --- memory of orders: the heap, if nobody has another ------------------------------------------
 */

static void *heap_get(void *context, size_t bytes)
{
	(void)context;
	return calloc(1, bytes);
}

static void heap_keep(void *context, void *block)
{
	(void)context, (void)block;
}

static void heap_give_back(void *context, void *block)
{
	(void)context;
	free(block);
}

const struct sched_memory core_heap = { heap_get, heap_keep, heap_give_back, NULL };

void sched_set_memory(struct sched *s, const struct sched_memory *memory)
{
	s->memory = *memory;
}

/* --- begin and end -----------------------------------------------------------------------------*/

static void set_job(struct sched *s, uint32_t slot, struct job *job)
{
	s->jobs[slot] = job;
	s->job_end = SCHED_JOBS_MAX;
	while (s->job_end > 0 && !s->jobs[s->job_end - 1])
		s->job_end--;
	set_paces(s);
}

int sched_job_begin(struct sched *s, uint32_t *out)
{
	uint32_t slot = 0;
	struct job *job;

	while (slot < SCHED_JOBS_MAX && s->jobs[slot])
		slot++;
	if (slot == SCHED_JOBS_MAX)
		return -ENOSPC;
	job = malloc(sizeof(*job));
	if (!job)
		return -ENOMEM;
	if (job_init(job, slot, slot == 0 ? sizeof(struct sample) : 0, &s->memory)) {
		free(job);
		return -ENOMEM;
	}
	set_job(s, slot, job);
	if (job_reserve(job, s->sample_room) || core_policy_reserve(s, core_held_samples(s) + 1)) {
		set_job(s, slot, NULL);
		job_free(job);
		free(job);
		return -ENOMEM;
	}
	job_grow(job, s->sample_count);
	*out = slot;
	return 0;
}

int sched_job_guess(struct sched *s, uint32_t job_id)
{
	struct job *job = sched_job(s, job_id);

	if (!job)
		return -ERANGE;
	job->guessed = true;
	return 0;
}

int sched_job_end(struct sched *s, uint32_t slot)
{
	struct job *job = sched_job(s, slot);

	if (!job || slot == 0)
		return -ERANGE;
	set_job(s, slot, NULL);
	ranking_refresh(s);
	horizon_changed(s);
	job_free(job);
	free(job);
	return 0;
}

void core_rank_anew(struct sched *s)
{
	ranking_refresh(s);
	core_rebuild(s);
}

/* The training says something: it is another one if the last has ended, and reads other samples. */
static void begin_anew(struct job *job)
{
	if (job->ended)
		job_unname(job);
	job->ended = false;
}

int sched_score(struct sched *s, uint32_t job_id, uint32_t id, float score)
{
	struct job *job = sched_job(s, job_id);

	if (!job || id >= s->sample_count)
		return -ERANGE;
	if (!isfinite(score) || score < 0)
		return -EINVAL;
	begin_anew(job);
	job_score(job, id, score);
	core_clear_flag(s, id, SAMPLE_ABANDONED);
	if (ranking_is_old(s, job))
		core_rank_anew(s);
	else if (s->policy->rescore && sample_may_leave(&s->samples[id]))
		s->policy->rescore(s, id);
	return 0;
}

int sched_pace(struct sched *s, uint32_t job_id, double seconds, double benefit)
{
	struct job *job = sched_job(s, job_id);

	if (!job)
		return -ERANGE;
	if (!isfinite(seconds) || seconds < 0 || !isfinite(benefit) || benefit < 0)
		return -EINVAL;
	job->seconds = seconds;
	job->benefit = seconds > 0 ? benefit : -1;
	set_paces(s);
	return 0;
}

static bool are_known(const struct sched *s, const uint32_t *ids, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (ids[i] >= s->sample_count)
			return false;
	return true;
}

int sched_name(struct sched *s, uint32_t job_id, const uint32_t *ids, uint32_t count)
{
	struct job *job = sched_job(s, job_id);

	if (!job || !are_known(s, ids, count))
		return -ERANGE;
	begin_anew(job);
	for (uint32_t i = 0; i < count; i++)
		job_name(job, ids[i]);
	return 0;
}

int sched_order(struct sched *s, uint32_t job_id, uint64_t epoch, const uint32_t *ids,
		uint32_t count)
{
	struct job *job = sched_job(s, job_id);
	int rc;

	if (!job || count > SCHED_ORDER_MAX || !are_known(s, ids, count))
		return -ERANGE;
	begin_anew(job);
	rc = job_order(job, epoch, ids, count);
	if (rc)
		return rc;
	horizon_changed(s);
	return 0;
}

int sched_adopt_order(struct sched *s, void *block)
{
	struct job *job = sched_job(s, ((const struct order_block *)block)->job);
	int rc;

	if (!job) {
		s->memory.give_back(s->memory.context, block);
		return -ERANGE;
	}
	rc = job_adopt(job, block);
	if (!rc)
		horizon_changed(s);
	return rc;
}

int sched_skip(struct sched *s, uint32_t job_id, uint32_t id)
{
	struct job *job = sched_job(s, job_id);

	if (!job || id >= s->sample_count)
		return -ERANGE;
	if (job_consume(job, id) != PLACE_NONE && s->samples[id].state == SAMPLE_RESIDENT &&
	    s->policy->touch && sample_may_leave(&s->samples[id]))
		s->policy->touch(s, id);
	return 0;
}

/* What was fetched ahead for an epoch that is over and was not read stays for a later use, which
 * may be far away: it must not keep others from being fetched ahead until then. */
static void forget_prefetched(struct sched *s, uint32_t job_id, uint64_t epoch)
{
	const struct job *job = s->jobs[job_id];

	for (uint32_t id = 0; job->prefetched_bytes && id < s->sample_count; id++) {
		uint32_t head = job_sample(job, id)->head;

		if (s->samples[id].flags & SAMPLE_PREFETCHED &&
		    s->samples[id].prefetcher == job_id && head != PLACE_NONE &&
		    job->orders[place_slot(head)].epoch < epoch)
			core_clear_flag(s, id, SAMPLE_PREFETCHED);
	}
}

int sched_epoch(struct sched *s, uint32_t job_id, uint64_t epoch)
{
	struct job *job = sched_job(s, job_id);
	bool dropped;

	if (!job)
		return -ERANGE;
	begin_anew(job);
	forget_prefetched(s, job_id, epoch);
	job_epoch(job, epoch, &dropped);
	if (s->ranking.scored_jobs > 1)
		ranking_refresh(s);
	if (dropped)
		horizon_changed(s);
	else if (s->ranking.scored_jobs > 1)
		core_rebuild(s);
	if (s->policy->epoch)
		s->policy->epoch(s);
	return 0;
}

int sched_drop_orders(struct sched *s, uint32_t job_id)
{
	struct job *job = sched_job(s, job_id);

	if (!job)
		return -ERANGE;
	if (job_drop_orders(job))
		horizon_changed(s);
	return 0;
}
