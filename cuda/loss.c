/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The CPU's cross-entropy. Loops over ARITH_LANES elements at a time have a constant number of
 * turns, so that compilers make vectors of them; each type of logits has its own copy.
 */
#include "loss.h"

#include <math.h>

#include "arith.h"

#define HALVES_MAX 4096 /* classes of a row that is kept as floats */
#define INLINE static inline __attribute__((always_inline))

/* ARITH_LANES elements as floats. One loop for each step: a loop that does it all is too much
 * for compilers to make vectors of. */
INLINE void load_block(const void *row, uint32_t at, uint32_t dtype, float *restrict block)
{
	uint16_t halves[ARITH_LANES];

	if (dtype == SHADE_SCORE_F32) {
		memcpy(block, (const float *)row + at, ARITH_LANES * sizeof(*block));
		return;
	}
	memcpy(halves, (const uint16_t *)row + at, sizeof(halves));
	for (uint32_t lane = 0; lane < ARITH_LANES; lane++)
		block[lane] = dtype == SHADE_SCORE_F16 ? arith_float16(halves[lane])
						       : arith_bfloat16(halves[lane]);
}

INLINE float row_max(const void *row, uint32_t classes, uint32_t dtype)
{
	float block[ARITH_LANES], lanes[ARITH_LANES], largest = -INFINITY;
	uint32_t i = 0;

	for (uint32_t lane = 0; lane < ARITH_LANES; lane++)
		lanes[lane] = -INFINITY;
	for (; classes - i >= ARITH_LANES; i += ARITH_LANES) {
		load_block(row, i, dtype, block);
		for (uint32_t lane = 0; lane < ARITH_LANES; lane++)
			lanes[lane] = arith_max(block[lane], lanes[lane]);
	}
	for (; i < classes; i++)
		largest = arith_max(arith_load(row, i, dtype), largest);
	for (uint32_t lane = 0; lane < ARITH_LANES; lane++)
		largest = arith_max(lanes[lane], largest);
	return largest;
}

INLINE float row_sum(const void *row, uint32_t classes, uint32_t dtype, float largest)
{
	float block[ARITH_LANES], lanes[ARITH_LANES] = { 0 };
	uint32_t i = 0;

	for (; classes - i >= ARITH_LANES; i += ARITH_LANES) {
		load_block(row, i, dtype, block);
		for (uint32_t lane = 0; lane < ARITH_LANES; lane++)
			lanes[lane] += arith_exp(block[lane] - largest);
	}
	for (uint32_t lane = 0; i + lane < classes; lane++)
		lanes[lane] += arith_exp(arith_load(row, i + lane, dtype) - largest);
	for (uint32_t half = ARITH_LANES / 2; half > 0; half /= 2)
		for (uint32_t lane = 0; lane < half; lane++)
			lanes[lane] += lanes[lane + half];
	return lanes[0];
}

int64_t loss_label(const struct shade_score_batch *batch, uint32_t row)
{
	return batch->label_bytes == 8 ? ((const int64_t *)batch->labels)[row]
				       : ((const int32_t *)batch->labels)[row];
}

INLINE float row_loss(const void *row, uint32_t classes, uint32_t dtype, uint64_t label)
{
	float largest = row_max(row, classes, dtype);

	return arith_loss(largest, row_sum(row, classes, dtype, largest),
			  arith_load(row, label, dtype));
}

/* Halves are made floats once if a row has room here, else twice. */
INLINE float half_loss(const uint16_t *row, uint32_t classes, uint32_t dtype, uint64_t label)
{
	float floats[HALVES_MAX];
	uint32_t i = 0;

	if (classes > HALVES_MAX)
		return row_loss(row, classes, dtype, label);
	for (; classes - i >= ARITH_LANES; i += ARITH_LANES)
		load_block(row, i, dtype, floats + i);
	for (; i < classes; i++)
		floats[i] = arith_load(row, i, dtype);
	return row_loss(floats, classes, SHADE_SCORE_F32, label);
}

void loss_rows(const struct shade_score_batch *batch, float *losses)
{
	uint64_t stride = batch->row_stride ? batch->row_stride : batch->classes;
	uint32_t classes = batch->classes;

	for (uint32_t i = 0; i < batch->count; i++) {
		uint64_t at = i * stride, label = (uint64_t)loss_label(batch, i);

		if (batch->dtype == SHADE_SCORE_F32)
			losses[i] = row_loss((const float *)batch->logits + at, classes,
					     SHADE_SCORE_F32, label);
		else if (batch->dtype == SHADE_SCORE_F16)
			losses[i] = half_loss((const uint16_t *)batch->logits + at, classes,
					      SHADE_SCORE_F16, label);
		else
			losses[i] = half_loss((const uint16_t *)batch->logits + at, classes,
					      SHADE_SCORE_BF16, label);
	}
}
