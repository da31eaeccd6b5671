/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Characters as pictures: eighths of a block, or in ASCII thirds of a cell. */
#include "chart.h"

#include <langinfo.h>
#include <math.h>
#include <string.h>

bool chart_has_blocks(void)
{
	return !strcmp(nl_langinfo(CODESET), "UTF-8");
}

static double clamp(double fraction)
{
	return fraction > 0 ? fmin(fraction, 1) : 0;
}

void chart_bar(FILE *out, double fraction, unsigned width, bool blocks)
{
	static const char *const part[] = { "", "▏", "▎", "▍", "▌", "▋", "▊", "▉" };
	unsigned eighths = (unsigned)lround(clamp(fraction) * width * 8);
	unsigned full = blocks ? eighths / 8 : (eighths + 4) / 8;
	unsigned rest = blocks ? eighths % 8 : 0;

	for (unsigned i = 0; i < full; i++)
		fputs(blocks ? "█" : "#", out);
	fputs(part[rest], out);
	for (unsigned i = full + (rest > 0); i < width; i++)
		fputs(blocks ? "░" : ".", out);
}

void chart_row(FILE *out, const double *fractions, unsigned count, unsigned row, unsigned rows,
	       bool blocks)
{
	static const char *const block[] = { " ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
	static const char *const ascii[] = { " ", ".", ":", "#" };
	const char *const *cells = blocks ? block : ascii;
	long steps = blocks ? 8 : 3;

	for (unsigned i = 0; i < count; i++) {
		long height = lround(clamp(fractions[i]) * rows * (double)steps);
		long here = height - (long)(rows - 1 - row) * steps;

		/* A ratio of 0 is not the same as no accesses. */
		if (!isnan(fractions[i]) && row == rows - 1 && here < 1)
			here = 1;
		fputs(cells[here < 0 ? 0 : here > steps ? steps : here], out);
	}
}

static bool begins_character(char byte)
{
	return ((unsigned char)byte & 0xc0) != 0x80;
}

size_t chart_cells(const char *text, size_t length)
{
	size_t cells = 0;

	for (size_t i = 0; i < length; i++)
		cells += begins_character(text[i]);
	return cells;
}

size_t chart_fit(const char *text, size_t length, size_t cells)
{
	for (size_t i = 0; i < length; i++)
		if (begins_character(text[i]) && !cells--)
			return i;
	return length;
}
