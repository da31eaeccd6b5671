/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Both backends give the same. Kernels run on the emulated device, which is loaded as the real
 * one would be: the test is started with SHADE_SCORE_DEVICE.
 */
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "helpers.h"

static long emulate(const char *what, long value)
{
	static long (*set)(const char *, long);

	if (!set) {
		void *module = dlopen(getenv("SHADE_SCORE_DEVICE"), RTLD_NOW), *symbol;

		cr_assert(module, "%s", dlerror());
		symbol = dlsym(module, "emulate_set");
		memcpy(&set, &symbol, sizeof(set));
	}
	return set(what, value);
}

static struct shade_scorer *create_cuda(uint32_t mode)
{
	struct shade_scorer_options options = options_of(mode);

	options.backend = SHADE_SCORE_CUDA;
	return create(options);
}

struct logits {
	uint32_t ids[600];
	int64_t labels[600];
	int32_t short_labels[600];
	float *floats;
	uint16_t *halves, *brains;
	uint32_t count, classes, stride;
};

/* Finite halves of any size but the largest. */
static uint16_t random_half(uint64_t index)
{
	uint32_t random = random_u32(index);

	return (uint16_t)((random & 0x83ff) | random % 20 << 10);
}

static struct logits make_logits(uint32_t count, uint32_t classes, uint32_t seed)
{
	struct logits l = { .count = count, .classes = classes, .stride = classes + seed % 3 };
	uint64_t room = (uint64_t)count * l.stride;

	l.floats = malloc(room * sizeof(*l.floats));
	l.halves = malloc(room * sizeof(*l.halves));
	l.brains = malloc(room * sizeof(*l.brains));
	for (uint64_t i = 0; i < room; i++) {
		l.floats[i] =
			(float)((int)(random_u32((uint64_t)seed * 1000003u + i) % 4001) - 2000) /
			150;
		l.halves[i] = random_half((uint64_t)seed * 1000003u + i);
		l.brains[i] = (uint16_t)((random_u32((uint64_t)seed * 77u + i) & 0x807f) |
					 (118 + random_u32(i) % 12) << 7);
	}
	for (uint32_t i = 0; i < count; i++) {
		l.ids[i] = random_u32(seed * 31u + i) % N;
		l.short_labels[i] = (int32_t)(random_u32(seed * 37u + i) % classes);
		l.labels[i] = l.short_labels[i];
	}
	return l;
}

static void free_logits(struct logits *l)
{
	free(l->floats);
	free(l->halves);
	free(l->brains);
}

static struct shade_score_batch batch_of(const struct logits *l, uint32_t dtype, uint32_t memory)
{
	const void *logits[] = { l->floats, l->halves, l->brains };

	return (struct shade_score_batch){
		.size = sizeof(struct shade_score_batch),
		.count = l->count,
		.ids = l->ids,
		.memory = memory,
		.dtype = dtype,
		.logits = logits[dtype],
		.row_stride = l->stride,
		.classes = l->classes,
		.label_bytes = dtype == SHADE_SCORE_F16 ? 4 : 8,
		.labels = dtype == SHADE_SCORE_F16 ? (void *)l->short_labels : (void *)l->labels,
	};
}

/* Losses and scores of one batch on both, bit by bit. */
static void compare_batch(struct shade_scorer *cpu, struct shade_scorer *cuda,
			  const struct logits *l, uint32_t dtype)
{
	struct shade_score_batch batch = batch_of(l, dtype, SHADE_SCORE_HOST);
	float losses[2][600], scores[2][600];

	batch.losses_out = losses[0];
	batch.scores_out = scores[0];
	cr_assert_eq(shade_scorer_update_batch(cpu, &batch), 0, "%s", shade_score_error());
	batch.memory = SHADE_SCORE_DEVICE;
	batch.losses_out = losses[1];
	batch.scores_out = scores[1];
	memset(scores[1], 0, sizeof(scores[1]));
	cr_assert_eq(shade_scorer_update_batch(cuda, &batch), 0, "%s", shade_score_error());
	cr_assert_eq(scores[1][0], 0, "the host has waited for the device");
	cr_assert_eq(shade_scorer_sync(cuda), 0, "%s", shade_score_error());
	for (uint32_t i = 0; i < l->count; i++) {
		cr_assert(fabsf(scores[0][i] - scores[1][i]) < 1e-5f);
		cr_assert(!memcmp(&losses[0][i], &losses[1][i], 4), "row %u of dtype %u: %a, %a", i,
			  dtype, (double)losses[0][i], (double)losses[1][i]);
	}
}

/* What they kept, and what they leave out for it. */
static void cr_assert_same_draw(struct shade_scorer *cpu, struct shade_scorer *cuda)
{
	float losses[2][N];
	uint64_t digests[2];

	cr_assert_eq(shade_scorer_losses(cpu, losses[0]), 0);
	cr_assert_eq(shade_scorer_losses(cuda, losses[1]), 0);
	cr_assert(!memcmp(losses[0], losses[1], sizeof(losses[0])));
	cr_assert_eq(shade_scorer_digest(cpu, 0, &digests[0]), 0);
	cr_assert_eq(shade_scorer_digest(cuda, 0, &digests[1]), 0);
	cr_assert_eq(digests[0], digests[1]);
	cr_assert_lt(shade_scorer_order(cpu, 0, 0, 1, NULL, 0), N);
}

Test(backends, give_the_same)
{
	static const uint32_t shapes[][2] = { { 1, 1 },	   { 3, 2 },   { 64, 10 },  { 33, 32 },
					      { 7, 1000 }, { 600, 5 }, { 257, 31 }, { 2, 5000 } };

	for (long seed = 1; seed <= 2; seed++) {
		struct shade_scorer *cpu = create_mode(SHADE_SCORE_PRUNE);
		struct shade_scorer *cuda = create_cuda(SHADE_SCORE_PRUNE);
		float scores[2][N];

		cr_assert_str_eq(shade_scorer_backend(cuda), "cuda");
		emulate("seed", seed);
		for (uint32_t shape = 0; shape < 8; shape++) {
			struct logits l = make_logits(shapes[shape][0], shapes[shape][1],
						      (uint32_t)seed * 10 + shape);

			for (uint32_t dtype = 0; dtype < 3; dtype++)
				compare_batch(cpu, cuda, &l, dtype);
			free_logits(&l);
		}
		scores_of(cpu, scores[0]);
		scores_of(cuda, scores[1]);
		cr_assert(!memcmp(scores[0], scores[1], sizeof(scores[0])), "seed %ld", seed);
		cr_assert_eq(shade_scorer_begin(cpu, 0, NULL), 0);
		cr_assert_eq(shade_scorer_begin(cuda, 0, NULL), 0);
		cr_assert_same_draw(cpu, cuda);
		shade_scorer_destroy(cpu);
		shade_scorer_destroy(cuda);
	}
	cr_assert_gt(emulate("switches", 0), 10000, "the kernels have not run");
}

/* Against libm, so that both are not wrong alike. */
Test(backends, cross_entropy_is_right)
{
	struct logits l = make_logits(200, 300, 5);
	struct shade_scorer *s = create_mode(SHADE_SCORE_PADS);
	struct shade_score_batch batch = batch_of(&l, SHADE_SCORE_F32, SHADE_SCORE_HOST);
	float losses[200];

	batch.losses_out = losses;
	cr_assert_eq(shade_scorer_update_batch(s, &batch), 0);
	for (uint32_t row = 0; row < 200; row++) {
		const float *x = l.floats + (size_t)row * l.stride;
		double sum = 0, right;

		for (uint32_t i = 0; i < 300; i++)
			sum += exp((double)x[i]);
		right = log(sum) - (double)x[l.labels[row]];
		cr_assert(fabs(right - (double)losses[row]) < 1e-6 * (1 + right));
	}
	free_logits(&l);
	shade_scorer_destroy(s);
}

/* Losses that are on the device, several streams, and a host that never waits. */
Test(backends, the_host_runs_ahead)
{
	struct shade_scorer *cpu = create_mode(SHADE_SCORE_PADS);
	struct shade_scorer *cuda = create_cuda(SHADE_SCORE_PADS);
	static float losses[300][40], results[300][40];
	static uint32_t ids[300][40];
	float scores[2][N];
	int streams[2], rc = 0, submitted = 0;

	emulate("seed", 3);
	for (; submitted < 300 && !rc; submitted++) {
		struct shade_score_batch batch = {
			.size = sizeof(batch),
			.count = 40,
			.ids = ids[submitted],
			.memory = SHADE_SCORE_DEVICE,
			.losses = losses[submitted],
			.scores_out = results[submitted],
			.stream = &streams[submitted % 2],
		};

		for (uint32_t i = 0; i < 40; i++) {
			ids[submitted][i] = random_u32(submitted * 40 + i) % N;
			losses[submitted][i] = (float)(random_u32(submitted * 40 + i) >> 8);
		}
		rc = shade_scorer_update_batch(cuda, &batch);
		if (rc)
			break;
		cr_assert_eq(shade_scorer_update(cpu, ids[submitted], losses[submitted], 40, NULL),
			     0);
	}
	cr_assert(rc == 0 || rc == -EAGAIN, "%d", rc);
	cr_assert_geq(submitted, 256);
	cr_assert_eq(results[submitted - 1][0], 0, "the host has waited for the device");
	scores_of(cpu, scores[0]);
	scores_of(cuda, scores[1]);
	cr_assert(!memcmp(scores[0], scores[1], sizeof(scores[0])), "the last visit does not win");
	shade_scorer_destroy(cpu);
	shade_scorer_destroy(cuda);
}

/* Merges and host batches come after what is in flight. */
Test(backends, sequence_of_host_and_device)
{
	struct shade_scorer *s = create_cuda(SHADE_SCORE_PADS);
	uint32_t ids[] = { 1, 2, 3 };
	float losses[] = { 3, 2, 1 }, other[] = { 50, 60 }, scores[N];
	struct shade_score_batch batch = { .size = sizeof(batch),
					   .count = 3,
					   .ids = ids,
					   .memory = SHADE_SCORE_DEVICE,
					   .losses = losses };

	cr_assert_eq(shade_scorer_update_batch(s, &batch), 0);
	cr_assert_eq(shade_scorer_merge(s, ids, other, 1), 0);
	scores_of(s, scores);
	cr_assert_eq(scores[1], 50, "the merge came first");
	cr_assert_eq(shade_scorer_update_batch(s, &batch), 0);
	ids[0] = 2;
	cr_assert_eq(shade_scorer_update(s, ids, losses, 1, NULL), 0);
	scores_of(s, scores);
	cr_assert_eq(scores[1], (float)log(12));
	cr_assert_eq(scores[2], (float)log(31.5 + 10)); /* it was alone in its batch */
	cr_assert_eq(scores[3], (float)log(10));
	shade_scorer_destroy(s);
}

/* Equal losses share a rank on both, and a batch of one ranks in the middle. */
Test(backends, equal_losses)
{
	static const uint32_t counts[] = { 1, 2, 64, 255, N };
	struct shade_scorer *cpu = create_mode(SHADE_SCORE_PADS);
	struct shade_scorer *cuda = create_cuda(SHADE_SCORE_PADS);
	uint32_t ids[N];
	float losses[N], on_host[N], on_device[N];
	struct shade_score_batch batch = { .size = sizeof(batch),
					   .ids = ids,
					   .memory = SHADE_SCORE_DEVICE,
					   .losses = losses,
					   .scores_out = on_device };

	for (unsigned i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		for (uint32_t k = 0; k < counts[i]; k++) {
			ids[k] = k;
			losses[k] = (float)(k * 7 % 5) * (k % 2 ? 1.0f : -1.0f);
		}
		batch.count = counts[i];
		cr_assert_eq(shade_scorer_update(cpu, ids, losses, counts[i], on_host), 0);
		cr_assert_eq(shade_scorer_update_batch(cuda, &batch), 0);
		cr_assert_eq(shade_scorer_sync(cuda), 0);
		cr_assert(!memcmp(on_host, on_device, counts[i] * sizeof(float)), "%u", counts[i]);
	}
	shade_scorer_destroy(cpu);
	shade_scorer_destroy(cuda);
}

/* Batches that are only ranked give scores and leave none behind, in whatever sequence they are in
 * flight with others, and more of them than the device takes at once. */
Test(backends, ranked_and_kept_in_flight)
{
	struct shade_scorer *cpu = create_mode(SHADE_SCORE_PADS);
	struct shade_scorer *cuda = create_cuda(SHADE_SCORE_PADS);
	struct shade_scorer_options options = { .size = sizeof(options) };
	static float losses[600][8], results[600][8], wanted[600][8];
	static uint32_t ids[600][8];
	float scores[2][N];

	cr_assert_eq(shade_scorer_get_options(cuda, &options), 0);
	cr_assert_eq(options.backend, SHADE_SCORE_CUDA);
	for (uint32_t b = 0; b < 600; b++) {
		struct shade_score_batch batch = { .size = sizeof(batch),
						   .count = 8,
						   .ids = ids[b],
						   .memory = SHADE_SCORE_DEVICE,
						   .losses = losses[b],
						   .scores_out = results[b] };
		bool keep = random_u32(b) % 3 == 0;
		int rc;

		for (uint32_t i = 0; i < 8; i++) {
			ids[b][i] = random_u32(b * 8 + i) % N;
			losses[b][i] = (float)(random_u32(b * 8 + i) >> 8);
		}
		while ((rc = keep ? shade_scorer_update_batch(cuda, &batch)
				  : shade_scorer_rank_batch(cuda, &batch)) == -EAGAIN)
			cr_assert_eq(shade_scorer_sync(cuda), 0, "%s", shade_score_error());
		cr_assert_eq(rc, 0, "%s", shade_score_error());
		batch.memory = SHADE_SCORE_HOST;
		batch.scores_out = wanted[b];
		rc = keep ? shade_scorer_update_batch(cpu, &batch)
			  : shade_scorer_rank_batch(cpu, &batch);
		cr_assert_eq(rc, 0, "%s", shade_score_error());
	}
	scores_of(cpu, scores[0]);
	scores_of(cuda, scores[1]);
	cr_assert(!memcmp(scores[0], scores[1], sizeof(scores[0])), "other scores are kept");
	cr_assert(!memcmp(wanted, results, sizeof(wanted)), "other scores are given");
	shade_scorer_destroy(cpu);
	shade_scorer_destroy(cuda);
}

/* Who reads scores on the device, for a mount or for other ranks, sees that there are none. */
static void check_withheld(struct shade_scorer *s, const struct logits *l, bool by_losses)
{
	struct shade_score_batch batch = batch_of(l, SHADE_SCORE_F32, SHADE_SCORE_DEVICE);
	float scores[600];

	for (uint32_t i = 0; i < 600; i++)
		scores[i] = 5;
	batch.scores_out = scores;
	if (by_losses) {
		batch.losses = l->floats;
		batch.logits = NULL;
	}
	cr_assert_eq(shade_scorer_update_batch(s, &batch), 0);
	cr_assert_lt(shade_scorer_sync(s), 0);
	for (uint32_t i = 0; i < l->count; i++)
		cr_assert_eq(scores[i], SHADE_SCORE_NONE, "entry %u: %g", i, (double)scores[i]);
	cr_assert_eq(scores[l->count], 5);
}

Test(backends, a_faulty_batch_gives_no_scores)
{
	struct shade_scorer *s = create_cuda(SHADE_SCORE_PADS);
	struct logits l = make_logits(599, 10, 3); /* several blocks, the last one not full */

	for (long seed = 1; seed <= 3; seed++) {
		emulate("seed", seed);
		l.floats[598] = NAN;
		check_withheld(s, &l, false);
		check_withheld(s, &l, true);
		l.floats[598] = 0;
		l.labels[300] = 10;
		check_withheld(s, &l, false);
		l.labels[300] = 9;
	}
	free_logits(&l);
	shade_scorer_destroy(s);
}

Test(backends, faults_on_the_device)
{
	struct shade_scorer *s = create_cuda(SHADE_SCORE_PADS);
	struct logits l = make_logits(40, 10, 1);
	struct shade_score_batch batch = batch_of(&l, SHADE_SCORE_F32, SHADE_SCORE_DEVICE);
	float before[N], after[N];

	scores_of(s, before);
	l.floats[25] = NAN;
	cr_assert_eq(shade_scorer_update_batch(s, &batch), 0);
	cr_assert_eq(shade_scorer_begin(s, 0, NULL), 0, "a bad batch stops no training");
	cr_assert_eq(shade_scorer_sync(s), -EINVAL);
	cr_assert(strstr(shade_score_error(), "1 batches were left out: a loss is not a number"),
		  "%s", shade_score_error());
	cr_assert_eq(shade_scorer_sync(s), 0, "it is told once");
	l.floats[25] = 0;
	for (int bad = 0; bad < 2; bad++) {
		l.labels[39] = bad ? 10 : -1;
		cr_assert_eq(shade_scorer_update_batch(s, &batch), 0);
		cr_assert_eq(shade_scorer_sync(s), -ERANGE);
	}
	scores_of(s, after);
	cr_assert(!memcmp(before, after, sizeof(before)));
	/* The same on the host, which says it at once. */
	batch.memory = SHADE_SCORE_HOST;
	cr_assert_eq(shade_scorer_update_batch(s, &batch), -ERANGE);
	cr_assert(strstr(shade_score_error(), "label of entry 39"), "%s", shade_score_error());
	l.labels[39] = 9;
	l.floats[25] = INFINITY;
	cr_assert_eq(shade_scorer_update_batch(s, &batch), -EINVAL);
	l.floats[25] = 0;
	cr_assert_eq(shade_scorer_update_batch(s, &batch), 0);
	free_logits(&l);
	shade_scorer_destroy(s);
}

/* Two batches of three, by losses or by logits, with all outputs. The second finds the first in
 * flight. */
static int update_and_sync(struct shade_scorer *s, bool by_logits)
{
	static float logits[] = { 0, 1, 2, 0, 1, 1 }, losses[] = { 3, 2, 1 };
	static int32_t labels[] = { 0, 1, 1 };
	static uint32_t ids[] = { 1, 2, 3 };
	static float losses_out[3], scores_out[3];
	struct shade_score_batch batch = { .size = sizeof(batch),
					   .count = 3,
					   .ids = ids,
					   .memory = SHADE_SCORE_DEVICE,
					   .losses = losses,
					   .losses_out = losses_out,
					   .scores_out = scores_out };
	int rc;

	emulate("seed", 1);
	if (by_logits) {
		batch.logits = logits;
		batch.classes = 2;
		batch.labels = labels;
		batch.label_bytes = 4;
	}
	rc = shade_scorer_update_batch(s, &batch);
	if (!rc)
		rc = shade_scorer_update_batch(s, &batch);
	return rc ? rc : shade_scorer_sync(s);
}

/* Whichever call of the runtime fails, launches too: an error, then no more of it, and no leak. */
Test(backends, a_device_that_fails)
{
	for (int by_logits = 0; by_logits < 2; by_logits++) {
		int failed = 0, rc = -EIO;

		for (long at = 1; rc; at++) {
			struct shade_scorer *s = create_cuda(SHADE_SCORE_PADS);

			emulate("fail_in", at);
			rc = update_and_sync(s, by_logits);
			emulate("fail_in", 0);
			if (rc) {
				failed++;
				cr_assert_eq(rc, -EIO);
				cr_assert_eq(shade_scorer_begin(s, 0, NULL), -EIO);
				cr_assert_gt(shade_scorer_save(s, NULL, 0), 0);
			}
			shade_scorer_destroy(s);
		}
		/* Each batch: which device it is, twice, an event, three allocations, a memset,
		 * two or three launches, three or two copies, a record. Then a query, two waits,
		 * and three times which device it is. */
		cr_assert_eq(failed, 2 * 13 + 6, "%d", failed);
	}
}

/* An error that the training has seen and lived with. */
Test(backends, somebody_elses_error)
{
	struct shade_scorer *s = create_cuda(SHADE_SCORE_PADS);

	emulate("last_error", 999);
	cr_assert_eq(update_and_sync(s, false), 0, "%s", shade_score_error());
	shade_scorer_destroy(s);
}

Test(backends, a_device_that_fails_at_once)
{
	struct shade_scorer_options options = options_of(SHADE_SCORE_PADS);
	int rc = -ENODEV, failed = 0;

	options.backend = SHADE_SCORE_CUDA;
	for (long at = 1; rc; at++) {
		struct shade_scorer *s = NULL;

		emulate("fail_in", at);
		rc = shade_scorer_create(&s, &options);
		emulate("fail_in", 0);
		cr_assert(rc == -ENODEV || !rc, "%d", rc);
		failed += rc != 0;
		shade_scorer_destroy(s);
	}
	cr_assert_eq(failed, 5, "%d", failed);
}

/* A training fills its device to the brim: a batch that has no room is not the end of it. */
Test(backends, a_device_without_memory)
{
	struct shade_scorer_options options = options_of(SHADE_SCORE_PADS);
	struct shade_scorer *s = NULL;
	int rc = -ENOMEM, failed = 0;
	float scores[N];

	for (long at = 1; rc; at++) {
		s = create_cuda(SHADE_SCORE_PADS);
		emulate("no_memory_in", at);
		rc = update_and_sync(s, false);
		emulate("no_memory_in", 0);
		if (rc) {
			failed++;
			cr_assert_eq(rc, -ENOMEM);
			cr_assert(strstr(shade_score_error(), "no memory"), "%s",
				  shade_score_error());
			cr_assert_eq(shade_scorer_begin(s, 0, NULL), 0);
			cr_assert_eq(update_and_sync(s, false), 0, "%s", shade_score_error());
		}
		scores_of(s, scores);
		cr_assert_eq(scores[1], (float)log(12));
		shade_scorer_destroy(s);
	}
	cr_assert_eq(failed, 2 * 2, "%d", failed);
	/* Not even for the table. */
	options.backend = SHADE_SCORE_CUDA;
	emulate("no_memory_in", 1);
	cr_assert_eq(shade_scorer_create(&s, &options), -ENOMEM);
	options.backend = SHADE_SCORE_AUTO;
	emulate("no_memory_in", 1);
	s = create(options);
	cr_assert_str_eq(shade_scorer_backend(s), "cpu");
	shade_scorer_destroy(s);
}

Test(backends, no_device)
{
	struct shade_scorer_options options = options_of(SHADE_SCORE_PADS);
	struct shade_scorer *s = NULL;

	emulate("devices", 0);
	options.backend = SHADE_SCORE_CUDA;
	cr_assert_eq(shade_scorer_create(&s, &options), -ENODEV);
	cr_assert(strstr(shade_score_error(), "no CUDA device answers"), "%s", shade_score_error());
	options.backend = SHADE_SCORE_AUTO;
	s = create(options);
	cr_assert_str_eq(shade_scorer_backend(s), "cpu");
	shade_scorer_destroy(s);
	setenv("SHADE_SCORE_DEVICE", "/nonexistent/module.so", 1);
	options.backend = SHADE_SCORE_CUDA;
	cr_assert_eq(shade_scorer_create(&s, &options), -ENODEV);
	cr_assert(strstr(shade_score_error(), "not installed"), "%s", shade_score_error());
}

/* The negative twin: without one of its two barriers rank_kernel is wrong, and that shows. */
Test(backends, missing_barriers_are_found)
{
	static float losses[600], scores[2][600];
	static uint32_t ids[600];
	int wrong[3] = { 0 };

	for (uint32_t i = 0; i < 600; i++) {
		ids[i] = i;
		losses[i] = (float)(random_u32(i) >> 8);
	}
	for (long skip = 0; skip < 3; skip++)
		for (long seed = 0; seed < 10; seed++) {
			struct shade_scorer *s = create_cuda(SHADE_SCORE_PADS);
			struct shade_score_batch batch = { .size = sizeof(batch),
							   .count = 600,
							   .ids = ids,
							   .losses = losses,
							   .scores_out = scores[0] };

			cr_assert_eq(shade_scorer_update_batch(s, &batch), 0);
			emulate("seed", seed);
			emulate("skip_barrier", skip);
			batch.memory = SHADE_SCORE_DEVICE;
			batch.scores_out = scores[1];
			cr_assert_eq(shade_scorer_update_batch(s, &batch), 0);
			cr_assert_eq(shade_scorer_sync(s), 0);
			wrong[skip] += memcmp(scores[0], scores[1], sizeof(scores[0])) != 0;
			emulate("skip_barrier", 0);
			shade_scorer_destroy(s);
		}
	cr_assert_eq(wrong[0], 0);
	cr_assert_geq(wrong[1], 8);
	cr_assert_geq(wrong[2], 8);
}
