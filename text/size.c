/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "size.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "number.h"

/* The power of two that a letter at the end stands for, or 0: it is no such letter. */
static unsigned unit_shift(char letter)
{
	static const char units[] = "KMGT";
	const char *unit = letter ? strchr(units, toupper((unsigned char)letter)) : NULL;

	return unit ? 10 * (unsigned)(unit - units + 1) : 0;
}

static int parse_share(const char *text, size_t length, double *share)
{
	double percent;

	if (number_real(text, length, &percent) || !(percent > 0 && percent <= 100))
		return -EINVAL;
	*share = percent / 100;
	return *share > 0 ? 0 : -EINVAL;
}

int size_parse(const char *text, size_t length, struct size *size)
{
	unsigned shift;

	*size = (struct size){ 0 };
	if (!length)
		return -EINVAL;
	if (text[length - 1] == '%')
		return parse_share(text, length - 1, &size->share);
	shift = unit_shift(text[length - 1]);
	if (number_whole(text, length - (shift > 0), &size->bytes) ||
	    __builtin_mul_overflow(size->bytes, (uint64_t)1 << shift, &size->bytes))
		return -EINVAL;
	return 0;
}
