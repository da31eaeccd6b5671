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

uint32_t core_held_samples(const struct sched *s)
{
	return s->stats.resident_samples + s->reserved_count;
}

/* --- policies ----------------------------------------------------------------- */

int core_policy_reserve(struct sched *s, uint32_t held)
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
	if (s->policy_state && !core_policy_reserve(s, core_held_samples(s) + 1))
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

void core_rebuild(struct sched *s)
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
	s->memory = core_heap;
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

void core_set_flag(struct sched *s, uint32_t id, uint8_t flag)
{
	struct sample *sample = &s->samples[id];
	uint64_t bytes = sample->state == SAMPLE_ABSENT ? 0 : sample->size;

	if (sample->flags & flag)
		return;
	sample->flags |= flag;
	s->abandoned_count += flag == SAMPLE_ABANDONED;
	if (flag == SAMPLE_PINNED)
		s->stats.pinned_bytes += bytes;
	if (flag == SAMPLE_PREFETCHED) {
		s->stats.prefetched_bytes += bytes;
		s->jobs[sample->prefetcher]->prefetched_bytes += bytes;
	}
}

void core_clear_flag(struct sched *s, uint32_t id, uint8_t flag)
{
	struct sample *sample = &s->samples[id];
	uint64_t bytes = sample->state == SAMPLE_ABSENT ? 0 : sample->size;

	if (!(sample->flags & flag))
		return;
	sample->flags &= (uint8_t)~flag;
	s->abandoned_count -= flag == SAMPLE_ABANDONED;
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

	core_clear_flag(s, id, SAMPLE_PREFETCHED);
	core_clear_flag(s, id, SAMPLE_ABANDONED);
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
 * have left all the same. A pinned newcomer is worth anybody's place, and any newcomer that of what
 * a training has left behind. */
static bool make_room(struct sched *s, uint32_t id, uint32_t *victims)
{
	const struct policy *policy = s->policy;
	const struct sample *sample = &s->samples[id];
	uint32_t judged = sample->flags & SAMPLE_PINNED ? SAMPLE_NONE : id;
	uint64_t held = held_bytes(s), capacity = s->stats.capacity_bytes;
	bool abandoned[SCHED_VICTIMS_MAX]; /* whether each victim was */
	uint32_t count = 0;
	bool fits = true, worth_less = true;

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
		victim = worth_less ? policy->victim(s, judged) : SAMPLE_NONE;
		worth_less = victim != SAMPLE_NONE;
		if (!worth_less)
			victim = abandoned_next(s);
		if (victim == SAMPLE_NONE)
			goto put_back;
		abandoned[count] = !worth_less || s->samples[victim].flags & SAMPLE_ABANDONED;
		core_clear_flag(s, victim, SAMPLE_ABANDONED);
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
	while (count > 0) {
		(policy->restore ? policy->restore : policy->enter)(s, s->victims[--count]);
		if (abandoned[count])
			core_set_flag(s, s->victims[count], SAMPLE_ABANDONED);
	}
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
	core_clear_flag(s, id, SAMPLE_PREFETCHED);
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
	if (sample->state == SAMPLE_ABSENT && core_policy_reserve(s, core_held_samples(s) + 1))
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
		core_clear_flag(s, id, SAMPLE_ABANDONED);
		if (s->policy->touch && sample_may_leave(sample))
			s->policy->touch(s, id);
		break;
	case SAMPLE_RESERVED:
		verdict->action = SCHED_JOIN;
		s->stats.joins++;
		core_clear_flag(s, id, SAMPLE_PREFETCHED);
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
	if (core_policy_reserve(s, core_held_samples(s) + 1))
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
	core_set_flag(s, *id, SAMPLE_PREFETCHED);
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
	if (core_policy_reserve(s, core_held_samples(s) + 1))
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

/* --- by hand ---------------------------------------------------------------------- */

int sched_pin(struct sched *s, uint32_t id)
{
	if (id >= s->sample_count)
		return -ERANGE;
	leave(s, id);
	core_clear_flag(s, id, SAMPLE_ABANDONED);
	core_set_flag(s, id, SAMPLE_PINNED);
	return 0;
}

int sched_unpin(struct sched *s, uint32_t id)
{
	if (id >= s->sample_count)
		return -ERANGE;
	if (!(s->samples[id].flags & SAMPLE_PINNED))
		return 0;
	core_clear_flag(s, id, SAMPLE_PINNED);
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
			core_rank_anew(s);
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
