/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Where a score stands among all scores of a training, from 0 to 1: what scores of different
 * trainings can be compared by.
 *
 * Scores are counted in classes, 256 to each power of two, as they come. What percentiles_of() says
 * changes only with percentiles_freeze(), so that who is sorted by it stays sorted between.
 */
#ifndef SHADE_PERCENTILES_H
#define SHADE_PERCENTILES_H

#include <stdint.h>

struct percentiles {
	uint32_t *counts; /* of each class, now */
	uint32_t *below;  /* scores in lower classes, when they were frozen */
	uint32_t total;	  /* scores at that time */
};

/* 0 or -ENOMEM. */
int percentiles_init(struct percentiles *p);
void percentiles_free(struct percentiles *p);

/* Scores are finite and not negative. */
void percentiles_add(struct percentiles *p, float score);
void percentiles_remove(struct percentiles *p, float score);
/* As the scores that `of` has counted are distributed now. */
void percentiles_freeze(struct percentiles *p, const struct percentiles *of);
/* The middle of the class that the score is in, as a share of all; 0.5 if there were none. */
float percentiles_of(const struct percentiles *p, float score);

#endif
