/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tier/choice.h"

#include <assert.h>

#define MEMORY 16 /* how many measurements a mean is mostly made of */

static struct choice_class *class_of(struct choice *choice, uint64_t size)
{
	unsigned log = size ? 63 - (unsigned)__builtin_clzll(size) : 0;

	return &choice->classes[log < CHOICE_CLASSES ? log : CHOICE_CLASSES - 1];
}

static void add(double *mean, double value)
{
	assert(value >= 0);
	*mean = *mean > 0 ? *mean + (value - *mean) / MEMORY : value;
}

void choice_presence(struct choice *choice, bool present)
{
	if (!choice->asked)
		choice->hit_rate = present;
	else
		choice->hit_rate += (present - choice->hit_rate) / (MEMORY * 4);
	choice->asked = true;
}

void choice_hit(struct choice *choice, uint64_t size, double us)
{
	add(&class_of(choice, size)->hit_us, us);
	choice_presence(choice, true);
}

void choice_miss(struct choice *choice, double us)
{
	add(&choice->miss_us, us);
	choice_presence(choice, false);
}

void choice_source(struct choice *choice, uint64_t size, double us)
{
	add(&class_of(choice, size)->source_us, us);
}

double choice_expect_tier(const struct choice *choice, uint64_t size)
{
	const struct choice_class *class = class_of((struct choice *)choice, size);

	return choice->hit_rate * class->hit_us +
	       (1 - choice->hit_rate) * (choice->miss_us + class->source_us);
}

/* What was never measured is tried. */
static bool is_sooner(const struct choice *choice, uint64_t size)
{
	const struct choice_class *class = class_of((struct choice *)choice, size);

	if (class->source_us <= 0)
		return choice->turn % 2; /* both, in turn */
	if (!choice->asked || (class->hit_us <= 0 && choice->hit_rate > 0))
		return true;
	return choice_expect_tier(choice, size) <= class->source_us;
}

bool choice_prefers_tier(struct choice *choice, uint64_t size)
{
	bool sooner = is_sooner(choice, size);

	choice->turn++;
	return choice->turn % CHOICE_PROBE ? sooner : !sooner;
}
