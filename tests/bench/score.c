/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the scoring helper costs a training, on one core: an update of 512 rows of 1000 logits,
 * and the next order of 1.28 million samples. Prints a table, or JSON with --json. Times are
 * medians, with the smallest and the largest beside them.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shade/score.h"

#define SAMPLES 1280000u
#define ROWS 512u
#define CLASSES 1000u
#define UPDATES 101
#define ORDERS 7

static bool json;
static bool first = true;

static void check(int64_t rc, const char *what)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "bench-score: %s: %s\n", what, shade_score_error());
	exit(1);
}

static void *need(void *memory)
{
	if (!memory) {
		fputs("bench-score: out of memory\n", stderr);
		exit(1);
	}
	return memory;
}

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void print(const char *what, double *ms, int count, double target_ms)
{
	double median;

	qsort(ms, (size_t)count, sizeof(*ms), by_value);
	median = ms[count / 2];
	if (json)
		printf("%s  {\"what\": \"%s\", \"repeats\": %d, \"median_ms\": %.3f, "
		       "\"smallest_ms\": %.3f, \"largest_ms\": %.3f, \"target_ms\": %g}",
		       first ? "" : ",\n", what, count, median, ms[0], ms[count - 1], target_ms);
	else
		printf("%-28s %8d %10.3f %10.3f %10.3f %8g\n", what, count, median, ms[0],
		       ms[count - 1], target_ms);
	first = false;
	fflush(stdout);
}

static struct shade_scorer *create(uint32_t mode)
{
	struct shade_scorer_options options;
	struct shade_scorer *s;

	shade_scorer_defaults(&options);
	options.samples = SAMPLES;
	options.mode = mode;
	options.rep = 3;
	options.strength = 1;
	options.capacity = SAMPLES / 5;
	options.backend = SHADE_SCORE_CPU;
	check(shade_scorer_create(&s, &options), "creating a scorer");
	return s;
}

static uint32_t chance(void)
{
	static uint64_t state = 88172645463325252u;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 20);
}

static void fill_logits(void *logits, uint32_t dtype)
{
	for (size_t i = 0; i < (size_t)ROWS * CLASSES; i++) {
		float value = (float)(chance() % 2000) / 100 - 10;
		uint32_t bits;

		memcpy(&bits, &value, sizeof(bits));
		if (dtype == SHADE_SCORE_F32)
			((float *)logits)[i] = value;
		else if (dtype == SHADE_SCORE_F16) /* any from 2^-3 to 2^4, of both signs */
			((uint16_t *)logits)[i] =
				(uint16_t)((chance() & 0x83ff) | (12 + chance() % 7) << 10);
		else
			((uint16_t *)logits)[i] = (uint16_t)(bits >> 16);
	}
}

static void measure_updates(const char *what, uint32_t dtype)
{
	struct shade_scorer *s = create(SHADE_SCORE_PADS);
	void *logits = need(malloc((size_t)ROWS * CLASSES * 4));
	int64_t labels[ROWS];
	uint32_t ids[ROWS];
	double ms[UPDATES];
	struct shade_score_batch batch = {
		.size = sizeof(batch),
		.count = ROWS,
		.ids = ids,
		.dtype = dtype,
		.logits = logits,
		.classes = CLASSES,
		.label_bytes = 8,
		.labels = labels,
	};

	fill_logits(logits, dtype);
	for (int i = -3; i < UPDATES; i++) {
		double start;

		for (uint32_t row = 0; row < ROWS; row++) {
			ids[row] = chance() % SAMPLES;
			labels[row] = chance() % CLASSES;
		}
		start = now_ms();
		check(shade_scorer_update_batch(s, &batch), "an update");
		if (i >= 0)
			ms[i] = now_ms() - start;
	}
	print(what, ms, UPDATES, 2);
	free(logits);
	shade_scorer_destroy(s);
}

/* Every sample has a score, a fifth is resident. */
static void measure_orders(const char *what, uint32_t mode)
{
	struct shade_scorer *s = create(mode);
	uint8_t *resident = need(calloc(1, SAMPLES / 8));
	uint32_t *ids = need(malloc(SAMPLES * sizeof(*ids)));
	float *losses = need(malloc(ROWS * sizeof(*losses)));
	double ms[ORDERS];

	for (uint32_t from = 0; from < SAMPLES; from += ROWS) {
		for (uint32_t i = 0; i < ROWS; i++) {
			ids[i] = from + i;
			losses[i] = (float)chance();
		}
		check(shade_scorer_update(s, ids, losses, ROWS, NULL), "an update");
	}
	for (uint32_t i = 0; i < SAMPLES / 5; i++) {
		uint32_t id = chance() % SAMPLES;

		resident[id / 8] |= (uint8_t)(1 << id % 8);
	}
	for (int i = -1; i < ORDERS; i++) {
		uint64_t epoch = (uint64_t)i + 1;
		double start = now_ms();

		check(shade_scorer_begin(s, epoch, resident), "beginning an epoch");
		check(shade_scorer_order(s, epoch, 0, 1, ids, SAMPLES), "an order");
		if (i >= 0)
			ms[i] = now_ms() - start;
	}
	print(what, ms, ORDERS, 500);
	free(resident);
	free(ids);
	free(losses);
	shade_scorer_destroy(s);
}

int main(int argc, char **argv)
{
	char host[256] = "";

	json = argc > 1 && !strcmp(argv[1], "--json");
	(void)gethostname(host, sizeof(host) - 1);
	if (json)
		printf("{\"machine\": \"%s\", \"backend\": \"cpu\", \"costs\": [\n", host);
	else
		printf("machine %s; backend cpu, one core\n\n%-28s %8s %10s %10s %10s %8s\n", host,
		       "milliseconds", "repeats", "median", "smallest", "largest", "target");
	measure_updates("update 512x1000 float32", SHADE_SCORE_F32);
	measure_updates("update 512x1000 float16", SHADE_SCORE_F16);
	measure_updates("update 512x1000 bfloat16", SHADE_SCORE_BF16);
	measure_orders("order 1280000 pads", SHADE_SCORE_PADS);
	measure_orders("order 1280000 paper", SHADE_SCORE_PAPER);
	measure_orders("order 1280000 echo", SHADE_SCORE_ECHO);
	if (json)
		puts("\n]}");
	return 0;
}
