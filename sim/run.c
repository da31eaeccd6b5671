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

#include "fail.h"
#include "losses.h"
#include "run.h"
#include "shade/assign.h"
#include "sim.h"

/* One loop. */
struct run {
	const struct run_options *options;
	struct losses *losses;
	struct sched **caches; /* by node */
	uint32_t *node_of;     /* by rank */
	struct assign_state assigned;
	struct meter meter;
	struct pads_echo echo;
	float *scores;	    /* by id, for the sampler */
	uint64_t *resident; /* bitmap by id, for the sampler: somewhere */
	uint32_t *whole;    /* an order before it is split */
	uint32_t *parts[2]; /* by lookahead: the parts of all ranks, one after the other */
	float *batch_losses, *batch_scores;
	uint32_t *batch_ids;
	FILE *freeze;
};

/* --- one loop ------------------------------------------------------------------------ */

static struct assign_request request_of(const struct run *run, uint64_t epoch)
{
	const struct run_options *o = run->options;

	return (struct assign_request){ .world = o->world,
					.node_of = run->node_of,
					.block = o->block,
					.mix = o->mix,
					.seed = o->request.seed,
					.epoch = epoch };
}

static uint32_t part_length(const struct run *run, uint32_t rank)
{
	struct assign_request request = request_of(run, 0);

	return assign_length(&request, run->options->samples, rank);
}

/* Where the part of a rank begins. */
static const uint32_t *part_of(const struct run *run, const uint32_t *parts, uint32_t rank)
{
	uint32_t each = run->options->samples / run->options->world;
	uint32_t rest = run->options->samples % run->options->world;

	return parts + (size_t)rank * each + (rank < rest ? rank : rest);
}

static size_t bitmap_words(const struct run_options *options)
{
	return ((size_t)options->samples + 63) / 64;
}

static void make_nodes(struct run *run, const char *policy)
{
	const struct run_options *o = run->options;
	uint32_t rank = 0;

	run->caches = must(calloc(o->nodes, sizeof(struct sched *)));
	run->node_of = must(malloc(o->world * sizeof(*run->node_of)));
	for (uint32_t node = 0; node < o->nodes; node++) {
		uint64_t capacity = args_capacity_bytes(o->capacities[node], o->samples);

		must_do(sched_create(&run->caches[node], capacity, policy), "creating a cache");
		must_do(sched_grow(run->caches[node], o->samples), "creating a cache");
		for (uint32_t i = 0; i < o->ranks[node]; i++)
			run->node_of[rank++] = node;
	}
	must_do(assign_grow(&run->assigned, o->samples), "creating a cache");
}

static void run_init(struct run *run, const struct run_options *options, struct losses *losses,
		     const char *policy)
{
	uint32_t batch = options->batch;
	size_t order = options->samples * sizeof(uint32_t);

	*run = (struct run){ .options = options, .losses = losses };
	make_nodes(run, policy);
	meter_init(&run->meter, options->samples);
	run->scores = must(malloc(options->samples * sizeof(*run->scores)));
	for (uint32_t id = 0; id < options->samples; id++)
		run->scores[id] = -1;
	run->resident = must(calloc(bitmap_words(options), sizeof(*run->resident)));
	run->whole = must(malloc(order));
	run->parts[0] = must(malloc(order));
	run->parts[1] = must(malloc(order));
	run->batch_losses = must(malloc(batch * sizeof(*run->batch_losses)));
	run->batch_scores = must(malloc(batch * sizeof(*run->batch_scores)));
	run->batch_ids = must(malloc(batch * sizeof(*run->batch_ids)));
	losses_restart(losses);
}

static void run_free(struct run *run)
{
	for (uint32_t node = 0; node < run->options->nodes; node++)
		sched_destroy(run->caches[node]);
	free(run->caches);
	free(run->node_of);
	assign_free(&run->assigned);
	free(run->scores);
	free(run->resident);
	free(run->whole);
	free(run->parts[0]);
	free(run->parts[1]);
	free(run->batch_losses);
	free(run->batch_scores);
	free(run->batch_ids);
	pads_echo_free(&run->echo);
	meter_free(&run->meter);
}

/* --- orders -------------------------------------------------------------------------- */

/* The order in which a cache will see the accesses: the batches of its ranks in turn. */
static void announce(struct run *run, uint64_t epoch, const uint32_t *parts, uint32_t node)
{
	const struct run_options *o = run->options;
	uint32_t *own = run->whole; /* which was split already */
	uint32_t count = 0, longest = part_length(run, 0);

	for (uint32_t from = 0; from < longest; from += o->batch)
		for (uint32_t rank = 0; rank < o->world; rank++) {
			uint32_t length = part_length(run, rank);

			if (run->node_of[rank] != node)
				continue;
			for (uint32_t i = from; i < from + o->batch && i < length; i++)
				own[count++] = part_of(run, parts, rank)[i];
		}
	must_do(sched_order(run->caches[node], 0, epoch, own, count), "announcing an order");
	if (run->freeze) {
		fprintf(run->freeze, "o %" PRIu64, epoch);
		for (uint32_t i = 0; i < count; i++)
			fprintf(run->freeze, " %" PRIu32, own[i]);
		fputc('\n', run->freeze);
	}
}

/* What is resident somewhere; or everywhere, if any rank may get any entry. */
static const uint64_t *find_resident(struct run *run)
{
	bool everywhere = run->options->stride;

	memset(run->resident, everywhere ? 0xff : 0,
	       bitmap_words(run->options) * sizeof(*run->resident));
	for (uint32_t node = 0; node < run->options->nodes; node++) {
		const uint64_t *there = sched_resident_bitmap(run->caches[node]);

		for (size_t word = 0; word < bitmap_words(run->options); word++)
			if (everywhere)
				run->resident[word] &= there[word];
			else
				run->resident[word] |= there[word];
	}
	return run->resident;
}

/* Entry i is rank i mod world's. */
static void split_by_turns(struct run *run, uint32_t *parts)
{
	const struct run_options *o = run->options;

	for (uint32_t rank = 0; rank < o->world; rank++)
		for (uint32_t i = rank; i < o->samples; i += o->world)
			*parts++ = run->whole[i];
}

static void split(struct run *run, uint64_t epoch, uint32_t *parts)
{
	struct assign_request request = request_of(run, epoch);

	if (run->options->stride)
		split_by_turns(run, parts);
	else
		must_do(assign_order(&run->assigned, &request, run->whole, run->options->samples,
				     parts),
			"assigning an order");
}

/* SHADE's ranks draw for themselves, each from all samples. */
static void draw_apart(struct run *run, struct pads_request request, uint32_t *parts)
{
	request.world = run->options->world;
	for (request.rank = 0; request.rank < request.world; request.rank++) {
		must_do(pads_draw(&request, parts), "drawing an order");
		parts += pads_length(&request);
	}
}

static void draw(struct run *run, uint64_t epoch, uint32_t *parts)
{
	struct pads_request request = run->options->request;

	request.epoch = epoch;
	request.scores = run->scores;
	request.resident = find_resident(run);
	request.echo = &run->echo;
	if (request.mode == PADS_PAPER) {
		draw_apart(run, request, parts);
	} else {
		must_do(pads_draw(&request, run->whole), "drawing an order");
		split(run, epoch, parts);
	}
	for (uint32_t node = 0; node < run->options->nodes; node++)
		announce(run, epoch, parts, node);
}

/* --- training ------------------------------------------------------------------------ */

static void access_one(struct run *run, struct sched *cache, uint32_t id)
{
	struct sched_verdict verdict;

	must_do(sched_access(cache, 0, id, 1, &verdict), "access");
	if (verdict.action == SCHED_ADMIT)
		must_do(sched_commit(cache, id), "commit");
	meter_access(&run->meter, id);
	if (run->freeze)
		fprintf(run->freeze, "a %" PRIu32 "\n", id);
}

/* All nodes learn of it. */
static void score_batch(struct run *run, uint32_t count)
{
	must_do(pads_rank_batch(run->batch_losses, count, run->batch_scores), "ranking a batch");
	for (uint32_t i = 0; i < count; i++) {
		uint32_t id = run->batch_ids[i];

		run->scores[id] = run->batch_scores[i];
		for (uint32_t node = 0; node < run->options->nodes; node++)
			must_do(sched_score(run->caches[node], 0, id, run->batch_scores[i]),
				"score");
		if (run->freeze)
			fprintf(run->freeze, "s %" PRIu32 " %.9g\n", id, run->batch_scores[i]);
	}
}

static void train_batch(struct run *run, uint64_t epoch, uint32_t node, const uint32_t *ids,
			uint32_t count)
{
	uint32_t known = 0;

	for (uint32_t i = 0; i < count; i++) {
		access_one(run, run->caches[node], ids[i]);
		if (losses_next(run->losses, epoch, ids[i], &run->batch_losses[known]))
			run->batch_ids[known++] = ids[i];
	}
	score_batch(run, known);
}

/* The node's memory is lost, and nothing else. */
static void restart(struct sched *cache)
{
	uint32_t id;

	while ((id = sched_next_resident(cache, 0)) != UINT32_MAX)
		must_do(sched_evict(cache, id), "restarting a node");
}

static void begin_epoch(struct run *run, uint64_t epoch)
{
	const struct run_options *o = run->options;

	if (epoch == 0 || !o->lookahead)
		draw(run, epoch, run->parts[0]);
	if (epoch && epoch == o->restart)
		restart(run->caches[0]);
	for (uint32_t node = 0; node < o->nodes; node++)
		must_do(sched_epoch(run->caches[node], 0, epoch), "beginning an epoch");
	if (run->freeze)
		fprintf(run->freeze, "e %" PRIu64 "\n", epoch);
	if (o->lookahead)
		draw(run, epoch + 1, run->parts[1]);
}

static void run_epoch(struct run *run, uint64_t epoch)
{
	const struct run_options *o = run->options;
	uint32_t longest = part_length(run, 0);

	begin_epoch(run, epoch);
	for (uint32_t from = 0; from < longest; from += o->batch)
		for (uint32_t rank = 0; rank < o->world; rank++) {
			uint32_t length = part_length(run, rank);
			uint32_t count = from < length ? length - from : 0;

			train_batch(run, epoch, run->node_of[rank],
				    part_of(run, run->parts[0], rank) + from,
				    count < o->batch ? count : o->batch);
		}
	meter_epoch(&run->meter);
	if (o->lookahead) {
		uint32_t *over = run->parts[0];

		run->parts[0] = run->parts[1];
		run->parts[1] = over;
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

static void open_freeze(struct run *run, const char *policy)
{
	const struct run_options *o = run->options;

	if (!o->freeze)
		return;
	run->freeze = fopen(o->freeze, "w");
	if (!run->freeze)
		fail("cannot write %s: %s", o->freeze, strerror(errno));
	fprintf(run->freeze, "# %s, %" PRIu32 " samples: replay with --capacity %" PRIu64 "\n",
		policy, o->samples, args_capacity_bytes(o->capacities[0], o->samples));
}

/* Each epoch is a period of its own, or else the halves of the run are. */
static void run_policy(const struct run_options *options, struct losses *losses,
		       struct report_row *row)
{
	struct figures before = { 0 }, now;
	uint32_t period = 0;
	struct run run;

	run_init(&run, options, losses, row->policy);
	open_freeze(&run, row->policy);
	for (uint32_t epoch = 0; epoch < options->epochs; epoch++) {
		run_epoch(&run, epoch);
		show_progress(row->policy, epoch + 1, options->epochs);
		if (!options->by_epoch && epoch + 1 != (options->epochs + 1) / 2 &&
		    epoch + 1 != options->epochs)
			continue;
		now = meter_read(&run.meter, run.caches, options->nodes);
		row->periods[period++] = figures_since(now, before);
		before = now;
	}
	close_freeze(&run);
	run_free(&run);
}

/* The names of the periods, up to a NULL. */
static char **name_periods(const struct run_options *options)
{
	uint32_t count = options->by_epoch ? options->epochs : 2;
	char **names = must(calloc(count + 1, sizeof(*names)));

	for (uint32_t i = 0; i < count; i++)
		if (!options->by_epoch)
			names[i] = must(strdup(i ? "warm" : "cold"));
		else if (asprintf(&names[i], "%" PRIu32, i) < 0)
			fail("out of memory");
	return names;
}

int run_main(int argc, char **argv)
{
	struct report_row rows[ARGS_POLICIES_MAX] = { 0 };
	struct run_options options;
	struct losses losses;
	char **periods;

	run_parse(&options, argc, argv);
	if (options.losses)
		losses_read(&losses, options.losses, options.samples);
	else
		losses_model(&losses, options.samples, options.request.seed);
	for (size_t i = 0; i < options.policies.count; i++) {
		rows[i].policy = options.policies.names[i];
		rows[i].periods = must(calloc((size_t)options.epochs + 1, sizeof(struct figures)));
		run_policy(&options, &losses, &rows[i]);
	}
	periods = name_periods(&options);
	report_print(options.format, rows, options.policies.count, (const char *const *)periods,
		     options.samples);
	for (size_t i = 0; periods[i]; i++)
		free(periods[i]);
	free(periods);
	for (size_t i = 0; i < options.policies.count; i++)
		free(rows[i].periods);
	losses_free(&losses);
	return 0;
}
