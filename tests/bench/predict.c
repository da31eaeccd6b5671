/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What it costs to recognise a shuffle: trying seeds, listing files as loaders do, following a
 * training that is known, and looking at one that is not. Prints a table, or JSON with --json.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shade/shuffle.h"

#define SAMPLES 1281167 /* ImageNet */
#define CLASSES 1000
#define SEEDS 1001
#define READS 1000000

static bool json, first = true;

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *need(void *memory)
{
	if (memory)
		return memory;
	fputs("bench-predict: no memory\n", stderr);
	exit(1);
}

static void say(const char *key, const char *what, double value, const char *unit)
{
	if (json)
		printf("%s\n  \"%s\": %.6g", first ? "{" : ",", key, value);
	else
		printf("%-62s %10.3g %s\n", what, value, unit);
	first = false;
}

/* Reads that no seed explains. */
static struct shuffle_trial make_trial(uint32_t limit)
{
	struct shuffle_trial trial = { .n = SAMPLES,
				       .limit = limit,
				       .tries_log10 = log10(SEEDS * 4) };

	for (uint32_t i = 0; i < SHUFFLE_READS; i++)
		shuffle_trial_add(&trial, (int32_t)(1 + i % 8), i * 20011 % SAMPLES);
	return trial;
}

static double time_search(uint32_t limit, uint32_t seeds)
{
	struct shuffle_trial trial = make_trial(limit);
	struct shuffle_match best = { .score = -HUGE_VAL };
	double start = now_s();

	shuffle_search(&trial, 0, seeds, &best);
	if (best.score > SHUFFLE_SURE) {
		fputs("bench-predict: recognised what is not there\n", stderr);
		exit(1);
	}
	return (now_s() - start) * SEEDS / seeds;
}

static const char *name_of(const void *context, uint32_t file)
{
	return (const char *)context + (size_t)file * 24;
}

static double time_list(enum shuffle_listing listing)
{
	char **dirs = need(malloc(CLASSES * sizeof(*dirs))),
	     *names = need(malloc((size_t)SAMPLES * 24));
	uint32_t *dir_of = need(malloc(SAMPLES * sizeof(*dir_of)));
	uint32_t *out = need(malloc(SAMPLES * sizeof(*out)));
	struct shuffle_files files = {
		(const char *const *)dirs, CLASSES, dir_of, SAMPLES, name_of, names
	};
	double start;

	for (uint32_t i = 0; i < CLASSES; i++)
		if (asprintf(&dirs[i], "n%08u/", 1440764 + i * 13) < 0)
			exit(1);
	for (uint32_t i = 0; i < SAMPLES;
	     i++) { /* as a scan would list them, but for the numbers */
		dir_of[i] = (uint32_t)((uint64_t)i * CLASSES / SAMPLES);
		snprintf(names + (size_t)i * 24, 24, "n%08u_%u.JPEG", 1440764 + dir_of[i] * 13,
			 1 + i * 7919 % 100003);
	}
	start = now_s();
	if (shuffle_list(&files, listing, out) != SAMPLES)
		exit(1);
	start = now_s() - start;
	for (uint32_t i = 0; i < CLASSES; i++)
		free(dirs[i]);
	free(dirs);
	free(names);
	free(dir_of);
	free(out);
	return start;
}

/* One rank with four workers. */
static double time_follow(double *order_s)
{
	uint32_t *permutation = need(malloc(SAMPLES * sizeof(*permutation))), *order, count;
	struct shuffle_trial trial = { .n = SAMPLES, .limit = SHUFFLE_PREFIX, .tries_log10 = 4 };
	struct shuffle_match match = { .score = -HUGE_VAL };
	struct shuffle_follow *follow;
	double start;

	shuffle_permute(0, permutation, SAMPLES);
	for (uint32_t i = 0; i < 32; i++)
		shuffle_trial_add(&trial, (int32_t)(1 + i % 4), permutation[i / 4 + i % 4 * 64]);
	shuffle_search(&trial, 0, 1, &match);
	if (shuffle_follow_create(&follow, &trial, &match))
		exit(1);
	start = now_s();
	for (uint32_t i = 0; i < READS; i++)
		if (shuffle_follow_read(follow, (int32_t)(1 + i / 64 % 4), permutation[i], true) <
		    0)
			exit(1);
	start = now_s() - start;
	*order_s = now_s();
	if (shuffle_follow_order(follow, true, &order, &count) || count != SAMPLES)
		exit(1);
	*order_s = now_s() - *order_s;
	free(order);
	shuffle_follow_free(follow);
	free(permutation);
	return start / READS;
}

/* Reads that nobody knows, once the window is full and was tried. */
static double time_window(void)
{
	struct shuffle_window window = { 0 };
	double start = now_s();

	for (uint32_t i = 0; i < READS; i++)
		(void)shuffle_window_add(&window, (int32_t)(1 + i % 4), i * 7919 % SAMPLES,
					 i / 1000);
	start = now_s() - start;
	shuffle_window_free(&window);
	return start / READS;
}

int main(int argc, char **argv)
{
	bool quick = argc > 1 && !strcmp(argv[argc - 1], "--quick");
	double order_s, follow_s = time_follow(&order_s);

	json = argc > 1 && !strcmp(argv[1], "--json");
	say("prefix_s", "1001 seeds, the first 16384 of 1.28 million places",
	    time_search(SHUFFLE_PREFIX, quick ? 20 : SEEDS), "s");
	say("whole_s", "1001 seeds, all places", time_search(SAMPLES, quick ? 2 : SEEDS), "s");
	say("folder_s", "1.28 million files, listed as ImageFolder does",
	    time_list(SHUFFLE_IMAGE_FOLDER), "s");
	say("timm_s", "the same as timm does", time_list(SHUFFLE_TIMM), "s");
	say("order_s", "an order of 1.28 million samples", order_s, "s");
	say("follow_ns", "a read of a training that is known", follow_s * 1e9, "ns");
	say("window_ns", "a read of one that is not", time_window() * 1e9, "ns");
	if (json)
		puts("\n}");
	return 0;
}
