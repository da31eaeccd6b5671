/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Batches on a device. Each batch in flight has a set of buffers: its ids, room for losses and
 * scores on the device, pinned memory that these are copied to, and an event behind the copy.
 * Submitting only queues; a batch is handed over once its event has passed. The set that was freed
 * last is used first, so that a training that the device keeps up with uses two or three sets, and
 * only the first use of a set allocates.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

#ifndef SHADE_EMULATE
#include <cuda_runtime.h>
#define LAUNCH(kernel, grid, block, stream, ...) kernel<<<grid, block, 0, stream>>>(__VA_ARGS__)
#endif

struct buffers {
	uint32_t *ids;
	uint32_t *words; /* on the device: faults, then the scores, then the losses */
	uint32_t *host;	 /* their copy, pinned */
	cudaEvent_t done;
	uint32_t count, room;
	bool has_event;
};

struct device {
	int number;
	float *table; /* on the device */
	struct buffers buffers[DEVICE_IN_FLIGHT_MAX];
	uint32_t free[DEVICE_IN_FLIGHT_MAX]; /* a stack of sets that are not in use */
	uint32_t free_count;
	uint32_t queue[DEVICE_IN_FLIGHT_MAX]; /* a ring of sets in flight, oldest first */
	uint32_t queue_first, queue_count;
	uint32_t handed; /* the set that the last result is in, or NOBODY */
};

#define NOBODY UINT32_MAX

static int fail(char *why, cudaError_t error, int code)
{
	(void)cudaGetLastError();
	snprintf(why, DEVICE_WHY_MAX, "%s", cudaGetErrorString(error));
	return code;
}

/* The scorer's device is the current one of this thread for as long as the object lives. */
class on_device
{
      public:
	explicit on_device(int number)
	{
		error = cudaGetDevice(&before);
		if (error != cudaSuccess)
			before = number;
		else if (before != number)
			error = cudaSetDevice(number);
		here = number;
	}
	~on_device()
	{
		if (before != here)
			(void)cudaSetDevice(before);
	}
	cudaError_t error = cudaSuccess;

      private:
	int before = -1, here;
};

/* --- buffers ------------------------------------------------------------------------------ */

static void buffers_free(struct buffers *buffers)
{
	free(buffers->ids);
	(void)cudaFree(buffers->words);
	(void)cudaFreeHost(buffers->host);
	buffers->ids = NULL;
	buffers->words = buffers->host = NULL;
	buffers->room = 0;
}

/* A word of faults, and a score and a loss for each sample. */
static size_t words_of(uint32_t count)
{
	return 1 + 2 * (size_t)count;
}

static cudaError_t buffers_allocate(struct buffers *buffers, uint32_t count)
{
	cudaError_t error = cudaSuccess;

	buffers_free(buffers);
	buffers->ids = (uint32_t *)malloc(count * sizeof(*buffers->ids));
	if (!buffers->ids)
		return cudaErrorMemoryAllocation;
	error = cudaMalloc((void **)&buffers->words, words_of(count) * 4);
	if (error == cudaSuccess)
		error = cudaMallocHost((void **)&buffers->host, words_of(count) * 4);
	if (error == cudaSuccess)
		buffers->room = count;
	else
		buffers_free(buffers);
	return error;
}

/* -ENOMEM does not make the device unusable: a training uses almost all of its memory, and may
 * leave enough for the next batch. */
static int buffers_reserve(struct buffers *buffers, uint32_t count, char *why)
{
	cudaError_t error = cudaSuccess;

	if (!buffers->has_event) {
		error = cudaEventCreateWithFlags(&buffers->done, cudaEventDisableTiming);
		buffers->has_event = error == cudaSuccess;
	}
	if (error == cudaSuccess && buffers->room < count)
		error = buffers_allocate(buffers, count);
	if (error == cudaSuccess)
		return 0;
	return fail(why, error, error == cudaErrorMemoryAllocation ? -ENOMEM : -EIO);
}

/* --- launches ----------------------------------------------------------------------------- */

template <int DTYPE>
static void launch_loss(const struct shade_score_batch *batch, float *losses, uint32_t *faults)
{
	struct rows rows = { batch->logits, batch->row_stride ? batch->row_stride : batch->classes,
			     batch->labels, batch->classes, batch->count };
	const uint32_t rows_a_block = LOSS_THREADS / ARITH_LANES;
	const uint32_t grid = (batch->count + rows_a_block - 1) / rows_a_block;
	cudaStream_t stream = (cudaStream_t)batch->stream;

	if (batch->label_bytes == 8)
		LAUNCH((loss_kernel<DTYPE, int64_t>), grid, LOSS_THREADS, stream, rows, losses,
		       faults);
	else
		LAUNCH((loss_kernel<DTYPE, int32_t>), grid, LOSS_THREADS, stream, rows, losses,
		       faults);
}

static float *losses_of(const struct buffers *buffers, uint32_t *words)
{
	return (float *)(words + 1 + buffers->count);
}

/* Losses that were given are there already. */
static void launch(const struct device *device, const struct shade_score_batch *batch,
		   struct buffers *buffers)
{
	cudaStream_t stream = (cudaStream_t)batch->stream;
	float *losses = losses_of(buffers, buffers->words);
	float *scores = (float *)(buffers->words + 1);
	const uint32_t grid = (batch->count + RANK_THREADS - 1) / RANK_THREADS;

	if (batch->logits && batch->dtype == SHADE_SCORE_F32)
		launch_loss<SHADE_SCORE_F32>(batch, losses, buffers->words);
	else if (batch->logits && batch->dtype == SHADE_SCORE_F16)
		launch_loss<SHADE_SCORE_F16>(batch, losses, buffers->words);
	else if (batch->logits)
		launch_loss<SHADE_SCORE_BF16>(batch, losses, buffers->words);
	LAUNCH(rank_kernel, grid, RANK_THREADS, stream, losses, batch->count, device->table, scores,
	       buffers->words);
	LAUNCH(withhold_kernel, grid, RANK_THREADS, stream, buffers->words, batch->count, scores);
}

/* Queues all the work of a batch. */
static cudaError_t queue_batch(const struct device *device, const struct shade_score_batch *batch,
			       struct buffers *buffers)
{
	cudaStream_t stream = (cudaStream_t)batch->stream;
	size_t bytes = batch->count * sizeof(float);
	float *losses = losses_of(buffers, buffers->words);
	cudaError_t error = cudaMemsetAsync(buffers->words, 0, 4, stream);

	if (error == cudaSuccess && !batch->logits)
		error = cudaMemcpyAsync(losses, batch->losses, bytes, cudaMemcpyDeviceToDevice,
					stream);
	if (error != cudaSuccess)
		return error;
	/* Clears an error that other code of the process has left. */
	(void)cudaGetLastError();
	launch(device, batch, buffers);
	error = cudaGetLastError();
	if (error == cudaSuccess && batch->losses_out)
		error = cudaMemcpyAsync(batch->losses_out, losses, bytes, cudaMemcpyDeviceToDevice,
					stream);
	if (error == cudaSuccess && batch->scores_out)
		error = cudaMemcpyAsync(batch->scores_out, buffers->words + 1, bytes,
					cudaMemcpyDeviceToDevice, stream);
	if (error == cudaSuccess)
		error = cudaMemcpyAsync(buffers->host, buffers->words, words_of(batch->count) * 4,
					cudaMemcpyDeviceToHost, stream);
	if (error == cudaSuccess)
		error = cudaEventRecord(buffers->done, stream);
	return error;
}

/* --- what the scorer calls ------------------------------------------------------------------ */

static int device_count(char *why)
{
	int count = 0;
	cudaError_t error = cudaGetDeviceCount(&count);

	if (error != cudaSuccess)
		return fail(why, error, -ENODEV);
	if (!count)
		snprintf(why, DEVICE_WHY_MAX, "the driver has none");
	return count;
}

static void device_close(struct device *device)
{
	on_device here(device->number);

	/* This waits for a batch that was queued only in part as well. */
	(void)cudaDeviceSynchronize();
	for (uint32_t i = 0; i < DEVICE_IN_FLIGHT_MAX; i++) {
		buffers_free(&device->buffers[i]);
		if (device->buffers[i].has_event)
			(void)cudaEventDestroy(device->buffers[i].done);
	}
	(void)cudaFree(device->table);
	free(device);
}

static int device_open(struct device **out, int32_t number, const float *table, char *why)
{
	const size_t bytes = DEVICE_TABLE * sizeof(*table);
	struct device *device = (struct device *)calloc(1, sizeof(*device));
	cudaError_t error = cudaSuccess;

	if (!device)
		return fail(why, cudaErrorMemoryAllocation, -ENOMEM);
	device->number = number;
	device->handed = NOBODY;
	for (uint32_t i = DEVICE_IN_FLIGHT_MAX; i > 0; i--)
		device->free[device->free_count++] = i - 1;
	if (number < 0)
		error = cudaGetDevice(&device->number);
	if (error == cudaSuccess) {
		on_device here(device->number);

		error = here.error;
		if (error == cudaSuccess)
			error = cudaMalloc((void **)&device->table, bytes);
		if (error == cudaSuccess)
			error = cudaMemcpy(device->table, table, bytes, cudaMemcpyHostToDevice);
	}
	if (error != cudaSuccess) {
		device_close(device);
		return fail(why, error, error == cudaErrorMemoryAllocation ? -ENOMEM : -ENODEV);
	}
	*out = device;
	return 0;
}

/* The caller is done with the last result: its buffers are free. */
static void release_handed(struct device *device)
{
	if (device->handed != NOBODY)
		device->free[device->free_count++] = device->handed;
	device->handed = NOBODY;
}

static int device_submit(struct device *device, const struct shade_score_batch *batch, char *why)
{
	on_device here(device->number);
	struct buffers *buffers;
	cudaError_t error;
	uint32_t index;
	int rc;

	release_handed(device);
	if (!device->free_count)
		return -EAGAIN;
	index = device->free[device->free_count - 1];
	buffers = &device->buffers[index];
	rc = here.error == cudaSuccess ? buffers_reserve(buffers, batch->count, why)
				       : fail(why, here.error, -EIO);
	if (rc)
		return rc;
	buffers->count = batch->count;
	memcpy(buffers->ids, batch->ids, batch->count * sizeof(*buffers->ids));
	error = queue_batch(device, batch, buffers);
	if (error != cudaSuccess)
		return fail(why, error, -EIO);
	device->free_count--;
	device->queue[(device->queue_first + device->queue_count++) % DEVICE_IN_FLIGHT_MAX] = index;
	return 0;
}

static int device_take(struct device *device, int wait, struct device_result *result, char *why)
{
	on_device here(device->number);
	struct buffers *buffers;
	cudaError_t error;

	release_handed(device);
	if (here.error != cudaSuccess)
		return fail(why, here.error, -EIO);
	if (!device->queue_count)
		return 0;
	buffers = &device->buffers[device->queue[device->queue_first]];
	error = wait ? cudaEventSynchronize(buffers->done) : cudaEventQuery(buffers->done);
	if (error == cudaErrorNotReady) {
		(void)cudaGetLastError();
		return 0;
	}
	if (error != cudaSuccess)
		return fail(why, error, -EIO);
	device->handed = device->queue[device->queue_first];
	device->queue_first = (device->queue_first + 1) % DEVICE_IN_FLIGHT_MAX;
	device->queue_count--;
	result->ids = buffers->ids;
	result->scores = (const float *)(buffers->host + 1);
	result->losses = losses_of(buffers, buffers->host);
	result->count = buffers->count;
	result->faults = buffers->host[0];
	return 1;
}

static const struct device_ops ops = { DEVICE_VERSION, device_count,  device_open,
				       device_close,   device_submit, device_take };

extern "C" __attribute__((visibility("default"))) const struct device_ops *shade_score_device(void);

const struct device_ops *shade_score_device(void)
{
	return &ops;
}
