/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Bars and charts of characters. Without UTF-8 they are made of ASCII. */
#ifndef SHADE_CTL_CHART_H
#define SHADE_CTL_CHART_H

#include <stdbool.h>
#include <stdio.h>

/* Whether the locale has block characters. */
bool chart_has_blocks(void);

/* A bar of WIDTH cells, FRACTION of them full; empty if that is NaN. */
void chart_bar(FILE *out, double fraction, unsigned width, bool blocks);

/*
 * Row ROW of ROWS, 0 is the top, of a chart of COUNT fractions, a column each. NaN leaves its
 * column empty.
 */
void chart_row(FILE *out, const double *fractions, unsigned count, unsigned row, unsigned rows,
	       bool blocks);

/* How many cells TEXT takes; every character is taken for one. */
size_t chart_cells(const char *text, size_t length);

/* The length of the part of TEXT that fits into CELLS. */
size_t chart_fit(const char *text, size_t length, size_t cells);

#endif
