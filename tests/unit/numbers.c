/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The numbers by which the kernel knows nodes. */
#include <criterion/criterion.h>

/* Its single rounds, too. */
#include "fuse/numbers.c" /* NOLINT(bugprone-suspicious-include) */

/* The test vector of Speck64/128 in "The Simon and Speck Families of Lightweight Block Ciphers"
 * (Beaulieu and others, 2013). */
Test(numbers, are_speck)
{
	const uint32_t key[4] = { 0x03020100, 0x0b0a0908, 0x13121110, 0x1b1a1918 };
	struct numbers numbers;

	numbers_init_with(&numbers, key);
	cr_assert_eq(numbers_encipher(&numbers, 0x3b7265747475432d), 0x8c6fa548454e028b);
	cr_assert_eq(numbers_decipher(&numbers, 0x8c6fa548454e028b), 0x3b7265747475432d);
}

/* The address that would become a number of the root's or of .shade's gets another one, and that
 * leads back to it. */
Test(numbers, leave_the_first_ones_to_others)
{
	const uint32_t key[4] = { 1, 2, 3, 4 };
	struct numbers numbers;

	numbers_init_with(&numbers, key);
	for (uint64_t taken = 0; taken < NUMBERS_FIRST; taken++) {
		uint64_t address = decipher(&numbers, taken);

		cr_assert_geq(numbers_encipher(&numbers, address), NUMBERS_FIRST);
		cr_assert_eq(numbers_decipher(&numbers, numbers_encipher(&numbers, address)),
			     address);
	}
}

Test(numbers, differ_from_mount_to_mount)
{
	struct numbers one, other;

	cr_assert_eq(numbers_init(&one), 0);
	cr_assert_eq(numbers_init(&other), 0);
	cr_assert_neq(numbers_encipher(&one, NUMBERS_FIRST),
		      numbers_encipher(&other, NUMBERS_FIRST));
}
