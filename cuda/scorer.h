/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the files behind score.h share. */
#ifndef SHADE_SCORER_H
#define SHADE_SCORER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "device.h"
#include "shade/assign.h"
#include "shade/pads.h"
#include "shade/score.h"

/* An epoch's order, and what it was drawn from, which weights and paper's ranks still need. */
struct plan {
	bool drawn;
	uint64_t epoch;
	uint64_t turn;	       /* as in struct pads_request */
	float *scores;	       /* by id */
	uint64_t *resident;    /* bitmap; NULL: nothing is */
	uint32_t *order;       /* the whole; NULL in mode paper, where each rank has its own */
	float *weights;	       /* by id; NULL until asked for */
	uint32_t *parts;       /* the order as it was assigned; NULL: the ranks take turns */
	uint32_t world;	       /* to so many ranks */
	struct pads_echo echo; /* mode echo: the state that it was drawn from */
};

#define PLANS 2 /* the epoch that was begun last, and the one after it */

struct scorer_state {
	struct shade_scorer_options options;
	float *scores;		      /* by id; below 0: none */
	uint64_t turn;		      /* of the plan that is drawn next; 0: none was yet */
	uint32_t batch;		      /* entries of one step of all ranks; 0: not told */
	struct pads_echo echo;	      /* after the plan that was drawn last */
	struct assign_state assigned; /* as well */
	struct assign_request nodes;  /* world 0: not told; node_of is malloc'd */
	struct plan plans[PLANS];
};

struct shade_scorer {
	pthread_mutex_t lock; /* of everything below */
	struct scorer_state state;
	const struct device_ops *ops; /* NULL: the CPU does it all */
	struct device *device;
	bool device_lost;
	/* Which batches in flight on the device are only ranked. The device gives batches back in
	 * the order of their submission, so a ring that both counters run through is enough. */
	bool rank_only[DEVICE_IN_FLIGHT_MAX];
	uint64_t submitted, taken;
	uint32_t left_out; /* batches that the next sync reports */
	uint32_t faults;   /* what was wrong with them, of enum device_fault */
};

/* Keeps the sentence for shade_score_error(); returns `code`. */
__attribute__((format(printf, 2, 3))) int score_fail(int code, const char *format, ...);

/* Applies what the device has done; `wait`: all that is in flight. 0 or -EIO. */
int scorer_drain(struct shade_scorer *s, bool wait);

/* 0, or what is wrong with the options. Fills in `draws`. */
int scorer_check_options(struct shade_scorer_options *options);
void scorer_state_free(struct scorer_state *state);

size_t plan_words(const struct shade_scorer_options *options);
const struct plan *plan_find(const struct scorer_state *state, uint64_t epoch);
void plan_free(struct plan *plan);

/* A fingerprint of bytes, against accidents. It is no protection against people. */
uint64_t score_hash(uint64_t hash, const void *bytes, size_t size);

/* Opens the module with the kernels. 0 or -ENODEV. */
int module_open(const struct device_ops **ops);

#endif
