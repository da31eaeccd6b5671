/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tier/survival.h"

#define ENOUGH 8	/* observations before anything follows from them */
#define MEMORY 32	/* how many of them count */
#define HOPELESS 0.0625 /* a share */

static unsigned class_of(float worth)
{
	float scaled = worth * SURVIVAL_CLASSES;

	if (!(scaled > 0))
		return 0;
	return scaled < SURVIVAL_CLASSES ? (unsigned)scaled : SURVIVAL_CLASSES - 1;
}

static bool is_sampled(uint64_t hash)
{
	return (hash >> 32) % SURVIVAL_SAMPLE == 0;
}

static uint32_t tag_of(uint64_t hash)
{
	return (uint32_t)(hash >> 32) | 1;
}

bool survival_wants(struct survival *survival, float worth)
{
	unsigned class = class_of(worth);

	if (survival->seen[class] < ENOUGH || survival->rate[class] >= HOPELESS)
		return true;
	return ++survival->turn % SURVIVAL_TRIALS == 0;
}

void survival_put(struct survival *survival, uint64_t hash, float worth)
{
	if (!is_sampled(hash))
		return;
	survival->table[hash % SURVIVAL_TABLE].tag = tag_of(hash);
	survival->table[hash % SURVIVAL_TABLE].class = (uint8_t)class_of(worth);
}

void survival_asked(struct survival *survival, uint64_t hash, bool present)
{
	unsigned at = (unsigned)(hash % SURVIVAL_TABLE), class = survival->table[at].class;
	double *rate = &survival->rate[class];

	if (!is_sampled(hash) || survival->table[at].tag != tag_of(hash))
		return;
	survival->table[at].tag = 0; /* its worth is another by now */
	if (survival->seen[class] < MEMORY)
		survival->seen[class]++;
	*rate += (present - *rate) / survival->seen[class];
}
