/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What shade-sim run is asked for. */
#ifndef SHADE_SIM_RUN_H
#define SHADE_SIM_RUN_H

#include <stdbool.h>

#include "args.h"
#include "report.h"
#include "shade/pads.h"
#include "shade/skip.h"

#define RUN_NODES_MAX 256

/* Which node reads an entry, and whose cache is asked. */
enum run_assign {
	RUN_OWNER,  /* the node that has read the sample last; its own */
	RUN_STRIDE, /* the ranks take turns, whatever a node has in memory; its own */
	RUN_HASH,   /* the ranks take turns; that of the node that the sample's hash names */
};

/* What leaving samples out (shade/skip.h) is for. */
enum run_skip {
	RUN_SKIP_NOTHING,
	RUN_SKIP_READS,	  /* the order is without them, and of no other sampler */
	RUN_SKIP_STREAM,  /* the stream that echo takes samples from is */
	RUN_SKIP_COMPUTE, /* all are read, and the training does not compute with them */
};

struct run_options {
	uint32_t samples, epochs, batch, lookahead;
	uint32_t nodes;
	struct size capacities[RUN_NODES_MAX]; /* by node */
	uint32_t ranks[RUN_NODES_MAX];	       /* by node */
	uint32_t world;			       /* all of them */
	uint32_t block;			       /* entries of a rank in a window; 0: the default */
	double mix;
	enum run_assign assign;
	bool quiver;	  /* batches are taken by quiver.h; with RUN_HASH */
	uint32_t restart; /* the epoch in which node 0 begins with nothing; 0: none */
	struct args_policies policies;
	struct pads_request request; /* what does not change from draw to draw */
	enum run_skip skips;
	struct skip_request skip; /* the same of it */
	const char *losses;
	const char *freeze;
	enum report_format format;
	bool by_epoch; /* report each epoch apart */

	bool prune;			     /* for run_args.c: --prune was given */
	uint32_t capacity_count, rank_count; /* for run_complete(): as many were given */
};

/* Exits with a sentence if an option is wrong. */
void run_parse(struct run_options *options, int argc, char **argv);

/* Spreads what was given for the first node over the others, and fills in what follows from it.
 * Exits if there are more ranks than samples. */
void run_complete(struct run_options *options);

#endif
