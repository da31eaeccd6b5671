/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The core: which state each sample is in, what its bytes cost, and in what sequence the
 * policy is asked. Reserved bytes count like resident ones, so concurrent fetches never
 * overcommit the capacity.
 *
 * Nothing here fails half-way: whatever must be allocated is allocated before the first
 * change.
 */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "bits.h"
#include "core.h"

#define LOOK_AHEAD 16	    /* order entries */
#define PREFETCH_STEPS 4096 /* order entries looked at in one sched_prefetch() */
#define TURN_SAMPLES 64	    /* that sched_prefetch() gives to one job in a row; */
#define TURN_SHARE 8	    /* it begins when such a part of the job's share is free */

static uint64_t held_bytes(const struct sched *s)
{
	return s->stats.resident_bytes + s->stats.reserved_bytes;
}

static uint32_t held_samples(const struct sched *s)
{
	return s->stats.resident_samples + s->reserved_count;
}

/* --- policies ----------------------------------------------------------------- */

static int policy_reserve(struct sched *s, uint32_t held)
{
	return s->policy->reserve ? s->policy->reserve(s, held) : 0;
}

static void policy_finish(struct sched *s)
{
	if (s->policy_state && s->policy->finish)
		s->policy->finish(s);
	free(s->policy_state);
}

/* Allocates what `policy` needs for the samples that are held. On failure the handle has
 * the policy that it had. */
static int policy_start(struct sched *s, const struct policy *policy)
{
	const struct policy *old = s->policy;
	void *old_state = s->policy_state;

	assert(policy->sample_bytes <= POLICY_SAMPLE_BYTES);
	s->policy = policy;
	s->policy_state = calloc(1, policy->state_bytes ? policy->state_bytes : 1);
	if (s->policy_state && !policy_reserve(s, held_samples(s) + 1))
		return 0;
	policy_finish(s);
	s->policy = old;
	s->policy_state = old_state;
	return -ENOMEM;
}

/* Takes all samples out of the policy, least valuable first. Returns how many. */
static uint32_t take_all(struct sched *s, uint32_t *ids)
{
	uint32_t count = 0, id;

	while ((id = s->policy->victim(s, SAMPLE_NONE)) != SAMPLE_NONE) {
		s->policy->leave(s, id);
		ids[count++] = id;
	}
	return count;
}

static void enter(struct sched *s, uint32_t id)
{
	if (sample_may_leave(&s->samples[id]))
		s->policy->enter(s, id);
}

static void leave(struct sched *s, uint32_t id)
{
	if (sample_may_leave(&s->samples[id]))
		s->policy->leave(s, id);
}

static void rebuild(struct sched *s)
{
	if (s->policy->rebuild)
		s->policy->rebuild(s);
}

int sched_set_policy(struct sched *s, const char *name)
{
	const struct policy *policy = name ? policy_find(name) : policy_default();
	struct sched old = *s;
	uint32_t *ids, count;

	if (!policy)
		return -EINVAL;
	if (policy == s->policy)
		return 0;
	ids = array_new(s->stats.resident_samples, sizeof(*ids));
	if (!ids || policy_start(s, policy)) {
		free(ids);
		return -ENOMEM;
	}
	count = take_all(&old, ids);
	policy_finish(&old);
	for (uint32_t id = 0; id < s->sample_count; id++)
		memset(s->samples[id].policy, 0xff, POLICY_SAMPLE_BYTES);
	if (policy->epoch)
		policy->epoch(s);
	for (uint32_t i = 0; i < count; i++)
		policy->enter(s, ids[i]);
	free(ids);
	return 0;
}

/* --- the handle --------------------------------------------------------------- */

int sched_create(struct sched **out, uint64_t capacity_bytes, const char *name)
{
	const struct policy *policy = name ? policy_find(name) : policy_default();
	struct sched *s;
	uint32_t job;

	if (!policy)
		return -EINVAL;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->stats.capacity_bytes = capacity_bytes;
	if (policy_start(s, policy)) {
		free(s);
		return -ENOMEM;
	}
	if (sched_job_begin(s, &job)) {
		sched_destroy(s);
		return -ENOMEM;
	}
	*out = s;
	return 0;
}

void sched_destroy(struct sched *s)
{
	if (!s)
		return;
	policy_finish(s);
	for (unsigned i = 0; i < s->job_end; i++) {
		if (s->jobs[i])
			job_free(s->jobs[i]);
		free(s->jobs[i]);
	}
	free(s->samples);
	free(s->resident);
	free(s);
}

static int reserve_samples(struct sched *s, uint32_t room)
{
	int rc = array_resize((void **)&s->samples, room, sizeof(*s->samples));

	if (!rc)
		job_attach(s->jobs[0], &s->samples->job0);
	if (!rc)
		rc = array_resize((void **)&s->resident, bits_words(room), sizeof(*s->resident));
	for (unsigned i = 0; i < s->job_end && !rc; i++)
		if (s->jobs[i])
			rc = job_reserve(s->jobs[i], room);
	return rc;
}

int sched_grow(struct sched *s, uint32_t samples)
{
	uint32_t old = s->sample_count;
	size_t old_words = bits_words(old);

	if (samples > SCHED_SAMPLES_MAX)
		return -ERANGE;
	if (samples <= old)
		return 0;
	if (samples > s->sample_room) {
		size_t room = array_room(s->sample_room, samples);
		int rc = reserve_samples(s, (uint32_t)room);

		if (rc)
			return rc;
		s->sample_room = (uint32_t)room;
	}
	memset(s->samples + old, 0, (samples - old) * sizeof(*s->samples));
	memset(s->resident + old_words, 0,
	       (bits_words(samples) - old_words) * sizeof(*s->resident));
	for (uint32_t id = old; id < samples; id++)
		memset(s->samples[id].policy, 0xff, POLICY_SAMPLE_BYTES);
	for (unsigned i = 0; i < s->job_end; i++)
		if (s->jobs[i])
			job_grow(s->jobs[i], samples);
	s->sample_count = samples;
	return 0;
}

/* Prefetch looks at the sample again, if it has passed it. */
static void look_again(struct sched *s, uint32_t id)
{
	for (unsigned i = 0; i < s->job_end; i++)
		if (s->jobs[i])
			job_look_again(s->jobs[i], id);
}

int sched_size(struct sched *s, uint32_t id, uint64_t size)
{
	struct sample *sample;

	if (id >= s->sample_count)
		return -ERANGE;
	sample = &s->samples[id];
	if (sample->state == SAMPLE_ABSENT)
		sample->size = size;
	sample->flags |= SAMPLE_SIZED;
	look_again(s, id);
	return 0;
}

/* --- states and bytes ---------------------------------------------------------- */

static void set_flag(struct sched *s, uint32_t id, uint8_t flag)
{
	struct sample *sample = &s->samples[id];
	uint64_t bytes = sample->state == SAMPLE_ABSENT ? 0 : sample->size;

	if (sample->flags & flag)
		return;
	sample->flags |= flag;
	if (flag == SAMPLE_PINNED)
		s->stats.pinned_bytes += bytes;
	if (flag == SAMPLE_PREFETCHED) {
		s->stats.prefetched_bytes += bytes;
		s->jobs[sample->prefetcher]->prefetched_bytes += bytes;
	}
}

static void clear_flag(struct sched *s, uint32_t id, uint8_t flag)
{
	struct sample *sample = &s->samples[id];
	uint64_t bytes = sample->state == SAMPLE_ABSENT ? 0 : sample->size;

	if (!(sample->flags & flag))
		return;
	sample->flags &= (uint8_t)~flag;
	if (flag == SAMPLE_PINNED)
		s->stats.pinned_bytes -= bytes;
	if (flag == SAMPLE_PREFETCHED) {
		s->stats.prefetched_bytes -= bytes;
		if (s->jobs[sample->prefetcher])
			s->jobs[sample->prefetcher]->prefetched_bytes -= bytes;
	}
}

static void reserve_sample(struct sched *s, uint32_t id)
{
	struct sample *sample = &s->samples[id];

	sample->state = SAMPLE_RESERVED;
	s->reserved_count++;
	s->stats.reserved_bytes += sample->size;
	if (sample->flags & SAMPLE_PINNED)
		s->stats.pinned_bytes += sample->size;
}

static void unreserve_sample(struct sched *s, uint32_t id)
{
	s->reserved_count--;
	s->stats.reserved_bytes -= s->samples[id].size;
}

/* The sample, reserved or resident, holds its bytes no more. */
static void release_sample(struct sched *s, uint32_t id)
{
	struct sample *sample = &s->samples[id];

	clear_flag(s, id, SAMPLE_PREFETCHED);
	if (sample->flags & SAMPLE_PINNED)
		s->stats.pinned_bytes -= sample->size;
	sample->state = SAMPLE_ABSENT;
}

/* Takes a resident out of the books; the policy has let it go already. */
static void drop_resident(struct sched *s, uint32_t id)
{
	release_sample(s, id);
	bits_clear(s->resident, id);
	look_again(s, id);
	s->stats.resident_samples--;
	s->stats.resident_bytes -= s->samples[id].size;
}

/* Finds who leaves so that `id` fits, and lets them go. False: it does not fit. Then everybody
 * is where they were, unless more had to leave than may at once: those who were worth less
 * have left all the same. A pinned newcomer is worth anybody's place. */
static bool make_room(struct sched *s, uint32_t id, uint32_t *victims)
{
	const struct policy *policy = s->policy;
	const struct sample *sample = &s->samples[id];
	uint32_t judged = sample->flags & SAMPLE_PINNED ? SAMPLE_NONE : id;
	uint64_t held = held_bytes(s), capacity = s->stats.capacity_bytes;
	uint32_t count = 0;
	bool fits = true;

	if (sample->size > capacity)
		return false;
	while (held > capacity - sample->size) {
		uint32_t victim = SAMPLE_NONE;

		/* Whoever is worth less than the newcomer may go even if that is not enough
		 * yet: were they put back, they would be in the way of everybody, forever. */
		if (count == SCHED_VICTIMS_MAX) {
			fits = false;
			break;
		}
		victim = policy->victim(s, judged);
		if (victim == SAMPLE_NONE)
			goto put_back;
		policy->leave(s, victim);
		held -= s->samples[victim].size;
		s->victims[count++] = victim;
	}
	for (uint32_t i = 0; i < count; i++)
		drop_resident(s, s->victims[i]);
	s->stats.evictions += count;
	*victims = count;
	return fits;

put_back:
	while (count > 0)
		(policy->restore ? policy->restore : policy->enter)(s, s->victims[--count]);
	return false;
}

static void admit_or_bypass(struct sched *s, uint32_t id, struct sched_verdict *verdict)
{
	if (!make_room(s, id, &verdict->victim_count)) {
		verdict->action = SCHED_BYPASS;
		return;
	}
	reserve_sample(s, id);
	verdict->action = SCHED_ADMIT;
}

/* --- what happens --------------------------------------------------------------- */

/* Whose access this is, if the caller does not know: the job's that expects the sample
 * soonest; of those that only guess, if no other one does. */
static uint32_t soonest_job(const struct sched *s, uint32_t id)
{
	uint32_t best = 0;
	double soonest = INFINITY;
	bool guessed = true;

	for (uint32_t i = 0; i < s->job_end; i++) {
		const struct job *job = s->jobs[i];
		double distance;

		if (!job || job_sample(job, id)->head == PLACE_NONE)
			continue;
		if (job->guessed && !guessed)
			continue;
		distance = job_distance(job, job_sample(job, id)->head, 0);
		if (distance < soonest || guessed != job->guessed) {
			soonest = distance;
			best = i;
			guessed = job->guessed;
		}
	}
	return best;
}

static void count_miss(struct sched *s, const struct sched_verdict *verdict, uint64_t size)
{
	if (verdict->action == SCHED_ADMIT)
		s->stats.admissions++;
	else
		s->stats.bypasses++;
	s->stats.bytes_missed += size;
}

static void count_hit(struct sched *s, uint32_t id)
{
	s->stats.hits++;
	if (s->samples[id].flags & SAMPLE_PREFETCHED)
		s->stats.hits_prefetched++;
	clear_flag(s, id, SAMPLE_PREFETCHED);
}

/* The order tells who comes next, so have its data on the way from memory before it is
 * asked for: with millions of samples, waiting for memory is most of what an access
 * costs. First the sample, a little later what the policy finds through it. */
static void look_ahead(const struct sched *s, const struct job *job, uint32_t place)
{
	uint32_t soon = job_later(job, place, LOOK_AHEAD);
	uint32_t next = job_later(job, place, LOOK_AHEAD / 2);

	if (soon != SAMPLE_NONE) {
		sched_prefetch_sample(s, soon);
		__builtin_prefetch(job_sample(job, soon));
	}
	if (next != SAMPLE_NONE && s->policy->look_ahead)
		s->policy->look_ahead(s, next);
}

int sched_access(struct sched *s, uint32_t job_id, uint32_t id, uint64_t size,
		 struct sched_verdict *verdict)
{
	struct sample *sample;
	struct job *job;
	uint32_t place;

	if (id >= s->sample_count)
		return -ERANGE;
	sample = &s->samples[id];
	sched_prefetch_sample(s, id);
	if (job_id == SCHED_JOB_ANY)
		job_id = soonest_job(s, id);
	job = sched_job(s, job_id);
	if (!job)
		return -ERANGE;
	if (sample->state == SAMPLE_ABSENT && policy_reserve(s, held_samples(s) + 1))
		return -ENOMEM;

	*verdict = (struct sched_verdict){ .victims = s->victims, .job = job_id };
	s->stats.accesses++;
	sample->frequency += sample->frequency < UINT32_MAX;
	place = job_consume(job, id);
	verdict->expected = place != PLACE_NONE;
	if (place != PLACE_NONE)
		look_ahead(s, job, place);
	switch ((enum sample_state)sample->state) {
	case SAMPLE_RESIDENT:
		verdict->action = SCHED_HIT;
		verdict->prefetched = sample->flags & SAMPLE_PREFETCHED;
		count_hit(s, id);
		if (s->policy->touch && sample_may_leave(sample))
			s->policy->touch(s, id);
		break;
	case SAMPLE_RESERVED:
		verdict->action = SCHED_JOIN;
		s->stats.joins++;
		clear_flag(s, id, SAMPLE_PREFETCHED);
		break;
	case SAMPLE_ABSENT:
		sample->size = size;
		sample->flags |= SAMPLE_SIZED;
		admit_or_bypass(s, id, verdict);
		count_miss(s, verdict, size);
		break;
	}
	return 0;
}

int sched_commit(struct sched *s, uint32_t id)
{
	if (id >= s->sample_count || s->samples[id].state != SAMPLE_RESERVED)
		return -ERANGE;
	unreserve_sample(s, id);
	s->samples[id].state = SAMPLE_RESIDENT;
	bits_set(s->resident, id);
	s->stats.resident_samples++;
	s->stats.resident_bytes += s->samples[id].size;
	enter(s, id);
	return 0;
}

int sched_cancel(struct sched *s, uint32_t id)
{
	if (id >= s->sample_count || s->samples[id].state != SAMPLE_RESERVED)
		return -ERANGE;
	unreserve_sample(s, id);
	release_sample(s, id);
	s->stats.cancels++;
	return 0;
}

/* --- ahead of the readers -------------------------------------------------------- */

int sched_warm(struct sched *s, uint32_t id, uint64_t size, struct sched_verdict *verdict)
{
	struct sample *sample;

	if (id >= s->sample_count)
		return -ERANGE;
	if (policy_reserve(s, held_samples(s) + 1))
		return -ENOMEM;
	*verdict = (struct sched_verdict){ .victims = s->victims };
	sample = &s->samples[id];
	if (sample->state != SAMPLE_ABSENT) {
		verdict->action = sample->state == SAMPLE_RESIDENT ? SCHED_HIT : SCHED_JOIN;
		return 0;
	}
	sample->size = size;
	sample->flags |= SAMPLE_SIZED;
	admit_or_bypass(s, id, verdict);
	s->stats.prefetches += verdict->action == SCHED_ADMIT;
	return 0;
}

/* The next absent sample of this job's orders that could be held at all, or
 * SAMPLE_NONE. The scan stops at it, so that the next call comes back to it. */
static uint32_t next_absent(struct sched *s, struct job *job)
{
	uint32_t steps = PREFETCH_STEPS, place;

	while ((place = job_scan(job, &job->scan, &steps)) != PLACE_NONE) {
		uint32_t id = job->orders[place_slot(place)].ids[place_index(place)];
		const struct sample *sample = &s->samples[id];

		if (sample->state == SAMPLE_ABSENT && sample->flags & SAMPLE_SIZED &&
		    sample->size <= s->stats.capacity_bytes)
			return id;
		job->scan = place + 1;
	}
	return SAMPLE_NONE;
}

/* What each training may have fetched ahead: a training that pauses keeps what it has, and must
 * not keep the others from getting theirs. */
static uint64_t prefetch_share(const struct sched *s, uint64_t budget_bytes)
{
	unsigned jobs = 0;

	for (unsigned i = 0; i < s->job_end; i++)
		jobs += s->jobs[i] && job_ahead(s->jobs[i]);
	return jobs > 1 ? budget_bytes / jobs : budget_bytes;
}

static bool prefetch_job(struct sched *s, uint32_t slot, uint64_t share, uint64_t budget_bytes,
			 uint32_t *id, struct sched_verdict *verdict)
{
	struct job *job = s->jobs[slot];
	uint64_t size;

	*id = next_absent(s, job);
	if (*id == SAMPLE_NONE)
		return false;
	size = s->samples[*id].size;
	/* One that is larger than the share comes alone. */
	if (size > budget_bytes || s->stats.prefetched_bytes > budget_bytes - size ||
	    (job->prefetched_bytes && job->prefetched_bytes + size > share))
		return false;
	admit_or_bypass(s, *id, verdict);
	if (verdict->action != SCHED_ADMIT)
		return false;
	s->samples[*id].prefetcher = (uint8_t)slot;
	set_flag(s, *id, SAMPLE_PREFETCHED);
	s->stats.prefetches++;
	job->scan++;
	return true;
}

/* A job has a whole turn, so that what is in a row in its order is so at the source: there may be
 * neighbours on a disk. Its readers make room for a sample at a time, so where others want
 * something as well it waits until there is room for several. */
static bool may_have_turn(const struct sched *s, const struct job *job, uint64_t share,
			  uint64_t budget_bytes)
{
	if (!job)
		return false;
	return s->turn_samples || share == budget_bytes ||
	       job->prefetched_bytes <= share - share / TURN_SHARE;
}

static void end_turn(struct sched *s)
{
	s->next_job = s->next_job + 1 < s->job_end ? s->next_job + 1 : 0;
	s->turn_samples = 0;
}

int sched_prefetch(struct sched *s, uint64_t budget_bytes, uint32_t *id, uint64_t *size,
		   struct sched_verdict *verdict)
{
	uint64_t share = prefetch_share(s, budget_bytes);

	*verdict = (struct sched_verdict){ .action = SCHED_BYPASS, .victims = s->victims };
	if (!s->policy->follows_orders)
		return 0;
	if (policy_reserve(s, held_samples(s) + 1))
		return -ENOMEM;
	if (s->next_job >= s->job_end || s->turn_samples >= TURN_SAMPLES)
		end_turn(s);
	for (unsigned i = 0; i < s->job_end; i++, end_turn(s)) {
		if (!may_have_turn(s, s->jobs[s->next_job], share, budget_bytes) ||
		    !prefetch_job(s, s->next_job, share, budget_bytes, id, verdict))
			continue;
		*size = s->samples[*id].size;
		verdict->job = s->next_job;
		s->turn_samples++;
		return 1;
	}
	return 0;
}

/* --- jobs, scores, orders --------------------------------------------------------- */

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
			clear_flag(s, id, SAMPLE_PREFETCHED);
	rebuild(s);
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
	if (job_init(job, slot == 0 ? sizeof(struct sample) : 0)) {
		free(job);
		return -ENOMEM;
	}
	set_job(s, slot, job);
	if (job_reserve(job, s->sample_room) || policy_reserve(s, held_samples(s) + 1)) {
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

static void rank_anew(struct sched *s)
{
	ranking_refresh(s);
	rebuild(s);
}

int sched_score(struct sched *s, uint32_t job_id, uint32_t id, float score)
{
	struct job *job = sched_job(s, job_id);

	if (!job || id >= s->sample_count)
		return -ERANGE;
	if (!isfinite(score) || score < 0)
		return -EINVAL;
	job_score(job, id, score);
	if (ranking_is_old(s, job))
		rank_anew(s);
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

int sched_order(struct sched *s, uint32_t job_id, uint64_t epoch, const uint32_t *ids,
		uint32_t count)
{
	struct job *job = sched_job(s, job_id);
	int rc;

	if (!job || count > SCHED_ORDER_MAX)
		return -ERANGE;
	for (uint32_t i = 0; i < count; i++)
		if (ids[i] >= s->sample_count)
			return -ERANGE;
	rc = job_order(job, epoch, ids, count);
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
			clear_flag(s, id, SAMPLE_PREFETCHED);
	}
}

int sched_epoch(struct sched *s, uint32_t job_id, uint64_t epoch)
{
	struct job *job = sched_job(s, job_id);
	bool dropped;

	if (!job)
		return -ERANGE;
	forget_prefetched(s, job_id, epoch);
	job_epoch(job, epoch, &dropped);
	if (s->ranking.scored_jobs > 1)
		ranking_refresh(s);
	if (dropped)
		horizon_changed(s);
	else if (s->ranking.scored_jobs > 1)
		rebuild(s);
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

/* --- by hand ---------------------------------------------------------------------- */

int sched_pin(struct sched *s, uint32_t id)
{
	if (id >= s->sample_count)
		return -ERANGE;
	leave(s, id);
	set_flag(s, id, SAMPLE_PINNED);
	return 0;
}

int sched_unpin(struct sched *s, uint32_t id)
{
	if (id >= s->sample_count)
		return -ERANGE;
	if (!(s->samples[id].flags & SAMPLE_PINNED))
		return 0;
	clear_flag(s, id, SAMPLE_PINNED);
	enter(s, id);
	return 0;
}

int sched_evict(struct sched *s, uint32_t id)
{
	if (id >= s->sample_count)
		return -ERANGE;
	if (s->samples[id].state != SAMPLE_RESIDENT)
		return -ENOENT;
	leave(s, id);
	drop_resident(s, id);
	return 0;
}

int sched_remove(struct sched *s, uint32_t id)
{
	if (id >= s->sample_count)
		return -ERANGE;
	if (s->samples[id].state == SAMPLE_RESERVED)
		return -EBUSY;
	(void)sched_evict(s, id);
	for (unsigned i = 0; i < s->job_end; i++) {
		if (!s->jobs[i])
			continue;
		job_forget(s->jobs[i], id);
		if (ranking_is_old(s, s->jobs[i]))
			rank_anew(s);
	}
	s->samples[id].size = 0;
	s->samples[id].frequency = 0;
	s->samples[id].flags = 0;
	memset(s->samples[id].policy, 0xff, POLICY_SAMPLE_BYTES);
	return 0;
}

int sched_set_capacity(struct sched *s, uint64_t capacity_bytes)
{
	s->stats.capacity_bytes = capacity_bytes;
	for (unsigned i = 0; i < s->job_end; i++)
		if (s->jobs[i])
			s->jobs[i]->scan = PLACE_NONE;
	return 0;
}

uint32_t sched_trim(struct sched *s, uint32_t *victims, uint32_t max)
{
	uint32_t count = 0;

	while (count < max && held_bytes(s) > s->stats.capacity_bytes) {
		uint32_t victim = s->policy->victim(s, SAMPLE_NONE);

		if (victim == SAMPLE_NONE)
			break;
		s->policy->leave(s, victim);
		drop_resident(s, victim);
		victims[count++] = victim;
	}
	s->stats.evictions += count;
	return count;
}
