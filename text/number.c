/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "number.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define REAL_MAX 63 /* digits, point and exponent */

int number_whole(const char *text, size_t length, uint64_t *value)
{
	uint64_t sum = 0;
	int rc = 0;

	if (!length)
		return -EINVAL;
	for (size_t i = 0; i < length; i++) {
		if (text[i] < '0' || text[i] > '9')
			return -EINVAL;
		if (__builtin_mul_overflow(sum, 10, &sum) ||
		    __builtin_add_overflow(sum, (uint64_t)(text[i] - '0'), &sum))
			rc = -ERANGE;
	}
	if (!rc)
		*value = sum;
	return rc;
}

/* strtod() reads a decimal point only as long as nobody sets LC_NUMERIC. */
int number_real(const char *text, size_t length, double *value)
{
	char copy[REAL_MAX + 1];
	double read;
	char *end;

	if (!length || length > REAL_MAX)
		return -EINVAL;
	memcpy(copy, text, length);
	copy[length] = '\0';
	if (strspn(copy, "0123456789.eE+-") != length)
		return -EINVAL;
	read = strtod(copy, &end);
	if (*end)
		return -EINVAL;
	if (!isfinite(read))
		return -ERANGE;
	*value = read;
	return 0;
}
