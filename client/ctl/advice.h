/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What to do about the figures of a mount: one sentence or two, from the figures alone. */
#ifndef SHADE_CTL_ADVICE_H
#define SHADE_CTL_ADVICE_H

#include <stddef.h>

#include "capacities.h"

/* What is not known is NaN. Shares are from 0 to 1. */
struct advice_figures {
	double accesses;
	double waiting; /* the share of the time in which a reader waited for the source */
	double reclaimed, errors; /* of accesses; of reads of the source */
	double uses;		  /* of a sample that was fetched; 0: not told */
	const struct capacities *capacities;
};

/* Waiting less than this is as good as none. */
#define ADVICE_WAITING 0.05
/* What saves less is not worth a change. */
#define ADVICE_SAVED 0.05

void advice(const struct advice_figures *figures, char *sentence, size_t size);

#endif
