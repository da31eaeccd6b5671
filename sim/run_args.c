/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The options of shade-sim run. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "option.h"
#include "replay.h"

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
	OPT_PRUNE,
	OPT_KEEP,
	OPT_NEVER_FULL,
	OPT_SUBSTITUTE,
	OPT_BATCH,
	OPT_NODES,
	OPT_RANKS,
	OPT_ASSIGN,
	OPT_BLOCK,
	OPT_MIX,
	OPT_RESTART,
	OPT_BY_EPOCH,
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
	{ "prune", no_argument, NULL, OPT_PRUNE },
	{ "keep", required_argument, NULL, OPT_KEEP },
	{ "never-full", no_argument, NULL, OPT_NEVER_FULL },
	{ "substitute", no_argument, NULL, OPT_SUBSTITUTE },
	{ "batch", required_argument, NULL, OPT_BATCH },
	{ "nodes", required_argument, NULL, OPT_NODES },
	{ "ranks", required_argument, NULL, OPT_RANKS },
	{ "assign", required_argument, NULL, OPT_ASSIGN },
	{ "block", required_argument, NULL, OPT_BLOCK },
	{ "mix", required_argument, NULL, OPT_MIX },
	{ "restart", required_argument, NULL, OPT_RESTART },
	{ "by-epoch", no_argument, NULL, OPT_BY_EPOCH },
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
static void parse_sampler(struct run_options *options, int option, const char *value)
{
	struct pads_request *request = &options->request;

	switch (option) {
	case OPT_SAMPLER:
		options->skips = skip_mode_find(value, &options->skip.mode) ? RUN_SKIP_NOTHING
									    : RUN_SKIP_READS;
		if (!options->skips && pads_mode_find(value, &request->mode))
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

/* The options of samplers that leave samples out. */
static void parse_skip(struct run_options *options, int option, const char *value)
{
	switch (option) {
	case OPT_KEEP:
		options->skip.keep = option_real("--keep", value, (double)PADS_CHANCE_MIN, 1);
		break;
	case OPT_NEVER_FULL:
		options->skip.never_full = true;
		break;
	case OPT_SUBSTITUTE:
		options->skip.substitute = true;
		break;
	case OPT_PRUNE:
		options->prune = true;
		break;
	default:
		parse_sampler(options, option, value);
	}
}

/* "20%", or one for each node: "5%,10%". */
static void parse_capacities(struct run_options *options, char *text)
{
	char *item;

	options->capacity_count = 0;
	while ((item = strsep(&text, ","))) {
		if (options->capacity_count == RUN_NODES_MAX)
			fail("--capacity names more than %d nodes", RUN_NODES_MAX);
		options->capacities[options->capacity_count++] = args_capacity("--capacity", item);
	}
}

/* "2", or one for each node: "1,2". */
static void parse_ranks(struct run_options *options, char *text)
{
	char *item;

	options->rank_count = 0;
	while ((item = strsep(&text, ","))) {
		if (options->rank_count == RUN_NODES_MAX)
			fail("--ranks names more than %d nodes", RUN_NODES_MAX);
		options->ranks[options->rank_count++] = small("--ranks", item, 1, 1024);
	}
}

static enum run_assign parse_assign(const char *value)
{
	static const char *const names[] = {
		[RUN_OWNER] = "owner", [RUN_STRIDE] = "stride", [RUN_HASH] = "hash"
	};

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(value, names[i]))
			return (enum run_assign)i;
	fail("--assign takes owner, stride or hash, not '%s'", value);
}

/* The options of many machines. */
static void parse_nodes(struct run_options *options, int option, char *value)
{
	switch (option) {
	case OPT_NODES:
		options->nodes = small("--nodes", value, 1, RUN_NODES_MAX);
		break;
	case OPT_RANKS:
		parse_ranks(options, value);
		break;
	case OPT_ASSIGN:
		options->assign = parse_assign(value);
		break;
	case OPT_BLOCK:
		options->block = small("--block", value, 1, 1u << 20);
		break;
	case OPT_MIX:
		options->mix = option_real("--mix", value, 0, 1);
		break;
	case OPT_RESTART:
		options->restart = small("--restart", value, 1, 1000000);
		break;
	default:
		parse_skip(options, option, value);
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
		parse_capacities(options, value);
		break;
	case OPT_BATCH:
		options->batch = small("--batch", value, 1, 1u << 20);
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
	case OPT_BY_EPOCH:
		options->by_epoch = true;
		break;
	default:
		parse_nodes(options, option, value);
	}
}

/* One value for all nodes, or one for each. */
static void check_nodes(struct run_options *options)
{
	if (options->capacity_count != 1 && options->capacity_count != options->nodes)
		fail("--capacity names %u nodes, and --nodes %u", options->capacity_count,
		     options->nodes);
	if (options->rank_count != 1 && options->rank_count != options->nodes)
		fail("--ranks names %u nodes, and --nodes %u", options->rank_count, options->nodes);
	if (options->restart >= options->epochs)
		fail("--restart %u: there are only %u epochs", options->restart, options->epochs);
	if (options->freeze && options->nodes > 1)
		fail("--freeze writes the stream of one cache: it does not go with --nodes");
}

void run_complete(struct run_options *options)
{
	uint64_t capacity = 0, step;

	options->world = 0;
	for (uint32_t node = 0; node < options->nodes; node++) {
		if (node >= options->capacity_count)
			options->capacities[node] = options->capacities[0];
		if (node >= options->rank_count)
			options->ranks[node] = options->ranks[0];
		options->world += options->ranks[node];
		capacity += args_capacity_bytes(options->capacities[node], options->samples);
	}
	if (options->world > options->samples)
		fail("--ranks: %u ranks in all are more than --samples %u", options->world,
		     options->samples);
	options->request.samples = options->samples;
	options->skip.samples = options->samples;
	options->skip.seed = options->request.seed;
	options->skip.cover_epochs = options->request.cover_epochs;
	step = (uint64_t)options->batch * options->world;
	options->request.batch = step < options->samples ? (uint32_t)step : options->samples;
	options->request.capacity =
		capacity < options->samples ? (uint32_t)capacity : options->samples;
}

/* Options of samplers that leave samples out. */
static void check_skips(struct run_options *options)
{
	bool iis = options->skips && options->skip.mode == SKIP_IIS;

	if (options->prune && (options->skips || options->request.mode != PADS_ECHO))
		fail("--prune goes with --sampler echo");
	if (options->prune)
		options->skips = RUN_SKIP_STREAM;
	if (options->skip.never_full && !iis)
		fail("--never-full goes with --sampler iis");
	if (options->skip.substitute && !iis)
		fail("--substitute goes with --sampler iis");
	if (options->skip.keep > 0 && (!options->skips || iis))
		fail("--keep goes with --sampler prune, or with echo and --prune");
}

static void check_options(struct run_options *options)
{
	if (!options->samples || !options->epochs || !options->capacity_count)
		fail("run needs --samples, --epochs and --capacity");
	if (!options->policies.count)
		options->policies = (struct args_policies){ .names = { "shade" }, .count = 1 };
	if (options->freeze && options->policies.count > 1)
		fail("--freeze writes the stream of one policy: name one with --policy");
	for (size_t i = 0; i < options->policies.count; i++)
		if (!strcmp(options->policies.names[i], REPLAY_MIN))
			fail("--policy min needs to know the future: write a stream with --freeze "
			     "and replay it");
	check_nodes(options);
	check_skips(options);
	run_complete(options);
}

void run_parse(struct run_options *options, int argc, char **argv)
{
	int option;

	*options = (struct run_options){ .batch = 64, .nodes = 1, .ranks = { 1 }, .rank_count = 1 };
	options->request.mode = PADS_PADS;
	while ((option = option_next(argc, argv, ":", table)) != -1)
		parse_option(options, option, optarg);
	option_end(argc, argv);
	check_options(options);
}
