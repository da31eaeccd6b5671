/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A histogram over a range that need not be known beforehand. */
#include "histogram.h"

#include <math.h>
#include <string.h>

void histogram_clear(struct histogram *histogram)
{
	memset(histogram, 0, sizeof(*histogram));
	histogram->width = 0x1p-40;
}

static void add(struct histogram_bin *to, const struct histogram_bin *from)
{
	to->samples += from->samples;
	to->resident += from->resident;
}

static void widen(struct histogram *histogram)
{
	struct histogram_bin *bins = histogram->bins;

	histogram->width *= 2;
	for (size_t i = 0; i < HISTOGRAM_BINS / 2; i++) {
		struct histogram_bin both = bins[2 * i];

		add(&both, &bins[2 * i + 1]);
		bins[i] = both;
	}
	memset(bins + HISTOGRAM_BINS / 2, 0, HISTOGRAM_BINS / 2 * sizeof(*bins));
}

void histogram_add(struct histogram *histogram, double value, bool resident)
{
	const struct histogram_bin one = { 1, resident };

	if (!(value >= 0) || !isfinite(value)) {
		add(&histogram->unscored, &one);
		return;
	}
	while (value >= histogram->width * HISTOGRAM_BINS)
		widen(histogram);
	add(&histogram->bins[(unsigned)(value / histogram->width)], &one);
}

unsigned histogram_rows(const struct histogram *histogram, struct histogram_row *row, unsigned rows)
{
	const struct histogram_bin *bins = histogram->bins;
	unsigned first = 0;
	unsigned end = HISTOGRAM_BINS;
	unsigned step;
	unsigned count = 0;

	while (first < end && !bins[first].samples)
		first++;
	while (end > first && !bins[end - 1].samples)
		end--;
	if (first == end || !rows)
		return 0;
	step = (end - first + rows - 1) / rows;
	for (unsigned at = first; at < end; at += step, count++) {
		row[count] = (struct histogram_row){ .from = at * histogram->width,
						     .to = (at + step) * histogram->width };
		for (unsigned i = at; i < at + step && i < end; i++)
			add(&row[count].sum, &bins[i]);
	}
	return count;
}
