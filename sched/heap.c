/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "heap.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"

static uint32_t *slot_of(struct heap_slots slots, uint32_t id)
{
	return (uint32_t *)((char *)slots.base + (size_t)id * slots.stride);
}

static bool before(const struct heap_entry *a, const struct heap_entry *b)
{
	return a->key != b->key ? a->key < b->key : a->id < b->id;
}

static void place(struct heap *heap, struct heap_slots slots, uint32_t slot,
		  struct heap_entry entry)
{
	*heap_at(heap, slot) = entry;
	*slot_of(slots, entry.id) = slot;
}

static void sift_up(struct heap *heap, struct heap_slots slots, uint32_t slot,
		    struct heap_entry entry)
{
	while (slot > 0) {
		uint32_t parent = (slot - 1) / HEAP_ARITY;

		if (!before(&entry, heap_at(heap, parent)))
			break;
		place(heap, slots, slot, *heap_at(heap, parent));
		slot = parent;
	}
	place(heap, slots, slot, entry);
}

static uint32_t smallest_child(const struct heap *heap, uint32_t parent, uint32_t first)
{
	const struct heap_entry *child = heap->lines[parent + 1].entry;
	uint32_t count = heap->count - first < HEAP_ARITY ? heap->count - first : HEAP_ARITY;
	uint32_t best = 0;

	for (uint32_t i = 1; i < count; i++)
		if (before(&child[i], &child[best]))
			best = i;
	return first + best;
}

static void sift_down(struct heap *heap, struct heap_slots slots, uint32_t slot,
		      struct heap_entry entry)
{
	for (;;) {
		uint64_t first = (uint64_t)slot * HEAP_ARITY + 1;
		uint32_t child;

		if (first >= heap->count)
			break;
		child = smallest_child(heap, slot, (uint32_t)first);
		if (!before(heap_at(heap, child), &entry))
			break;
		place(heap, slots, slot, *heap_at(heap, child));
		slot = child;
	}
	place(heap, slots, slot, entry);
}

void heap_free(struct heap *heap)
{
	free(heap->lines);
	*heap = (struct heap){ 0 };
}

int heap_reserve(struct heap *heap, uint32_t count)
{
	size_t lines = ((size_t)count + HEAP_ARITY - 1) / HEAP_ARITY + 1;
	size_t room = array_room(heap->room, lines);
	struct heap_line *grown;

	if (lines <= heap->room)
		return 0;
	grown = array_new_aligned(room, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	if (heap->count)
		memcpy(grown, heap->lines, heap->room * sizeof(*grown));
	free(heap->lines);
	heap->lines = grown;
	heap->room = (uint32_t)room;
	return 0;
}

void heap_insert(struct heap *heap, struct heap_slots slots, uint32_t id, uint64_t key)
{
	assert((heap->count + HEAP_ARITY - 1) / HEAP_ARITY < heap->room);
	heap->count++;
	sift_up(heap, slots, heap->count - 1, (struct heap_entry){ .key = key, .id = id });
}

void heap_rekey(struct heap *heap, struct heap_slots slots, uint32_t id, uint64_t key)
{
	uint32_t slot = *slot_of(slots, id);
	struct heap_entry old = *heap_at(heap, slot);
	struct heap_entry entry = { .key = key, .id = id };

	assert(slot < heap->count && heap_at(heap, slot)->id == id);
	if (before(&entry, &old))
		sift_up(heap, slots, slot, entry);
	else
		sift_down(heap, slots, slot, entry);
}

void heap_remove(struct heap *heap, struct heap_slots slots, uint32_t id)
{
	uint32_t slot = *slot_of(slots, id);
	struct heap_entry last = *heap_at(heap, heap->count - 1);
	struct heap_entry old;

	assert(slot < heap->count && heap_at(heap, slot)->id == id);
	old = *heap_at(heap, slot);
	heap->count--;
	*slot_of(slots, id) = HEAP_NO_SLOT;
	if (last.id == id)
		return;
	if (before(&last, &old))
		sift_up(heap, slots, slot, last);
	else
		sift_down(heap, slots, slot, last);
}

void heap_prefetch(const struct heap *heap, struct heap_slots slots, uint32_t id)
{
	uint32_t slot = *slot_of(slots, id);

	if (slot >= heap->count)
		return;
	__builtin_prefetch(heap_at(heap, slot));
	if (slot)
		__builtin_prefetch(heap_at(heap, (slot - 1) / HEAP_ARITY));
}

uint32_t heap_second(const struct heap *heap)
{
	if (heap->count < 2)
		return HEAP_NO_SLOT;
	return heap_at(heap, smallest_child(heap, 0, 1))->id;
}

int heap_check(const struct heap *heap, struct heap_slots slots)
{
	for (uint32_t i = 0; i < heap->count; i++) {
		if (*slot_of(slots, heap_at(heap, i)->id) != i)
			return -EINVAL;
		if (i && before(heap_at(heap, i), heap_at(heap, (i - 1) / HEAP_ARITY)))
			return -EINVAL;
	}
	return 0;
}
