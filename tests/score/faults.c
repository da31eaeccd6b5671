/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory that runs out, and several threads. A plain program: sanitizers see leaks and races
 * here that they would miss below Criterion.
 *
 * Every call is made with its first, second, third ... allocation failing until it succeeds: it
 * must fail with -ENOMEM and leave the scorer as it was.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shade/score.h"

#define N 500
#define THREADS 4

static long fail_in; /* the so many-th allocation from now; 0: none */

static int fails(void)
{
	return fail_in && !--fail_in;
}

#include "../failing_alloc.h"

#define CHECK(holds, what)                                                                         \
	do {                                                                                       \
		if (!(holds)) {                                                                    \
			fprintf(stderr, "FAILED at %d: %s\n", __LINE__, what);                     \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

/* Calls until no allocation fails any more; counts those that did. */
#define SWEEP(call, unchanged)                                                                     \
	do {                                                                                       \
		long at = 1;                                                                       \
		int64_t rc;                                                                        \
                                                                                                   \
		for (;; at++) {                                                                    \
			fail_in = at;                                                              \
			rc = (call);                                                               \
			fail_in = 0;                                                               \
			if (rc >= 0)                                                               \
				break;                                                             \
			CHECK(rc == -ENOMEM, #call " gave another error");                         \
			CHECK(unchanged, #call " has failed half-way");                            \
		}                                                                                  \
		CHECK(at > 1, #call " allocates nothing?");                                        \
		printf("%-60.60s %ld failures\n", #call, at - 1);                                  \
	} while (0)

static struct shade_scorer_options options_of(uint32_t mode)
{
	struct shade_scorer_options options;

	shade_scorer_defaults(&options);
	options.samples = N;
	options.mode = mode;
	options.capacity = N / 5;
	options.backend = SHADE_SCORE_CPU;
	options.lookahead = 1;
	options.substitute = mode == SHADE_SCORE_IIS;
	options.package = mode == SHADE_SCORE_IIS ? 4 : 0;
	options.keep = mode == SHADE_SCORE_ECHO ? 0.5 : 0;
	return options;
}

/* The saved bytes are all there is to know of a scorer. */
static int is_still(struct shade_scorer *s, const void *bytes, int64_t size)
{
	void *now = malloc((size_t)size);
	int same = shade_scorer_save(s, NULL, 0) == size &&
		   shade_scorer_save(s, now, (uint64_t)size) == size &&
		   !memcmp(now, bytes, (size_t)size);

	free(now);
	return same;
}

static void no_memory(uint32_t mode)
{
	struct shade_scorer_options options = options_of(mode);
	struct shade_scorer *s = NULL, *other = NULL;
	uint32_t ids[N];
	uint8_t resident[(N + 7) / 8] = { 0xff, 0x0f };
	float losses[N], weights[N];
	struct shade_score_batch batch = { .size = sizeof(batch),
					   .count = N,
					   .ids = ids,
					   .losses = losses,
					   .scores_out = weights };
	int64_t size;
	void *state, *later;

	for (uint32_t i = 0; i < N; i++) {
		ids[i] = i;
		losses[i] = (float)(i * 37 % 101);
	}
	SWEEP(shade_scorer_create(&s, &options), !s);
	size = shade_scorer_save(s, NULL, 0);
	state = malloc((size_t)size);
	CHECK(shade_scorer_save(s, state, (uint64_t)size) == size, "saving");
	SWEEP(shade_scorer_rank_batch(s, &batch), is_still(s, state, size));
	CHECK(is_still(s, state, size), "a batch that is only ranked has changed the scorer");
	SWEEP(shade_scorer_update(s, ids, losses, N, NULL), is_still(s, state, size));
	CHECK(shade_scorer_save(s, state, (uint64_t)size) == size, "saving");
	SWEEP(shade_scorer_begin(s, 0, resident), is_still(s, state, size));
	free(state);

	size = shade_scorer_save(s, NULL, 0);
	later = malloc((size_t)size);
	CHECK(shade_scorer_save(s, later, (uint64_t)size) == size, "saving");
	if (mode == SHADE_SCORE_PADS || mode == SHADE_SCORE_PRUNE)
		SWEEP(shade_scorer_weights(s, 0, ids, weights, N), is_still(s, later, size));
	if (mode == SHADE_SCORE_PAPER)
		SWEEP(shade_scorer_order(s, 0, 0, 1, ids, N), is_still(s, later, size));
	CHECK(!shade_scorer_create(&other, &options), "creating");
	SWEEP(shade_scorer_load(other, later, (uint64_t)size), !is_still(other, later, size));
	CHECK(is_still(other, later, size), "a loaded scorer is another one");
	free(later);
	shade_scorer_destroy(s);
	shade_scorer_destroy(other);
}

/* --- threads ---------------------------------------------------------------------------------- */

/* As score.h says: the state may have grown since it was measured. */
static void *save(struct shade_scorer *s, int64_t *size)
{
	void *state = NULL;

	do {
		int64_t room = shade_scorer_save(s, NULL, 0);

		free(state);
		state = malloc((size_t)room);
		*size = shade_scorer_save(s, state, (uint64_t)room);
	} while (*size == -ENOSPC);
	CHECK(*size > 0, "saving");
	return state;
}

/* The whole state goes and comes back while others use it; what they get is either one's. */
static void save_and_load(struct shade_scorer *s)
{
	int64_t size;
	void *state = save(s, &size);

	CHECK(!shade_scorer_load(s, state, (uint64_t)size), "loading");
	free(state);
}

static void ask(struct shade_scorer *s, uint64_t epoch, const uint32_t *ids)
{
	struct shade_scorer_options options = { .size = sizeof(options) };
	float values[N];
	uint64_t digest;
	int rc;

	CHECK(!shade_scorer_get_options(s, &options) && options.samples == N, "options");
	CHECK(shade_scorer_length(s, 1, 3) == N / 3 + 1, "a length");
	rc = shade_scorer_weights(s, epoch, ids, values, 64);
	CHECK(!rc || rc == -ENOENT, "weights");
	rc = shade_scorer_digest(s, epoch, &digest);
	CHECK(!rc || rc == -ENOENT, "a digest");
	CHECK(!shade_scorer_scores(s, values), "scores");
	for (uint32_t k = 0; k < 64; k++)
		values[k] = 3;
	CHECK(!shade_scorer_merge(s, ids, values, 64), "a merge");
	CHECK(!shade_scorer_sync(s), "a sync");
}

static void *work(void *scorer)
{
	struct shade_scorer *s = scorer;
	uint32_t ids[N];
	float losses[64];

	for (uint32_t i = 0; i < 100; i++) {
		for (uint32_t k = 0; k < 64; k++) {
			ids[k] = (i * 64 + k) % N;
			losses[k] = (float)(k * i % 11);
		}
		CHECK(!shade_scorer_update(s, ids, losses, 64, NULL), "an update");
		CHECK(!shade_scorer_begin(s, i / 10, NULL), "a begin");
		ask(s, i / 10, ids);
		if (i % 7 == 0)
			save_and_load(s);
		(void)shade_scorer_order(s, i / 10, 0, 1, ids, N);
		CHECK(shade_scorer_order(s, 1000, 0, 1, ids, N) == -ENOENT, "no such epoch");
		CHECK(strstr(shade_score_error(), "1000"), "errors of another thread");
	}
	return NULL;
}

static void threads(void)
{
	struct shade_scorer_options options = options_of(SHADE_SCORE_PADS);
	struct shade_scorer *s;
	pthread_t started[THREADS];

	CHECK(!shade_scorer_create(&s, &options), "creating");
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&started[i], NULL, work, s), "a thread");
	for (int i = 0; i < THREADS; i++)
		pthread_join(started[i], NULL);
	shade_scorer_destroy(s);
}

int main(void)
{
	no_memory(SHADE_SCORE_PADS);
	no_memory(SHADE_SCORE_PAPER);
	no_memory(SHADE_SCORE_ECHO);
	no_memory(SHADE_SCORE_PRUNE);
	no_memory(SHADE_SCORE_IIS);
	threads();
	return 0;
}
