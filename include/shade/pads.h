/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Orders: which samples an epoch reads, and in what sequence.
 *
 * Pure functions from scores, residency and a seed to a list of ids. All randomness is
 * Philox4x32-10 by counter and all arithmetic is in integers or in single IEEE
 * operations, so that the same request gives the same order on every machine.
 */
#ifndef SHADE_PADS_H
#define SHADE_PADS_H

#include <stdbool.h>
#include <stdint.h>

enum pads_mode {
	PADS_UNIFORM,	  /* a fresh permutation: what loaders do today */
	PADS_REPLACEMENT, /* uniform, with replacement */
	PADS_PAPER,	  /* SHADE's own procedure; each rank draws for itself */
	PADS_PADS,	  /* ours: importance and residency, within bounds; the default */
	PADS_ECHO,	  /* a permutation whose samples are used several times while resident */
};

/* Uses of a sample that come after the epoch that was drawn last. */
struct pads_echo_use {
	uint32_t id;
	uint32_t due;  /* accesses of the next epoch before which it does not come */
	uint32_t left; /* uses; 0: it was used lately */
	float weight;  /* of each of them, as in pads_weights() */
};

/* What `echo` carries from epoch to epoch. Zero it to begin; plain data, to be saved. */
struct pads_echo {
	uint64_t introduced; /* samples taken from the stream of permutations so far */
	uint64_t accesses;   /* entries drawn so far */
	uint32_t use_count;
	struct pads_echo_use *uses; /* malloc'd; by ascending id */
};

struct pads_request {
	enum pads_mode mode;
	uint32_t samples;	  /* the ids are 0 to samples-1 */
	const float *scores;	  /* below 0: never scored; NULL: none was */
	const uint64_t *resident; /* bitmap by id; NULL: nothing is */
	uint64_t seed;
	uint64_t epoch;
	uint32_t draws;	      /* entries of the whole epoch; 0: as many as samples */
	uint32_t rank, world; /* this part of it; world 0 means 1 */

	/* paper, pads */
	/* How often a resident that was drawn comes; 0: once. In pads the others make way for that,
	 * and where there are too few of them it is less. */
	double rep;
	/* pads */
	uint32_t max_repeats; /* entries of one sample in an epoch; 0: 2 * rep, at least 4 */
	/* Every sample comes at least once in so many epochs, as long as these and those that
	 * were never scored fit into one together; 0: 5. */
	uint32_t cover_epochs;
	/* Whose turn it is: one more with each epoch that is drawn, from 1 on; 0: epoch + 1, for
	 * epochs that are drawn one after the other. */
	uint64_t turn;
	/* echo */
	double uses;	   /* the mean number of uses of a fetched sample; 0: 4 */
	double strength;   /* 0: all samples alike, 1: by importance */
	uint32_t capacity; /* how many samples the cache holds */
	/* Entries of one training step, of all ranks together; 0: 1024. A sample comes again so
	 * many entries later at the earliest, as far as the capacity allows. */
	uint32_t batch;
	/* A fresh permutation begins, and what the last epoch has left is forgotten: so that an
	 * epoch of single uses is a permutation. */
	bool anew;
	/* By id: the chance that a sample which the stream brings is used at all, PADS_CHANCE_MIN
	 * to 1, as skip_chances() gives it; NULL: all are. */
	const float *chances;
	struct pads_echo *echo;
};

#define PADS_CHANCE_MIN 0.01f

/* The entries of this rank's part. */
uint32_t pads_length(const struct pads_request *request);

/* Fills `order` with pads_length() ids. 0, -EINVAL (a request that makes no sense) or
 * -ENOMEM; on failure the echo state is as before. */
int pads_draw(const struct pads_request *request, uint32_t *order);

/* For each sample the factor that makes the gradient over an epoch unbiased:
 * draws / samples / (expected entries of the sample). 0, -EINVAL or -ENOMEM. For PADS_PADS, and
 * for PADS_ECHO, where request->echo is the state that the epoch was drawn from.
 *
 * In pads the expectation is that of the draw, over seeds, but for this:
 *   - A sample's chance of a turn is the share of its class whose turn it is; the classes are
 *     the residents and the others. That is exact if scores and residency do not depend on
 *     turns. In a closed loop scores within a class do: the mean of weight x entries, which
 *     should be 1, was .994 to 1.007 with 2000 samples (residents .993 to 1.001, others .987 to
 *     1.013), and the weighted mean of the samples' difficulty was up to 3 % too high, instead
 *     of 50 % without weights.
 *   - Where residents just fill an epoch, what `max_repeats` takes from them is taken as
 *     normally distributed. That is less than 1 % off with 1000 samples, up to 3 % with 5, and
 *     7 % with 5 if `rep` is a fraction.
 *   - If more samples are unseen than an epoch has entries, scored ones do not come. Their
 *     weight is 0, and the weighted mean is that of the unseen ones.
 *
 * In echo a sample has the weight of all its uses from its introduction on, by its score at that
 * time. So the weighted sum over a pass through the data set is exact on the mean, however scores
 * change; with strength 0 and without chances all weights are 1. Only a sample that the next pass
 * brings while uses of the last one are owed has one weight for both. */
int pads_weights(const struct pads_request *request, float *weights);

/* "paper" and so on; NULL for an unknown mode. */
const char *pads_mode_name(enum pads_mode mode);
/* 0, or -EINVAL for an unknown name. */
int pads_mode_find(const char *name, enum pads_mode *mode);

#define PADS_ECHO_LEFT_MAX (1u << 20)
#define PADS_ECHO_WEIGHT_MAX (1000 / PADS_CHANCE_MIN) /* of one use among 1000 */
/* The latest due that a draw leaves. */
uint32_t pads_echo_due_max(uint32_t samples);
/* Whether draws can leave such a state, whatever capacity, uses and batch they had. pads_draw()
 * relies on that and does not check it. */
bool pads_echo_is_sound(const struct pads_echo *echo, uint32_t samples);
void pads_echo_free(struct pads_echo *echo);

/* SHADE's score of a sample from the rank of its loss within its batch, 0 the smallest. */
float pads_rank_score(uint32_t rank);
/* The same from twice the rank: equal losses share the mean of their ranks, which may be a half. */
float pads_twice_rank_score(uint32_t twice);
/* Twice the rank of a loss with `less` smaller ones and `equal` equal ones, itself included, in a
 * batch of `count`. A batch of one says nothing about its sample: it ranks in the middle of a batch
 * of 64, which is SHADE's. */
#define PADS_TWICE_ALONE 63u
#define PADS_TWICE_RANK(less, equal, count)                                                        \
	((count) == 1 ? PADS_TWICE_ALONE : 2 * (less) + (equal)-1)
/* The scores of a whole batch. 0, -EINVAL (a loss that is not a number) or -ENOMEM. */
int pads_rank_batch(const float *losses, uint32_t count, float *scores);

#endif
