/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The numbers by which the kernel knows nodes.
 *
 * Whoever may look at a file can ask the kernel for its handle (name_to_handle_at), and in that is
 * the node's number. An address would tell where the daemon has its memory, so a number is the
 * address enciphered with a key that is made at the start and never leaves the daemon. Nothing has
 * to be looked up or kept for each file: a number becomes a node again in a few nanoseconds.
 *
 * The cipher is Speck64/128: a block of 64 bits, a key of 128, and test vectors that anybody can
 * check. A number that somebody made up becomes an arbitrary address. The kernel sends numbers
 * that it was told of, with one exception: a LOOKUP of "." or "..", which must not be deciphered.
 */
#ifndef SHADE_NUMBERS_H
#define SHADE_NUMBERS_H

#include <stdint.h>

#define NUMBERS_ROUNDS 27
#define NUMBERS_FIRST 4096 /* those below are for the root and for .shade */

struct numbers {
	uint32_t keys[NUMBERS_ROUNDS]; /* one a round */
};

/* With a random key. 0 or a negative errno. */
int numbers_init(struct numbers *numbers);
void numbers_init_with(struct numbers *numbers, const uint32_t key[4]);
/* From NUMBERS_FIRST on, both. */
uint64_t numbers_encipher(const struct numbers *numbers, uint64_t address);
uint64_t numbers_decipher(const struct numbers *numbers, uint64_t number);

#endif
