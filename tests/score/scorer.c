/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Scores, orders and states of a scorer, by its public functions, on the CPU. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "helpers.h"

/* --- scores ------------------------------------------------------------------------------- */

Test(scorer, ranks_within_a_batch)
{
	struct shade_scorer *s = create_mode(SHADE_SCORE_PADS);
	uint32_t ids[] = { 5, 1, 9, 2, 5 };
	float losses[] = { 0.5f, 0.0f, INFINITY, -0.0f, 0.2f }, scores[5], all[N];
	static const double ranks[] = { 3, 0.5, 4, 0.5, 2 }; /* -0 and 0 share theirs */

	cr_assert_eq(shade_scorer_update(s, ids, losses, 5, scores), 0);
	for (int i = 0; i < 5; i++)
		cr_assert_eq(scores[i], (float)log(ranks[i] + 10), "entry %d: %g", i,
			     (double)scores[i]);
	scores_of(s, all);
	cr_assert_eq(all[5], scores[4], "the last visit wins");
	cr_assert_eq(all[2], scores[3]);
	cr_assert_eq(all[0], -1);
	shade_scorer_destroy(s);
}

/* One of several ranks gets the scores that update() would give, and keeps none of them. */
Test(scorer, ranks_without_keeping)
{
	struct shade_scorer *s = create_mode(SHADE_SCORE_PADS);
	struct shade_scorer *twin = create_mode(SHADE_SCORE_PADS);
	uint32_t ids[] = { 5, 1, 9 };
	float losses[] = { 0.5f, 0.1f, 0.2f }, kept[3], ranked[3], before[N], after[N];
	struct shade_score_batch batch = { .size = sizeof(batch),
					   .count = 3,
					   .ids = ids,
					   .losses = losses,
					   .scores_out = ranked };

	train(s, 0, 3);
	train(twin, 0, 3);
	scores_of(s, before);
	cr_assert_eq(shade_scorer_rank_batch(s, &batch), 0, "%s", shade_score_error());
	cr_assert_eq(shade_scorer_update(twin, ids, losses, 3, kept), 0);
	cr_assert(!memcmp(kept, ranked, sizeof(kept)));
	scores_of(s, after);
	cr_assert(!memcmp(before, after, sizeof(before)), "the scorer has kept a score");
	cr_assert_eq(shade_scorer_merge(s, ids, ranked, 3), 0);
	scores_of(s, before);
	scores_of(twin, after);
	cr_assert(!memcmp(before, after, sizeof(before)), "a merge gives another result");
	losses[1] = NAN;
	cr_assert_eq(shade_scorer_rank_batch(s, &batch), -EINVAL);
	losses[1] = 1;
	batch.scores_out = NULL;
	cr_assert_eq(shade_scorer_rank_batch(s, &batch), -EINVAL);
	cr_assert(strstr(shade_score_error(), "no room"), "%s", shade_score_error());
	shade_scorer_destroy(s);
	shade_scorer_destroy(twin);
}

Test(scorer, bad_batches_change_nothing)
{
	struct shade_scorer *s = create_mode(SHADE_SCORE_PADS);
	uint32_t ids[] = { 1, 2, 3 }, beyond[] = { 1, 2, N };
	float good[] = { 1, 2, 3 }, bad[] = { 1, NAN, 3 }, negative[] = { 1, -1, 2 };
	float before[N], after[N];
	struct shade_score_batch batch = { .size = sizeof(batch),
					   .count = 3,
					   .ids = ids,
					   .losses = good,
					   .memory = SHADE_SCORE_DEVICE };

	cr_assert_eq(shade_scorer_update(s, ids, good, 3, NULL), 0);
	scores_of(s, before);
	cr_assert_eq(shade_scorer_update(s, ids, bad, 3, NULL), -EINVAL);
	cr_assert(strstr(shade_score_error(), "entry 1 (sample 2) is not a number"), "%s",
		  shade_score_error());
	cr_assert_eq(shade_scorer_update(s, beyond, good, 3, NULL), -ERANGE);
	cr_assert(strstr(shade_score_error(), "no sample 1000"), "%s", shade_score_error());
	cr_assert_eq(shade_scorer_update(s, ids, good, 0, NULL), -EINVAL);
	cr_assert_eq(shade_scorer_update(s, ids, good, SHADE_SCORE_BATCH_MAX + 1, NULL), -EINVAL);
	cr_assert_eq(shade_scorer_merge(s, ids, negative, 3), -EINVAL);
	cr_assert_eq(shade_scorer_merge(s, beyond, good, 3), -ERANGE);
	cr_assert_eq(shade_scorer_update_batch(s, &batch), -ENOTSUP);
	batch.size--;
	cr_assert_eq(shade_scorer_update_batch(s, &batch), -EINVAL);
	scores_of(s, after);
	cr_assert(!memcmp(before, after, sizeof(before)));
	shade_scorer_destroy(s);
}

Test(scorer, bad_options)
{
	struct shade_scorer *s = NULL;
	struct shade_scorer_options o;

#define cr_assert_refused(field, value, word)                                                      \
	do {                                                                                       \
		o = options_of(SHADE_SCORE_ECHO);                                                  \
		o.field = (value);                                                                 \
		cr_assert_eq(shade_scorer_create(&s, &o), -EINVAL, #field);                        \
		cr_assert(strstr(shade_score_error(), word), "%s", shade_score_error());           \
		cr_assert_null(s);                                                                 \
	} while (0)
	cr_assert_refused(size, 8, "do not fit together");
	cr_assert_refused(samples, 0, "samples");
	cr_assert_refused(mode, 8, "mode");
	cr_assert_refused(backend, 3, "backend");
	cr_assert_refused(lookahead, 2, "lookahead");
	cr_assert_refused(rep, NAN, "rep");
	cr_assert_refused(uses, 0.5, "uses");
	cr_assert_refused(most_uses, 0.5, "most_uses");
	cr_assert_refused(strength, 1.5, "strength");
	cr_assert_refused(capacity, 0, "capacity");
	cr_assert_refused(draws, UINT32_MAX, "draws");
	o = options_of(SHADE_SCORE_PADS);
	o.max_repeats = 1;
	o.draws = N + 1;
	cr_assert_eq(shade_scorer_create(&s, &o), -EINVAL);
}

/* --- orders ------------------------------------------------------------------------------- */

Test(orders, parts_are_the_whole)
{
	static const uint32_t modes[] = { SHADE_SCORE_UNIFORM, SHADE_SCORE_PADS, SHADE_SCORE_ECHO };

	for (int m = 0; m < 3; m++) {
		struct shade_scorer *s = create_mode(modes[m]);
		uint32_t whole[N], part[N];

		train(s, 0, 20);
		cr_assert_eq(shade_scorer_begin(s, 3, NULL), 0);
		order_of(s, 3, whole);
		for (uint32_t rank = 0; rank < 7; rank++) {
			int64_t length = shade_scorer_order(s, 3, rank, 7, part, N);

			cr_assert_eq(length, shade_scorer_length(s, rank, 7));
			for (uint32_t i = 0; i < length; i++)
				cr_assert_eq(part[i], whole[i * 7 + rank]);
		}
		cr_assert_eq(shade_scorer_length(s, 7, 7), 0);
		cr_assert_eq(shade_scorer_order(s, 3, 7, 7, part, N), -ERANGE);
		cr_assert_eq(shade_scorer_order(s, 3, 0, 7, part, 142), -ENOSPC);
		cr_assert_eq(shade_scorer_order(s, 4, 0, 1, part, N), -ENOENT);
		shade_scorer_destroy(s);
	}
}

Test(orders, papers_ranks_draw_for_themselves)
{
	struct shade_scorer *s = create_mode(SHADE_SCORE_PAPER);
	uint32_t part[2][N / 2], again[N / 2];

	train(s, 0, 20);
	cr_assert_eq(shade_scorer_begin(s, 0, NULL), 0);
	for (uint32_t rank = 0; rank < 2; rank++)
		cr_assert_eq(shade_scorer_order(s, 0, rank, 2, part[rank], N / 2), N / 2);
	cr_assert(memcmp(part[0], part[1], sizeof(again)));
	train(s, 20, 20);
	cr_assert_eq(shade_scorer_order(s, 0, 1, 2, again, N / 2), N / 2);
	cr_assert(!memcmp(part[1], again, sizeof(again)), "what was drawn stays");
	shade_scorer_destroy(s);
}

/* Several ranks with scores of their own, merged, agree; without the merge they do not. */
Test(orders, ranks_agree_after_a_merge)
{
	struct shade_scorer *ranks[2];
	uint32_t ids[2][4] = { { 1, 2, 3, 4 }, { 4, 5, 6, 1 } };
	float losses[2][4] = { { 4, 3, 2, 1 }, { 1, 2, 3, 4 } }, scores[2][4];
	uint64_t digest[2];

	for (int merged = 0; merged < 2; merged++) {
		for (int r = 0; r < 2; r++) {
			ranks[r] = create_mode(SHADE_SCORE_PADS);
			shade_scorer_update(ranks[r], ids[r], losses[r], 4, scores[r]);
		}
		for (int r = 0; r < 2; r++) {
			for (int from = 0; merged && from < 2; from++)
				shade_scorer_merge(ranks[r], ids[from], scores[from], 4);
			cr_assert_eq(shade_scorer_begin(ranks[r], 0, NULL), 0);
			cr_assert_eq(shade_scorer_digest(ranks[r], 0, &digest[r]), 0);
		}
		cr_assert_eq(digest[0] == digest[1], merged);
		if (merged)
			cr_assert_same_order(ranks[0], ranks[1], 0);
		shade_scorer_destroy(ranks[0]);
		shade_scorer_destroy(ranks[1]);
	}
}

/* begin(e) draws e + 1 from the scores at the begin of e. */
Test(orders, lookahead)
{
	struct shade_scorer_options options = options_of(SHADE_SCORE_PADS);
	struct shade_scorer *plain = create(options), *ahead;
	uint32_t early[N], late[N];

	options.lookahead = 1;
	ahead = create(options);
	cr_assert_eq(shade_scorer_begin(ahead, 0, NULL), 0);
	order_of(ahead, 1, early);
	train(ahead, 0, 50);
	cr_assert_eq(shade_scorer_begin(ahead, 1, NULL), 0);
	order_of(ahead, 1, late);
	cr_assert(!memcmp(early, late, sizeof(early)), "an announced order has changed");
	cr_assert_eq(shade_scorer_order(ahead, 0, 0, 1, late, N), -ENOENT);

	/* Epoch 2 was drawn from the scores after epoch 0. */
	train(plain, 0, 50);
	cr_assert_eq(shade_scorer_begin(plain, 2, NULL), 0);
	train(ahead, 50, 50);
	cr_assert_same_order(plain, ahead, 2);
	train(plain, 50, 50);
	cr_assert_eq(shade_scorer_begin(plain, 3, NULL), 0);
	cr_assert_eq(shade_scorer_begin(ahead, 2, NULL), 0);
	cr_assert_same_order(plain, ahead, 3);
	shade_scorer_destroy(plain);
	shade_scorer_destroy(ahead);
}

Test(orders, residents_come_more_often)
{
	struct shade_scorer_options options = options_of(SHADE_SCORE_PADS);
	uint8_t resident[(N + 7) / 8] = { 0 };
	uint32_t ids[N], hits = 0;
	struct shade_scorer *s;

	options.rep = 4;
	s = create(options);
	for (uint32_t i = 0; i < N / 10; i++)
		resident[i / 8] |= (uint8_t)(1 << i % 8);
	for (uint32_t i = 0; i < N; i += 100) { /* everything is scored */
		float losses[100];

		for (uint32_t k = 0; k < 100; k++) {
			ids[k] = i + k;
			losses[k] = 1;
		}
		shade_scorer_update(s, ids, losses, 100, NULL);
	}
	cr_assert_eq(shade_scorer_begin(s, 0, resident), 0);
	order_of(s, 0, ids);
	for (uint32_t i = 0; i < N; i++)
		hits += ids[i] < N / 10;
	cr_assert(hits > 250 && hits < 450, "%u", hits);
	shade_scorer_destroy(s);
}

/* Bits beyond the last sample mean nothing. */
Test(orders, residency_of_an_odd_number)
{
	struct shade_scorer_options options = options_of(SHADE_SCORE_PADS);
	static const uint8_t maps[3][2] = { { 0xff, 0x1f }, { 0xff, 0xff }, { 0xff, 0x0f } };
	uint64_t digest[3];

	options.samples = 13;
	for (int i = 0; i < 3; i++) {
		struct shade_scorer *s = create(options);

		cr_assert_eq(shade_scorer_begin(s, 0, maps[i]), 0);
		cr_assert_eq(shade_scorer_digest(s, 0, &digest[i]), 0);
		shade_scorer_destroy(s);
	}
	cr_assert_eq(digest[0], digest[1]);
	cr_assert_neq(digest[0], digest[2]);
}

Test(orders, weights)
{
	struct shade_scorer *s = create_mode(SHADE_SCORE_PADS);
	static double entries[N];
	uint32_t ids[N], beyond[] = { N };
	float weights[N];
	double mean = 0;

	train(s, 0, 200);
	for (uint32_t i = 0; i < N; i++)
		entries[i] = 0;
	for (uint64_t epoch = 0; epoch < 400; epoch++) {
		cr_assert_eq(shade_scorer_begin(s, epoch, NULL), 0);
		order_of(s, epoch, ids);
		for (uint32_t i = 0; i < N; i++)
			entries[ids[i]]++;
	}
	for (uint32_t i = 0; i < N; i++)
		ids[i] = i;
	cr_assert_eq(shade_scorer_weights(s, 399, ids, weights, N), 0);
	/* Entries times weight is once an epoch, for each sample up to chance. */
	for (uint32_t i = 0; i < N; i++) {
		double times = entries[i] / 400 * (double)weights[i];

		cr_assert(times > 0.7 && times < 1.3, "sample %u: %g", i, times);
		mean += times / N;
	}
	cr_assert(fabs(mean - 1) < 0.02, "%g", mean);
	cr_assert_eq(shade_scorer_weights(s, 399, beyond, weights, 1), -ERANGE);
	cr_assert_eq(shade_scorer_weights(s, 5, ids, weights, 1), -ENOENT);
	shade_scorer_destroy(s);
	s = create_mode(SHADE_SCORE_PAPER);
	shade_scorer_begin(s, 0, NULL);
	cr_assert_eq(shade_scorer_weights(s, 0, ids, weights, 1), -ENOTSUP);
	shade_scorer_destroy(s);
}

/* --- states ------------------------------------------------------------------------------- */

static void *save(struct shade_scorer *s, uint64_t *size)
{
	int64_t bytes = shade_scorer_save(s, NULL, 0);
	void *state = malloc((size_t)bytes);

	cr_assert_eq(shade_scorer_save(s, state, (uint64_t)bytes - 1), -ENOSPC);
	cr_assert_eq(shade_scorer_save(s, state, (uint64_t)bytes), bytes);
	*size = (uint64_t)bytes;
	return state;
}

/* In the middle of a training, in every mode, with and without lookahead. */
Test(states, resumed_draws_the_same)
{
	uint8_t resident[(N + 7) / 8];

	memset(resident, 0x11, sizeof(resident));
	for (uint32_t kind = 0; kind < 10; kind++) {
		struct shade_scorer_options options = options_of(kind % 5), other;
		struct shade_scorer *s, *resumed;
		uint64_t size;
		void *state;

		options.lookahead = kind / 5;
		s = create(options);
		for (uint64_t epoch = 0; epoch < 3; epoch++) {
			cr_assert_eq(shade_scorer_begin(s, epoch, epoch ? resident : NULL), 0);
			train(s, (uint32_t)epoch * 10, 10);
		}
		state = save(s, &size);
		other = options_of(SHADE_SCORE_UNIFORM);
		other.seed = 1;
		resumed = create(other);
		train(resumed, 70, 3);
		cr_assert_eq(shade_scorer_load(resumed, state, size), 0, "%s", shade_score_error());
		cr_assert_same_order(s, resumed, 2);
		for (uint64_t epoch = 3; epoch < 6; epoch++) {
			train(s, (uint32_t)epoch * 10, 10);
			train(resumed, (uint32_t)epoch * 10, 10);
			cr_assert_eq(shade_scorer_begin(s, epoch, resident), 0);
			cr_assert_eq(shade_scorer_begin(resumed, epoch, resident), 0);
			cr_assert_same_order(s, resumed, epoch);
		}
		free(state);
		shade_scorer_destroy(s);
		shade_scorer_destroy(resumed);
	}
}

static uint64_t fingerprint(const unsigned char *bytes, uint64_t size)
{
	uint64_t hash = 0x5ade;

	for (uint64_t i = 0; i < size; i += 4) {
		uint32_t word = 0;

		memcpy(&word, bytes + i, size - i < 4 ? size - i : 4);
		hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
		hash ^= hash >> 29;
	}
	return hash;
}

/* Loads a damaged state with its fingerprint put right; whatever it says, the scorer works. */
static void load_damaged(struct shade_scorer *s, unsigned char *state, uint64_t size, int *refused)
{
	uint64_t hash = fingerprint(state, size - 8);
	uint32_t ids[N];
	uint64_t digest;

	memcpy(state + size - 8, &hash, 8);
	if (shade_scorer_load(s, state, size))
		++*refused;
	for (uint64_t epoch = 2; epoch < 4; epoch++)
		if (shade_scorer_order(s, epoch, 0, 1, ids, N) == N)
			for (uint32_t i = 0; i < N; i++)
				cr_assert_lt(ids[i], N);
	(void)shade_scorer_digest(s, 2, &digest);
	if (!shade_scorer_begin(s, 9, NULL)) {
		order_of(s, 9, ids);
		for (uint32_t i = 0; i < N; i++)
			cr_assert_lt(ids[i], N);
	}
}

Test(states, hostile_bytes)
{
	struct shade_scorer_options options = options_of(SHADE_SCORE_ECHO);
	struct shade_scorer *s, *victim;
	unsigned char *good, *bad;
	float before[N], after[N];
	uint64_t size;
	int refused = 0;

	options.lookahead = 1;
	options.strength = 1;
	s = create(options);
	victim = create_mode(SHADE_SCORE_PADS);
	train(s, 0, 10);
	cr_assert_eq(shade_scorer_begin(s, 2, NULL), 0);
	good = save(s, &size);
	bad = malloc(size);

	train(victim, 0, 5);
	scores_of(victim, before);
	for (uint64_t cut = 0; cut < size; cut += 1 + cut / 50) {
		unsigned char *exact = malloc(cut + 1); /* ASan sees who reads too far */

		memcpy(exact, good, cut);
		cr_assert_eq(shade_scorer_load(victim, exact, cut), -EINVAL);
		free(exact);
	}
	for (uint64_t at = 0; at < size; at += 1 + at / 20) {
		memcpy(bad, good, size);
		bad[at] ^= 0x40;
		cr_assert_eq(shade_scorer_load(victim, bad, size), -EINVAL, "byte %d", (int)at);
	}
	cr_assert_eq(shade_scorer_load(victim, NULL, 0), -EINVAL);
	scores_of(victim, after);
	cr_assert(!memcmp(before, after, sizeof(before)), "a refused state has changed scores");

	for (uint32_t i = 0; i < 3000; i++) {
		uint32_t at = i < 1500 ? i / 8 : random_u32(i) % (uint32_t)(size - 8);

		memcpy(bad, good, size);
		bad[at] = i < 1500 ? (unsigned char)(1 << i % 8 ^ bad[at])
				   : (unsigned char)random_u32(i + 10000);
		if (i % 3 == 0)
			memset(bad + at, i % 2 ? 0xff : 0, 4);
		load_damaged(victim, bad, size, &refused);
	}
	cr_assert(refused > 500, "only %d were refused", refused);
	refused = 0;
	memcpy(bad, good, size);
	bad[115] = 0x7f; /* how many samples echo owes uses of */
	load_damaged(victim, bad, size, &refused);
	memcpy(bad, good, size);
	bad[size - 9] = 0x7f; /* the uses of the last order */
	load_damaged(victim, bad, size, &refused);
	cr_assert_eq(refused, 2);
	cr_assert_eq(shade_scorer_load(victim, good, size), 0, "%s", shade_score_error());
	free(good);
	free(bad);
	shade_scorer_destroy(s);
	shade_scorer_destroy(victim);
}

/* A state of version 2 had each use of echo apart, and the next introduction. */
Test(states, of_version_two)
{
	static const uint32_t old[] = { 77, 5, /* due next, how many */
					9,  0, 4, 2, 9, 3, 9, 0xfffffff0, 4, 1 };
	/* It had not the 32 bytes of options from most_uses on before what echo has introduced. */
	enum { MOST_AT = 72, ECHO_AT = 80, REST_AT = 136 };
	struct shade_scorer *s = create_mode(SHADE_SCORE_ECHO), *loaded;
	unsigned char *now, *before;
	uint64_t size, before_size, left;
	uint32_t ids[N], counts[N] = { 0 }, version = 2;
	int refused = 0;

	train(s, 0, 10);
	now = save(s, &size);
	before_size = size - REST_AT + ECHO_AT + sizeof(old);
	before = malloc(before_size);
	memcpy(before, now, MOST_AT);
	memcpy(before + MOST_AT, now + MOST_AT + 32, 8);
	memcpy(before + 8, &version, sizeof(version));
	memcpy(before + ECHO_AT, old, sizeof(old));
	memcpy(before + ECHO_AT + sizeof(old), now + REST_AT, size - REST_AT);
	loaded = create_mode(SHADE_SCORE_PADS);
	load_damaged(loaded, before, before_size, &refused);
	cr_assert_eq(refused, 0, "%s", shade_score_error());
	/* It draws; each of the two has its old uses, and up to four that are new. */
	for (uint64_t epoch = 20; epoch < 24; epoch++) {
		cr_assert_eq(shade_scorer_begin(loaded, epoch, NULL), 0);
		order_of(loaded, epoch, ids);
		for (uint32_t i = 0; i < N; i++)
			counts[ids[i]]++;
	}
	left = counts[9] + counts[4];
	cr_assert(left >= 5 && left <= 13, "%d", (int)left);
	/* And an id that is out of range is refused still. */
	before[ECHO_AT + 8] = before[ECHO_AT + 9] = 0xff;
	load_damaged(loaded, before, before_size, &refused);
	cr_assert_eq(refused, 1);
	free(now);
	free(before);
	shade_scorer_destroy(s);
	shade_scorer_destroy(loaded);
}

/* A state of version 4 had no options after most_uses, and its orders no count. */
Test(states, of_version_four)
{
	enum { SKIPS_AT = 80, SKIPS = 24, COUNT_BEFORE = 8 + 2 * 4 * N + 4 };
	struct shade_scorer *s = create_mode(SHADE_SCORE_UNIFORM), *loaded;
	unsigned char *now, *before;
	uint64_t size, before_size, count_at;
	uint32_t version = 4;
	int refused = 0;

	train(s, 0, 10);
	cr_assert_eq(shade_scorer_begin(s, 2, NULL), 0);
	now = save(s, &size);
	count_at = size - COUNT_BEFORE;
	before_size = size - SKIPS - 4;
	before = malloc(before_size);
	memcpy(before, now, SKIPS_AT);
	memcpy(before + 8, &version, sizeof(version));
	memcpy(before + SKIPS_AT, now + SKIPS_AT + SKIPS, count_at - SKIPS_AT - SKIPS);
	memcpy(before + count_at - SKIPS, now + count_at + 4, size - count_at - 4);
	loaded = create_mode(SHADE_SCORE_PRUNE);
	load_damaged(loaded, before, before_size, &refused);
	cr_assert_eq(refused, 0, "%s", shade_score_error());
	cr_assert_eq(shade_scorer_begin(s, 9, NULL), 0);
	cr_assert_same_order(s, loaded, 9);
	free(now);
	free(before);
	shade_scorer_destroy(s);
	shade_scorer_destroy(loaded);
}

/* Every capacity, number of uses and strength goes on from what it saved. Small capacities with
 * many uses once refused that, in begin() as well. */
Test(states, echo_goes_on_from_its_own)
{
	static const uint32_t capacities[] = { 1, 2, 3, 5, 12, 20, 80, N };
	static const double uses[] = { 1, 4, 8, 20, 100, 1000 };

	for (uint32_t i = 0; i < 8 * 6 * 2; i++) {
		struct shade_scorer_options options = options_of(SHADE_SCORE_ECHO);
		struct shade_scorer *s, *other;
		uint64_t size;
		void *state;

		options.capacity = capacities[i % 8];
		options.uses = uses[i / 8 % 6];
		options.strength = i < 48 ? 0 : 1;
		s = create(options);
		train(s, 0, 10);
		for (uint64_t epoch = 0; epoch < 12; epoch++) {
			cr_assert_eq(shade_scorer_begin(s, epoch, NULL), 0, "%s",
				     shade_score_error());
			state = save(s, &size);
			other = create_mode(SHADE_SCORE_ECHO);
			cr_assert_eq(shade_scorer_load(other, state, size), 0, "%s",
				     shade_score_error());
			shade_scorer_destroy(other);
			free(state);
		}
		shade_scorer_destroy(s);
	}
}

/* Saved on four ranks, resumed on three: an epoch has another length, so its orders go, and the
 * scores stay. */
Test(states, of_other_ranks)
{
	struct shade_scorer_options options = options_of(SHADE_SCORE_PADS);
	struct shade_scorer *s, *resumed, *reference;
	uint64_t size, digest[2];
	uint32_t ids[N + 2];
	void *state;

	options.lookahead = 1;
	s = create(options);
	train(s, 0, 10);
	cr_assert_eq(shade_scorer_begin(s, 5, NULL), 0);
	state = save(s, &size);
	options.draws = N + 2;
	reference = create(options);
	train(reference, 0, 10);
	options.seed = 1;
	resumed = create(options);
	cr_assert_eq(shade_scorer_load(resumed, state, size), 0, "%s", shade_score_error());
	cr_assert_eq(shade_scorer_length(resumed, 2, 3), (N + 2) / 3);
	cr_assert_eq(shade_scorer_order(resumed, 5, 0, 3, ids, N), -ENOENT);
	cr_assert_eq(shade_scorer_begin(resumed, 5, NULL), 0, "%s", shade_score_error());
	cr_assert_eq(shade_scorer_begin(reference, 5, NULL), 0);
	cr_assert_eq(shade_scorer_order(resumed, 6, 2, 3, ids, N), (N + 2) / 3);
	cr_assert_eq(shade_scorer_digest(resumed, 6, &digest[0]), 0);
	cr_assert_eq(shade_scorer_digest(reference, 6, &digest[1]), 0);
	cr_assert_eq(digest[0], digest[1], "it draws otherwise than one that was never saved");
	shade_scorer_destroy(s);
	shade_scorer_destroy(resumed);
	shade_scorer_destroy(reference);
	/* An epoch that its options cannot fill. */
	options = options_of(SHADE_SCORE_UNIFORM);
	options.draws = 3 * N;
	resumed = create(options);
	options = options_of(SHADE_SCORE_PADS);
	options.max_repeats = 2;
	s = create(options);
	free(state);
	state = save(s, &size);
	cr_assert_eq(shade_scorer_load(resumed, state, size), -EINVAL);
	cr_assert_eq(shade_scorer_begin(resumed, 0, NULL), 0);
	free(state);
	shade_scorer_destroy(s);
	shade_scorer_destroy(resumed);
}

static void cr_assert_options(struct shade_scorer *s, const struct shade_scorer_options *wanted)
{
	struct shade_scorer_options got = { .size = sizeof(got) };

	cr_assert_eq(shade_scorer_get_options(s, &got), 0, "%s", shade_score_error());
	cr_assert_eq(got.size, wanted->size);
	cr_assert_eq(got.samples, wanted->samples);
	cr_assert_eq(got.seed, wanted->seed);
	cr_assert_eq(got.mode, wanted->mode);
	cr_assert_eq(got.backend, wanted->backend);
	cr_assert_eq(got.lookahead, wanted->lookahead);
	cr_assert_eq(got.draws, wanted->draws);
	cr_assert_eq(got.rep, wanted->rep);
	cr_assert_eq(got.uses, wanted->uses > 0 ? wanted->uses : 4);
	cr_assert_eq(got.most_uses, wanted->most_uses);
	cr_assert_eq(got.strength, wanted->strength);
	cr_assert_eq(got.max_repeats, wanted->max_repeats);
	cr_assert_eq(got.cover_epochs, wanted->cover_epochs);
	cr_assert_eq(got.capacity, wanted->capacity);
	cr_assert_eq(got.device, wanted->device);
	cr_assert_eq(got.keep, wanted->keep);
	cr_assert_eq(got.epochs, wanted->epochs);
	cr_assert_eq(got.multiple, wanted->multiple ? wanted->multiple : 1);
	cr_assert_eq(got.substitute, wanted->substitute);
	cr_assert_eq(got.package, wanted->package);
}

/* The options in force are those that were given, and after a load those of the saved scorer. */
Test(states, options_in_force)
{
	struct shade_scorer_options given = options_of(SHADE_SCORE_ECHO), wanted = given;
	struct shade_scorer_options other = options_of(SHADE_SCORE_PADS), small = { .size = 8 };
	struct shade_scorer *s, *loaded;
	uint64_t size;
	void *state;

	given.seed = (1ull << 63) + 5;
	given.lookahead = 1;
	given.uses = 3.5;
	given.strength = 0.25;
	given.max_repeats = 9;
	given.cover_epochs = 3;
	s = create(given);
	wanted = given;
	wanted.draws = N; /* 0 stands for it */
	cr_assert_options(s, &wanted);
	other.draws = N + 1;
	other.device = 3;
	loaded = create(other);
	cr_assert_options(loaded, &other);
	state = save(s, &size);
	cr_assert_eq(shade_scorer_load(loaded, state, size), 0, "%s", shade_score_error());
	wanted.draws = other.draws;
	wanted.device = other.device;
	cr_assert_options(loaded, &wanted);
	cr_assert_eq(shade_scorer_get_options(s, &small), -EINVAL);
	cr_assert(strstr(shade_score_error(), "8 bytes"), "%s", shade_score_error());
	free(state);
	shade_scorer_destroy(s);
	shade_scorer_destroy(loaded);
}

Test(states, of_another_data_set)
{
	struct shade_scorer_options options = options_of(SHADE_SCORE_PADS);
	struct shade_scorer *s = create(options), *other;
	uint64_t size;
	void *state = save(s, &size);

	options.samples = N + 1;
	other = create(options);
	cr_assert_eq(shade_scorer_load(other, state, size), -EINVAL);
	cr_assert(strstr(shade_score_error(), "1000 samples"), "%s", shade_score_error());
	free(state);
	shade_scorer_destroy(s);
	shade_scorer_destroy(other);
}

/* How many samples have come in 40 epochs whose numbers are `step` apart. */
static uint32_t covered(uint32_t lookahead, uint32_t cover_epochs, uint64_t step)
{
	struct shade_scorer_options options = options_of(SHADE_SCORE_PADS);
	struct shade_scorer *s;
	uint32_t ids[N], count = 0;
	float scores[N];
	bool seen[N] = { false };

	/* A few samples take all but the turns. */
	for (uint32_t i = 0; i < N; i++) {
		ids[i] = i;
		scores[i] = i % 10 ? 0 : 5;
	}
	options.lookahead = lookahead;
	options.cover_epochs = cover_epochs;
	options.max_repeats = 1000;
	s = create(options);
	cr_assert_eq(shade_scorer_merge(s, ids, scores, N), 0);
	for (uint64_t epoch = 0; epoch < 40; epoch++) {
		cr_assert_eq(shade_scorer_begin(s, epoch * step, NULL), 0);
		order_of(s, epoch * step, ids);
		for (uint32_t i = 0; i < N; i++)
			seen[ids[i]] = true;
	}
	for (uint32_t i = 0; i < N; i++)
		count += seen[i];
	shade_scorer_destroy(s);
	return count;
}

/* Epochs numbered 0, 5, 10 had the same turn each time: 358 of 1000 samples came in 40 of them. */
Test(scorer, turns_follow_what_is_drawn)
{
	cr_assert_eq(covered(0, 5, 1), N);
	cr_assert_eq(covered(0, 5, 5), N);
	/* Ahead of an epoch that is passed over another one was drawn: its turn is not lost. */
	cr_assert_eq(covered(1, 4, 1), N);
	cr_assert_eq(covered(1, 4, 2), N);
	cr_assert_eq(covered(1, 4, 3), N);
}
