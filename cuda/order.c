/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* shade-score order: scores and residency in, one epoch's ids out. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"

/* What is known of the samples. */
static void read_samples(struct shade_scorer *s, const struct command_options *o)
{
	struct lines lines;

	if (o->scores) {
		lines_open(&lines, o->scores);
		scores_read(&lines, s, o->scorer.samples);
		lines_close(&lines);
	}
	if (o->losses) {
		lines_open(&lines, o->losses);
		losses_read(&lines, s, o->scorer.samples);
		lines_close(&lines);
	}
	if (o->neighbours)
		neighbours_read(o->neighbours, s, o->scorer.samples);
}

static unsigned char *read_resident(const struct command_options *o)
{
	uint64_t bytes = ((uint64_t)o->scorer.samples + 7) / 8, size;
	unsigned char *resident;

	if (!o->resident)
		return NULL;
	resident = file_read(o->resident, bytes, &size);
	if (size == bytes)
		return resident;
	free(resident);
	fail("%s has %" PRIu64 " bytes, but %" PRIu32 " samples are %" PRIu64 " bytes of bits",
	     o->resident, size, o->scorer.samples, bytes);
}

static void load_state(struct shade_scorer *s, const char *path)
{
	unsigned char *state;
	uint64_t size;
	int rc;

	if (access(path, F_OK))
		return; /* the first call */
	state = file_read(path, UINT64_MAX - 1, &size);
	rc = shade_scorer_load(s, state, size);
	free(state);
	if (rc)
		fail("%s: %s", path, shade_score_error());
}

static void save_state(struct shade_scorer *s, const char *path)
{
	int64_t size = shade_scorer_save(s, NULL, 0);
	void *state = must(malloc((size_t)size));

	must_score(shade_scorer_save(s, state, (uint64_t)size));
	file_write(path, state, (uint64_t)size);
	free(state);
}

static void print_order(struct shade_scorer *s, const struct command_options *o)
{
	uint32_t length = shade_scorer_length(s, o->rank, o->world);
	uint32_t *ids = must(malloc((length + (size_t)1) * sizeof(*ids)));
	int64_t count = shade_scorer_order(s, o->epoch, o->rank, o->world, ids, length);

	must_score(count);
	for (int64_t i = 0; i < count; i++)
		printf("%" PRIu32 "\n", ids[i]);
	free(ids);
	if (fflush(stdout))
		give_up("cannot write the order: %s", strerror(errno));
}

/* Where an epoch is as long as what is not left out, all ranks still have equally long parts. */
static struct shade_scorer_options for_ranks(const struct command_options *options)
{
	struct shade_scorer_options o = options->scorer;

	if (o.mode == SHADE_SCORE_PRUNE || o.mode == SHADE_SCORE_IIS)
		o.multiple = options->world;
	return o;
}

int command_order(const struct command_options *options)
{
	struct shade_scorer_options scorer = for_ranks(options);
	struct shade_scorer *s;
	unsigned char *resident;

	if (!options->scorer.samples)
		fail("order needs --samples");
	if (options->scorer.mode == SHADE_SCORE_ADAPT)
		fail("mode auto follows a training: it is for shade-score follow");
	if (options->scorer.mode == SHADE_SCORE_ECHO && options->epoch && !options->state)
		fail("echo goes on from epoch to epoch: give --state FILE, from the first one on");
	must_score(shade_scorer_create(&s, &scorer));
	if (options->state)
		load_state(s, options->state);
	read_samples(s, options);
	resident = read_resident(options);
	must_score(shade_scorer_begin(s, options->epoch, resident));
	free(resident);
	print_order(s, options);
	if (options->state)
		save_state(s, options->state);
	shade_scorer_destroy(s);
	return 0;
}
