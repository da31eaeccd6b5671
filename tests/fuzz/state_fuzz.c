/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Any bytes as the saved state of a scorer. A training resumes from files that somebody may have
 * given to it. The first byte of an input chooses the scorer that loads; the rest is a state
 * without its fingerprint, which is put right here, since it would keep all others from being
 * loaded. Without it nothing may be accepted.
 *
 * What is refused leaves the scorer as it was, and says why. What is accepted is saved again byte
 * for byte (without its orders, if those have another length), and the scorer goes on from there:
 * it draws epochs, and their ids are in range.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "scorer.h"

#define FINGERPRINT_SEED 0x5ade
#define VERSION_AT 8 /* in a state, see state.c */
#define DRAWS_AT 32  /* as well */
#define MULTIPLE_AT 92
#define SAMPLES_MAX 70 /* more than a word of a bitmap has */

const char fuzz_name[] = "state";

static struct shade_scorer *create(uint32_t samples, uint32_t draws, uint32_t mode)
{
	struct shade_scorer_options options;
	struct shade_scorer *s = NULL;

	shade_scorer_defaults(&options);
	options.samples = samples;
	options.draws = draws;
	options.mode = mode;
	options.capacity = 1 + samples / 5;
	options.backend = SHADE_SCORE_CPU;
	fuzz_require(!shade_scorer_create(&s, &options), "there is a scorer");
	return s;
}

static unsigned char *save(struct shade_scorer *s, uint64_t *size)
{
	int64_t wanted = shade_scorer_save(s, NULL, 0);
	unsigned char *state;

	fuzz_require(wanted > 8, "a state has a size");
	state = malloc((size_t)wanted);
	fuzz_require(state, "there is memory");
	fuzz_require(shade_scorer_save(s, state, (uint64_t)wanted) == wanted, "it is saved");
	*size = (uint64_t)wanted;
	return state;
}

static bool is_saved_as(struct shade_scorer *s, const unsigned char *state, uint64_t size)
{
	uint64_t now_size;
	unsigned char *now = save(s, &now_size);
	bool same = now_size == size && !memcmp(now, state, size);

	free(now);
	return same;
}

/* 0, or -EINVAL, and then nothing has changed. */
static int load(struct shade_scorer *s, const unsigned char *state, uint64_t size)
{
	uint64_t before_size;
	unsigned char *before = save(s, &before_size);
	int rc = shade_scorer_load(s, state, size);

	fuzz_require(!rc || rc == -EINVAL, "a state is accepted or refused");
	if (rc) {
		fuzz_require(strlen(shade_score_error()) > 10, "a refusal says why");
		fuzz_require(is_saved_as(s, before, before_size), "a refusal changes nothing");
	}
	free(before);
	return rc;
}

/* --- what was accepted -------------------------------------------------------------------------
 */

static void check_order(struct shade_scorer *s, uint64_t epoch, bool must)
{
	struct shade_scorer_options options = { .size = sizeof(options) };
	uint32_t *ids;
	int64_t count;
	uint64_t digest;

	fuzz_require(!shade_scorer_get_options(s, &options), "the options can be asked for");
	ids = malloc(((size_t)options.draws + 1) * sizeof(*ids));
	fuzz_require(ids, "there is memory");
	count = shade_scorer_order(s, epoch, 0, 1, ids, options.draws);
	fuzz_require(count == options.draws || (!must && count == -ENOENT) ||
			     (scorer_skips(&options) && count > 0),
		     "an epoch has an order");
	for (int64_t i = 0; i < count; i++)
		fuzz_require(ids[i] < options.samples, "the ids of an order are in range");
	if (count > 0)
		fuzz_require(!shade_scorer_digest(s, epoch, &digest), "an order has a digest");
	free(ids);
}

static void check_weights(struct shade_scorer *s, uint64_t epoch)
{
	uint32_t id = 0;
	float weight;
	int rc = shade_scorer_weights(s, epoch, &id, &weight, 1);

	fuzz_require(!rc || rc == -ENOENT || rc == -ENOTSUP, "weights are there or not");
	fuzz_require(rc || weight >= 0, "a weight is not negative");
}

/* An epoch begins, unless the uses that echo is to make do not fit its capacity. */
static void begin(struct shade_scorer *s, uint64_t epoch, const uint8_t *resident)
{
	uint64_t before_size;
	unsigned char *before = save(s, &before_size);
	int rc = shade_scorer_begin(s, epoch, resident);

	fuzz_require(!rc || (rc == -EINVAL && strstr(shade_score_error(), "uses do not fit")),
		     "an epoch can begin");
	if (rc)
		fuzz_require(is_saved_as(s, before, before_size), "a refusal changes nothing");
	else
		check_order(s, epoch, true);
	if (!rc && !shade_scorer_redraw(s, epoch, 0, resident))
		check_order(s, epoch, true);
	free(before);
}

/* Two ranks on two nodes have the whole order between them. */
static void check_nodes(struct shade_scorer *s, uint64_t epoch)
{
	static const uint32_t node_of[] = { 0, 1 };
	struct shade_score_nodes nodes = { .size = sizeof(nodes), .world = 2, .node_of = node_of };
	struct shade_scorer_options options = { .size = sizeof(options) };
	uint32_t ids[2 * SAMPLES_MAX];

	fuzz_require(!shade_scorer_get_options(s, &options), "the options can be asked for");
	if (options.draws < 2 || options.draws > SAMPLES_MAX)
		return;
	if (scorer_skips(&options) && options.multiple % 2) {
		fuzz_require(shade_scorer_nodes(s, &nodes) == -EINVAL, "parts must be equal");
		return;
	}
	fuzz_require(!shade_scorer_nodes(s, &nodes), "it takes nodes");
	begin(s, epoch, NULL);
	for (uint32_t rank = 0; rank < 2; rank++) {
		int64_t count = shade_scorer_order(s, epoch, rank, 2, ids, options.draws);

		fuzz_require(count == -ENOENT || count == shade_scorer_length(s, rank, 2) ||
				     (scorer_skips(&options) && count > 0),
			     "each rank has a part");
		for (int64_t i = 0; i < count; i++)
			fuzz_require(ids[i] < options.samples, "the ids of a part are in range");
	}
}

static void go_on(struct shade_scorer *s)
{
	uint8_t resident[SAMPLES_MAX / 8 + 1];
	uint32_t id = 0;
	float loss = 1;

	for (uint64_t epoch = 0; epoch < 4; epoch++) {
		check_order(s, epoch, false);
		check_weights(s, epoch);
	}
	memset(resident, 0x5a, sizeof(resident));
	fuzz_require(!shade_scorer_update(s, &id, &loss, 1, NULL), "it takes a batch");
	begin(s, 7, resident);
	check_weights(s, 7);
	begin(s, 8, NULL);
	check_nodes(s, 9);
}

/* The length of an epoch is the scorer's own; a state whose epochs have another length loses its
 * orders. One of an older version becomes one of this version. */
static void check_saved(struct shade_scorer *s, const unsigned char *state, uint64_t size)
{
	struct shade_scorer_options options = { .size = sizeof(options) };
	unsigned char *kept;
	uint64_t kept_size;
	uint32_t draws, multiple;

	fuzz_require(!shade_scorer_get_options(s, &options), "the options can be asked for");
	memcpy(&draws, state + DRAWS_AT, sizeof(draws));
	memcpy(&multiple, state + MULTIPLE_AT, sizeof(multiple));
	kept = save(s, &kept_size);
	if (options.draws == le32toh(draws) && options.multiple == le32toh(multiple) &&
	    !memcmp(state + VERSION_AT, kept + VERSION_AT, 4)) {
		fuzz_require(is_saved_as(s, state, size), "what is accepted is saved as it was");
		free(kept);
		return;
	}
	fuzz_require(!load(s, kept, kept_size), "a scorer loads what it saved");
	fuzz_require(is_saved_as(s, kept, kept_size), "and saves what it loaded");
	free(kept);
}

static void load_right(struct shade_scorer *s, const unsigned char *state, uint64_t size)
{
	struct shade_scorer_options options = { .size = sizeof(options) };
	struct shade_scorer *longer;

	if (load(s, state, size))
		return;
	check_saved(s, state, size);
	fuzz_require(!shade_scorer_get_options(s, &options), "the options can be asked for");
	longer = create(options.samples, options.draws + 1, SHADE_SCORE_UNIFORM);
	if (!load(longer, state, size)) {
		check_saved(longer, state, size);
		go_on(longer);
	}
	shade_scorer_destroy(longer);
	go_on(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct shade_scorer *s;
	unsigned char *state;
	uint64_t fingerprint;

	if (!size)
		return 0;
	s = create(1 + data[0] % SAMPLES_MAX, 0, data[0] % 8);
	state = malloc(size - 1 + sizeof(fingerprint));
	fuzz_require(state, "there is memory");
	memcpy(state, data + 1, size - 1);
	fingerprint = score_hash(FINGERPRINT_SEED, state, size - 1);
	fingerprint ^= 1;
	memcpy(state + size - 1, &fingerprint, sizeof(fingerprint));
	fuzz_require(load(s, state, size - 1 + sizeof(fingerprint)) == -EINVAL,
		     "a state with a wrong fingerprint is refused");
	fingerprint ^= 1;
	memcpy(state + size - 1, &fingerprint, sizeof(fingerprint));
	load_right(s, state, size - 1 + sizeof(fingerprint));
	free(state);
	shade_scorer_destroy(s);
	return 0;
}

/* --- states by chance --------------------------------------------------------------------------
 */

static void train(struct fuzz_random *random, struct shade_scorer *s, uint32_t samples)
{
	for (uint32_t count = fuzz_roll(random, 10); count; count--) {
		uint32_t ids[4];
		float losses[4];

		for (int i = 0; i < 4; i++) {
			ids[i] = fuzz_roll(random, samples);
			losses[i] = (float)fuzz_roll(random, 100) / 10;
		}
		fuzz_require(!shade_scorer_update(s, ids, losses, 4, NULL), "it takes a batch");
	}
}

static void spread_ranks(struct fuzz_random *random, struct shade_scorer *s, uint32_t samples)
{
	uint32_t node_of[4];
	struct shade_score_nodes nodes = { .size = sizeof(nodes),
					   .world =
						   1 + fuzz_roll(random, samples < 4 ? samples : 4),
					   .node_of = node_of,
					   .block = 1 + fuzz_roll(random, 3) };

	for (uint32_t rank = 0; rank < nodes.world; rank++)
		node_of[rank] = fuzz_roll(random, nodes.world);
	/* Where samples are left out, parts must be equal. */
	(void)shade_scorer_nodes(s, &nodes);
}

size_t fuzz_make(struct fuzz_random *random, uint8_t *data)
{
	static const uint8_t resident[SAMPLES_MAX / 8 + 1] = { 0x35, 0xff };
	struct shade_scorer_options options;
	struct shade_scorer *s = NULL;
	unsigned char *state;
	uint64_t size;

	data[0] = (uint8_t)fuzz_roll(random, 256);
	shade_scorer_defaults(&options);
	options.samples = 1 + data[0] % SAMPLES_MAX;
	options.mode = fuzz_roll(random, 8);
	options.multiple = 1 + fuzz_roll(random, 4);
	options.epochs = fuzz_roll(random, 4);
	options.substitute = options.mode == SHADE_SCORE_IIS && fuzz_roll(random, 2);
	options.package = options.mode == SHADE_SCORE_IIS ? fuzz_roll(random, 4) : 0;
	options.keep = options.mode == SHADE_SCORE_IIS || fuzz_roll(random, 2) ? 0 : 0.5;
	options.lookahead = fuzz_roll(random, 2);
	options.seed = fuzz_roll(random, 1000);
	options.strength = fuzz_roll(random, 2);
	options.capacity = 1 + fuzz_roll(random, options.samples);
	options.backend = SHADE_SCORE_CPU;
	fuzz_require(!shade_scorer_create(&s, &options), "there is a scorer");
	if (fuzz_roll(random, 2))
		spread_ranks(random, s, options.samples);
	for (uint64_t epoch = 0; epoch < fuzz_roll(random, 3); epoch++) {
		train(random, s, options.samples);
		(void)shade_scorer_begin(s, epoch, epoch ? resident : NULL);
		if (fuzz_roll(random, 2))
			(void)shade_scorer_redraw(s, epoch, fuzz_roll(random, options.samples),
						  NULL);
	}
	train(random, s, options.samples);
	state = save(s, &size);
	fuzz_require(size + 1 <= FUZZ_INPUT_MAX, "a state of few samples is small");
	memcpy(data + 1, state, size - 8);
	free(state);
	shade_scorer_destroy(s);
	return size - 7;
}
