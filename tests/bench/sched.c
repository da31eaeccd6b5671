/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the policy core costs: accesses a second, how that grows with the data set, memory
 * a sample, taking and drawing an order. Prints a table, or JSON with --json.
 *
 * The stream is a training's: orders by pads with rep 2, each sample scored after it was
 * read, the next order announced when an epoch begins. The first epoch fills the cache
 * and is not timed.
 */
#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shade/assign.h"
#include "shade/pads.h"
#include "shade/sched.h"

#define REPEATS 5
#define BATCH 64

static bool json;

static void check(int rc, const char *what)
{
	if (!rc)
		return;
	fprintf(stderr, "bench-sched: %s: %s\n", what, strerror(-rc));
	exit(1);
}

static void *need(void *memory)
{
	check(memory ? 0 : -12, "memory");
	return memory;
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static size_t heap_bytes(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *values)
{
	qsort(values, REPEATS, sizeof(*values), by_value);
	return values[REPEATS / 2];
}

/* --- a training --------------------------------------------------------------------- */

struct training {
	struct sched *sched;
	uint32_t samples;
	float *scores;
	float *batch_scores; /* what the places of a batch get; any will do */
	uint32_t *order;
	uint64_t epoch;
	size_t bytes_before;
};

static void draw(struct training *t)
{
	struct pads_request request = {
		.mode = PADS_PADS,
		.samples = t->samples,
		.scores = t->scores,
		.resident = sched_resident_bitmap(t->sched),
		.seed = 1,
		.epoch = t->epoch,
		.rep = 2,
	};

	check(pads_draw(&request, t->order), "drawing an order");
}

static void training_init(struct training *t, const char *policy, uint32_t samples)
{
	*t = (struct training){ .samples = samples, .bytes_before = heap_bytes() };
	check(sched_create(&t->sched, samples / 5, policy), "creating the cache");
	check(sched_grow(t->sched, samples), "creating the cache");
	t->scores = need(malloc(samples * sizeof(*t->scores)));
	t->order = need(malloc(samples * sizeof(*t->order)));
	t->batch_scores = need(malloc(BATCH * sizeof(*t->batch_scores)));
	for (uint32_t i = 0; i < samples; i++)
		t->scores[i] = -1;
	for (uint32_t i = 0; i < BATCH; i++)
		t->batch_scores[i] = pads_rank_score(i * 37 % BATCH);
}

static void training_free(struct training *t)
{
	sched_destroy(t->sched);
	free(t->scores);
	free(t->order);
	free(t->batch_scores);
}

static void read_batch(struct training *t, const uint32_t *ids, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		struct sched_verdict verdict;

		(void)sched_access(t->sched, 0, ids[i], 1, &verdict);
		if (verdict.action == SCHED_ADMIT)
			(void)sched_commit(t->sched, ids[i]);
	}
}

/* Mostly the same from epoch to epoch, as real scores are. */
static void score_batch(struct training *t, const uint32_t *ids, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		(void)sched_score(t->sched, 0, ids[i],
				  t->batch_scores[(ids[i] + (t->epoch & 3)) % BATCH]);
}

/* One epoch. Returns nanoseconds an access, its score included. */
static double train_epoch(struct training *t, double *order_s)
{
	double start;

	for (uint32_t id = 0; id < t->samples; id++)
		t->scores[id] = sched_get_score(t->sched, 0, id);
	draw(t);
	start = now_s();
	check(sched_order(t->sched, 0, t->epoch, t->order, t->samples), "taking an order");
	*order_s = now_s() - start;
	check(sched_epoch(t->sched, 0, t->epoch), "beginning an epoch");
	start = now_s();
	for (uint32_t from = 0; from < t->samples; from += BATCH) {
		uint32_t left = t->samples - from, count = left < BATCH ? left : BATCH;

		read_batch(t, t->order + from, count);
		score_batch(t, t->order + from, count);
	}
	t->epoch++;
	return (now_s() - start) / t->samples * 1e9;
}

struct cost {
	double access_ns, spread_ns, order_s, bytes_per_sample, hit_ratio;
};

/* Bytes of the handle beyond 8 for each order entry that it holds. */
static double bytes_per_sample(const struct training *t)
{
	size_t own = t->samples * (sizeof(*t->scores) + sizeof(*t->order));
	size_t entries = (size_t)t->samples * 8;

	return (double)(heap_bytes() - t->bytes_before - own - entries) / t->samples;
}

static struct cost measure(const char *policy, uint32_t samples)
{
	double access_ns[REPEATS], order_s[REPEATS], ignored;
	struct sched_stats before, after;
	struct training t;
	struct cost cost;

	training_init(&t, policy, samples);
	(void)train_epoch(&t, &ignored);
	(void)train_epoch(&t, &ignored);
	sched_get_stats(t.sched, &before);
	for (int i = 0; i < REPEATS; i++)
		access_ns[i] = train_epoch(&t, &order_s[i]);
	sched_get_stats(t.sched, &after);
	cost.access_ns = median(access_ns);
	cost.spread_ns = access_ns[REPEATS - 1] - access_ns[0];
	cost.order_s = median(order_s);
	cost.bytes_per_sample = bytes_per_sample(&t);
	cost.hit_ratio =
		(double)(after.hits - before.hits) / (double)(after.accesses - before.accesses);
	training_free(&t);
	return cost;
}

/* --- the table ------------------------------------------------------------------------ */

static void print_policy(const char *policy, bool last)
{
	static const uint32_t sizes[] = { 128000, 1280000, 12800000 };
	double first = 0;

	for (unsigned i = 0; i < 3; i++) {
		struct cost c = measure(policy, sizes[i]);

		first = i ? first : c.access_ns;
		if (json)
			printf("  {\"policy\": \"%s\", \"samples\": %u, \"access_ns\": %.1f, "
			       "\"spread_ns\": %.1f, \"million_per_s\": %.3f, \"growth\": %.2f, "
			       "\"bytes_per_sample\": %.1f, \"order_s\": %.3f, "
			       "\"hit_ratio\": %.3f}%s\n",
			       policy, sizes[i], c.access_ns, c.spread_ns, 1e3 / c.access_ns,
			       c.access_ns / first, c.bytes_per_sample, c.order_s, c.hit_ratio,
			       last && i == 2 ? "" : ",");
		else
			printf("%-7s %10u %9.0f %8.0f %8.2f %8.2f %9.1f %9.3f %9.3f\n", policy,
			       sizes[i], c.access_ns, c.spread_ns, 1e3 / c.access_ns,
			       c.access_ns / first, c.bytes_per_sample, c.order_s, c.hit_ratio);
		fflush(stdout);
	}
}

static double draw_once(struct pads_request *request, uint32_t *order)
{
	struct pads_echo echo = { 0 };
	double start;

	request->echo = &echo;
	start = now_s();
	check(pads_draw(request, order), "drawing an order");
	start = now_s() - start;
	pads_echo_free(&echo);
	return start;
}

static void print_draws(void)
{
	static const enum pads_mode modes[] = { PADS_PAPER, PADS_PADS, PADS_ECHO };
	uint32_t samples = 1280000, *order = need(malloc(samples * sizeof(*order)));
	float *scores = need(malloc(samples * sizeof(*scores)));

	for (uint32_t i = 0; i < samples; i++)
		scores[i] = pads_rank_score(i % BATCH);
	for (unsigned i = 0; i < 3; i++) {
		struct pads_request request = { .mode = modes[i],
						.samples = samples,
						.scores = scores,
						.rep = 3,
						.uses = 4,
						.strength = 1,
						.capacity = samples / 5 };
		double seconds[REPEATS];

		for (int k = 0; k < REPEATS; k++)
			seconds[k] = draw_once(&request, order);
		printf(json ? "  {\"draw\": \"%s\", \"samples\": %u, \"draw_s\": %.3f}%s\n"
			    : "drawing by %-6s %u entries: %.3f s%s\n",
		       pads_mode_name(modes[i]), samples, median(seconds),
		       json && i < 2 ? "," : "");
	}
	free(order);
	free(scores);
}

/* The second epoch and later ones: in the first nobody owns anything. */
static void print_assignment(void)
{
	static const uint32_t node_of[] = { 0, 1, 2, 3, 4, 5, 6, 7 };
	struct assign_request request = { .world = 8, .node_of = node_of };
	uint32_t samples = 1280000, *order = need(malloc(samples * sizeof(*order)));
	uint32_t *parts = need(malloc(samples * sizeof(*parts)));
	struct assign_state state = { 0 };
	double seconds[REPEATS], start;

	check(assign_grow(&state, samples), "assigning an order");
	for (int k = -1; k < REPEATS; k++) {
		struct pads_request draw = { .mode = PADS_UNIFORM,
					     .samples = samples,
					     .epoch = (uint64_t)(k + 1) };

		check(pads_draw(&draw, order), "drawing an order");
		start = now_s();
		check(assign_order(&state, &request, order, samples, parts), "assigning an order");
		if (k >= 0)
			seconds[k] = now_s() - start;
	}
	printf(json ? "  {\"nodes\": 8, \"samples\": %u, \"assign_s\": %.3f}\n"
		    : "assigning to 8 nodes %u entries: %.3f s\n",
	       samples, median(seconds));
	assign_free(&state);
	free(order);
	free(parts);
}

int main(int argc, char **argv)
{
	char host[256] = "";

	json = argc > 1 && !strcmp(argv[1], "--json");
	(void)gethostname(host, sizeof(host) - 1);
	if (json)
		printf("{\"machine\": \"%s\", \"costs\": [\n", host);
	else
		printf("machine %s; capacity 20 %%; an access includes its score; medians of %d\n\n"
		       "%-7s %10s %9s %8s %8s %8s %9s %9s %9s\n",
		       host, REPEATS, "policy", "samples", "ns/access", "spread", "million/s",
		       "growth", "B/sample", "order s", "hit ratio");
	print_policy("app", false);
	print_policy("shade", true);
	puts(json ? "], \"draws\": [" : "");
	print_draws();
	if (json)
		puts("], \"assignments\": [");
	print_assignment();
	if (json)
		puts("]}");
	return 0;
}
