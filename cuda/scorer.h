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
#include "shade/reuse.h"
#include "shade/score.h"
#include "shade/skip.h"

/* An epoch's order, and what it was drawn from, which weights and paper's ranks still need. */
struct plan {
	uint64_t epoch;
	uint64_t turn;	    /* as in struct pads_request */
	float *scores;	    /* by id */
	uint64_t *resident; /* bitmap; NULL: nothing is */
	uint32_t *order;    /* the whole; NULL in mode paper, where each rank has its own */
	float *chances;	    /* by id, with which each sample comes; NULL: nobody is left out */
	float *weights;	    /* by id; NULL until asked for */
	uint32_t *parts;    /* the order as it was assigned; NULL: the ranks take turns */
	uint32_t count;	    /* entries of the order */
	uint32_t world;	    /* parts are for so many ranks */
	/* Modes echo and adapt: the state that it was drawn from, from which position on, and with
	 * how many uses. */
	struct pads_echo echo;
	double uses;
	uint32_t start;
	bool drawn;
};

#define PLANS 2 /* the epoch that was begun last, and the one after it */

/* What goes on from plan to plan: each draw begins with it and leaves it for the next. */
struct progress {
	uint64_t turn; /* of the plan that is drawn next; 0: none was yet */
	struct pads_echo echo;
	struct assign_state assigned;
	uint64_t *planned; /* by id, as in struct skip_request; NULL: nobody is left out */
};

struct scorer_state {
	struct shade_scorer_options options;
	float *scores;		     /* by id; below 0: none */
	float *losses;		     /* by id, the last one; a NaN: none; NULL: nobody needs them */
	uint32_t batch;		     /* entries of one step of all ranks; 0: not told */
	struct progress progress;    /* after the plan that was drawn last */
	struct assign_request nodes; /* world 0: not told; node_of is malloc'd */
	uint32_t *neighbours;	     /* as in struct skip_request; NULL: not told */
	struct reuse reuse;	     /* mode adapt, but for `uses` and `most`, which are options */
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

/* -ENOMEM, and its sentence. */
int score_no_memory(void);

/* Applies what the device has done; `wait`: all that is in flight. 0 or -EIO. */
int scorer_drain(struct shade_scorer *s, bool wait);

static inline bool scorer_echoes(const struct shade_scorer_options *options)
{
	return options->mode == SHADE_SCORE_ECHO || options->mode == SHADE_SCORE_ADAPT;
}

/* Whose orders are as long as what is not left out. */
static inline bool scorer_skips(const struct shade_scorer_options *options)
{
	return options->mode == SHADE_SCORE_PRUNE || options->mode == SHADE_SCORE_IIS;
}

static inline bool scorer_needs_losses(const struct shade_scorer_options *options)
{
	return scorer_skips(options) || (scorer_echoes(options) && options->keep > 0);
}

/* 0, or what is wrong with the options. Fills in what 0 stands for. */
int scorer_check_options(struct shade_scorer_options *options);
/* Room for what is known of each sample, and nothing known. 0 or -ENOMEM. */
int scorer_allocate(struct scorer_state *state);
void scorer_state_free(struct scorer_state *state);

void progress_free(struct progress *progress);

size_t plan_words(const struct shade_scorer_options *options);
const struct plan *plan_find(const struct scorer_state *state, uint64_t epoch);
/* What that part of the plan is drawn by. */
struct pads_request plan_request(const struct scorer_state *state, const struct plan *plan,
				 uint32_t rank, uint32_t world);
/* A plan from the scores of now, not drawn yet. Free it, also on failure. */
int plan_init(struct plan *plan, const struct scorer_state *state, uint64_t epoch,
	      const uint8_t *resident);
/* Draws into an empty plan; the progress goes on. Free the plan, also on failure. */
int plan_draw(struct plan *plan, const struct scorer_state *state, uint64_t epoch,
	      const uint8_t *resident, struct progress *progress);
void plan_free(struct plan *plan);
int echo_copy(struct pads_echo *to, const struct pads_echo *from);
int planned_copy(struct progress *to, const struct scorer_state *from);

/* A fingerprint of bytes, against accidents. It is no protection against people. */
uint64_t score_hash(uint64_t hash, const void *bytes, size_t size);

/* Opens the module with the kernels. 0 or -ENODEV. */
int module_open(const struct device_ops **ops);

#endif
