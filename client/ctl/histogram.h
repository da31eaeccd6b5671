/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* How many samples there are of each score, and how many of them are resident. */
#ifndef SHADE_CTL_HISTOGRAM_H
#define SHADE_CTL_HISTOGRAM_H

#include <stdbool.h>

#define HISTOGRAM_BINS 1024
#define HISTOGRAM_ROWS_MAX 16

struct histogram_bin {
	unsigned long samples;
	unsigned long resident;
};

/*
 * Takes values as they come, in bounded memory: bins are of equal width from 0 on, and the width
 * doubles whenever a value is beyond the last.
 */
struct histogram {
	double width;
	struct histogram_bin unscored; /* and what is not a number */
	struct histogram_bin bins[HISTOGRAM_BINS];
};

/* A part of the range that is taken. */
struct histogram_row {
	double from;
	double to;
	struct histogram_bin sum;
};

void histogram_clear(struct histogram *histogram);
void histogram_add(struct histogram *histogram, double value, bool resident);

/* Sums up into at most ROWS rows, the smallest scores first. Returns how many there are. */
unsigned histogram_rows(const struct histogram *histogram, struct histogram_row *row,
			unsigned rows);

#endif
