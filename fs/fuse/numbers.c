/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "fuse/numbers.h"

#include <assert.h>
#include <errno.h>
#include <sys/random.h>

static uint32_t rotate_left(uint32_t word, unsigned bits)
{
	return word << bits | word >> (32 - bits);
}

static uint32_t rotate_right(uint32_t word, unsigned bits)
{
	return word >> bits | word << (32 - bits);
}

static void do_round(uint32_t *high, uint32_t *low, uint32_t key)
{
	*high = (rotate_right(*high, 8) + *low) ^ key;
	*low = rotate_left(*low, 3) ^ *high;
}

static void undo_round(uint32_t *high, uint32_t *low, uint32_t key)
{
	*low = rotate_right(*low ^ *high, 3);
	*high = rotate_left((*high ^ key) - *low, 8);
}

/* The keys of the rounds come from the same round function. */
void numbers_init_with(struct numbers *numbers, const uint32_t key[4])
{
	uint32_t words[3] = { key[1], key[2], key[3] };
	uint32_t low = key[0];

	for (uint32_t round = 0; round < NUMBERS_ROUNDS; round++) {
		numbers->keys[round] = low;
		do_round(&words[round % 3], &low, round);
	}
}

int numbers_init(struct numbers *numbers)
{
	uint32_t key[4];

	/* Up to 256 bytes come whole, once the kernel has entropy at all. */
	if (getrandom(key, sizeof(key), 0) != (ssize_t)sizeof(key))
		return -EIO;
	numbers_init_with(numbers, key);
	return 0;
}

static uint64_t encipher(const struct numbers *numbers, uint64_t block)
{
	uint32_t high = (uint32_t)(block >> 32), low = (uint32_t)block;

	for (unsigned round = 0; round < NUMBERS_ROUNDS; round++)
		do_round(&high, &low, numbers->keys[round]);
	return (uint64_t)high << 32 | low;
}

static uint64_t decipher(const struct numbers *numbers, uint64_t block)
{
	uint32_t high = (uint32_t)(block >> 32), low = (uint32_t)block;

	for (unsigned round = NUMBERS_ROUNDS; round-- > 0;)
		undo_round(&high, &low, numbers->keys[round]);
	return (uint64_t)high << 32 | low;
}

/* A block that becomes a number with a meaning of its own is enciphered once more. The way back
 * passes the same blocks, since no address is below NUMBERS_FIRST. */
uint64_t numbers_encipher(const struct numbers *numbers, uint64_t address)
{
	uint64_t number = address;

	assert(address >= NUMBERS_FIRST);
	do
		number = encipher(numbers, number);
	while (number < NUMBERS_FIRST);
	return number;
}

uint64_t numbers_decipher(const struct numbers *numbers, uint64_t number)
{
	uint64_t address = number;

	assert(number >= NUMBERS_FIRST);
	do
		address = decipher(numbers, address);
	while (address < NUMBERS_FIRST);
	return address;
}
