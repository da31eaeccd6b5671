/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What shade-sim run is asked for. */
#ifndef SHADE_SIM_RUN_H
#define SHADE_SIM_RUN_H

#include <stdbool.h>

#include "args.h"
#include "report.h"
#include "shade/pads.h"

#define RUN_NODES_MAX 256

struct run_options {
	uint32_t samples, epochs, batch, lookahead;
	uint32_t nodes;
	struct size capacities[RUN_NODES_MAX]; /* by node */
	uint32_t ranks[RUN_NODES_MAX];	       /* by node */
	uint32_t world;			       /* all of them */
	uint32_t block;			       /* entries of a rank in a window; 0: the default */
	double mix;
	bool stride;	  /* the ranks take turns, whatever a node has in memory */
	uint32_t restart; /* the epoch in which node 0 begins with nothing; 0: none */
	struct args_policies policies;
	struct pads_request request; /* what does not change from draw to draw */
	const char *losses;
	const char *freeze;
	enum report_format format;
	bool by_epoch; /* report each epoch apart */

	uint32_t capacity_count, rank_count; /* for run_args.c: as many were given */
};

/* Exits with a sentence if an option is wrong. */
void run_parse(struct run_options *options, int argc, char **argv);

#endif
