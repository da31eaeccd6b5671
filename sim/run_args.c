/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The options of shade-sim run. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "option.h"

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
		options->stride = !strcmp(value, "stride");
		if (!options->stride && strcmp(value, "owner") != 0)
			fail("--assign takes owner or stride, not '%s'", value);
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
		parse_sampler(&options->request, option, value);
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
	for (uint32_t node = 0; node < options->nodes; node++) {
		if (node >= options->capacity_count)
			options->capacities[node] = options->capacities[0];
		if (node >= options->rank_count)
			options->ranks[node] = options->ranks[0];
		options->world += options->ranks[node];
	}
	if (options->world > options->samples)
		fail("--ranks: %u ranks in all are more than --samples %u", options->world,
		     options->samples);
	if (options->restart >= options->epochs)
		fail("--restart %u: there are only %u epochs", options->restart, options->epochs);
	if (options->freeze && options->nodes > 1)
		fail("--freeze writes the stream of one cache: it does not go with --nodes");
}

static void check_options(struct run_options *options)
{
	uint64_t capacity = 0, step;

	if (!options->samples || !options->epochs || !options->capacity_count)
		fail("run needs --samples, --epochs and --capacity");
	if (!options->policies.count)
		options->policies = (struct args_policies){ .names = { "shade" }, .count = 1 };
	if (options->freeze && options->policies.count > 1)
		fail("--freeze writes the stream of one policy: name one with --policy");
	for (size_t i = 0; i < options->policies.count; i++)
		if (!strcmp(options->policies.names[i], POLICY_MIN))
			fail("--policy min needs to know the future: write a stream with --freeze "
			     "and replay it");
	check_nodes(options);
	options->request.samples = options->samples;
	step = (uint64_t)options->batch * options->world;
	options->request.batch = step < options->samples ? (uint32_t)step : options->samples;
	for (uint32_t node = 0; node < options->nodes; node++)
		capacity += args_capacity_bytes(options->capacities[node], options->samples);
	options->request.capacity =
		capacity < options->samples ? (uint32_t)capacity : options->samples;
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
