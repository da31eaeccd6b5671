/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The data structures below the policies, each against the plainest thing that does the
 * same. */
#include <stdlib.h>
#include <string.h>

#include "heap.h"
#include "helpers.h"
#include "philox.h"
#include "posset.h"
#include "radix.h"

static uint32_t plain_max(const bool *members, uint32_t n)
{
	while (n-- > 0)
		if (members[n])
			return n;
	return POSSET_NONE;
}

Test(posset, agrees_with_an_array)
{
	static const uint32_t sizes[] = { 1, 2, 63, 64, 65, 4095, 4096, 4097, 300000 };
	struct dice dice = { 1 };

	for (unsigned k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
		uint32_t n = sizes[k];
		bool *members = calloc(n, sizeof(*members));
		struct posset set;

		cr_assert_eq(posset_init(&set, n), 0);
		cr_assert_eq(posset_max(&set), POSSET_NONE);
		for (int step = 0; step < 400; step++) {
			uint32_t at = roll(&dice, n);

			members[at] = roll(&dice, 2);
			(members[at] ? posset_add : posset_remove)(&set, at);
			cr_assert_eq(posset_has(&set, at), members[at]);
			cr_assert_eq(posset_max(&set), plain_max(members, n));
		}
		posset_clear(&set);
		cr_assert_eq(posset_max(&set), POSSET_NONE);
		posset_free(&set);
		free(members);
	}
}

Test(posset, finds_the_ends)
{
	struct posset set;

	cr_assert_eq(posset_init(&set, 64 * 64 * 64), 0);
	posset_add(&set, 0);
	cr_assert_eq(posset_max(&set), 0);
	posset_add(&set, 64 * 64 * 64 - 1);
	cr_assert_eq(posset_max(&set), 64 * 64 * 64 - 1);
	cr_assert_eq(posset_near_below(&set, 64 * 64 * 64 - 1), POSSET_NONE);
	posset_add(&set, 64 * 64 * 64 - 9);
	cr_assert_eq(posset_near_below(&set, 64 * 64 * 64 - 1), 64 * 64 * 64 - 9);
	posset_remove(&set, 64 * 64 * 64 - 9);
	posset_remove(&set, 64 * 64 * 64 - 1);
	cr_assert_eq(posset_max(&set), 0);
	posset_free(&set);
}

#define HEAP_IDS 500

static uint64_t plain_min(const uint64_t *keys, const bool *in)
{
	uint64_t least = UINT64_MAX;

	for (uint32_t id = 0; id < HEAP_IDS; id++)
		if (in[id] && keys[id] < least)
			least = keys[id];
	return least;
}

Test(heap, agrees_with_an_array)
{
	uint32_t slots[HEAP_IDS];
	uint64_t keys[HEAP_IDS];
	bool in[HEAP_IDS] = { false };
	struct heap_slots where = { slots, sizeof(slots[0]) };
	struct heap heap = { 0 };
	struct dice dice = { 2 };

	memset(slots, 0xff, sizeof(slots));
	for (int step = 0; step < 20000; step++) {
		uint32_t id = roll(&dice, HEAP_IDS);
		uint64_t key = roll(&dice, 100); /* few, so that many are equal */

		if (!in[id]) {
			cr_assert_eq(heap_reserve(&heap, heap.count + 1), 0);
			heap_insert(&heap, where, id, key);
			in[id] = true;
			keys[id] = key;
		} else if (roll(&dice, 2)) {
			heap_rekey(&heap, where, id, key);
			keys[id] = key;
		} else {
			heap_remove(&heap, where, id);
			in[id] = false;
		}
		if (heap.count)
			cr_assert_eq(heap_at(&heap, 0)->key, plain_min(keys, in));
		if (step % 100 == 0)
			cr_assert_eq(heap_check(&heap, where), 0);
	}
	heap_free(&heap);
}

Test(heap, check_sees_disorder)
{
	uint32_t slots[2];
	struct heap_slots where = { slots, sizeof(slots[0]) };
	struct heap heap = { 0 };

	cr_assert_eq(heap_reserve(&heap, 2), 0);
	heap_insert(&heap, where, 0, 1);
	heap_insert(&heap, where, 1, 2);
	cr_assert_eq(heap_check(&heap, where), 0);
	heap_at(&heap, 0)->key = 3;
	cr_assert_neq(heap_check(&heap, where), 0);
	heap_free(&heap);
}

/* The vectors that the authors of Philox publish. */
Test(philox, known_answers)
{
	static const struct {
		uint32_t counter[4], key[2], answer[4];
	} known[] = {
		{ { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
		{ { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
		  { 0xffffffff, 0xffffffff },
		  { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
		{ { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
		  { 0xa4093822, 0x299f31d0 },
		  { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
	};

	for (unsigned i = 0; i < 3; i++) {
		struct philox_block block = philox_block(known[i].counter, known[i].key);

		cr_assert_arr_eq(block.word, known[i].answer, sizeof(known[i].answer));
	}
}

Test(radix, sorts_and_is_stable)
{
	enum { COUNT = 5000 };
	uint64_t entries[COUNT], scratch[COUNT];
	struct dice dice = { 3 };

	for (uint32_t i = 0; i < COUNT; i++) {
		uint32_t key = roll(&dice, 3) ? roll(&dice, 50) : roll(&dice, UINT32_MAX) << 1;

		entries[i] = radix_entry(key, i);
	}
	radix_sort(entries, scratch, COUNT);
	/* The values were ascending: sorted and stable means ascending as a whole. */
	for (uint32_t i = 1; i < COUNT; i++)
		cr_assert_lt(entries[i - 1], entries[i]);
}
