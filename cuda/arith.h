/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Arithmetic that gives the same bits on the CPU and on a GPU, so that both backends rank a
 * batch alike even where two losses are almost equal: single IEEE operations only, no fused
 * multiply-add (-ffp-contract=off, -fmad=false), no function of a library. Compiled as C, as
 * C++ and by nvcc.
 */
#ifndef SHADE_ARITH_H
#define SHADE_ARITH_H

#include <stdint.h>
#include <string.h>

#include "shade/score.h"

#ifdef __CUDACC__
#define ARITH __host__ __device__ static inline
#else
#define ARITH static inline
#endif

/* A row is summed up in this many parts, element i into part i % ARITH_LANES, and the parts by
 * halves: what the lanes of a warp do, and what vectors of any width can do as well. */
#define ARITH_LANES 32

ARITH float arith_from_bits(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

ARITH uint32_t arith_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

ARITH float arith_bfloat16(uint16_t bits)
{
	return arith_from_bits((uint32_t)bits << 16);
}

/* Selects by integers and never computes with a subnormal float: that would be slow, and wrong
 * in a process that flushes them. */
ARITH float arith_float16(uint16_t bits)
{
	uint32_t size = (uint32_t)(bits & 0x7fff) << 13, exponent = bits & 0x7c00;
	uint32_t tiny = 0 - (uint32_t)(exponent == 0), special = 0 - (uint32_t)(exponent == 0x7c00);
	uint32_t plain = size + ((uint32_t)112 << 23) + (special & (uint32_t)112 << 23);
	float rest = arith_from_bits(size + ((uint32_t)113 << 23)) - 0x1p-14f;

	return arith_from_bits((plain & ~tiny) | (arith_bits(rest) & tiny) |
			       (uint32_t)(bits & 0x8000) << 16);
}

ARITH float arith_load(const void *row, uint64_t index, uint32_t dtype)
{
	if (dtype == SHADE_SCORE_F32)
		return ((const float *)row)[index];
	if (dtype == SHADE_SCORE_F16)
		return arith_float16(((const uint16_t *)row)[index]);
	return arith_bfloat16(((const uint16_t *)row)[index]);
}

ARITH float arith_max(float a, float b)
{
	return a > b ? a : b;
}

/* e to a power not above 0, to about 1e-7 of it; what is below e^-87 counts as that. A NaN
 * stays one. The rounding to a whole number is by an addition, which leaves that number in the
 * lowest bits. */
ARITH float arith_exp(float power)
{
	const float round = 12582912.0f; /* 1.5 * 2^23 */
	float x = power < -87.0f ? -87.0f : power;
	float shifted = x * 1.44269504f + round;
	float whole = shifted - round;
	float r = x - whole * 0.693359375f - whole * -2.12194440e-4f;
	float p = 1.9875691500e-4f;

	p = p * r + 1.3981999507e-3f;
	p = p * r + 8.3334519073e-3f;
	p = p * r + 4.1665795894e-2f;
	p = p * r + 1.6666665459e-1f;
	p = p * r + 5.0000001201e-1f;
	p = p * (r * r) + r + 1.0f;
	return p * arith_from_bits((arith_bits(shifted) - arith_bits(round) + 127) << 23);
}

/* The natural logarithm of a finite number from 1 on, to about 1e-15. */
ARITH double arith_log(double value)
{
	uint64_t bits;
	double m, z, z2, sum = 0;
	int exponent, i;

	memcpy(&bits, &value, sizeof(bits));
	exponent = (int)(bits >> 52) - 1023;
	bits = (bits & 0xfffffffffffff) | (uint64_t)1023 << 52;
	memcpy(&m, &bits, sizeof(m));
	if (m > 1.4142135623730951) {
		m *= 0.5;
		exponent++;
	}
	z = (m - 1) / (m + 1);
	z2 = z * z;
	for (i = 21; i > 0; i -= 2)
		sum = sum * z2 + 1.0 / i;
	return exponent * 0.6931471805599453 + 2 * z * sum;
}

/* Cross-entropy from the largest logit of a row, the sum of e^(logit - largest), and the logit
 * of the right class. Not a number if the row has no finite answer. */
ARITH float arith_loss(float largest, float sum, float right)
{
	if (!(sum >= 1.0f && sum < 3.0e38f))
		return arith_from_bits(0x7fc00000);
	return (float)((double)largest + arith_log(sum) - (double)right);
}

ARITH int arith_is_nan(float value)
{
	return (arith_bits(value) & 0x7fffffff) > 0x7f800000;
}

/* The bits of a loss, so that they compare as unsigned numbers; -0 and 0 are equal. */
ARITH uint32_t arith_sortable(float loss)
{
	uint32_t bits = arith_bits(loss + 0.0f);

	return bits & 0x80000000 ? ~bits : bits | 0x80000000;
}

#endif
