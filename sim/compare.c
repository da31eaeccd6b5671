/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* shade-sim compare: the systems that are known by name, side by side at several capacities. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "loop.h"
#include "option.h"
#include "sim.h"
#include "systems.h"

#define CAPACITIES_MAX 8
#define SYSTEMS_MAX 16

struct compare {
	struct run_options options; /* what all have in common */
	const struct system *systems[SYSTEMS_MAX];
	size_t system_count;
	struct size capacities[CAPACITIES_MAX];
	const char *capacity_names[CAPACITIES_MAX];
	size_t capacity_count;
	struct figures figures[SYSTEMS_MAX][CAPACITIES_MAX]; /* of the second half */
};

/* --- options ------------------------------------------------------------------------- */

enum {
	OPT_SAMPLES = 1,
	OPT_EPOCHS,
	OPT_CAPACITY,
	OPT_SYSTEMS,
	OPT_BATCH,
	OPT_NODES,
	OPT_SEED,
	OPT_LOSSES,
	OPT_JSON,
	OPT_CSV
};

static void parse_capacities(struct compare *compare, char *text)
{
	char *item;

	compare->capacity_count = 0;
	while ((item = strsep(&text, ","))) {
		if (compare->capacity_count == CAPACITIES_MAX)
			fail("--capacity names more than %d", CAPACITIES_MAX);
		compare->capacities[compare->capacity_count] = args_capacity("--capacity", item);
		compare->capacity_names[compare->capacity_count++] = item;
	}
}

static void parse_systems(struct compare *compare, char *text)
{
	char *name;

	compare->system_count = 0;
	while ((name = strsep(&text, ","))) {
		const struct system *system = systems_find(name);

		if (!system)
			fail("--systems: there is no system '%s'; shade-sim --help lists them",
			     name);
		if (compare->system_count == SYSTEMS_MAX)
			fail("--systems names more than %d", SYSTEMS_MAX);
		compare->systems[compare->system_count++] = system;
	}
}

static void parse_option(struct compare *compare, int option, char *value)
{
	struct run_options *o = &compare->options;

	switch (option) {
	case OPT_SAMPLES:
		o->samples = (uint32_t)option_whole("--samples", value, 1, SCHED_SAMPLES_MAX);
		break;
	case OPT_EPOCHS:
		o->epochs = (uint32_t)option_whole("--epochs", value, 2, 1000000);
		break;
	case OPT_CAPACITY:
		parse_capacities(compare, value);
		break;
	case OPT_SYSTEMS:
		parse_systems(compare, value);
		break;
	case OPT_BATCH:
		o->batch = (uint32_t)option_whole("--batch", value, 1, 1u << 20);
		break;
	case OPT_NODES:
		o->nodes = (uint32_t)option_whole("--nodes", value, 1, RUN_NODES_MAX);
		break;
	case OPT_SEED:
		o->request.seed = option_whole("--seed", value, 0, UINT64_MAX);
		break;
	case OPT_LOSSES:
		o->losses = value;
		break;
	case OPT_JSON:
		o->format = REPORT_JSON;
		break;
	case OPT_CSV:
		o->format = REPORT_CSV;
		break;
	}
}

static void parse(struct compare *compare, int argc, char **argv)
{
	static const struct option table[] = {
		{ "samples", required_argument, NULL, OPT_SAMPLES },
		{ "epochs", required_argument, NULL, OPT_EPOCHS },
		{ "capacity", required_argument, NULL, OPT_CAPACITY },
		{ "systems", required_argument, NULL, OPT_SYSTEMS },
		{ "batch", required_argument, NULL, OPT_BATCH },
		{ "nodes", required_argument, NULL, OPT_NODES },
		{ "seed", required_argument, NULL, OPT_SEED },
		{ "losses", required_argument, NULL, OPT_LOSSES },
		{ "json", no_argument, NULL, OPT_JSON },
		{ "csv", no_argument, NULL, OPT_CSV },
		{ NULL, 0, NULL, 0 },
	};
	static char capacities[] = "10%,20%,40%";
	int option;

	parse_capacities(compare, capacities);
	while (systems_get((unsigned)compare->system_count)) {
		compare->systems[compare->system_count] =
			systems_get((unsigned)compare->system_count);
		compare->system_count++;
	}
	compare->options = (struct run_options){ .samples = 10000,
						 .epochs = 30,
						 .batch = 64,
						 .nodes = 1,
						 .ranks = { 1 },
						 .rank_count = 1,
						 .capacity_count = 1 };
	while ((option = option_next(argc, argv, ":", table)) != -1)
		parse_option(compare, option, optarg);
	option_end(argc, argv);
}

/* --- one system ---------------------------------------------------------------------- */

static struct figures run_system(const struct compare *compare, const struct system *system,
				 struct size capacity, struct losses *losses)
{
	struct run_options options = compare->options;
	struct figures halves[2];
	uint64_t seed = options.request.seed;

	options.request = system->request;
	options.request.seed = seed;
	options.skips = system->skips;
	options.skip = system->skip;
	options.assign = system->assign;
	options.quiver = system->quiver;
	options.lookahead = system->lookahead;
	options.capacities[0] = capacity;
	run_complete(&options);
	loop_run(&options, losses, system->name, system->policy, halves);
	return halves[1];
}

/* --- results ------------------------------------------------------------------------- */

static double of_all(const struct compare *compare, double samples)
{
	return samples / compare->options.samples;
}

static double remote(const struct figures *f)
{
	return f->accesses ? (double)f->remote / (double)f->accesses : 0;
}

/* What the training computes with in an epoch. */
static double trained(const struct compare *compare, const struct figures *f)
{
	return f->epochs ? of_all(compare, (double)f->trained / f->epochs) : 0;
}

static void print_table(const struct compare *compare)
{
	printf("%-12s %-9s %7s", "system", "bytes", "trained");
	for (size_t c = 0; c < compare->capacity_count; c++)
		printf(" | %5s: hits  cover  fetches", compare->capacity_names[c]);
	putchar('\n');
	for (size_t i = 0; i < compare->system_count; i++) {
		const struct system *system = compare->systems[i];

		printf("%-12s %-9s %7.3f", system->name, systems_bytes_name(system->bytes),
		       trained(compare, &compare->figures[i][0]));
		for (size_t c = 0; c < compare->capacity_count; c++) {
			const struct figures *f = &compare->figures[i][c];

			printf(" |      %6.3f %6.3f   %6.3f", figures_hit_ratio(f),
			       of_all(compare, figures_distinct_per_epoch(f)),
			       of_all(compare, figures_fetches_per_epoch(f)));
		}
		putchar('\n');
	}
	fputs("\nAn epoch of the second half, in data sets: trained: entries that are computed "
	      "with\n"
	      "(at the first capacity); cover: distinct samples that are read; fetches: asked of "
	      "the\n"
	      "source. hits: of the reads. bytes: own: each file's, where the order has it; moved: "
	      "at\n"
	      "another place of the epoch; replaced: another sample instead of some.\n",
	      stdout);
}

static void print_values(const struct compare *compare, const struct figures *f, const char *format)
{
	uint32_t epochs = f->epochs ? f->epochs : 1;

	printf(format, of_all(compare, (double)f->accesses / epochs), trained(compare, f),
	       figures_hit_ratio(f), remote(f), of_all(compare, figures_distinct_per_epoch(f)),
	       of_all(compare, figures_fetches_per_epoch(f)));
}

static void print_json(const struct compare *compare)
{
	puts("[");
	for (size_t i = 0; i < compare->system_count; i++)
		for (size_t c = 0; c < compare->capacity_count; c++) {
			const struct system *system = compare->systems[i];
			bool last =
				i + 1 == compare->system_count && c + 1 == compare->capacity_count;

			printf("  {\"system\": \"%s\", \"policy\": \"%s\", \"bytes\": \"%s\", "
			       "\"capacity\": \"%s\", ",
			       system->name, system->policy, systems_bytes_name(system->bytes),
			       compare->capacity_names[c]);
			print_values(compare, &compare->figures[i][c],
				     "\"entries\": %.6f, \"trained\": %.6f, \"hit_ratio\": %.6f, "
				     "\"remote\": %.6f, "
				     "\"coverage\": %.6f, \"fetches\": %.6f}");
			puts(last ? "" : ",");
		}
	puts("]");
}

static void print_csv(const struct compare *compare)
{
	puts("system,policy,bytes,capacity,entries,trained,hit_ratio,remote,coverage,fetches");
	for (size_t i = 0; i < compare->system_count; i++)
		for (size_t c = 0; c < compare->capacity_count; c++) {
			const struct system *system = compare->systems[i];

			printf("%s,%s,%s,%s,", system->name, system->policy,
			       systems_bytes_name(system->bytes), compare->capacity_names[c]);
			print_values(compare, &compare->figures[i][c],
				     "%.6f,%.6f,%.6f,%.6f,%.6f,%.6f\n");
		}
}

int compare_main(int argc, char **argv)
{
	struct compare *compare = must(calloc(1, sizeof(*compare)));
	struct losses losses;

	parse(compare, argc, argv);
	losses_begin(&losses, compare->options.losses, compare->options.samples,
		     compare->options.request.seed);
	for (size_t i = 0; i < compare->system_count; i++)
		for (size_t c = 0; c < compare->capacity_count; c++)
			compare->figures[i][c] = run_system(compare, compare->systems[i],
							    compare->capacities[c], &losses);
	switch (compare->options.format) {
	case REPORT_TABLE:
		print_table(compare);
		break;
	case REPORT_JSON:
		print_json(compare);
		break;
	case REPORT_CSV:
		print_csv(compare);
		break;
	}
	losses_free(&losses);
	free(compare);
	return 0;
}
