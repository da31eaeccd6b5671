/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the unit tests share. */
#ifndef SHADE_TEST_HELPERS_H
#define SHADE_TEST_HELPERS_H

#include <criterion/criterion.h>

#include "shade/sched.h"

#define cr_assert_sound(s)                                                                         \
	do {                                                                                       \
		const char *wrong_ = sched_check(s);                                               \
		cr_assert(wrong_ == NULL, "%s", wrong_ ? wrong_ : "");                             \
	} while (0)

static inline struct sched *make_sched(uint64_t capacity, const char *policy, uint32_t samples)
{
	struct sched *s = NULL;

	cr_assert_eq(sched_create(&s, capacity, policy), 0);
	cr_assert_eq(sched_grow(s, samples), 0);
	return s;
}

/* Reads a sample of `size` bytes, and fetches it if that is what is decided. */
static inline enum sched_action read_sized(struct sched *s, uint32_t id, uint64_t size)
{
	struct sched_verdict verdict;

	cr_assert_eq(sched_access(s, 0, id, size, &verdict), 0);
	if (verdict.action == SCHED_ADMIT)
		cr_assert_eq(sched_commit(s, id), 0);
	cr_assert_sound(s);
	return verdict.action;
}

static inline enum sched_action read_one(struct sched *s, uint32_t id)
{
	return read_sized(s, id, 1);
}

/* A small generator for random tests: the same everywhere. */
struct dice {
	uint64_t state;
};

static inline uint32_t roll(struct dice *dice, uint32_t below)
{
	dice->state = dice->state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((dice->state >> 33) % below);
}

#endif
