/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The scores of a mount, as a histogram. */
#ifndef SHADE_CTL_SCORES_H
#define SHADE_CTL_SCORES_H

#include "histogram.h"
#include "mount.h"

/* Reads .shade/scores line by line, for at most PATIENCE seconds: whoever serves it may never end.
 * A mount without it has no scores. */
void scores_take(const struct mount *mount, struct histogram *scores, double patience);

#endif
