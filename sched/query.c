/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What can be asked of a handle without changing it. */
#include <errno.h>

#include "bits.h"
#include "core.h"

const char *sched_policy(const struct sched *s)
{
	return s->policy->name;
}

bool sched_resident(const struct sched *s, uint32_t id)
{
	return id < s->sample_count && bits_test(s->resident, id);
}

uint32_t sched_next_resident(const struct sched *s, uint32_t from)
{
	size_t words = bits_words(s->sample_count);

	for (size_t word = from / 64; word < words; word++) {
		uint64_t bits = s->resident[word];

		if (word == from / 64)
			bits &= UINT64_MAX << (from & 63);
		if (bits)
			return (uint32_t)(word * 64 + (unsigned)__builtin_ctzll(bits));
	}
	return SAMPLE_NONE;
}

const uint64_t *sched_resident_bitmap(const struct sched *s)
{
	return s->resident;
}

float sched_get_score(const struct sched *s, uint32_t job_id, uint32_t id)
{
	const struct job *job = sched_job(s, job_id);

	return job && id < s->sample_count ? job_sample(job, id)->score : SCORE_NONE;
}

uint32_t sched_get_frequency(const struct sched *s, uint32_t id)
{
	return id < s->sample_count ? s->samples[id].frequency : 0;
}

static float worth_in_order(const struct job *job, uint32_t place)
{
	uint32_t slot = place_slot(place);
	float late = (float)place_index(place) / (float)job->orders[slot].count;

	return ((job->rank[slot] ? 2.0f : 3.0f) - late) / 3.0f;
}

/* SCORE_NONE: no order of the job expects it. */
static float worth_in_job(const struct job *job, uint32_t id, bool served)
{
	uint32_t place = job_sample(job, id)->head;

	if (served && place != PLACE_NONE)
		place = job->orders[place_slot(place)].next[place_index(place)];
	return place == PLACE_NONE ? SCORE_NONE : worth_in_order(job, place);
}

static float worth_by_rank(const struct sched *s, uint32_t id)
{
	float rank = ranking_of(s, id);
	double ratio = rank < 0 ? 0 : ranking_ratio(s, rank);

	return rank < 0 ? SCORE_NONE : (float)(ratio / (ratio + 1.0) / 3.0);
}

float sched_worth(const struct sched *s, uint32_t id, bool served)
{
	float best = SCORE_NONE;

	if (id >= s->sample_count)
		return SCORE_NONE;
	for (unsigned i = 0; i < s->job_end; i++) {
		float worth = s->jobs[i] ? worth_in_job(s->jobs[i], id, served) : SCORE_NONE;

		best = worth > best ? worth : best;
	}
	return best < 0 ? worth_by_rank(s, id) : best;
}

uint32_t sched_get_ahead(const struct sched *s, uint32_t job_id, uint32_t *ids, uint32_t max)
{
	const struct job *job = sched_job(s, job_id);
	uint32_t scan = PLACE_NONE, steps = UINT32_MAX, count = 0, place;

	if (!job)
		return 0;
	while (count < max && (place = job_scan(job, &scan, &steps)) != PLACE_NONE) {
		ids[count++] = job->orders[place_slot(place)].ids[place_index(place)];
		scan++;
	}
	return count;
}

void sched_get_stats(const struct sched *s, struct sched_stats *stats)
{
	*stats = s->stats;
	stats->samples = s->sample_count;
}

int sched_get_job_stats(const struct sched *s, uint32_t job_id, struct sched_job_stats *stats)
{
	const struct job *job = sched_job(s, job_id);

	if (!job)
		return -ERANGE;
	*stats = (struct sched_job_stats){
		.epoch = job->epoch,
		.order_ahead = job_ahead(job),
		.order_read = job_read(job),
		.order_bytes = job_order_bytes(job),
		.covered = job->covered,
		.named = job->named,
		.covered_named = job->covered_named,
		.scored = job->scored,
		.ended = job->ended,
	};
	return 0;
}
