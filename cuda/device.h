/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What libshade-score asks of a device. The kernels are in a module of their own that is loaded
 * at run time, so that the library works where there is no CUDA; the tests load the same source
 * compiled for an emulated device.
 *
 * Errors are negative errno and a sentence in `why`, of DEVICE_WHY_MAX bytes.
 */
#ifndef SHADE_DEVICE_H
#define SHADE_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "shade/score.h"

#define DEVICE_VERSION 3u
#define DEVICE_WHY_MAX 256
#define DEVICE_IN_FLIGHT_MAX 256			 /* batches */
#define DEVICE_TABLE ((size_t)2 * SHADE_SCORE_BATCH_MAX) /* scores, by twice the rank */

struct device;

enum device_fault {
	DEVICE_FAULT_NAN = 1,  /* a loss is not a number */
	DEVICE_FAULT_LABEL = 2 /* a label is no class */
};

/* A batch that the device is done with; good until the next call. */
struct device_result {
	const uint32_t *ids;
	const float *scores;
	const float *losses;
	uint32_t count;
	uint32_t faults; /* of enum device_fault; not 0: there are no scores */
};

struct device_ops {
	uint32_t version; /* DEVICE_VERSION */
	/* How many devices answer. */
	int (*count)(char *why);
	/* `table` has DEVICE_TABLE scores, by twice the rank; it is copied. */
	int (*open)(struct device **out, int32_t number, const float *table, char *why);
	/* Waits for what is in flight. */
	void (*close)(struct device *device);
	/* Queues a batch, whose `ids` and sizes are checked, and returns. -EAGAIN:
	 * DEVICE_IN_FLIGHT_MAX are in flight. */
	int (*submit)(struct device *device, const struct shade_score_batch *batch, char *why);
	/* Hands the oldest batch over: 1. If none is done: 0, or `wait` for it. */
	int (*take)(struct device *device, int wait, struct device_result *result, char *why);
};

/* The one symbol of a module: a function of this type by this name. */
#define DEVICE_MODULE_SYMBOL "shade_score_device"
typedef const struct device_ops *(*device_module_fn)(void);

#endif
