/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a training that has ended leaves behind. Policies that keep who is there at a tie would keep
 * it for ever, against whatever comes after: so it is marked, and leaves if a newcomer finds no
 * other victim. Whoever is used again, expected by an order, or scored is somebody's again.
 */
#include <errno.h>

#include "core.h"

/* Whether a training that goes on wants the sample, as far as it has said or shown. */
static bool is_wanted_by(const struct job *job, uint32_t id)
{
	const struct job_sample *sample = job_sample(job, id);

	return sample->head != PLACE_NONE ||
	       (!job->ended && (sample->score >= 0 || sample->seen == job->period));
}

static bool is_wanted(const struct sched *s, uint32_t id)
{
	for (unsigned i = 0; i < s->job_end; i++)
		if (s->jobs[i] && is_wanted_by(s->jobs[i], id))
			return true;
	return false;
}

static bool is_expected(const struct sched *s, uint32_t id)
{
	for (unsigned i = 0; i < s->job_end; i++)
		if (s->jobs[i] && job_sample(s->jobs[i], id)->head != PLACE_NONE)
			return true;
	return false;
}

/* Whether the training has had to do with the sample. */
static bool has_used(const struct job *job, uint32_t id)
{
	const struct job_sample *sample = job_sample(job, id);

	return sample->seen || sample->score >= 0;
}

int sched_abandon(struct sched *s, uint32_t job_id)
{
	struct job *job = sched_job(s, job_id);

	if (!job)
		return -ERANGE;
	(void)sched_drop_orders(s, job_id);
	job->ended = true;
	for (uint32_t id = sched_next_resident(s, 0); id != SAMPLE_NONE;
	     id = sched_next_resident(s, id + 1))
		if (sample_may_leave(&s->samples[id]) && has_used(job, id) && !is_wanted(s, id))
			core_set_flag(s, id, SAMPLE_ABANDONED);
	return 0;
}

int sched_forget_job(struct sched *s, uint32_t job_id)
{
	struct job *job = sched_job(s, job_id);
	int rc = sched_abandon(s, job_id);

	if (rc)
		return rc;
	for (uint32_t id = 0; id < s->sample_count; id++)
		if (job_sample(job, id)->score >= 0)
			job_forget(job, id);
	core_rank_anew(s);
	return 0;
}

/* Goes round, so that a search does not begin with those that were looked at before. */
uint32_t abandoned_next(struct sched *s)
{
	while (s->abandoned_count) {
		uint32_t id = sched_next_resident(s, s->abandoned_from);

		if (id == SAMPLE_NONE) {
			s->abandoned_from = 0;
			continue;
		}
		s->abandoned_from = id + 1;
		if (!(s->samples[id].flags & SAMPLE_ABANDONED))
			continue;
		core_clear_flag(s, id, SAMPLE_ABANDONED);
		if (!is_expected(s, id))
			return id;
	}
	return SAMPLE_NONE;
}
