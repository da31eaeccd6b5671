/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the draw of mode pads (pads_mixed.c) and its weights (pads_weights.c) share. */
#ifndef SHADE_MIXED_H
#define SHADE_MIXED_H

#include "draw.h"
#include "multinomial.h"

struct mixed {
	const struct pads_request *request;
	struct multinomial weights;
	uint32_t *counts;	 /* entries of each sample so far */
	uint64_t *turn;		 /* bitmap: whose turn it is */
	struct draw_list must;	 /* candidates for step 1 */
	struct draw_list choice; /* candidates for the rest */
	struct draw_list whole;
};

/* 0 or -ENOMEM; mixed_free() in both cases. */
int mixed_init(struct mixed *m, const struct pads_request *request);
void mixed_free(struct mixed *m);
/* Step 1. */
void mixed_take_must(struct mixed *m);

/* Entries that the epoch still needs. */
static inline size_t mixed_missing(const struct mixed *m)
{
	return m->request->draws - m->whole.count;
}

#endif
