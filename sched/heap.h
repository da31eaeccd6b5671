/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A heap of sample ids by a 64-bit key, smallest first, whose members can be found,
 * re-keyed and removed by id.
 *
 * Four children a node: 4 entries of 16 bytes are one cache line, and a move down
 * touches half the lines of a binary heap. Where each id stands is kept by the caller,
 * in the `slot` of its own per-sample data, so that the heap costs nothing for samples
 * that are not in it.
 */
#ifndef SHADE_HEAP_H
#define SHADE_HEAP_H

#include <stddef.h>
#include <stdint.h>

#define HEAP_NO_SLOT UINT32_MAX

struct heap_entry {
	uint64_t key;
	uint32_t id;
};

struct heap {
	struct heap_entry *entries;
	uint32_t count;
	uint32_t room;
};

/* Where the caller keeps the slots: `base + id * stride` is a uint32_t. */
struct heap_slots {
	void *base;
	size_t stride;
};

void heap_free(struct heap *heap);
/* Makes sure that `count` entries fit. 0 or -ENOMEM. */
int heap_reserve(struct heap *heap, uint32_t count);
/* There must be room. */
void heap_insert(struct heap *heap, struct heap_slots slots, uint32_t id, uint64_t key);
void heap_remove(struct heap *heap, struct heap_slots slots, uint32_t id);
void heap_rekey(struct heap *heap, struct heap_slots slots, uint32_t id, uint64_t key);
/* Has the entry of `id`, if it has one, fetched from memory. */
void heap_prefetch(const struct heap *heap, struct heap_slots slots, uint32_t id);
/* Whether parents are not larger than children and slots point back. */
int heap_check(const struct heap *heap, struct heap_slots slots);

#endif
