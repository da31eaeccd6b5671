/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Powers that are the same on every machine: IEEE operations only, no libm. */
#ifndef SHADE_PLAIN_H
#define SHADE_PLAIN_H

#include <math.h>

/* log2 of a value in (0, 1], to about 1e-12. */
static inline double plain_log2(double value)
{
	int exponent;
	double m = frexp(value, &exponent), z = (m - 1) / (m + 1), z2 = z * z, sum = 0;

	for (int i = 35; i > 0; i -= 2)
		sum = sum * z2 + 1.0 / i;
	return exponent + 2 * z * sum * 1.4426950408889634;
}

/* 2 to a power not above 0. */
static inline double plain_exp2(double power)
{
	/* Less than that is 0, and may be less than an int can be. */
	int whole = power > -2000 ? (int)power : -2000;
	double x = (power > -2000 ? power - whole : 0) * 0.6931471805599453, sum = 1;

	for (int i = 18; i > 0; i--)
		sum = 1 + sum * x / i;
	return ldexp(sum, whole);
}

#endif
