/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The kernels. Compiled by nvcc, and by g++ for the emulated device of the tests; so only what
 * both have is used here, and LAUNCH() instead of <<< >>>.
 */
#ifndef SHADE_KERNELS_H
#define SHADE_KERNELS_H

#include "arith.h"
#include "device.h"
#include "shade/pads.h"

#define LOSS_THREADS 128 /* rows of a block times ARITH_LANES */
#define RANK_THREADS 256 /* also the losses that are in shared memory at a time */
#define ALL_LANES 0xffffffffu

struct rows {
	const void *logits;
	uint64_t stride; /* elements */
	const void *labels;
	uint32_t classes;
	uint32_t count;
};

/* The largest and the sum over the lanes of a warp; every lane gets the same. Each pair adds
 * the same two numbers, so all lanes have the same bits, and those of loss.c. */
__device__ static inline float warp_max(float value)
{
	for (int half = ARITH_LANES / 2; half > 0; half /= 2)
		value = arith_max(__shfl_xor_sync(ALL_LANES, value, half), value);
	return value;
}

__device__ static inline float warp_sum(float value)
{
	for (int half = ARITH_LANES / 2; half > 0; half /= 2)
		value += __shfl_xor_sync(ALL_LANES, value, half);
	return value;
}

/* Cross-entropy, a warp for each row. */
template <int DTYPE, typename LABEL>
__global__ void loss_kernel(struct rows rows, float *losses, uint32_t *faults)
{
	const uint32_t lane = threadIdx.x % ARITH_LANES;
	const uint32_t row = (blockIdx.x * blockDim.x + threadIdx.x) / ARITH_LANES;
	const uint64_t bytes = DTYPE == SHADE_SCORE_F32 ? 4 : 2;

	/* All lanes of a warp have the same row: they leave together. */
	if (row >= rows.count)
		return;

	const char *at = (const char *)rows.logits + row * rows.stride * bytes;
	float largest = -INFINITY, sum = 0;

	for (uint64_t i = lane; i < rows.classes; i += ARITH_LANES)
		largest = arith_max(arith_load(at, i, DTYPE), largest);
	largest = warp_max(largest);
	for (uint64_t i = lane; i < rows.classes; i += ARITH_LANES)
		sum += arith_exp(arith_load(at, i, DTYPE) - largest);
	sum = warp_sum(sum);
	if (lane != 0)
		return;

	const int64_t label = ((const LABEL *)rows.labels)[row];

	if (label < 0 || label >= (int64_t)rows.classes) {
		atomicOr(faults, (uint32_t)DEVICE_FAULT_LABEL);
		losses[row] = 0;
		return;
	}
	losses[row] = arith_loss(largest, sum, arith_load(at, (uint64_t)label, DTYPE));
}

/* Scores: each thread counts the losses that are less than its own or equal to it. That is count^2
 * comparisons, which for a batch of thousands is less than the launches of a sort. `table` is by
 * twice the rank. */
__global__ void rank_kernel(const float *losses, uint32_t count, const float *table, float *scores,
			    uint32_t *faults)
{
	__shared__ uint32_t tile[RANK_THREADS];
	const uint32_t own = blockIdx.x * RANK_THREADS + threadIdx.x;
	const float loss = own < count ? losses[own] : 0;
	const uint32_t key = arith_sortable(loss);
	uint32_t less = 0, equal = 0;

	for (uint32_t from = 0; from < count; from += RANK_THREADS) {
		const uint32_t here = count - from < RANK_THREADS ? count - from : RANK_THREADS;

		if (threadIdx.x < here)
			tile[threadIdx.x] = arith_sortable(losses[from + threadIdx.x]);
		__syncthreads();
		for (uint32_t i = 0; i < here; i++) {
			less += tile[i] < key;
			equal += tile[i] == key;
		}
		/* No thread overwrites what another one still reads. */
		__syncthreads();
	}
	if (own >= count)
		return;
	if (arith_is_nan(loss))
		atomicOr(faults, (uint32_t)DEVICE_FAULT_NAN);
	scores[own] = table[PADS_TWICE_RANK(less, equal, count)];
}

/* A batch with a fault has no scores, and code that reads them on the device must see that without
 * asking the host. This is a launch of its own, because all faults are known only then. */
__global__ void withhold_kernel(const uint32_t *faults, uint32_t count, float *scores)
{
	const uint32_t own = blockIdx.x * blockDim.x + threadIdx.x;

	if (own < count && *faults)
		scores[own] = SHADE_SCORE_NONE;
}

#endif
