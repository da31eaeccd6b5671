/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The losses that a training would see: modelled, or recorded from a real one. */
#ifndef SHADE_SIM_LOSSES_H
#define SHADE_SIM_LOSSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct recorded {
	uint64_t epoch;
	uint32_t id;
	float loss;
};

struct losses {
	uint64_t seed;
	uint32_t samples;
	float *difficulty; /* modelled */
	uint32_t *visits;
	struct recorded *recorded; /* by id, then epoch; NULL: modelled */
	size_t *first;		   /* of each id, and one past the last */
};

/* A model: lognormal difficulty, a decay with each visit, noise. */
void losses_model(struct losses *losses, uint32_t samples, uint64_t seed);
/* From lines `EPOCH ID LOSS`; ids below `samples`. */
void losses_read(struct losses *losses, const char *path, uint32_t samples);
/* The one if `path` is NULL, else the other. */
void losses_begin(struct losses *losses, const char *path, uint32_t samples, uint64_t seed);
void losses_free(struct losses *losses);
/* Forgets the visits, for another run. */
void losses_restart(struct losses *losses);

/* The loss of a sample that is trained on in `epoch`; of a recording the last one up to
 * then, or its first. False: the recording does not have the sample. */
bool losses_next(struct losses *losses, uint64_t epoch, uint32_t id, float *loss);

#endif
