/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Trainings that announce nothing, recognised by what they read: a thread that gets what processors
 * have left looks at reads, tries the likely seeds of torch's samplers (include/shade/shuffle.h),
 * and announces what follows in a job of its own. Whatever it gets wrong costs speed only.
 */
#ifndef SHADE_PREDICT_H
#define SHADE_PREDICT_H

#include <stdio.h>

#include "cache/cache.h"
#include "control/control.h"

#define PREDICT_SEEDS_MAX 8 /* that an option names */
#define PREDICT_TRAININGS 3 /* that are followed at a time */

struct predict;

struct predict_options {
	struct cache *cache;
	struct control *control;
	uint32_t seeds[PREDICT_SEEDS_MAX]; /* besides those that are likely anyway */
	unsigned seed_count;
};

/* 0 or a negative errno. */
int predict_create(struct predict **out, const struct predict_options *options);
int predict_start(struct predict *predict);
/* The thread is to end soon. NULL is fine. */
void predict_stop(struct predict *predict);
/* Waits for it, if it was started, after predict_stop(); nothing is announced any more. NULL is
 * fine. */
void predict_end(struct predict *predict);
/* After predict_end(), when nobody can ask for reports. NULL is fine. */
void predict_destroy(struct predict *predict);
/* The lines of `stats`, or with `metrics` of `metrics`. NULL: prediction is off. */
void predict_print(struct predict *predict, FILE *out, bool metrics);

/* A line for each training that was recognised. */
void predict_print_trainings(struct predict *predict, FILE *out);

#endif
