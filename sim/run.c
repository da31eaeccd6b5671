/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * shade-sim run: sampler, cache and losses in a closed loop. What is resident shapes the
 * next order, what is read is scored, and scores shape both.
 *
 * Each policy runs its own loop, because each makes its own stream. To compare policies
 * on one and the same stream, freeze it and replay it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "args.h"
#include "fail.h"
#include "losses.h"
#include "option.h"
#include "report.h"
#include "shade/pads.h"
#include "sim.h"

struct run_options {
	uint32_t samples, epochs, batch, ranks, lookahead;
	struct size capacity;
	struct args_policies policies;
	struct pads_request request; /* what does not change from draw to draw */
	const char *losses;
	const char *freeze;
	enum report_format format;
};

/* One loop. */
struct run {
	const struct run_options *options;
	struct losses *losses;
	struct sched *sched;
	struct meter meter;
	struct pads_echo echo;
	float *scores;	      /* by id, for the sampler */
	uint32_t **orders[2]; /* by lookahead and rank: orders[0] is the running epoch's */
	float *batch_losses, *batch_scores;
	uint32_t *batch_ids;
	FILE *freeze;
};

/* --- options ------------------------------------------------------------------------ */

enum {
	OPT_SAMPLES = 1,
	OPT_EPOCHS,
	OPT_CAPACITY,
	OPT_SAMPLER,
	OPT_REP,
	OPT_REPEATS,
	OPT_COVER,
	OPT_USES,
	OPT_STRENGTH,
	OPT_BATCH,
	OPT_RANKS,
	OPT_POLICY,
	OPT_LOOKAHEAD,
	OPT_SEED,
	OPT_LOSSES,
	OPT_FREEZE,
	OPT_JSON,
	OPT_CSV
};

static const struct option table[] = {
	{ "samples", required_argument, NULL, OPT_SAMPLES },
	{ "epochs", required_argument, NULL, OPT_EPOCHS },
	{ "capacity", required_argument, NULL, OPT_CAPACITY },
	{ "sampler", required_argument, NULL, OPT_SAMPLER },
	{ "rep", required_argument, NULL, OPT_REP },
	{ "repeats", required_argument, NULL, OPT_REPEATS },
	{ "cover", required_argument, NULL, OPT_COVER },
	{ "uses", required_argument, NULL, OPT_USES },
	{ "strength", required_argument, NULL, OPT_STRENGTH },
	{ "batch", required_argument, NULL, OPT_BATCH },
	{ "ranks", required_argument, NULL, OPT_RANKS },
	{ "policy", required_argument, NULL, OPT_POLICY },
	{ "lookahead", required_argument, NULL, OPT_LOOKAHEAD },
	{ "seed", required_argument, NULL, OPT_SEED },
	{ "losses", required_argument, NULL, OPT_LOSSES },
	{ "freeze", required_argument, NULL, OPT_FREEZE },
	{ "json", no_argument, NULL, OPT_JSON },
	{ "csv", no_argument, NULL, OPT_CSV },
	{ NULL, 0, NULL, 0 },
};

static uint32_t small(const char *option, const char *text, uint32_t from, uint32_t to)
{
	return (uint32_t)option_whole(option, text, from, to);
}

/* The options of the sampler. */
static void parse_sampler(struct pads_request *request, int option, const char *value)
{
	switch (option) {
	case OPT_SAMPLER:
		if (pads_mode_find(value, &request->mode))
			fail("--sampler: there is no sampler '%s'; shade-sim --help lists them",
			     value);
		break;
	case OPT_REP:
		request->rep = option_real("--rep", value, 1, 1000);
		break;
	case OPT_REPEATS:
		request->max_repeats = small("--repeats", value, 1, 1u << 20);
		break;
	case OPT_COVER:
		request->cover_epochs = small("--cover", value, 1, 1u << 20);
		break;
	case OPT_USES:
		request->uses = option_real("--uses", value, 1, 1000);
		break;
	case OPT_STRENGTH:
		request->strength = option_real("--strength", value, 0, 1);
		break;
	case OPT_SEED:
		request->seed = option_whole("--seed", value, 0, UINT64_MAX);
		break;
	}
}

static void parse_option(struct run_options *options, int option, char *value)
{
	switch (option) {
	case OPT_SAMPLES:
		options->samples = small("--samples", value, 1, SCHED_SAMPLES_MAX);
		break;
	case OPT_EPOCHS:
		options->epochs = small("--epochs", value, 1, 1000000);
		break;
	case OPT_CAPACITY:
		options->capacity = args_capacity("--capacity", value);
		break;
	case OPT_BATCH:
		options->batch = small("--batch", value, 1, 1u << 20);
		break;
	case OPT_RANKS:
		options->ranks = small("--ranks", value, 1, 1024);
		break;
	case OPT_POLICY:
		args_policies(&options->policies, "--policy", value);
		break;
	case OPT_LOOKAHEAD:
		options->lookahead = small("--lookahead", value, 0, 1);
		break;
	case OPT_LOSSES:
		options->losses = value;
		break;
	case OPT_FREEZE:
		options->freeze = value;
		break;
	case OPT_JSON:
		options->format = REPORT_JSON;
		break;
	case OPT_CSV:
		options->format = REPORT_CSV;
		break;
	default:
		parse_sampler(&options->request, option, value);
	}
}

static void check_options(struct run_options *options)
{
	uint64_t capacity;

	if (!options->samples || !options->epochs ||
	    (!options->capacity.bytes && options->capacity.share <= 0))
		fail("run needs --samples, --epochs and --capacity");
	if (!options->policies.count)
		options->policies = (struct args_policies){ .names = { "shade" }, .count = 1 };
	if (options->freeze && options->policies.count > 1)
		fail("--freeze writes the stream of one policy: name one with --policy");
	for (size_t i = 0; i < options->policies.count; i++)
		if (!strcmp(options->policies.names[i], POLICY_MIN))
			fail("--policy min needs to know the future: write a stream with --freeze "
			     "and replay it");
	if (options->ranks > options->samples)
		fail("--ranks %u is more than --samples %u", options->ranks, options->samples);
	options->request.samples = options->samples;
	options->request.world = options->ranks;
	capacity = args_capacity_bytes(options->capacity, options->samples);
	options->request.capacity =
		capacity < options->samples ? (uint32_t)capacity : options->samples;
}

static void parse(struct run_options *options, int argc, char **argv)
{
	int option;

	*options = (struct run_options){ .batch = 64, .ranks = 1 };
	options->request.mode = PADS_PADS;
	while ((option = option_next(argc, argv, ":", table)) != -1)
		parse_option(options, option, optarg);
	option_end(argc, argv);
	check_options(options);
}

/* --- one loop ------------------------------------------------------------------------ */

static uint32_t part_length(const struct run *run, uint32_t rank)
{
	struct pads_request request = run->options->request;

	request.rank = rank;
	return pads_length(&request);
}

static void run_init(struct run *run, const struct run_options *options, struct losses *losses,
		     const char *policy)
{
	uint32_t batch = options->batch;

	*run = (struct run){ .options = options, .losses = losses };
	must_do(sched_create(&run->sched, args_capacity_bytes(options->capacity, options->samples),
			     policy),
		"creating the cache");
	must_do(sched_grow(run->sched, options->samples), "creating the cache");
	meter_init(&run->meter, options->samples);
	run->scores = must(malloc(options->samples * sizeof(*run->scores)));
	for (uint32_t id = 0; id < options->samples; id++)
		run->scores[id] = -1;
	for (unsigned ahead = 0; ahead < 2; ahead++) {
		run->orders[ahead] = must(calloc(options->ranks, sizeof(*run->orders[ahead])));
		for (uint32_t rank = 0; rank < options->ranks; rank++)
			run->orders[ahead][rank] =
				must(malloc(part_length(run, rank) * sizeof(uint32_t)));
	}
	run->batch_losses = must(malloc(batch * sizeof(*run->batch_losses)));
	run->batch_scores = must(malloc(batch * sizeof(*run->batch_scores)));
	run->batch_ids = must(malloc(batch * sizeof(*run->batch_ids)));
	losses_restart(losses);
}

static void run_free(struct run *run)
{
	for (unsigned ahead = 0; ahead < 2; ahead++) {
		for (uint32_t rank = 0; rank < run->options->ranks; rank++)
			free(run->orders[ahead][rank]);
		free(run->orders[ahead]);
	}
	free(run->scores);
	free(run->batch_losses);
	free(run->batch_scores);
	free(run->batch_ids);
	pads_echo_free(&run->echo);
	meter_free(&run->meter);
	sched_destroy(run->sched);
}

/* The order in which the cache will see the accesses: the ranks' batches in turn. */
static void announce(struct run *run, uint64_t epoch, uint32_t **parts)
{
	const struct run_options *o = run->options;
	uint32_t *whole = must(malloc(o->samples * sizeof(*whole)));
	uint32_t count = 0;

	for (uint32_t from = 0; count < o->samples; from += o->batch)
		for (uint32_t rank = 0; rank < o->ranks; rank++) {
			uint32_t length = part_length(run, rank);

			for (uint32_t i = from; i < from + o->batch && i < length; i++)
				whole[count++] = parts[rank][i];
		}
	must_do(sched_order(run->sched, 0, epoch, whole, count), "announcing an order");
	if (run->freeze) {
		fprintf(run->freeze, "o %" PRIu64, epoch);
		for (uint32_t i = 0; i < count; i++)
			fprintf(run->freeze, " %" PRIu32, whole[i]);
		fputc('\n', run->freeze);
	}
	free(whole);
}

/* Echo carries state from epoch to epoch; every rank must draw from the same one. */
static void draw_parts(struct run *run, struct pads_request *request, uint32_t **parts)
{
	struct pads_echo before = run->echo;
	size_t bytes = before.use_count * sizeof(*before.uses);
	struct pads_echo_use *kept = must(malloc(bytes + 1));

	if (bytes)
		memcpy(kept, before.uses, bytes);
	for (uint32_t rank = 0; rank < request->world; rank++) {
		if (rank) {
			pads_echo_free(&run->echo);
			run->echo = before;
			run->echo.uses = must(malloc(bytes + 1));
			memcpy(run->echo.uses, kept, bytes);
		}
		request->rank = rank;
		must_do(pads_draw(request, parts[rank]), "drawing an order");
	}
	free(kept);
}

static void draw(struct run *run, uint64_t epoch, uint32_t **parts)
{
	struct pads_request request = run->options->request;

	request.epoch = epoch;
	request.scores = run->scores;
	request.resident = sched_resident_bitmap(run->sched);
	request.echo = &run->echo;
	draw_parts(run, &request, parts);
	announce(run, epoch, parts);
}

static void access_one(struct run *run, uint32_t id)
{
	struct sched_verdict verdict;

	must_do(sched_access(run->sched, 0, id, 1, &verdict), "access");
	if (verdict.action == SCHED_ADMIT)
		must_do(sched_commit(run->sched, id), "commit");
	meter_access(&run->meter, id);
	if (run->freeze)
		fprintf(run->freeze, "a %" PRIu32 "\n", id);
}

static void score_batch(struct run *run, uint32_t count)
{
	must_do(pads_rank_batch(run->batch_losses, count, run->batch_scores), "ranking a batch");
	for (uint32_t i = 0; i < count; i++) {
		uint32_t id = run->batch_ids[i];

		run->scores[id] = run->batch_scores[i];
		must_do(sched_score(run->sched, 0, id, run->batch_scores[i]), "score");
		if (run->freeze)
			fprintf(run->freeze, "s %" PRIu32 " %.9g\n", id, run->batch_scores[i]);
	}
}

static void train_batch(struct run *run, uint64_t epoch, const uint32_t *ids, uint32_t count)
{
	uint32_t known = 0;

	for (uint32_t i = 0; i < count; i++) {
		access_one(run, ids[i]);
		if (losses_next(run->losses, epoch, ids[i], &run->batch_losses[known]))
			run->batch_ids[known++] = ids[i];
	}
	score_batch(run, known);
}

static void run_epoch(struct run *run, uint64_t epoch)
{
	const struct run_options *o = run->options;
	uint32_t longest = part_length(run, 0);

	if (epoch == 0 || !o->lookahead)
		draw(run, epoch, run->orders[0]);
	must_do(sched_epoch(run->sched, 0, epoch), "beginning an epoch");
	if (run->freeze)
		fprintf(run->freeze, "e %" PRIu64 "\n", epoch);
	if (o->lookahead)
		draw(run, epoch + 1, run->orders[1]);
	for (uint32_t from = 0; from < longest; from += o->batch)
		for (uint32_t rank = 0; rank < o->ranks; rank++) {
			uint32_t length = part_length(run, rank);
			uint32_t count = from < length ? length - from : 0;

			train_batch(run, epoch, run->orders[0][rank] + from,
				    count < o->batch ? count : o->batch);
		}
	meter_epoch(&run->meter);
	if (o->lookahead) {
		uint32_t **over = run->orders[0];

		run->orders[0] = run->orders[1];
		run->orders[1] = over;
	}
}

static void show_progress(const char *policy, uint32_t epoch, uint32_t epochs)
{
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r\033[K%s: epoch %" PRIu32 " of %" PRIu32 "%s", policy, epoch,
			epochs, epoch == epochs ? "\r\033[K" : "");
}

/* A stream that was written only in part must not go unnoticed. */
static void close_freeze(struct run *run)
{
	bool failed;

	if (!run->freeze)
		return;
	failed = ferror(run->freeze);
	if (fclose(run->freeze) || failed)
		fail("cannot write %s: %s", run->options->freeze, strerror(errno));
}

static void run_policy(const struct run_options *options, struct losses *losses,
		       struct report_row *row)
{
	struct figures middle = { 0 };
	struct run run;

	run_init(&run, options, losses, row->policy);
	if (options->freeze) {
		run.freeze = fopen(options->freeze, "w");
		if (!run.freeze)
			fail("cannot write %s: %s", options->freeze, strerror(errno));
		fprintf(run.freeze,
			"# %s, %" PRIu32 " samples: replay with --capacity %" PRIu64 "\n",
			row->policy, options->samples,
			args_capacity_bytes(options->capacity, options->samples));
	}
	for (uint32_t epoch = 0; epoch < options->epochs; epoch++) {
		run_epoch(&run, epoch);
		if (epoch + 1 == (options->epochs + 1) / 2)
			middle = meter_read(&run.meter, run.sched);
		show_progress(row->policy, epoch + 1, options->epochs);
	}
	close_freeze(&run);
	row->periods[0] = middle;
	row->periods[1] = figures_since(meter_read(&run.meter, run.sched), middle);
	run_free(&run);
}

int run_main(int argc, char **argv)
{
	static const char *const periods[] = { "cold", "warm", NULL };
	struct report_row rows[ARGS_POLICIES_MAX] = { 0 };
	struct run_options options;
	struct losses losses;

	parse(&options, argc, argv);
	if (options.losses)
		losses_read(&losses, options.losses, options.samples);
	else
		losses_model(&losses, options.samples, options.request.seed);
	for (size_t i = 0; i < options.policies.count; i++) {
		rows[i].policy = options.policies.names[i];
		run_policy(&options, &losses, &rows[i]);
	}
	report_print(options.format, rows, options.policies.count, periods, options.samples);
	losses_free(&losses);
	return 0;
}
