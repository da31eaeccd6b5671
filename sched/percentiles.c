/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "percentiles.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CLASS_SHIFT 15 /* leaves 8 bits of the exponent and 8 of the mantissa */
#define CLASSES (1u << 16)

/* Scores are not negative, so their bits compare as they do. */
static uint32_t class_of(float score)
{
	uint32_t bits;

	memcpy(&bits, &score, sizeof(bits));
	return bits >> CLASS_SHIFT;
}

/* Memory that is not written to costs nothing: most trainings are alone, and never freeze. */
int percentiles_init(struct percentiles *p)
{
	*p = (struct percentiles){ .counts = calloc(CLASSES, sizeof(*p->counts)),
				   .below = calloc(CLASSES + 1, sizeof(*p->below)) };
	if (p->counts && p->below)
		return 0;
	percentiles_free(p);
	return -ENOMEM;
}

void percentiles_free(struct percentiles *p)
{
	free(p->counts);
	free(p->below);
}

void percentiles_add(struct percentiles *p, float score)
{
	p->counts[class_of(score)]++;
}

void percentiles_remove(struct percentiles *p, float score)
{
	p->counts[class_of(score)]--;
}

void percentiles_freeze(struct percentiles *p, const struct percentiles *of)
{
	p->total = 0;
	for (uint32_t i = 0; i < CLASSES; i++) {
		p->below[i] = p->total;
		p->total += of->counts[i];
	}
	p->below[CLASSES] = p->total;
}

float percentiles_of(const struct percentiles *p, float score)
{
	uint32_t class = class_of(score);

	if (!p->total)
		return 0.5f;
	return (float)(((double)p->below[class] + p->below[class + 1]) / 2 / p->total);
}
