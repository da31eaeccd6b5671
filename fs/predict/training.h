/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A training that was recognised, and the job in which its orders are announced. */
#ifndef SHADE_TRAINING_H
#define SHADE_TRAINING_H

#include "control/control.h"
#include "predict/lists.h"
#include "shade/shuffle.h"

struct training {
	struct shuffle_follow *follow; /* NULL: there is none */
	struct list list;
	struct shuffle_match match;
	struct control_guess guess;   /* number 0: it has no job yet */
	uint64_t epoch;		      /* by the job's count */
	uint32_t seed;		      /* of the training, as far as that can be told */
	uint32_t next_seed;	      /* that was announced for the next epoch */
	struct shuffle_layout layout; /* that was announced */
	uint64_t due; /* reads of this epoch that were seen or expected, as it was announced */
	uint32_t next_count; /* entries that were announced for the next epoch */
	bool astray;	     /* what was announced is not what is ahead */
	bool begun;	     /* the epoch is to be told of */
	bool changed;	     /* the orders are */
	uint64_t read_ms;    /* when somebody last read for it */
};

/* Takes the list over, whatever comes of it. 0 or -ENOMEM. */
int training_begin(struct training *training, struct list *list, const struct shuffle_trial *trial,
		   const struct shuffle_match *match, struct cache *cache);
void training_end(struct training *training, struct cache *cache, struct control *control);
/* Whether it goes on: one of its threads has read something of its list. */
bool training_read(struct training *training, int32_t thread, uint32_t index, bool ours,
		   uint64_t now_ms);
/* Announces what has changed; reads before place `at` of cache_watch() are known. 0; -ENOENT:
 * somebody has ended its job; another error: it is tried again when there is something new. */
int training_announce(struct training *training, struct control *control, uint64_t at);
/* Looks whether what is expected is still what is ahead: reads may have been missed, or counted for
 * somebody else. If not, it is announced anew. */
void training_compare(struct training *training, struct cache *cache);
uint64_t training_bytes(const struct training *training);
/* "epoch 3 of DistributedSampler, seed 0, ranks 0-7 of 8, below train/" */
#define TRAINING_TEXT 512
void training_describe(const struct training *training, char text[TRAINING_TEXT]);

#endif
