/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* shade-score: the scoring helper for any framework and language. This file has its options. */
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "option.h"
#include "shade/pads.h"

static const char help[] =
	"usage: shade-score rank < LOSSES\n"
	"       shade-score order --samples N [--scores FILE] [--resident FILE] [OPTION...]\n"
	"       shade-score follow MNT [OPTION...] < RECORDS\n"
	"       shade-score --help | --version\n"
	"\n"
	"rank    reads one loss a line; a blank line ends a batch. Prints the score of each,\n"
	"        ln(k + 10) for the k-th smallest of its batch from 0 on.\n"
	"order   prints the ids that an epoch reads, one a line.\n"
	"follow  reads lines EPOCH ID LOSS as a training computes them; a blank line ends a\n"
	"        batch, EPOCH end an epoch. Scores, orders and epochs go to the shadefs at MNT.\n"
	"        Begins with the scores that the mount has, if it has some.\n"
	"        Prints 'order EPOCH LENGTH' for each order that was announced, and with\n"
	"        mode auto 'uses E' when it uses a fetched sample more or less often.\n"
	"\n"
	"options of order and follow:\n"
	"  --mode NAME       pads, paper, echo, prune, iis, uniform, replacement or auto;\n"
	"                    default: order pads, follow auto, which only follow has\n"
	"  --seed S          the same seed gives the same orders (default 0)\n"
	"  --epoch E         order: which epoch; follow: the first one (default 0)\n"
	"  --rep R           times a resident sample that was drawn comes: paper, pads (default "
	"1)\n"
	"  --repeats N       entries of one sample in an epoch, at most: pads\n"
	"                    (default 2 R, at least 4)\n"
	"  --cover K         every sample once in K epochs: pads, prune, iis with substitutes\n"
	"                    (default 5)\n"
	"  --uses E          mean uses of a fetched sample: echo (default 4); auto: those\n"
	"                    that it begins with (default 1)\n"
	"  --strength S      how far uses grow with importance, 0 to 1: echo, auto\n"
	"                    (default 0)\n"
	"  --capacity N      samples that the cache holds: echo, auto; order needs it,\n"
	"                    follow asks the mount\n"
	"  --keep P          the chance of a sample whose loss is below the mean: prune\n"
	"                    (default 0.5); echo, auto: of one that is to be fetched\n"
	"                    (default: all come)\n"
	"  --epochs N        of the whole training: with --keep the last eighth reads all\n"
	"  --substitute 1    residents stand in for absent samples of low loss: iis\n"
	"  --package N       absent samples of low loss come in runs of N: iis\n"
	"  --neighbours FILE  all ids, one a line, as they are near at the source: for\n"
	"                    --package (default: as they are numbered)\n"
	"  --backend NAME    auto (default), cpu or cuda\n"
	"options of order:\n"
	"  --samples N       the ids are 0 to N-1\n"
	"  --scores FILE     lines ID SCORE, or MNT/.shade/scores; - is standard input\n"
	"  --losses FILE     lines ID LOSS: prune, iis, echo with --keep\n"
	"  --resident FILE   bits by id, as in MNT/.shade/resident\n"
	"  --rank R          the part of this process (default 0)\n"
	"  --world W         of so many (default 1)\n"
	"  --state FILE      go on from this state if it is there, and leave the new one\n"
	"options of follow:\n"
	"  --job NAME        the scores and orders of this training among several\n"
	"  --batch N         end a batch after N records, too\n"
	"  --most E          uses never get above this: auto (default 8)\n"
	"  --lookahead 1     draw and announce each order one epoch ahead\n"
	"  --orders DIR      write each order to DIR/order.EPOCH, one id a line\n"
	"  --binary          16-byte records instead of lines; see the manual page\n"
	"\n"
	"Exit: 0 done, 1 failed, 2 wrong usage or input.\n";

enum { FOR_ORDER = 1, FOR_FOLLOW = 2, FOR_BOTH = 3 };

enum {
	OPT_MODE = 1,
	OPT_SEED,
	OPT_EPOCH,
	OPT_REP,
	OPT_REPEATS,
	OPT_COVER,
	OPT_USES,
	OPT_MOST_USES,
	OPT_STRENGTH,
	OPT_CAPACITY,
	OPT_KEEP,
	OPT_EPOCHS,
	OPT_SUBSTITUTE,
	OPT_PACKAGE,
	OPT_NEIGHBOURS,
	OPT_BACKEND,
	OPT_SAMPLES,
	OPT_SCORES,
	OPT_LOSSES,
	OPT_RESIDENT,
	OPT_RANK,
	OPT_WORLD,
	OPT_STATE,
	OPT_JOB,
	OPT_BATCH,
	OPT_LOOKAHEAD,
	OPT_ORDERS,
	OPT_BINARY,
};

/* The flag says which commands have the option. */
static const struct {
	const char *name;
	int option, commands;
} table[] = {
	{ "mode", OPT_MODE, FOR_BOTH },
	{ "seed", OPT_SEED, FOR_BOTH },
	{ "epoch", OPT_EPOCH, FOR_BOTH },
	{ "rep", OPT_REP, FOR_BOTH },
	{ "repeats", OPT_REPEATS, FOR_BOTH },
	{ "cover", OPT_COVER, FOR_BOTH },
	{ "uses", OPT_USES, FOR_BOTH },
	{ "most", OPT_MOST_USES, FOR_FOLLOW },
	{ "strength", OPT_STRENGTH, FOR_BOTH },
	{ "capacity", OPT_CAPACITY, FOR_BOTH },
	{ "keep", OPT_KEEP, FOR_BOTH },
	{ "epochs", OPT_EPOCHS, FOR_BOTH },
	{ "substitute", OPT_SUBSTITUTE, FOR_BOTH },
	{ "package", OPT_PACKAGE, FOR_BOTH },
	{ "neighbours", OPT_NEIGHBOURS, FOR_BOTH },
	{ "losses", OPT_LOSSES, FOR_ORDER },
	{ "backend", OPT_BACKEND, FOR_BOTH },
	{ "samples", OPT_SAMPLES, FOR_ORDER },
	{ "scores", OPT_SCORES, FOR_ORDER },
	{ "resident", OPT_RESIDENT, FOR_ORDER },
	{ "rank", OPT_RANK, FOR_ORDER },
	{ "world", OPT_WORLD, FOR_ORDER },
	{ "state", OPT_STATE, FOR_ORDER },
	{ "job", OPT_JOB, FOR_FOLLOW },
	{ "batch", OPT_BATCH, FOR_FOLLOW },
	{ "lookahead", OPT_LOOKAHEAD, FOR_FOLLOW },
	{ "orders", OPT_ORDERS, FOR_FOLLOW },
	{ "binary", OPT_BINARY, FOR_FOLLOW },
};

#define OPTIONS (sizeof(table) / sizeof(table[0]))

static uint32_t small(const char *option, const char *text, uint32_t from, uint32_t to)
{
	return (uint32_t)option_whole(option, text, from, to);
}

static uint32_t find_mode(const char *text)
{
	enum pads_mode mode;

	if (!strcmp(text, "auto"))
		return SHADE_SCORE_ADAPT;
	if (!strcmp(text, "prune"))
		return SHADE_SCORE_PRUNE;
	if (!strcmp(text, "iis"))
		return SHADE_SCORE_IIS;
	if (pads_mode_find(text, &mode))
		fail("there is no mode '%s'; shade-score --help lists them", text);
	return mode;
}

static uint32_t find_backend(const char *text)
{
	static const char *const names[] = { "auto", "cpu", "cuda" };

	for (uint32_t i = 0; i < 3; i++)
		if (!strcmp(text, names[i]))
			return i;
	fail("there is no backend '%s', only auto, cpu and cuda", text);
}

/* The options of the sampler. */
static void set_scorer(struct shade_scorer_options *o, int option, const char *value)
{
	switch (option) {
	case OPT_MODE:
		o->mode = find_mode(value);
		break;
	case OPT_SEED:
		o->seed = option_whole("--seed", value, 0, UINT64_MAX);
		break;
	case OPT_REP:
		o->rep = option_real("--rep", value, 1, 1000);
		break;
	case OPT_REPEATS:
		o->max_repeats = small("--repeats", value, 1, 1u << 30);
		break;
	case OPT_COVER:
		o->cover_epochs = small("--cover", value, 1, 1u << 30);
		break;
	case OPT_USES:
		o->uses = option_real("--uses", value, 1, 1000);
		break;
	case OPT_MOST_USES:
		o->most_uses = option_real("--most", value, 1, 1000);
		break;
	case OPT_STRENGTH:
		o->strength = option_real("--strength", value, 0, 1);
		break;
	case OPT_CAPACITY:
		o->capacity = small("--capacity", value, 1, 1u << 30);
		break;
	case OPT_KEEP:
		o->keep = option_real("--keep", value, 0.01, 1);
		break;
	case OPT_EPOCHS:
		o->epochs = small("--epochs", value, 1, UINT32_MAX);
		break;
	case OPT_SUBSTITUTE:
		o->substitute = small("--substitute", value, 0, 1);
		break;
	case OPT_PACKAGE:
		o->package = small("--package", value, 1, 1u << 20);
		break;
	case OPT_BACKEND:
		o->backend = find_backend(value);
		break;
	case OPT_SAMPLES:
		o->samples = small("--samples", value, 1, 1u << 30);
		break;
	case OPT_LOOKAHEAD:
		o->lookahead = small("--lookahead", value, 0, 1);
		break;
	}
}

static void set_option(struct command_options *o, int option, const char *value)
{
	switch (option) {
	case OPT_EPOCH:
		o->epoch = option_whole("--epoch", value, 0, UINT64_MAX - 2);
		break;
	case OPT_SCORES:
		o->scores = value;
		break;
	case OPT_LOSSES:
		o->losses = value;
		break;
	case OPT_NEIGHBOURS:
		o->neighbours = value;
		break;
	case OPT_RESIDENT:
		o->resident = value;
		break;
	case OPT_RANK:
		o->rank = small("--rank", value, 0, UINT32_MAX);
		break;
	case OPT_WORLD:
		o->world = small("--world", value, 1, UINT32_MAX);
		break;
	case OPT_STATE:
		o->state = value;
		break;
	case OPT_JOB:
		o->job = value;
		break;
	case OPT_BATCH:
		o->batch = small("--batch", value, 1, SHADE_SCORE_BATCH_MAX);
		break;
	case OPT_ORDERS:
		o->orders = value;
		break;
	case OPT_BINARY:
		o->binary = true;
		break;
	default:
		set_scorer(&o->scorer, option, value);
	}
}

/* Parses what follows the command; `commands` is its flag, 0 for one without options. */
static void parse(struct command_options *options, int commands, int argc, char **argv)
{
	struct option known[OPTIONS + 1] = { 0 };
	size_t count = 0;
	int option;

	*options = (struct command_options){ .world = 1 };
	shade_scorer_defaults(&options->scorer);
	if (commands == FOR_FOLLOW)
		options->scorer.mode = SHADE_SCORE_ADAPT;
	for (size_t i = 0; i < OPTIONS; i++)
		if (table[i].commands & commands)
			known[count++] =
				(struct option){ table[i].name,
						 table[i].option == OPT_BINARY ? no_argument
									       : required_argument,
						 NULL, table[i].option };
	while ((option = option_next(argc, argv, ":", known)) != -1)
		set_option(options, option, optarg);
	if (commands == FOR_FOLLOW && optind < argc)
		options->mount = argv[optind++];
	option_end(argc, argv);
}

int main(int argc, char **argv)
{
	const char *command = argc > 1 ? argv[1] : "";
	struct command_options options;

	if (!strcmp(command, "--help")) {
		fputs(help, stdout);
		return 0;
	}
	if (!strcmp(command, "--version")) {
		puts("shade-score " SHADE_VERSION);
		return 0;
	}
	if (!strcmp(command, "rank")) {
		parse(&options, 0, argc - 1, argv + 1);
		return command_rank(&options);
	}
	if (!strcmp(command, "order")) {
		parse(&options, FOR_ORDER, argc - 1, argv + 1);
		return command_order(&options);
	}
	if (!strcmp(command, "follow")) {
		parse(&options, FOR_FOLLOW, argc - 1, argv + 1);
		return command_follow(&options);
	}
	fail("say rank, order or follow; shade-score --help tells more");
}
