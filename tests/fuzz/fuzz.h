/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the fuzzers share. Each is one file, which is built in two ways: with fuzz_main.c, by any
 * compiler, as a program that makes up its inputs; and as a target of libFuzzer, which finds inputs
 * by what they reach. `scripts/fuzz` runs the latter.
 *
 * A fuzzer defines fuzz_name, fuzz_make() and LLVMFuzzerTestOneInput(), which calls fuzz_require()
 * for every property that must hold.
 */
#ifndef SHADE_FUZZ_H
#define SHADE_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FUZZ_INPUT_MAX 8192 /* bytes of an input that the program makes up */

/* --- what a fuzzer defines ---------------------------------------------------------------------
 */

extern const char fuzz_name[];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct fuzz_random {
	uint64_t state;
};

/* Writes an input that the parser should accept, or mostly, to `data`, which has FUZZ_INPUT_MAX
 * bytes. Returns its size. */
size_t fuzz_make(struct fuzz_random *random, uint8_t *data);

/* --- what it may use ---------------------------------------------------------------------------
 */

/* The input that is tried, for the message of a failure; 0 with libFuzzer, which writes the input
 * to a file. */
extern uint64_t fuzz_seed;

/* Ends the process with `what` as what does not hold. */
__attribute__((noreturn)) void fuzz_fail(const char *what);

static inline void fuzz_require(bool holds, const char *what)
{
	if (!holds)
		fuzz_fail(what);
}

/* A number below `below`. */
uint32_t fuzz_roll(struct fuzz_random *random, uint32_t below);

/* A string that may contain NULs. */
struct fuzz_part {
	const char *text;
	size_t size;
};

#define FUZZ_PART(text)                                                                            \
	{                                                                                          \
		text, sizeof(text) - 1                                                             \
	}

/* Up to `most` parts by chance, one after the other, as far as they fit. Returns their size. */
size_t fuzz_join(struct fuzz_random *random, const struct fuzz_part *parts, size_t part_count,
		 uint32_t most, uint8_t *data);

/* A copy of exactly this size, so that a sanitizer sees every byte that is read beyond its end. */
void *fuzz_copy(const void *data, size_t size);

#endif
