/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "heap.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "array.h"

#define ARITY 4

static uint32_t *slot_of(struct heap_slots slots, uint32_t id)
{
	return (uint32_t *)((char *)slots.base + (size_t)id * slots.stride);
}

static void place(struct heap *heap, struct heap_slots slots, uint32_t slot,
		  struct heap_entry entry)
{
	heap->entries[slot] = entry;
	*slot_of(slots, entry.id) = slot;
}

static void sift_up(struct heap *heap, struct heap_slots slots, uint32_t slot,
		    struct heap_entry entry)
{
	while (slot > 0) {
		uint32_t parent = (slot - 1) / ARITY;

		if (heap->entries[parent].key <= entry.key)
			break;
		place(heap, slots, slot, heap->entries[parent]);
		slot = parent;
	}
	place(heap, slots, slot, entry);
}

static uint32_t smallest_child(const struct heap *heap, uint32_t first)
{
	uint32_t end = heap->count - first < ARITY ? heap->count : first + ARITY;
	uint32_t best = first;

	for (uint32_t i = first + 1; i < end; i++)
		if (heap->entries[i].key < heap->entries[best].key)
			best = i;
	return best;
}

static void sift_down(struct heap *heap, struct heap_slots slots, uint32_t slot,
		      struct heap_entry entry)
{
	for (;;) {
		uint64_t first = (uint64_t)slot * ARITY + 1;
		uint32_t child;

		if (first >= heap->count)
			break;
		child = smallest_child(heap, (uint32_t)first);
		if (heap->entries[child].key >= entry.key)
			break;
		place(heap, slots, slot, heap->entries[child]);
		slot = child;
	}
	place(heap, slots, slot, entry);
}

void heap_free(struct heap *heap)
{
	free(heap->entries);
	*heap = (struct heap){ 0 };
}

int heap_reserve(struct heap *heap, uint32_t count)
{
	size_t room = array_room(heap->room, count);
	int rc;

	if (count <= heap->room)
		return 0;
	rc = array_resize((void **)&heap->entries, room, sizeof(*heap->entries));
	if (!rc)
		heap->room = (uint32_t)room;
	return rc;
}

void heap_insert(struct heap *heap, struct heap_slots slots, uint32_t id, uint64_t key)
{
	assert(heap->count < heap->room);
	heap->count++;
	sift_up(heap, slots, heap->count - 1, (struct heap_entry){ .key = key, .id = id });
}

void heap_rekey(struct heap *heap, struct heap_slots slots, uint32_t id, uint64_t key)
{
	uint32_t slot = *slot_of(slots, id);
	uint64_t old = heap->entries[slot].key;
	struct heap_entry entry = { .key = key, .id = id };

	assert(slot < heap->count && heap->entries[slot].id == id);
	if (key < old)
		sift_up(heap, slots, slot, entry);
	else
		sift_down(heap, slots, slot, entry);
}

void heap_remove(struct heap *heap, struct heap_slots slots, uint32_t id)
{
	uint32_t slot = *slot_of(slots, id);
	struct heap_entry last = heap->entries[heap->count - 1];
	uint64_t old;

	assert(slot < heap->count && heap->entries[slot].id == id);
	old = heap->entries[slot].key;
	heap->count--;
	*slot_of(slots, id) = HEAP_NO_SLOT;
	if (last.id == id)
		return;
	if (last.key < old)
		sift_up(heap, slots, slot, last);
	else
		sift_down(heap, slots, slot, last);
}

void heap_prefetch(const struct heap *heap, struct heap_slots slots, uint32_t id)
{
	uint32_t slot = *slot_of(slots, id);

	if (slot >= heap->count)
		return;
	__builtin_prefetch(&heap->entries[slot]);
	if (slot)
		__builtin_prefetch(&heap->entries[(slot - 1) / ARITY]);
}

int heap_check(const struct heap *heap, struct heap_slots slots)
{
	for (uint32_t i = 0; i < heap->count; i++) {
		if (*slot_of(slots, heap->entries[i].id) != i)
			return -EINVAL;
		if (i && heap->entries[(i - 1) / ARITY].key > heap->entries[i].key)
			return -EINVAL;
	}
	return 0;
}
