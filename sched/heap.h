/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A heap of sample ids by a 64-bit key, smallest first and the smaller id first among
 * equals, whose members can be found, re-keyed and removed by id.
 *
 * Five children a node: they are one cache line, which is all that a step down reads.
 * Where each id stands is kept by the caller,
 * in the `slot` of its own per-sample data, so that the heap costs nothing for samples
 * that are not in it.
 */
#ifndef SHADE_HEAP_H
#define SHADE_HEAP_H

#include <stddef.h>
#include <stdint.h>

#define HEAP_NO_SLOT UINT32_MAX

#define HEAP_ARITY 5

struct heap_entry {
	uint64_t key;
	uint32_t id;
} __attribute__((packed));

/* All children of one node. */
struct heap_line {
	struct heap_entry entry[HEAP_ARITY];
} __attribute__((aligned(64)));

struct heap {
	struct heap_line *lines; /* the root alone, then the children of 0, of 1, ... */
	uint32_t count;
	uint32_t room; /* lines */
};

/* The entry in a slot; slot 0 is the smallest. */
static inline struct heap_entry *heap_at(const struct heap *heap, uint32_t slot)
{
	if (slot == 0)
		return &heap->lines[0].entry[0];
	return &heap->lines[(slot - 1) / HEAP_ARITY + 1].entry[(slot - 1) % HEAP_ARITY];
}

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
/* The id that is first once the first is gone, or HEAP_NO_SLOT. */
uint32_t heap_second(const struct heap *heap);
/* Whether parents are not larger than children and slots point back. */
int heap_check(const struct heap *heap, struct heap_slots slots);

#endif
