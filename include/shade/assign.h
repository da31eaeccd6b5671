/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who reads what: the parts of one order for the ranks of many machines.
 *
 * Data-parallel training cares which samples a global step has, not which rank reads which. So an
 * entry goes to the node that has read its sample last, and most likely still has it in memory.
 * Nobody has to tell what is resident where: every rank draws the same orders, assigns them by the
 * same rule, and so knows who has read what.
 *
 * A node is a set of ranks that share a cache. The order is cut into windows, in which every rank
 * gets equally many entries. Of a node that would get too many, those entries move that were not
 * read for the longest time.
 */
#ifndef SHADE_ASSIGN_H
#define SHADE_ASSIGN_H

#include <stdint.h>

#define ASSIGN_NODES_MAX 65535
#define ASSIGN_NOBODY UINT16_MAX
#define ASSIGN_BLOCK 1024 /* entries of a rank in a window, unless told */

/* What is carried from order to order. Zero it to begin; plain data, to be saved. */
struct assign_state {
	uint32_t samples;
	uint64_t position; /* entries assigned so far */
	uint16_t *owner;   /* by id, malloc'd: the node that has read it last, or ASSIGN_NOBODY */
	uint64_t *last;	   /* by id, malloc'd: the position at which it did */
};

struct assign_request {
	uint32_t world;		 /* ranks */
	const uint32_t *node_of; /* by rank; NULL: all share one node */
	uint32_t block;		 /* entries of a rank in a window; 0: ASSIGN_BLOCK */
	/* The share of entries that go to any node, drawn anew for each order: for models that
	 * would notice that a node sees the same samples in each epoch. */
	double mix;
	uint64_t seed, epoch; /* of that draw */
};

/* Makes room for more samples, which nobody has read. 0, -EINVAL or -ENOMEM. */
int assign_grow(struct assign_state *state, uint32_t samples);
/* The state is lost, and the nodes have been in use: every rank guesses the same owners. */
void assign_guess(struct assign_state *state, uint32_t nodes);
void assign_free(struct assign_state *state);

/* The entries of a rank's part of `count`. */
uint32_t assign_length(const struct assign_request *request, uint32_t count, uint32_t rank);

/* Splits an order, and advances the state by it. `parts` gets the same entries, first those of rank
 * 0, then those of rank 1 and so on, each in the sequence of the order. 0, -EINVAL (a request that
 * makes no sense, or a sample that is not known) or -ENOMEM; on failure nothing changes. */
int assign_order(struct assign_state *state, const struct assign_request *request,
		 const uint32_t *order, uint32_t count, uint32_t *parts);

#endif
