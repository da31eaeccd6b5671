/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A set of positions, 0 to n-1, that knows its largest member.
 *
 * A tree of bitmaps with 64 children a node: a word says which of the 64 words below
 * it are not empty. Every operation touches at most five words, and the whole set takes
 * 1.02 bits a position, so that it stays in the processor's cache where a heap of
 * millions would not. That is what keeps the cost of `shade` flat.
 */
#ifndef SHADE_POSSET_H
#define SHADE_POSSET_H

#include <stdbool.h>
#include <stdint.h>

#define POSSET_LEVELS 5 /* 64^5 positions are enough for SCHED_ORDER_MAX */
#define POSSET_NONE UINT32_MAX

struct posset {
	uint64_t *level[POSSET_LEVELS]; /* level 0: a bit a position */
	unsigned levels;
	uint32_t positions;
};

/* 0 or -ENOMEM. */
int posset_init(struct posset *set, uint32_t positions);
void posset_free(struct posset *set);
/* The memory that it takes. */
uint64_t posset_bytes(const struct posset *set);
void posset_clear(struct posset *set);
void posset_add(struct posset *set, uint32_t position);
void posset_remove(struct posset *set, uint32_t position);
bool posset_has(const struct posset *set, uint32_t position);
/* The largest member, or POSSET_NONE. */
uint32_t posset_max(const struct posset *set);
/* The next smaller member than `position` if it is in the same word, else POSSET_NONE: a
 * guess that costs nothing. */
uint32_t posset_near_below(const struct posset *set, uint32_t position);

#endif
