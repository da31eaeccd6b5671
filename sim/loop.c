/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "loop.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fail.h"
#include "philox.h"
#include "quiver.h"
#include "shade/assign.h"

/* What is known for orders that leave samples out, by id. */
struct skipped {
	float *losses;	   /* the last ones; a NaN: none */
	uint64_t *planned; /* the turn of the last order that had it */
	float *chances;
	uint64_t turn;
};

/* One loop. */
struct run {
	const struct run_options *options;
	struct losses *losses;
	struct sched **caches; /* by node */
	uint32_t *node_of;     /* by rank */
	struct assign_state assigned;
	struct meter meter;
	struct pads_echo echo;
	float *scores; /* by id, for the sampler */
	struct skipped skipped;
	uint64_t *resident;    /* bitmap by id, for the sampler: somewhere */
	uint32_t *whole;       /* an order before it is split */
	uint32_t *parts[2];    /* by lookahead: the parts of all ranks, one after the other */
	uint32_t counts[2];    /* by lookahead: the entries of all parts */
	uint32_t *keeper_of;   /* by id, RUN_HASH: the node that keeps the sample */
	struct quiver *quiver; /* NULL: an order is read as it is */
	uint32_t *taken;       /* what Quiver takes for a batch */
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

/* The part of a rank, `ahead` epochs from now. */
struct part {
	const uint32_t *ids;
	uint32_t length;
};

static struct part part_of(const struct run *run, uint32_t ahead, uint32_t rank)
{
	struct assign_request request = request_of(run, 0);
	uint32_t count = run->counts[ahead];
	uint32_t each = count / run->options->world, rest = count % run->options->world;

	return (struct part){ run->parts[ahead] + (size_t)rank * each + (rank < rest ? rank : rest),
			      assign_length(&request, count, rank) };
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

/* CoorDL's nodes partition the data by a hash. */
static void choose_keepers(struct run *run)
{
	const struct run_options *o = run->options;
	struct philox_stream stream = { o->request.seed, 0, PHILOX_ASSIGN };

	run->keeper_of = must(malloc(o->samples * sizeof(*run->keeper_of)));
	for (uint32_t id = 0; id < o->samples; id++)
		run->keeper_of[id] = (uint32_t)((uint64_t)philox_u32(stream, id) * o->nodes >> 32);
}

static void make_quiver(struct run *run)
{
	const struct run_options *o = run->options;
	struct quiver_cache cache = { run->caches, run->keeper_of, o->request.capacity };

	run->taken = must(malloc(o->batch * sizeof(*run->taken)));
	run->quiver = quiver_new(cache, o->samples, o->world, o->batch, o->request.seed);
}

static void skipped_init(struct skipped *skipped, uint32_t samples)
{
	skipped->losses = must(malloc(samples * sizeof(*skipped->losses)));
	skipped->planned = must(calloc(samples, sizeof(*skipped->planned)));
	skipped->chances = must(malloc(samples * sizeof(*skipped->chances)));
	for (uint32_t id = 0; id < samples; id++)
		skipped->losses[id] = NAN;
}

static void skipped_free(struct skipped *skipped)
{
	free(skipped->losses);
	free(skipped->planned);
	free(skipped->chances);
}

static void run_init(struct run *run, const struct run_options *options, struct losses *losses,
		     const char *policy)
{
	uint32_t batch = options->batch;
	size_t order = skip_room(&options->skip) * sizeof(uint32_t);

	*run = (struct run){ .options = options, .losses = losses };
	make_nodes(run, policy);
	meter_init(&run->meter, options->samples);
	run->scores = must(malloc(options->samples * sizeof(*run->scores)));
	for (uint32_t id = 0; id < options->samples; id++)
		run->scores[id] = -1;
	skipped_init(&run->skipped, options->samples);
	run->resident = must(calloc(bitmap_words(options), sizeof(*run->resident)));
	run->whole = must(malloc(order));
	run->parts[0] = must(malloc(order));
	run->parts[1] = must(malloc(order));
	run->batch_losses = must(malloc(batch * sizeof(*run->batch_losses)));
	run->batch_scores = must(malloc(batch * sizeof(*run->batch_scores)));
	run->batch_ids = must(malloc(batch * sizeof(*run->batch_ids)));
	if (options->assign == RUN_HASH)
		choose_keepers(run);
	if (options->quiver)
		make_quiver(run);
	losses_restart(losses);
}

static void run_free(struct run *run)
{
	for (uint32_t node = 0; node < run->options->nodes; node++)
		sched_destroy(run->caches[node]);
	if (run->quiver)
		quiver_free(run->quiver);
	free(run->taken);
	free(run->keeper_of);
	free(run->caches);
	free(run->node_of);
	assign_free(&run->assigned);
	free(run->scores);
	skipped_free(&run->skipped);
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
static void announce(struct run *run, uint64_t epoch, uint32_t ahead, uint32_t node)
{
	const struct run_options *o = run->options;
	uint32_t *own = run->whole; /* which was split already */
	uint32_t count = 0, longest = part_of(run, ahead, 0).length;

	for (uint32_t from = 0; from < longest; from += o->batch)
		for (uint32_t rank = 0; rank < o->world; rank++) {
			struct part part = part_of(run, ahead, rank);

			if (run->node_of[rank] != node)
				continue;
			for (uint32_t i = from; i < from + o->batch && i < part.length; i++)
				own[count++] = part.ids[i];
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
static void find_resident(struct run *run)
{
	bool everywhere = run->options->assign == RUN_STRIDE;

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
}

/* Entry i is rank i mod world's. */
static void split_by_turns(struct run *run, uint32_t ahead)
{
	uint32_t world = run->options->world, *parts = run->parts[ahead];

	for (uint32_t rank = 0; rank < world; rank++)
		for (uint32_t i = rank; i < run->counts[ahead]; i += world)
			*parts++ = run->whole[i];
}

static void split(struct run *run, uint64_t epoch, uint32_t ahead)
{
	struct assign_request request = request_of(run, epoch);

	if (run->options->assign != RUN_OWNER)
		split_by_turns(run, ahead);
	else
		must_do(assign_order(&run->assigned, &request, run->whole, run->counts[ahead],
				     run->parts[ahead]),
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

/* With which chance each sample comes; the request that the order is drawn by. */
static struct skip_request find_chances(struct run *run, uint64_t epoch)
{
	struct skip_request request = run->options->skip;

	request.epoch = epoch;
	request.losses = run->skipped.losses;
	request.planned = run->skipped.planned;
	request.turn = ++run->skipped.turn;
	request.resident = run->resident;
	must_do(skip_chances(&request, run->skipped.chances), "finding who comes");
	return request;
}

/* Into run->whole; returns how many entries that are. */
static uint32_t draw_without(struct run *run, uint64_t epoch)
{
	struct skip_request request = find_chances(run, epoch);
	uint32_t count;

	must_do(skip_draw(&request, run->skipped.chances, run->whole, &count), "drawing an order");
	skip_mark(run->skipped.planned, request.turn, run->whole, count);
	return count;
}

/* By the sampler of shade/pads.h. */
static void draw_pads(struct run *run, uint64_t epoch, uint32_t ahead)
{
	struct pads_request request = run->options->request;

	request.epoch = epoch;
	request.scores = run->scores;
	request.resident = run->resident;
	request.echo = &run->echo;
	if (run->options->skips == RUN_SKIP_STREAM) {
		find_chances(run, epoch);
		request.chances = run->skipped.chances;
	}
	run->counts[ahead] = run->options->samples;
	if (request.mode == PADS_PAPER) {
		draw_apart(run, request, run->parts[ahead]);
	} else {
		must_do(pads_draw(&request, run->whole), "drawing an order");
		split(run, epoch, ahead);
	}
	if (run->options->skips == RUN_SKIP_STREAM)
		skip_mark(run->skipped.planned, run->skipped.turn, run->parts[ahead],
			  run->counts[ahead]);
}

static void draw(struct run *run, uint64_t epoch, uint32_t ahead)
{
	find_resident(run);
	if (run->options->skips == RUN_SKIP_COMPUTE)
		run->meter.trained += draw_without(run, epoch);
	if (run->options->skips == RUN_SKIP_READS) {
		run->counts[ahead] = draw_without(run, epoch);
		split(run, epoch, ahead);
	} else {
		draw_pads(run, epoch, ahead);
	}
	for (uint32_t node = 0; node < run->options->nodes; node++)
		announce(run, epoch, ahead, node);
}

/* --- training ------------------------------------------------------------------------ */

static void access_one(struct run *run, uint32_t rank, uint32_t id)
{
	uint32_t node = run->node_of[rank];
	uint32_t keeper = run->keeper_of ? run->keeper_of[id] : node;
	struct sched *cache = run->caches[keeper];
	struct sched_verdict verdict;

	must_do(sched_access(cache, 0, id, 1, &verdict), "access");
	if (verdict.action == SCHED_ADMIT && run->quiver && !quiver_keeps(run->quiver, id))
		must_do(sched_cancel(cache, id), "cancel");
	else if (verdict.action == SCHED_ADMIT)
		must_do(sched_commit(cache, id), "commit");
	if (verdict.action == SCHED_HIT && keeper != node)
		run->meter.remote++;
	if (run->quiver)
		quiver_read(run->quiver, id);
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

static void train_batch(struct run *run, uint64_t epoch, uint32_t rank, const uint32_t *ids,
			uint32_t count)
{
	uint32_t known = 0;

	for (uint32_t i = 0; i < count; i++) {
		access_one(run, rank, ids[i]);
		if (!losses_next(run->losses, epoch, ids[i], &run->batch_losses[known]))
			continue;
		run->skipped.losses[ids[i]] = run->batch_losses[known];
		run->batch_ids[known++] = ids[i];
	}
	if (run->options->skips != RUN_SKIP_COMPUTE)
		run->meter.trained += count;
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
		draw(run, epoch, 0);
	if (epoch && epoch == o->restart)
		restart(run->caches[0]);
	for (uint32_t node = 0; node < o->nodes; node++)
		must_do(sched_epoch(run->caches[node], 0, epoch), "beginning an epoch");
	if (run->freeze)
		fprintf(run->freeze, "e %" PRIu64 "\n", epoch);
	if (o->lookahead)
		draw(run, epoch + 1, 1);
	if (run->quiver)
		quiver_begin(run->quiver);
	for (uint32_t rank = 0; run->quiver && rank < o->world; rank++) {
		struct part part = part_of(run, 0, rank);

		quiver_add(run->quiver, rank, part.ids, part.length);
	}
}

/* What the rank trains on next: its part as it is, or what Quiver makes of it. */
static const uint32_t *batch_of(struct run *run, uint32_t rank, uint32_t from, uint32_t count)
{
	if (!run->quiver)
		return part_of(run, 0, rank).ids + from;
	quiver_take(run->quiver, rank, count, run->taken);
	return run->taken;
}

/* The epoch is over, and the next one's order has its place. */
static void end_epoch(struct run *run)
{
	uint32_t *over = run->parts[0], over_count = run->counts[0];

	meter_epoch(&run->meter);
	if (!run->options->lookahead)
		return;
	run->parts[0] = run->parts[1];
	run->counts[0] = run->counts[1];
	run->parts[1] = over;
	run->counts[1] = over_count;
}

static void run_epoch(struct run *run, uint64_t epoch)
{
	const struct run_options *o = run->options;
	uint32_t longest;

	begin_epoch(run, epoch);
	longest = part_of(run, 0, 0).length;
	for (uint32_t from = 0; from < longest; from += o->batch)
		for (uint32_t rank = 0; rank < o->world; rank++) {
			uint32_t length = part_of(run, 0, rank).length;
			uint32_t left = from < length ? length - from : 0;
			uint32_t count = left < o->batch ? left : o->batch;

			train_batch(run, epoch, rank, batch_of(run, rank, from, count), count);
		}
	end_epoch(run);
}

static void show_progress(const char *name, uint32_t epoch, uint32_t epochs)
{
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r\033[K%s: epoch %" PRIu32 " of %" PRIu32 "%s", name, epoch,
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

void loop_run(const struct run_options *options, struct losses *losses, const char *name,
	      const char *policy, struct figures *periods)
{
	struct figures before = { 0 }, now;
	uint32_t period = 0;
	struct run run;

	run_init(&run, options, losses, policy);
	open_freeze(&run, policy);
	for (uint32_t epoch = 0; epoch < options->epochs; epoch++) {
		run_epoch(&run, epoch);
		show_progress(name, epoch + 1, options->epochs);
		if (!options->by_epoch && epoch + 1 != (options->epochs + 1) / 2 &&
		    epoch + 1 != options->epochs)
			continue;
		now = meter_read(&run.meter, run.caches, options->nodes);
		periods[period++] = figures_since(now, before);
		before = now;
	}
	close_freeze(&run);
	run_free(&run);
}
