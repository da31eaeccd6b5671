/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tier/choice.h"

#include <assert.h>

#define MEMORY 8 /* how many measurements a mean is mostly made of */

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
		choice->hit_rate += (present - choice->hit_rate) / (MEMORY * 8);
	choice->asked = true;
}

void choice_hit(struct choice *choice, uint64_t size, double us)
{
	struct choice_class *class = class_of(choice, size);

	add(&class->hit_us, us);
	class->tier_ms = choice->now_ms;
	choice_presence(choice, true);
}

void choice_miss(struct choice *choice, double us)
{
	add(&choice->miss_us, us);
	choice_presence(choice, false);
}

void choice_source(struct choice *choice, uint64_t size, double us)
{
	struct choice_class *class = class_of(choice, size);

	add(&class->source_us, us);
	class->source_ms = choice->now_ms;
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

/* Whether one is to go the other way, for which nobody has gone for `since_ms`. */
static bool is_probe(struct choice *choice, uint64_t size, bool sooner, uint64_t since_ms)
{
	double dearer_us = choice_expect_tier(choice, size) - class_of(choice, size)->source_us;

	choice->turn++;
	if (sooner)
		dearer_us = -dearer_us;
	if ((double)since_ms * 1000 < dearer_us * CHOICE_PROBE)
		return false;
	return choice->turn % CHOICE_PROBE == 0 || since_ms >= CHOICE_PROBE_MS;
}

bool choice_prefers_tier(struct choice *choice, uint64_t size, uint64_t now_ms)
{
	struct choice_class *class = class_of(choice, size);
	bool sooner = is_sooner(choice, size);
	uint64_t other_ms = sooner ? class->source_ms : class->tier_ms;
	bool tier = is_probe(choice, size, sooner, now_ms - other_ms) ? !sooner : sooner;

	choice->now_ms = now_ms;
	choice->last = class;
	if (tier)
		class->tier_ms = now_ms;
	else
		class->source_ms = now_ms;
	return tier;
}
