/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Charts as inline SVG. They are 360 units wide, so that their text can be read on a phone, and
 * take colours and dashes from the page's style by classes: `s0`, `s1`... for series.
 */
#ifndef SHADE_CTL_SVG_H
#define SHADE_CTL_SVG_H

#include <stdbool.h>
#include <stdio.h>

#define SVG_SERIES_MAX 6

enum svg_unit { SVG_PERCENT, SVG_COUNT, SVG_BYTES };

struct svg_series {
	const char *name;
	const double *values; /* NaN: none */
	unsigned style;	      /* which class it has */
};

struct svg_chart {
	const char *title;   /* for who cannot see it */
	const char *x_label; /* below */
	const char *y_label; /* above the axis */
	enum svg_unit unit;
	unsigned count;		   /* of values in each series */
	const double *x;	   /* increasing; NULL: 0, 1, 2... */
	const char *const *x_text; /* of each value */
	struct svg_series series[SVG_SERIES_MAX];
	unsigned series_count;
	double marked; /* x of a line from top to bottom; NaN: none */
};

/* Lines from value to value. */
void svg_lines(FILE *out, const struct svg_chart *chart);
/* Bars, with the series on top of each other; x is not used. */
void svg_bars(FILE *out, const struct svg_chart *chart);
/* What the series are, as a list. */
void svg_legend(FILE *out, const struct svg_chart *chart);

/* The end of an axis that has room for `most`, in `*steps` steps of a round number. */
double svg_round_up(double most, unsigned *steps);

#endif
