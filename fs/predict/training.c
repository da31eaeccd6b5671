/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "predict/training.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "escape.h"

#define LEFT_MAX 64 /* entries that nobody read, before the order is announced anew */

/* --- begin and end
 * --------------------------------------------------------------------------------
 */

/* The seed that a training is likely to have been given if this is seed + epoch. */
static uint32_t likely_seed(uint32_t seed)
{
	if (seed == 42 || seed > 1000)
		return seed;
	return 0;
}

int training_begin(struct training *training, struct list *list, const struct shuffle_trial *trial,
		   const struct shuffle_match *match, struct cache *cache)
{
	int rc;

	*training = (struct training){ .list = *list, .match = *match, .begun = true };
	*list = (struct list){ 0 };
	rc = shuffle_follow_create(&training->follow, trial, match);
	if (rc) {
		list_free(&training->list);
		return rc;
	}
	cache_hold_samples(cache); /* what the slots mean must not change */
	training->seed = likely_seed(match->seed);
	training->epoch = match->seed - training->seed;
	return 0;
}

void training_end(struct training *training, struct cache *cache, struct control *control)
{
	control_guess_end(control, &training->guess);
	cache_release_samples(cache);
	shuffle_follow_free(training->follow);
	list_free(&training->list);
	*training = (struct training){ 0 };
}

bool training_read(struct training *training, int32_t thread, uint32_t index, bool ours,
		   uint64_t now_ms)
{
	int event = shuffle_follow_read(training->follow, thread, index, ours);

	training->read_ms = now_ms;
	if (event < 0 || event == SHUFFLE_LOST)
		return false;
	training->changed |= event != SHUFFLE_NOTHING;
	if (event == SHUFFLE_NEXT) {
		training->epoch++;
		training->begun = true;
	}
	return true;
}

/* --- orders
 * -------------------------------------------------------------------------------------*/

static int announce(struct training *training, struct control *control, bool next, uint64_t at,
		    uint32_t *announced)
{
	uint32_t *order, count;
	int rc = shuffle_follow_order(training->follow, next, &order, &count);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < count; i++)
		order[i] = cache_id_of_slot(training->list.slots[order[i]]);
	rc = control_guess_order(control, &training->guess, training->epoch + next, order, count,
				 at);
	free(order);
	*announced = count;
	return rc;
}

int training_announce(struct training *training, struct control *control, uint64_t at)
{
	const struct shuffle_layout *layout = shuffle_follow_layout(training->follow);
	uint32_t seed = shuffle_follow_seed(training->follow);
	bool was_right = training->guess.number && training->begun && !training->astray &&
			 training->next_seed == seed &&
			 !memcmp(&training->layout, layout, sizeof(*layout));
	uint32_t count = training->next_count;
	int rc = 0;

	if (!training->changed || !layout->world)
		return 0;
	training->changed = false;
	if (!training->guess.number)
		rc = control_guess_begin(control, &training->guess);
	if (!rc && training->begun)
		rc = control_guess_epoch(control, &training->guess, training->epoch);
	/* What was announced for this epoch, and read of it meanwhile, stays as it is. */
	if (!rc && !was_right)
		rc = announce(training, control, false, at, &count);
	if (!rc)
		training->due = count + (was_right ? 0 : shuffle_follow_count(training->follow));
	if (!rc)
		rc = announce(training, control, true, UINT64_MAX, &training->next_count);
	if (rc)
		return rc;
	training->begun = training->astray = false;
	training->layout = *layout;
	training->next_seed = seed + !shuffle_follow_is_stuck(training->follow);
	return 0;
}

void training_compare(struct training *training, struct cache *cache)
{
	uint64_t seen = shuffle_follow_count(training->follow), expected;
	struct sched_job_stats stats;

	if (!training->guess.number || training->begun || training->changed ||
	    cache_job_stats(cache, training->guess.job, &stats))
		return;
	expected = training->next_count + (training->due > seen ? training->due - seen : 0);
	if (stats.order_ahead > expected + LEFT_MAX)
		training->changed = training->astray = true;
}

uint64_t training_bytes(const struct training *training)
{
	const struct list *list = &training->list;

	return shuffle_follow_bytes(training->follow) +
	       ((uint64_t)list->count + list->slot_count) * sizeof(*list->slots);
}

/* --- for people
 * ---------------------------------------------------------------------------------*/

static bool is_local(const struct shuffle_layout *layout, uint32_t rank)
{
	return layout->local[rank / 64] >> rank % 64 & 1;
}

/* "ranks 0-3,6 of 8", as far as it fits. */
static void describe_ranks(const struct shuffle_layout *layout, char *text, size_t room)
{
	unsigned ranks = shuffle_layout_ranks(layout);
	size_t at = (size_t)snprintf(text, room, ranks == 1 ? "rank" : "ranks");
	const char *separator = " ";

	for (uint32_t rank = 0, last; rank < layout->world && at + 32 < room; rank = last + 1) {
		last = rank;
		if (!is_local(layout, rank))
			continue;
		while (last + 1 < layout->world && is_local(layout, last + 1))
			last++;
		at += (size_t)snprintf(text + at, room - at,
				       last > rank ? "%s%" PRIu32 "-%" PRIu32 : "%s%" PRIu32,
				       separator, rank, last);
		separator = ",";
	}
	snprintf(text + at, room - at, " of %" PRIu32, layout->world);
}

void training_describe(const struct training *training, char text[TRAINING_TEXT])
{
	const struct shuffle_layout *layout = shuffle_follow_layout(training->follow);
	uint32_t seed = shuffle_follow_seed(training->follow);
	char ranks[128] = "ranks to be seen", root[ESCAPE_MAX * 48 + 8] = "the top";
	size_t length = strlen(training->list.root);

	if (layout->world)
		describe_ranks(layout, ranks, sizeof(ranks));
	if (length > 48)
		snprintf(root, sizeof(root), "a long path");
	else if (length)
		strcpy(escape_text(root, training->list.root, length, ESCAPE_LINE), "/");
	snprintf(text, TRAINING_TEXT, "epoch %" PRIu32 " of %s, seed %" PRIu32 "%s, %s, below %s",
		 seed - training->seed, shuffle_kind_name(layout->kind), training->seed,
		 shuffle_follow_is_stuck(training->follow) ? " in every epoch" : "", ranks, root);
}
