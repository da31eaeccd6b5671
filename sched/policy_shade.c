/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * shade: the sample whose next use is farthest away leaves, and only for one whose next
 * use is nearer. Where the order is known that is Belady's MIN, where only scores are
 * it is SHADE's APP, where nothing is it is CoorDL's minio.
 *
 * Each resident is filed under the job that expects it soonest: inside the horizon in
 * the order's set of positions, whose largest member is the farthest; beyond it in the
 * job's heap, whose smallest rank is. Both say exactly who is farthest within the job,
 * however far the job has got meanwhile. What goes out of date with several jobs is
 * which of them is soonest, so a candidate is looked at once more before it leaves:
 * where it is filed is never nearer than where it belongs, so the first candidate that
 * is filed right is the farthest of all.
 */
#include <string.h>

#include "use.h"

struct shade_sample {
	uint32_t slot;	/* in the heap of `job`; HEAP_NO_SLOT: at `place` in an order */
	uint32_t place; /* where it is marked */
	uint32_t job;
};

struct shade {
	struct heap beyond[SCHED_JOBS_MAX]; /* by rank: the smallest is the farthest */
};

static struct shade *state_of(const struct sched *s)
{
	return s->policy_state;
}

static struct shade_sample *own(const struct sched *s, uint32_t id)
{
	return sched_policy_sample(s, id);
}

/* Ranks are not negative, so their bits compare as they do; the id settles ties. */
static uint64_t beyond_key(struct use use, uint32_t id)
{
	uint32_t bits;

	memcpy(&bits, &use.rank, sizeof(bits));
	return (uint64_t)bits << 32 | id;
}

static struct posset *marks_of(const struct sched *s, uint32_t job, uint32_t place)
{
	return &s->jobs[job]->orders[place_slot(place)].resident;
}

static int reserve(struct sched *s, uint32_t held)
{
	for (uint32_t job = 0; job < s->job_end; job++)
		if (s->jobs[job] && heap_reserve(&state_of(s)->beyond[job], held))
			return -1;
	return 0;
}

static void finish(struct sched *s)
{
	for (uint32_t job = 0; job < SCHED_JOBS_MAX; job++)
		heap_free(&state_of(s)->beyond[job]);
}

static void file_under(struct sched *s, uint32_t id, struct use use)
{
	struct shade_sample *sample = own(s, id);

	sample->job = use.job;
	sample->place = use.place;
	if (use.place == PLACE_NONE)
		heap_insert(&state_of(s)->beyond[use.job], sched_slots(s), id, beyond_key(use, id));
	else
		posset_add(marks_of(s, use.job, use.place), place_index(use.place));
}

static void enter(struct sched *s, uint32_t id)
{
	file_under(s, id, use_nearest(s, id));
}

static void leave(struct sched *s, uint32_t id)
{
	const struct shade_sample *sample = own(s, id);

	if (sample->slot != HEAP_NO_SLOT)
		heap_remove(&state_of(s)->beyond[sample->job], sched_slots(s), id);
	else
		posset_remove(marks_of(s, sample->job, sample->place), place_index(sample->place));
}

static bool filed_under(const struct sched *s, uint32_t id, struct use use)
{
	const struct shade_sample *sample = own(s, id);

	return sample->job == use.job &&
	       (use.place == PLACE_NONE
			? sample->slot != HEAP_NO_SLOT
			: sample->slot == HEAP_NO_SLOT && sample->place == use.place);
}

static void refile(struct sched *s, uint32_t id)
{
	struct use use = use_nearest(s, id);

	if (filed_under(s, id, use)) {
		if (use.place == PLACE_NONE)
			heap_rekey(&state_of(s)->beyond[use.job], sched_slots(s), id,
				   beyond_key(use, id));
		return;
	}
	leave(s, id);
	file_under(s, id, use);
}

/* Who is farthest after this one will probably leave next: have it on the way. */
static void prefetch_next_victim(const struct sched *s, const struct order *order, uint32_t index)
{
	uint32_t next = posset_near_below(&order->resident, index);

	if (next != POSSET_NONE)
		sched_prefetch_sample(s, order->ids[next]);
}

/* Who is farthest among those filed under `job`, or SAMPLE_NONE. */
static uint32_t farthest_in_job(const struct sched *s, uint32_t job)
{
	const struct heap *beyond = &state_of(s)->beyond[job];
	const struct job *j = s->jobs[job];

	if (beyond->count)
		return heap_at(beyond, 0)->id;
	for (unsigned rank = j->order_count; rank-- > 0;) {
		const struct order *order = &j->orders[j->sequence[rank]];
		uint32_t index = posset_max(&order->resident);

		if (index == POSSET_NONE)
			continue;
		prefetch_next_victim(s, order, index);
		return order->ids[index];
	}
	return SAMPLE_NONE;
}

/* Who is farthest of all, as filed, and the use that it is filed under. */
static uint32_t farthest_filed(const struct sched *s, struct use *use)
{
	uint32_t farthest = SAMPLE_NONE;

	for (uint32_t job = 0; job < s->job_end; job++) {
		uint32_t id = s->jobs[job] ? farthest_in_job(s, job) : SAMPLE_NONE;
		struct use candidate;

		if (id == SAMPLE_NONE)
			continue;
		candidate = use_in_job(s, job, id);
		if (farthest != SAMPLE_NONE && !use_after(s, candidate, id, *use, farthest))
			continue;
		farthest = id;
		*use = candidate;
	}
	return farthest;
}

static uint32_t victim(struct sched *s, uint32_t newcomer)
{
	for (;;) {
		struct use filed;
		uint32_t id = farthest_filed(s, &filed);

		if (id == SAMPLE_NONE)
			return SAMPLE_NONE;
		if (!filed_under(s, id, use_nearest(s, id))) {
			refile(s, id);
			continue;
		}
		if (newcomer != SAMPLE_NONE && !use_before(s, use_nearest(s, newcomer), filed))
			return SAMPLE_NONE;
		return id;
	}
}

static void look_ahead(const struct sched *s, uint32_t id)
{
	uint32_t job = own(s, id)->job;

	if (job < SCHED_JOBS_MAX)
		heap_prefetch(&state_of(s)->beyond[job], sched_slots(s), id);
}

static void rebuild(struct sched *s)
{
	for (uint32_t job = 0; job < SCHED_JOBS_MAX; job++) {
		state_of(s)->beyond[job].count = 0;
		for (unsigned i = 0; s->jobs[job] && i < s->jobs[job]->order_count; i++)
			posset_clear(&s->jobs[job]->orders[s->jobs[job]->sequence[i]].resident);
	}
	for (uint32_t id = sched_next_resident(s, 0); id != SAMPLE_NONE;
	     id = sched_next_resident(s, id + 1)) {
		own(s, id)->slot = HEAP_NO_SLOT;
		if (sample_may_leave(&s->samples[id]))
			enter(s, id);
	}
}

static const char *check_filing(const struct sched *s, uint32_t id, uint32_t *marked)
{
	const struct shade_sample *sample = own(s, id);
	struct use use;

	if (sample->job >= SCHED_JOBS_MAX || !s->jobs[sample->job])
		return "a resident is filed under no job";
	use = use_in_job(s, sample->job, id);
	if (!filed_under(s, id, use))
		return "a resident is not filed where its job expects it";
	if (use.place == PLACE_NONE)
		return heap_at(&state_of(s)->beyond[use.job], sample->slot)->key ==
				       beyond_key(use, id)
			       ? NULL
			       : "a key in the heap is not the sample's";
	++*marked;
	return posset_has(marks_of(s, use.job, use.place), place_index(use.place))
		       ? NULL
		       : "a resident is not marked in its order";
}

static uint32_t count_marks(const struct sched *s)
{
	uint32_t marks = 0;

	for (uint32_t job = 0; job < s->job_end; job++)
		for (unsigned i = 0; s->jobs[job] && i < s->jobs[job]->order_count; i++) {
			const struct order *order =
				&s->jobs[job]->orders[s->jobs[job]->sequence[i]];

			for (uint32_t index = 0; index < order->count; index++)
				marks += posset_has(&order->resident, index);
		}
	return marks;
}

static const char *check(const struct sched *s)
{
	uint32_t may_leave = 0, marked = 0, beyond = 0;

	for (uint32_t id = 0; id < s->sample_count; id++) {
		const char *wrong = NULL;

		if (sample_may_leave(&s->samples[id])) {
			wrong = check_filing(s, id, &marked);
			may_leave++;
		}
		if (wrong)
			return wrong;
	}
	for (uint32_t job = 0; job < s->job_end; job++) {
		if (heap_check(&state_of(s)->beyond[job], sched_slots(s)))
			return "a heap is out of order";
		beyond += state_of(s)->beyond[job].count;
	}
	if (count_marks(s) != marked)
		return "an order marks a sample that is not resident";
	return beyond + marked == may_leave ? NULL : "what is filed is not the residents";
}

const struct policy policy_shade = {
	.name = "shade",
	.summary = "by next use: known orders, then scores (default)",
	.follows_orders = true,
	.state_bytes = sizeof(struct shade),
	.sample_bytes = sizeof(struct shade_sample),
	.reserve = reserve,
	.finish = finish,
	.enter = enter,
	.leave = leave,
	.touch = refile,
	.rescore = refile,
	.victim = victim,
	.look_ahead = look_ahead,
	.rebuild = rebuild,
	.check = check,
};
