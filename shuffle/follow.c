/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A training whose shuffle was recognised.
 *
 * What it reads is compared with the permutation of its epoch. A sample that is not ahead in it is
 * put aside; if a few of those are the begin of the next epoch's permutation, or of the same one
 * once more because nobody calls set_epoch(), that epoch has begun. Meanwhile it is learned which
 * ranks read here, and how much of the end of an epoch is left out.
 */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "shade/shuffle.h"

#define STEPS 1024	  /* reads of an epoch by which the layout is learned */
#define LEARN_FIRST 8	  /* so many are enough to begin with, */
#define SETTLED 512	  /* and then it is certain; */
#define LEARN_LATER 256	  /* and so many once it is known; then twice as many, and so on */
#define OTHERS_AGE 256	  /* reads after which what was put aside means nothing */
#define OTHERS_EVERY 8	  /* they are looked at when there are so many more */
#define THREADS 512	  /* whose last place is remembered */
#define BACK_STEPS 64	  /* that a thread may seem to go back: reads are not told of in sequence */
#define REPEAT_SHARE 64	  /* a sample that comes again is at most such a share of them back, */
#define REPEAT_PLACES 256 /* and so many places more */
#define REACH_SHARE 16	  /* readers are ahead of each other by such a share of the samples, */
#define REACH_PLACES 1024 /* and so many places more */

struct other {
	struct shuffle_read read;
	uint64_t when; /* by the count of reads */
};

struct shuffle_follow {
	uint32_t n, seed;
	bool settled; /* the layout is known by many reads */
	bool stuck;
	bool announced;	      /* somebody knows the orders, so reads are expected to follow */
	uint32_t *place;      /* by index: in this epoch */
	uint32_t *next_place; /* and in that of the next seed */
	uint8_t *times;	      /* by index: how often it was read in this epoch */
	uint32_t stride;      /* between reads of a thread, before the layout is known; 0: not */
	uint32_t count;	      /* reads of this epoch */
	uint32_t skipped;     /* places before this one count as read */
	uint32_t top;	      /* the last place that was read, and one more */
	struct shuffle_layout layout;
	struct shuffle_step steps[STEPS];
	uint32_t step_count, learn_at;
	struct shuffle_step last[THREADS]; /* by a hash of the thread: its latest read */
	uint64_t reads;
	struct other others[SHUFFLE_READS]; /* the latest that are not of this epoch */
	unsigned other_count, others_tried;
	uint64_t astray[SHUFFLE_RECENT / 64 + 1]; /* bitmap: the latest reads that do not follow */
	unsigned astray_count, recent_at;
};

/* --- permutations --------------------------------------------------------------------------------
 */

/* Where each index is in the permutation of a seed. */
static int fill_places(uint32_t seed, uint32_t n, uint32_t *places)
{
	uint32_t *permutation = malloc((size_t)n * sizeof(*permutation));

	if (!permutation)
		return -ENOMEM;
	shuffle_permute(seed, permutation, n);
	for (uint32_t i = 0; i < n; i++)
		places[permutation[i]] = i;
	free(permutation);
	return 0;
}

static uint32_t next_seed(const struct shuffle_follow *follow)
{
	return follow->seed + !follow->stuck;
}

/* --- begin and end
 * -------------------------------------------------------------------------------- */

void shuffle_follow_free(struct shuffle_follow *follow)
{
	if (!follow)
		return;
	free(follow->place);
	free(follow->next_place);
	free(follow->times);
	free(follow);
}

/* A training that was recognised in the middle of its epoch has read what comes before. */
static uint32_t first_place(const struct shuffle_follow *follow, const struct shuffle_trial *trial)
{
	uint32_t first = UINT32_MAX;

	for (unsigned i = 0; i < trial->count; i++) {
		uint32_t place = follow->place[trial->reads[i].index];

		first = place < first ? place : first;
	}
	return first;
}

/* The distance at which reads of one thread follow each other most often, if any comes twice. */
static uint32_t find_stride(const struct shuffle_follow *follow, const struct shuffle_trial *trial)
{
	uint32_t distance[SHUFFLE_READS] = { 0 }, best = 0;
	unsigned most = 1;

	for (unsigned i = 0; i < trial->count; i++) {
		uint32_t place = follow->place[trial->reads[i].index];
		uint32_t last = follow->place[trial->reads[trial->before[i]].index];
		unsigned same = 0;

		distance[i] = place > last && place - last <= SHUFFLE_WORLD_MAX ? place - last : 0;
		for (unsigned k = 0; distance[i] && k <= i; k++)
			same += distance[k] == distance[i];
		if (same > most || (same == most && most > 1 && distance[i] < best)) {
			most = same;
			best = distance[i];
		}
	}
	return best;
}

int shuffle_follow_create(struct shuffle_follow **out, const struct shuffle_trial *trial,
			  const struct shuffle_match *match)
{
	struct shuffle_follow *follow = calloc(1, sizeof(*follow));
	size_t n = trial->n;

	if (!follow)
		return -ENOMEM;
	follow->n = trial->n;
	follow->seed = match->seed;
	follow->learn_at = LEARN_FIRST;
	follow->place = malloc(n * sizeof(*follow->place));
	follow->next_place = malloc(n * sizeof(*follow->next_place));
	follow->times = calloc(n, 1);
	if (!follow->place || !follow->next_place || !follow->times ||
	    fill_places(follow->seed, follow->n, follow->place) ||
	    fill_places(follow->seed + 1, follow->n, follow->next_place)) {
		shuffle_follow_free(follow);
		return -ENOMEM;
	}
	follow->stride = find_stride(follow, trial);
	if (!match->within)
		follow->skipped = first_place(follow, trial);
	follow->top = follow->skipped;
	*out = follow;
	return 0;
}

/* --- which epoch a read is of
 * ---------------------------------------------------------------------- */

static bool is_local_place(const struct shuffle_follow *follow, uint32_t place)
{
	uint32_t same;

	if (!follow->layout.world || follow->layout.kind == SHUFFLE_REPEATED)
		return true;
	return shuffle_layout_at(&follow->layout, follow->n, place, &same);
}

/* A sample that was read a moment ago comes again: only RepeatAugSampler does that, and only in the
 * first third of the places, where its epochs end. */
static bool is_repeat(const struct shuffle_follow *follow, uint32_t index)
{
	uint32_t place = follow->place[index];

	if (follow->times[index] >= 3 || place >= follow->top)
		return false;
	if (follow->layout.kind == SHUFFLE_REPEATED)
		return true;
	return follow->top <= follow->n / 3 &&
	       follow->top - place <= follow->n / REPEAT_SHARE + REPEAT_PLACES;
}

/* Near the end of an epoch its first samples come again, to fill the last turn. */
static bool is_padding(const struct shuffle_follow *follow, uint32_t index)
{
	const struct shuffle_layout *layout = &follow->layout;
	uint64_t positions;

	if (!layout->world || layout->kind == SHUFFLE_REPEATED || follow->times[index] != 1)
		return false;
	positions = shuffle_layout_positions(layout, follow->n);
	return follow->place[index] + (uint64_t)follow->n < positions &&
	       follow->top > follow->n - follow->n / REACH_SHARE;
}

/* Whether it is a read of this epoch. As long as it is not certain which ranks read here, all may.
 */
static bool is_ahead(const struct shuffle_follow *follow, uint32_t index)
{
	uint32_t place = follow->place[index];

	if (place < follow->skipped)
		return false;
	if (follow->times[index])
		return is_repeat(follow, index) || is_padding(follow, index);
	return !follow->settled || is_local_place(follow, place);
}

bool shuffle_follow_expects(const struct shuffle_follow *follow, uint32_t index)
{
	uint32_t reach = follow->n / REACH_SHARE + REACH_PLACES;

	if (is_ahead(follow, index))
		return follow->place[index] <= follow->top + (uint64_t)reach;
	if (follow->stuck)
		return follow->place[index] <= reach &&
		       is_local_place(follow, follow->place[index]);
	return follow->next_place[index] <= reach &&
	       is_local_place(follow, follow->next_place[index]);
}

bool shuffle_follow_has_stride(const struct shuffle_follow *follow)
{
	return follow->layout.world || follow->stride;
}

/* Whether one place follows another one as for a rank. */
static bool is_step(const struct shuffle_follow *follow, uint32_t last, uint32_t place)
{
	const struct shuffle_layout *layout = &follow->layout;

	if (layout->kind == SHUFFLE_REPEATED)
		return place >= last && place - last <= layout->world / 3 + 1;
	if (layout->kind == SHUFFLE_BATCHES)
		return place == last + 1;
	return place == last + (uint64_t)(layout->world ? layout->world : follow->stride);
}

bool shuffle_follow_fits(const struct shuffle_follow *follow, uint32_t last, uint32_t index)
{
	if (is_step(follow, follow->place[last], follow->place[index]))
		return is_ahead(follow, index) || follow->stuck;
	return is_step(follow, follow->next_place[last], follow->next_place[index]);
}

uint32_t shuffle_follow_count(const struct shuffle_follow *follow)
{
	return follow->count;
}

/* --- the next epoch
 * ------------------------------------------------------------------------------- */

static void forget_astray(struct shuffle_follow *follow)
{
	memset(follow->astray, 0, sizeof(follow->astray));
	follow->astray_count = 0;
}

/* Loaders may leave out what fills no batch, and samplers what fills no turn. */
static void learn_end(struct shuffle_follow *follow)
{
	struct shuffle_layout *layout = &follow->layout;
	uint64_t unit = layout->world, end;

	if (!unit || layout->kind == SHUFFLE_REPEATED)
		return;
	if (layout->kind == SHUFFLE_BATCHES)
		unit *= layout->batch;
	end = (follow->top + unit - 1) / unit * unit;
	/* Less than that is an epoch that was broken off. */
	layout->end = end < follow->n && end >= follow->n / 2 ? (uint32_t)end : 0;
}

/* Moves on to the next seed. */
static int advance(struct shuffle_follow *follow)
{
	uint32_t *places = malloc((size_t)follow->n * sizeof(*places));
	int rc = places ? fill_places(follow->seed + 2, follow->n, places) : -ENOMEM;

	if (rc) {
		free(places);
		return rc;
	}
	free(follow->place);
	follow->place = follow->next_place;
	follow->next_place = places;
	follow->seed++;
	return 0;
}

/* The next epoch has begun, with the next seed, or with the same one. */
static int begin_next(struct shuffle_follow *follow, bool same)
{
	int rc = same ? 0 : advance(follow);

	if (rc)
		return rc;
	learn_end(follow);
	follow->stuck = same;
	follow->skipped = follow->top = follow->count = 0;
	follow->step_count = 0;
	follow->learn_at = LEARN_LATER;
	memset(follow->times, 0, follow->n);
	memset(follow->last, 0, sizeof(follow->last));
	follow->settled |= follow->layout.world > 0;
	forget_astray(follow);
	return 0;
}

static bool was_read(const struct shuffle_follow *follow, uint32_t index)
{
	return follow->times[index] || follow->place[index] < follow->skipped;
}

/* The trial of what was put aside, without what is too old or came twice. `again`: and without what
 * was not read in this epoch. */
static void collect_others(const struct shuffle_follow *follow, bool again,
			   struct shuffle_trial *trial)
{
	*trial = (struct shuffle_trial){ .n = follow->n,
					 .limit = follow->n,
					 .tries_log10 = log10(2) };
	for (unsigned i = 0; i < follow->other_count; i++) {
		const struct other *other = &follow->others[i];

		if (other->when + OTHERS_AGE >= follow->reads &&
		    (!again || was_read(follow, other->read.index)))
			shuffle_trial_add(trial, other->read.thread, other->read.index);
	}
}

static struct shuffle_step *last_of(struct shuffle_follow *follow, int32_t thread)
{
	return &follow->last[(uint32_t)thread % THREADS];
}

/* Each thread goes through the permutation in one direction; one that jumps back and forth reads
 * something else. */
static bool goes_on(struct shuffle_follow *follow, int32_t thread, uint32_t place)
{
	const struct shuffle_step *last = last_of(follow, thread);
	uint64_t slack = (uint64_t)BACK_STEPS * (follow->layout.world ? follow->layout.world : 1);

	return thread <= 0 || last->thread != thread || place + slack >= last->place;
}

static void note_read(struct shuffle_follow *follow, int32_t thread, uint32_t index)
{
	uint32_t place = follow->place[index];
	bool padding = is_padding(follow, index);

	follow->times[index] += follow->times[index] < UINT8_MAX;
	if (padding)
		return;
	follow->count++;
	if (place >= follow->top)
		follow->top = place + 1;
	if (follow->step_count < STEPS)
		follow->steps[follow->step_count++] = (struct shuffle_step){ thread, place };
	*last_of(follow, thread) = (struct shuffle_step){ thread, place };
}

/* How well the reads that were put aside fit an epoch with these places. */
static double weigh(const struct shuffle_follow *follow, const uint32_t *places, bool again)
{
	struct shuffle_trial trial;
	uint32_t at[SHUFFLE_READS];

	collect_others(follow, again, &trial);
	for (unsigned i = 0; i < trial.count; i++)
		at[i] = places[trial.reads[i].index];
	return trial.count < OTHERS_EVERY ? -HUGE_VAL : shuffle_weigh(&trial, at).score;
}

/* Looks whether what was put aside is the begin of an epoch. 1: it is; 0 or -ENOMEM. */
static int look_for_next(struct shuffle_follow *follow)
{
	struct shuffle_trial trial;
	double next, same;
	int rc;

	if (follow->other_count < follow->others_tried + OTHERS_EVERY)
		return 0;
	follow->others_tried = follow->other_count;
	same = weigh(follow, follow->place, true);
	next = weigh(follow, follow->next_place, false);
	if (same < SHUFFLE_LIKELY && next < SHUFFLE_LIKELY)
		return 0;
	collect_others(follow, false, &trial);
	rc = begin_next(follow, same > next);
	if (rc)
		return rc;
	for (unsigned i = 0; i < trial.count; i++)
		note_read(follow, trial.reads[i].thread, trial.reads[i].index);
	follow->other_count = follow->others_tried = 0;
	return 1;
}

static void put_aside(struct shuffle_follow *follow, int32_t thread, uint32_t index)
{
	if (follow->other_count == SHUFFLE_READS) {
		/* The older half goes. */
		follow->other_count /= 2;
		follow->others_tried = follow->other_count;
		memmove(follow->others, follow->others + SHUFFLE_READS - follow->other_count,
			follow->other_count * sizeof(*follow->others));
	}
	follow->others[follow->other_count++] =
		(struct other){ .read = { thread, index }, .when = follow->reads };
}

/* --- reads
 * ---------------------------------------------------------------------------------------- */

static void note_recent(struct shuffle_follow *follow, bool follows)
{
	unsigned word = follow->recent_at / 64, bit = follow->recent_at % 64;
	bool was = follow->astray[word] >> bit & 1, is = follow->announced && !follows;

	follow->astray[word] ^= (uint64_t)(was != is) << bit;
	follow->astray_count += is;
	follow->astray_count -= was;
	follow->recent_at = (follow->recent_at + 1) % SHUFFLE_RECENT;
}

static bool learn(struct shuffle_follow *follow)
{
	if (follow->step_count < follow->learn_at || follow->learn_at > STEPS)
		return false;
	while (follow->learn_at <= follow->step_count)
		follow->learn_at *= 2;
	follow->settled |= follow->step_count >= SETTLED;
	return shuffle_layout_learn(&follow->layout, follow->steps, follow->step_count, follow->n);
}

int shuffle_follow_read(struct shuffle_follow *follow, int32_t thread, uint32_t index, bool ours)
{
	bool ahead;
	int rc;

	assert(index < follow->n);
	follow->reads++;
	ahead = is_ahead(follow, index);
	note_recent(follow, ours && ahead &&
				    (follow->times[index] ||
				     goes_on(follow, thread, follow->place[index])));
	if (ahead) {
		note_read(follow, thread, index);
	} else {
		put_aside(follow, thread, index);
		rc = look_for_next(follow);
		if (rc)
			return rc < 0 ? rc : SHUFFLE_NEXT;
	}
	if (follow->astray_count > SHUFFLE_ASTRAY_MAX)
		return SHUFFLE_LOST;
	return learn(follow) ? SHUFFLE_CHANGED : SHUFFLE_NOTHING;
}

/* All who read have read something lately, so what is before all of that will not come. */
void shuffle_follow_skip(struct shuffle_follow *follow)
{
	uint32_t count = follow->n / REACH_SHARE + REACH_PLACES;

	if (follow->top > count && follow->top - count > follow->skipped)
		follow->skipped = follow->top - count;
	follow->step_count = 0;
}

/* --- orders
 * --------------------------------------------------------------------------------------- */

/* Positions of one place that are read here are counted: `nth` is how many came before. */
static bool is_still_ahead(const struct shuffle_follow *follow, uint32_t index, unsigned nth)
{
	return follow->times[index] <= nth && follow->place[index] >= follow->skipped;
}

int shuffle_follow_order(struct shuffle_follow *follow, bool next, uint32_t **indices,
			 uint32_t *count)
{
	const struct shuffle_layout *layout = &follow->layout;
	uint64_t positions = layout->world ? shuffle_layout_positions(layout, follow->n) : 0;
	uint32_t *permutation, place, last = UINT32_MAX;
	unsigned nth = 0;

	if (!positions)
		return -EAGAIN;
	*indices = malloc((positions + 1) * sizeof(**indices));
	permutation = malloc((size_t)follow->n * sizeof(*permutation));
	if (!*indices || !permutation) {
		free(*indices);
		free(permutation);
		return -ENOMEM;
	}
	shuffle_permute(next ? next_seed(follow) : follow->seed, permutation, follow->n);
	*count = 0;
	for (uint64_t position = 0; position < positions; position++) {
		if (!shuffle_layout_at(layout, follow->n, position, &place))
			continue;
		nth = place == last ? nth + 1 : position >= follow->n;
		last = place;
		if (next || is_still_ahead(follow, permutation[place], nth))
			(*indices)[(*count)++] = permutation[place];
	}
	free(permutation);
	follow->announced = true;
	return 0;
}

uint32_t shuffle_follow_seed(const struct shuffle_follow *follow)
{
	return follow->seed;
}

bool shuffle_follow_is_stuck(const struct shuffle_follow *follow)
{
	return follow->stuck;
}

const struct shuffle_layout *shuffle_follow_layout(const struct shuffle_follow *follow)
{
	return &follow->layout;
}

size_t shuffle_follow_bytes(const struct shuffle_follow *follow)
{
	return sizeof(*follow) +
	       (size_t)follow->n * (sizeof(*follow->place) + sizeof(*follow->next_place) + 1);
}
