/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The file systems of a source, and the inode numbers that the mount shows. */
#include <stdlib.h>

#include <criterion/criterion.h>

#include "source/devices.h"

Test(source, devices_keep_their_numbers)
{
	struct devices *devices = calloc(1, sizeof(*devices));

	for (unsigned round = 0; round < 2; round++)
		for (unsigned i = 0; i < DEVICES_KNOWN; i++)
			cr_assert_eq(devices_number(devices, i / 7, i), i);
	free(devices);
}

/* 0:0 is a device like others, and major and minor numbers are not mixed up. */
Test(source, devices_are_told_apart)
{
	static const uint32_t pairs[][2] = {
		{ 0, 0 }, { 0, 1 }, { 1, 0 }, { 0, UINT32_MAX }, { UINT32_MAX, 0 }
	};
	struct devices *devices = calloc(1, sizeof(*devices));

	for (unsigned i = 0; i < 5; i++)
		cr_assert_eq(devices_number(devices, pairs[i][0], pairs[i][1]), i);
	free(devices);
}

/* They share what numbers are left, and take none that is somebody's own, or no device's. */
Test(source, too_many_devices)
{
	struct devices *devices = calloc(1, sizeof(*devices));

	for (unsigned i = 0; i < 10000; i++) {
		unsigned number = devices_number(devices, 8, i);

		cr_assert(i < DEVICES_KNOWN
				  ? number == i
				  : number >= DEVICES_KNOWN && number < STORE_DEV_ELSEWHERE);
		cr_assert_eq(number, devices_number(devices, 8, i));
	}
	free(devices);
}

Test(source, shown_inode_numbers)
{
	const uint64_t largest = ((uint64_t)1 << 53) - 1;
	struct store_attr top = { .ino = largest }, nested = { .ino = 1, .dev = 1 };

	cr_assert_eq(store_shown_ino(&top), largest);
	for (unsigned dev = 1; dev < STORE_DEV_ELSEWHERE; dev++) {
		uint64_t before = store_shown_ino(&nested);

		nested.ino = 1;
		nested.dev = dev;
		cr_assert_gt(store_shown_ino(&nested), largest);
		cr_assert(dev == 1 || store_shown_ino(&nested) > before);
		nested.ino = largest;
	}
}
