/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* sched_check(): everything that must hold between two calls, from scratch. */
#include <string.h>

#include "bits.h"
#include "core.h"

struct tally {
	uint64_t resident_bytes, reserved_bytes, pinned_bytes, prefetched_bytes;
	uint64_t prefetched_for[SCHED_JOBS_MAX];
	uint32_t resident, reserved, abandoned;
};

static const char *tally_sample(const struct sched *s, uint32_t id, struct tally *tally)
{
	const struct sample *sample = &s->samples[id];

	if (bits_test(s->resident, id) != (sample->state == SAMPLE_RESIDENT))
		return "the bitmap of residents does not match the states";
	if (sample->flags & SAMPLE_ABANDONED && !sample_may_leave(sample))
		return "a sample is abandoned that cannot leave";
	tally->abandoned += sample->flags & SAMPLE_ABANDONED ? 1 : 0;
	if (sample->state == SAMPLE_ABSENT)
		return sample->flags & SAMPLE_PREFETCHED ? "an absent sample counts as prefetched"
							 : NULL;
	if (sample->state == SAMPLE_RESIDENT) {
		tally->resident++;
		tally->resident_bytes += sample->size;
	} else {
		tally->reserved++;
		tally->reserved_bytes += sample->size;
	}
	if (sample->flags & SAMPLE_PINNED)
		tally->pinned_bytes += sample->size;
	if (sample->flags & SAMPLE_PREFETCHED) {
		tally->prefetched_bytes += sample->size;
		tally->prefetched_for[sample->prefetcher] += sample->size;
	}
	return NULL;
}

static const char *check_bytes(const struct sched *s)
{
	struct tally tally = { 0 };

	for (uint32_t id = 0; id < s->sample_count; id++) {
		const char *wrong = tally_sample(s, id, &tally);

		if (wrong)
			return wrong;
	}
	if (tally.resident != s->stats.resident_samples ||
	    tally.resident_bytes != s->stats.resident_bytes)
		return "resident samples do not add up";
	if (tally.reserved != s->reserved_count || tally.reserved_bytes != s->stats.reserved_bytes)
		return "reservations do not add up";
	if (tally.abandoned != s->abandoned_count)
		return "abandoned samples do not add up";
	if (tally.pinned_bytes != s->stats.pinned_bytes)
		return "pinned bytes do not add up";
	if (tally.prefetched_bytes != s->stats.prefetched_bytes)
		return "prefetched bytes do not add up";
	for (uint32_t job = 0; job < SCHED_JOBS_MAX; job++)
		if (tally.prefetched_for[job] !=
		    (sched_job(s, job) ? s->jobs[job]->prefetched_bytes : 0))
			return "bytes that were prefetched for a job do not add up";
	return NULL;
}

static const char *check_counts(const struct sched_stats *stats)
{
	if (stats->hits + stats->joins + stats->admissions + stats->bypasses != stats->accesses)
		return "hits, joins, admissions and bypasses are not the accesses";
	return stats->hits_prefetched <= stats->hits ? NULL : "more prefetched hits than hits";
}

static const char *check_ranking(const struct sched *s)
{
	uint32_t scored_jobs = 0;

	for (unsigned i = 0; i < s->job_end; i++)
		scored_jobs += s->jobs[i] && s->jobs[i]->scored;
	return scored_jobs == s->ranking.scored_jobs ? NULL
						     : "the ranking does not know who has scores";
}

const char *sched_check(const struct sched *s)
{
	const char *wrong = check_bytes(s);

	if (!wrong)
		wrong = check_counts(&s->stats);
	if (!wrong)
		wrong = check_ranking(s);
	for (unsigned i = 0; i < s->job_end && !wrong; i++)
		if (s->jobs[i])
			wrong = job_check(s->jobs[i]);
	if (!wrong && s->policy->check)
		wrong = s->policy->check(s);
	return wrong;
}
