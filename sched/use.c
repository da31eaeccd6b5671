/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "use.h"

static double distance(const struct sched *s, struct use use)
{
	return job_distance(s->jobs[use.job], use.place,
			    use.place == PLACE_NONE ? ranking_share(s, use.rank) : 0);
}

bool use_before(const struct sched *s, struct use a, struct use b)
{
	if (a.job != b.job)
		return distance(s, a) < distance(s, b);
	if (a.place == PLACE_NONE)
		return b.place == PLACE_NONE && a.rank > b.rank;
	return b.place == PLACE_NONE || job_place_after(s->jobs[a.job], b.place, a.place);
}

bool use_after(const struct sched *s, struct use a, uint32_t a_id, struct use b, uint32_t b_id)
{
	return use_before(s, b, a) || (!use_before(s, a, b) && a_id < b_id);
}

struct use use_nearest(const struct sched *s, uint32_t id)
{
	struct use nearest = use_in_job(s, 0, id);

	for (uint32_t job = 1; job < s->job_end; job++) {
		struct use use;

		if (!s->jobs[job])
			continue;
		use = use_in_job(s, job, id);
		if (use_before(s, use, nearest))
			nearest = use;
	}
	return nearest;
}
