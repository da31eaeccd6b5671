/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What trainings and people have said, as far as a successor has to know it: jobs with their
 * scores, epochs and orders, pins, the capacity and the policy. It is in the estate, beside the
 * nodes, and is written when the policy core has taken it. Without an estate of the daemon's
 * nothing is kept.
 *
 * Scores are by slot, as in the core. Orders are the core's own memory: see sched_set_memory().
 * Pins are in the nodes. What the core has counted (frequencies, hits, what an epoch has covered)
 * begins anew.
 */
#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/estate.h"
#include "base/format.h"
#include "cache/internal.h"

/* The scores of a job. 0: none, else the bits of the score and 1. */
struct kept_scores {
	uint64_t room;
	uint32_t scores[];
};

struct kept_job {
	bool is_there; /* job 0 always is */
	bool is_guess;
	uint64_t epoch;
	double uses;
	struct kept_scores *scores; /* NULL: none yet */
};

struct said {
	uint64_t capacity_bytes; /* 0: as the mount was begun */
	uint64_t names_version;	 /* of slots, see cache_names_version() */
	_Atomic uint32_t policy; /* which of the names counts */
	char policies[2][32];	 /* empty: likewise */
	struct kept_job jobs[SCHED_JOBS_MAX];
};

static_assert(sizeof(float) == sizeof(uint32_t), "a score is a word");

/* --- what is said -------------------------------------------------------------------------------
 */

static struct kept_job *job_of_locked(struct cache *cache, uint32_t job)
{
	lock_assert_held(&cache->lock);
	return cache->said && job < SCHED_JOBS_MAX ? &cache->said->jobs[job] : NULL;
}

static void drop_scores(struct cache *cache, struct kept_job *kept)
{
	struct kept_scores *scores = kept->scores;

	kept->scores = NULL;
	estate_free(cache->options.estate, scores);
}

void said_begin_locked(struct cache *cache, uint32_t job)
{
	struct kept_job *kept = job_of_locked(cache, job);

	lock_assert_held(&cache->lock);
	if (!kept)
		return;
	drop_scores(cache, kept);
	kept->is_guess = false;
	kept->epoch = 0;
	kept->uses = 0;
	kept->is_there = true;
}

void said_end_locked(struct cache *cache, uint32_t job)
{
	struct kept_job *kept = job_of_locked(cache, job);

	lock_assert_held(&cache->lock);
	if (!kept)
		return;
	kept->is_there = false;
	drop_scores(cache, kept);
}

void said_guess_locked(struct cache *cache, uint32_t job)
{
	struct kept_job *kept = job_of_locked(cache, job);

	lock_assert_held(&cache->lock);
	if (kept)
		kept->is_guess = true;
}

void said_epoch_locked(struct cache *cache, uint32_t job, uint64_t epoch)
{
	struct kept_job *kept = job_of_locked(cache, job);

	lock_assert_held(&cache->lock);
	if (kept)
		kept->epoch = epoch;
}

void said_uses_locked(struct cache *cache, uint32_t job, double uses)
{
	struct kept_job *kept = job_of_locked(cache, job);

	lock_assert_held(&cache->lock);
	if (kept)
		kept->uses = uses;
}

/* Room for the scores of all slots. Without memory they are not kept. */
static struct kept_scores *make_room_locked(struct cache *cache, struct kept_job *kept)
{
	struct estate *estate = cache->options.estate;
	struct kept_scores *before = kept->scores, *scores;

	lock_assert_held(&cache->lock);
	if (before && before->room >= cache->slots.count)
		return before;
	scores = estate_new(estate, sizeof(*scores) + cache->slots.room * sizeof(uint32_t));
	if (!scores)
		return NULL;
	scores->room = cache->slots.room;
	if (before)
		memcpy(scores->scores, before->scores, before->room * sizeof(uint32_t));
	estate_keep(scores, ESTATE_SCORES);
	kept->scores = scores;
	estate_free(estate, before);
	return scores;
}

void said_score_locked(struct cache *cache, uint32_t job, uint32_t slot, float score)
{
	struct kept_job *kept = job_of_locked(cache, job);
	struct kept_scores *scores = kept ? make_room_locked(cache, kept) : NULL;
	uint32_t bits;

	lock_assert_held(&cache->lock);
	if (!scores || slot >= scores->room)
		return;
	memcpy(&bits, &score, sizeof(bits));
	scores->scores[slot] = bits + 1;
}

void said_forget_scores_locked(struct cache *cache, uint32_t job)
{
	struct kept_job *kept = job_of_locked(cache, job);

	lock_assert_held(&cache->lock);
	if (kept)
		drop_scores(cache, kept);
}

void said_forget_slot_locked(struct cache *cache, uint32_t slot)
{
	lock_assert_held(&cache->lock);
	for (uint32_t job = 0; job < SCHED_JOBS_MAX; job++) {
		struct kept_job *kept = job_of_locked(cache, job);

		if (kept && kept->scores && slot < kept->scores->room)
			kept->scores->scores[slot] = 0;
	}
}

void said_names_locked(struct cache *cache)
{
	lock_assert_held(&cache->lock);
	if (cache->said)
		cache->said->names_version = cache->slots.version;
}

void said_capacity_locked(struct cache *cache, uint64_t bytes)
{
	lock_assert_held(&cache->lock);
	if (cache->said)
		cache->said->capacity_bytes = bytes;
}

void said_policy_locked(struct cache *cache)
{
	struct said *said = cache->said;
	uint32_t other;

	lock_assert_held(&cache->lock);
	if (!said)
		return;
	other = !atomic_load(&said->policy);
	snprintf(said->policies[other], sizeof(said->policies[other]), "%s",
		 sched_policy(cache->sched));
	atomic_store(&said->policy, other);
}

/* --- the core's memory of orders ----------------------------------------------------------------
 */

static void *order_get(void *estate, size_t bytes)
{
	return estate_new(estate, bytes);
}

static void order_keep(void *estate, void *block)
{
	(void)estate;
	estate_keep(block, ESTATE_ORDER);
}

static void order_give_back(void *estate, void *block)
{
	estate_free(estate, block);
}

int said_open(struct cache *cache)
{
	struct estate *estate = cache->options.estate;
	struct sched_memory memory = { order_get, order_keep, order_give_back, estate };

	if (!estate)
		return 0;
	sched_set_memory(cache->sched, &memory);
	cache->said = estate_next(estate, ESTATE_SAID, NULL);
	if (cache->said)
		return 0;
	cache->said = estate_new(estate, sizeof(*cache->said));
	if (!cache->said)
		return -ENOMEM;
	cache->said->jobs[0].is_there = true;
	estate_keep(cache->said, ESTATE_SAID);
	return 0;
}

/* --- what a successor makes of it ---------------------------------------------------------------
 */

static bool is_used(const struct said *said, const struct kept_scores *scores)
{
	for (uint32_t job = 0; job < SCHED_JOBS_MAX; job++)
		if (said->jobs[job].scores == scores)
			return true;
	return false;
}

/* A daemon may have died between two blocks of scores. */
static void free_unused(struct cache *cache)
{
	struct estate *estate = cache->options.estate;
	struct kept_scores *scores = NULL;

	while ((scores = estate_next(estate, ESTATE_SCORES, scores)))
		if (!is_used(cache->said, scores))
			estate_free(estate, scores);
}

/* Jobs get their numbers in turn, so those that are missing between others begin and end. */
static int restore_jobs_locked(struct cache *cache, uint64_t now_ms)
{
	const struct kept_job *jobs = cache->said->jobs;
	uint32_t end = SCHED_JOBS_MAX, number;
	int rc = 0;

	lock_assert_held(&cache->lock);
	while (end > 1 && !jobs[end - 1].is_there)
		end--;
	for (uint32_t job = 1; !rc && job < end; job++)
		rc = sched_job_begin(cache->sched, &number);
	for (uint32_t job = 1; !rc && job < end; job++) {
		if (!jobs[job].is_there) {
			rc = sched_job_end(cache->sched, job);
			continue;
		}
		history_job_locked(cache, job, now_ms);
		if (jobs[job].is_guess)
			rc = sched_job_guess(cache->sched, job);
	}
	return rc;
}

static void restore_scores_locked(struct cache *cache, uint32_t job)
{
	const struct kept_scores *scores = cache->said->jobs[job].scores;

	lock_assert_held(&cache->lock);
	for (uint32_t slot = 0; scores && slot < scores->room && slot < cache->slots.count;
	     slot++) {
		uint32_t bits = scores->scores[slot] - 1;
		float score;

		memcpy(&score, &bits, sizeof(score));
		if (scores->scores[slot])
			(void)sched_score(cache->sched, job, slot, score);
	}
}

static void restore_job_locked(struct cache *cache, uint32_t job, uint64_t now_ms)
{
	const struct kept_job *kept = &cache->said->jobs[job];

	lock_assert_held(&cache->lock);
	restore_scores_locked(cache, job);
	cache->jobs[job].uses = kept->uses;
	if (!sched_epoch(cache->sched, job, kept->epoch) && kept->epoch)
		history_epoch_locked(cache, job, kept->epoch, now_ms);
}

/* Those of jobs that are gone are given back. */
static int restore_orders_locked(struct cache *cache)
{
	struct estate *estate = cache->options.estate;
	void *block = NULL;

	lock_assert_held(&cache->lock);
	while ((block = estate_next(estate, ESTATE_ORDER, block)))
		if (sched_adopt_order(cache->sched, block) == -ENOMEM)
			return -ENOMEM;
	return 0;
}

static void restore_settings_locked(struct cache *cache)
{
	const struct said *said = cache->said;

	lock_assert_held(&cache->lock);
	cache->slots.version = said->names_version;
	if (*said->policies[atomic_load(&said->policy)])
		(void)sched_set_policy(cache->sched, said->policies[atomic_load(&said->policy)]);
	if (!said->capacity_bytes)
		return;
	(void)sched_set_capacity(cache->sched,
				 said->capacity_bytes - cache->options.inflight_bytes);
	cache->options.capacity_bytes = cache->ceiling_bytes = said->capacity_bytes;
}

static void restore_pin(void *context, struct node *node)
{
	struct cache *cache = context;

	lock_acquire(&cache->lock);
	if (node_slot(node) != SLOT_NONE && node->cache.is_pinned)
		(void)sched_pin(cache->sched, node->cache.slot);
	lock_release(&cache->lock);
}

int said_restore(struct cache *cache)
{
	uint64_t now_ms = clock_now_ms();
	int rc;

	if (!cache->said)
		return 0;
	lock_acquire(&cache->lock);
	free_unused(cache);
	restore_settings_locked(cache);
	rc = restore_jobs_locked(cache, now_ms);
	for (uint32_t job = 0; !rc && job < SCHED_JOBS_MAX; job++)
		if (cache->said->jobs[job].is_there)
			restore_job_locked(cache, job, now_ms);
	if (!rc)
		rc = restore_orders_locked(cache);
	lock_release(&cache->lock);
	if (!rc)
		tree_for_all(cache->tree, restore_pin, cache);
	return rc;
}

const struct format_line said_format[] = { FORMAT_SIZE(struct said),
					   FORMAT_FIELD(struct said, names_version),
					   FORMAT_FIELD(struct said, policies),
					   FORMAT_FIELD(struct said, jobs),
					   FORMAT_SIZE(struct kept_job),
					   FORMAT_FIELD(struct kept_job, epoch),
					   FORMAT_FIELD(struct kept_job, uses),
					   FORMAT_FIELD(struct kept_job, scores),
					   FORMAT_FIELD(struct kept_scores, scores),
					   FORMAT_NUMBER(SCHED_ORDER_FORMAT),
					   FORMAT_END };
