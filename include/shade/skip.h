/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Orders that leave samples out: an epoch reads those from which there is most to learn, by the
 * last loss of each, and some of the others by chance. Each sample comes at most once, but for
 * substitutes.
 *
 *     skip_chances(&request, chances)               with which chance each sample comes
 *     skip_draw(&request, chances, order, &count)   who does, and in what sequence
 *     skip_mark(planned, request.turn, order, count)
 *
 * Pure functions like those of pads.h: the same request gives the same order on every machine.
 */
#ifndef SHADE_SKIP_H
#define SHADE_SKIP_H

#include <stdbool.h>
#include <stdint.h>

enum skip_mode {
	/* After InfoBatch: a sample whose loss is below the mean comes with chance `keep`. All come
	 * in the last eighth of the epochs. */
	SKIP_PRUNE,
	/* iCACHE's importance sampling: a sample comes with chance percentile(loss)^0.33; all in
	 * the first 5 epochs, and in every third one. */
	SKIP_IIS,
};

struct skip_request {
	enum skip_mode mode;
	uint32_t samples; /* the ids are 0 to samples - 1 */
	/* By id: the last loss of a sample. A NaN: it was never read, and comes. NULL: none was. */
	const float *losses;
	/* By id: the turn of the last order that had the sample; 0: none has had it since turns are
	 * counted. NULL: it is not known, and none is overdue. */
	const uint64_t *planned;
	uint64_t turn; /* of this order: one more with each that is drawn; 0: epoch + 1 */
	uint64_t seed;
	uint64_t epoch;
	/* K: a sample that no order of the last K - 1 turns had is overdue and comes, in prune and
	 * with substitution; 0: 5. */
	uint32_t cover_epochs;
	/* The order is filled up to a multiple of this by its first entries, so that ranks have
	 * equal parts; 0: 1. */
	uint32_t multiple;
	/* prune */
	double keep; /* PADS_CHANCE_MIN to 1; 0: 0.5 */
	uint32_t
		epochs; /* of the whole training; 0: it is not known, and there is no last eighth */
	/* iis */
	bool never_full; /* no epoch is full as long as losses are known: to compare */
	/* Of the samples that come by chance the 70 % with the highest losses are H, the rest, and
	 * all others with such losses, L. An L sample that is absent names one that is resident
	 * instead, unless it is overdue: who is not in the order yet goes first, and none is in it
	 * more than twice. Full epochs have no substitutes. */
	bool substitute;
	/* Absent L samples come in runs of so many, neighbours at the source; the runs, and the
	 * other entries, are shuffled among each other. 0: each comes for itself. */
	uint32_t package;
	const uint64_t *resident; /* bitmap by id; NULL: nothing is */
	/* All ids, so that those that are near at the source (a directory, its inodes in their
	 * sequence) are near here; NULL: 0, 1, 2... */
	const uint32_t *neighbours;
};

/* Whether all samples come in that epoch, whatever their losses. */
bool skip_is_full(const struct skip_request *request);

/* By id: the chance that the epoch has the sample; 1: it surely comes. If there are no substitutes,
 * 1/chance is the factor that makes the gradient over the epoch unbiased: the expectation of entry
 * times factor is 1 for every sample, whatever was read before. 0, -EINVAL (a request that makes no
 * sense) or -ENOMEM. */
int skip_chances(const struct skip_request *request, float *chances);

/* The most entries that an order can have. */
uint32_t skip_room(const struct skip_request *request);

/* Draws with these chances, of which at least one must be 1. Fills `order`, which has room for
 * skip_room() ids, and says how many they are. 0, -EINVAL or -ENOMEM. */
int skip_draw(const struct skip_request *request, const float *chances, uint32_t *order,
	      uint32_t *count);

/* Notes that the order of `turn` has these samples. */
void skip_mark(uint64_t *planned, uint64_t turn, const uint32_t *order, uint32_t count);

/* "prune", "iis"; NULL for an unknown mode. */
const char *skip_mode_name(enum skip_mode mode);
/* 0, or -EINVAL for an unknown name. */
int skip_mode_find(const char *name, enum skip_mode *mode);

#endif
