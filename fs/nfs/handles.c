/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "nfs/handles.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "grow.h"

/* Records of one size are kept together, in chunks that never move. A record is known by a number:
 * its kind, and which one of its kind it is. */
#define CHUNK 1024 /* records */
#define KIND_SHIFT 28
#define KIND_MAX (((uint32_t)1 << KIND_SHIFT) - 2) /* records of a kind */
#define INDEX_LEAST ((size_t)64)

struct record {
	uint64_t ino;
	uint16_t dev;
	uint8_t tag;  /* of the version: see tag_of() */
	uint8_t size; /* 0: it is free, and `ino` is the next one that is, plus 1 */
	uint8_t bytes[];
} __attribute__((packed));

static size_t record_size(unsigned kind)
{
	return sizeof(struct record) + (size_t)(kind + 1) * 4;
}

static unsigned kind_of(const struct nfs_handle *handle)
{
	assert(handle->size && handle->size <= NFS_HANDLE_MAX);
	return (handle->size - 1u) / 4;
}

static struct record *record_at(const struct handles *handles, uint32_t number)
{
	unsigned kind = number >> KIND_SHIFT;
	uint32_t which = number & (((uint32_t)1 << KIND_SHIFT) - 1);

	return (struct record *)(handles->kinds[kind].chunks[which / CHUNK] +
				 which % CHUNK * record_size(kind));
}

/* Tells two versions of a file apart, mostly. */
static uint8_t tag_of(const struct store_attr *attr)
{
	uint64_t mixed = attr->size ^ (uint64_t)attr->mtime_ns * 3 ^ (uint64_t)attr->ctime_ns * 5;

	return (uint8_t)(mixed * UINT64_C(0x9e3779b97f4a7c15) >> 56);
}

static size_t hash_of(uint64_t ino, unsigned dev)
{
	uint64_t hash = (ino ^ (uint64_t)dev << 53) * UINT64_C(0x9e3779b97f4a7c15);

	return (size_t)(hash ^ hash >> 32);
}

/* --- the index: open addressing, without gaps in a row of collisions ----------------------------
 */

/* Where the file is, or where it would be. */
static size_t position_locked(const struct handles *handles, uint64_t ino, unsigned dev)
{
	size_t mask = handles->index_room - 1, at = hash_of(ino, dev) & mask;

	lock_assert_held(&handles->lock);
	while (handles->index[at]) {
		const struct record *record = record_at(handles, handles->index[at] - 1);

		if (record->ino == ino && record->dev == dev)
			break;
		at = (at + 1) & mask;
	}
	return at;
}

static bool grow_index_locked(struct handles *handles)
{
	size_t old_room = handles->index_room;
	uint32_t *old = handles->index;

	lock_assert_held(&handles->lock);
	if (handles->count + 1 <= old_room / 4 * 3)
		return true;
	handles->index_room = old_room ? old_room * 2 : INDEX_LEAST;
	handles->index = calloc(handles->index_room, sizeof(*handles->index));
	if (!handles->index) {
		handles->index = old;
		handles->index_room = old_room;
		return false;
	}
	for (size_t i = 0; i < old_room; i++) {
		const struct record *record;

		if (!old[i])
			continue;
		record = record_at(handles, old[i] - 1);
		handles->index[position_locked(handles, record->ino, record->dev)] = old[i];
	}
	free(old);
	return true;
}

/* What stands after it in its row moves up, as far as it may. */
static void remove_position_locked(struct handles *handles, size_t at)
{
	size_t mask = handles->index_room - 1, next = at;

	lock_assert_held(&handles->lock);
	for (;;) {
		const struct record *record;
		size_t wanted;

		next = (next + 1) & mask;
		if (!handles->index[next])
			break;
		record = record_at(handles, handles->index[next] - 1);
		wanted = hash_of(record->ino, record->dev) & mask;
		if (((next - wanted) & mask) < ((next - at) & mask))
			continue;
		handles->index[at] = handles->index[next];
		at = next;
	}
	handles->index[at] = 0;
}

/* --- records ------------------------------------------------------------------------------------
 */

static bool add_chunk(struct handle_kind *kind, unsigned number)
{
	uint8_t *chunk;

	if (grow(kind->chunks, kind->chunk_room, kind->chunk_count, 1))
		return false;
	chunk = malloc(CHUNK * record_size(number));
	if (!chunk)
		return false;
	kind->chunks[kind->chunk_count++] = chunk;
	return true;
}

/* The number of a record that nobody uses, plus 1. 0: no memory. */
static uint32_t new_record_locked(struct handles *handles, unsigned number)
{
	struct handle_kind *kind = &handles->kinds[number];
	uint32_t record = number << KIND_SHIFT;

	lock_assert_held(&handles->lock);
	if (kind->free) {
		record |= kind->free - 1;
		kind->free = (uint32_t)record_at(handles, record)->ino;
		return record + 1;
	}
	if (kind->used >= KIND_MAX ||
	    (kind->used == (uint64_t)kind->chunk_count * CHUNK && !add_chunk(kind, number)))
		return 0;
	return (record | kind->used++) + 1;
}

static void free_record_locked(struct handles *handles, uint32_t number)
{
	struct handle_kind *kind = &handles->kinds[number >> KIND_SHIFT];
	struct record *record = record_at(handles, number);

	lock_assert_held(&handles->lock);
	record->size = 0;
	record->ino = kind->free;
	kind->free = (number & (((uint32_t)1 << KIND_SHIFT) - 1)) + 1;
}

static void remove_locked(struct handles *handles, size_t at)
{
	uint32_t number = handles->index[at] - 1;

	lock_assert_held(&handles->lock);
	remove_position_locked(handles, at);
	free_record_locked(handles, number);
	handles->count--;
}

static void fill(struct record *record, const struct store_attr *attr,
		 const struct nfs_handle *handle)
{
	record->ino = attr->ino;
	record->dev = attr->dev;
	record->tag = tag_of(attr);
	record->size = handle->size;
	memcpy(record->bytes, handle->bytes, handle->size);
}

static void put_locked(struct handles *handles, const struct store_attr *attr,
		       const struct nfs_handle *handle)
{
	uint32_t number;
	size_t at;

	lock_assert_held(&handles->lock);
	if (!grow_index_locked(handles))
		return;
	at = position_locked(handles, attr->ino, attr->dev);
	if (handles->index[at] && (handles->index[at] - 1) >> KIND_SHIFT == kind_of(handle)) {
		fill(record_at(handles, handles->index[at] - 1), attr, handle);
		return;
	}
	if (handles->index[at])
		remove_locked(handles, at);
	number = new_record_locked(handles, kind_of(handle));
	if (!number)
		return;
	fill(record_at(handles, number - 1), attr, handle);
	handles->index[position_locked(handles, attr->ino, attr->dev)] = number;
	handles->count++;
}

/* --- for others ---------------------------------------------------------------------------------
 */

void handles_init(struct handles *handles)
{
	*handles = (struct handles){ 0 };
	lock_init(&handles->lock, LOCK_STORE);
}

void handles_destroy(struct handles *handles)
{
	for (unsigned kind = 0; kind < HANDLE_KINDS; kind++) {
		for (uint32_t i = 0; i < handles->kinds[kind].chunk_count; i++)
			free(handles->kinds[kind].chunks[i]);
		free(handles->kinds[kind].chunks);
	}
	free(handles->index);
	lock_destroy(&handles->lock);
}

void handles_put(struct handles *handles, const struct store_attr *attr,
		 const struct nfs_handle *handle)
{
	lock_acquire(&handles->lock);
	put_locked(handles, attr, handle);
	lock_release(&handles->lock);
}

bool handles_find(struct handles *handles, const struct store_attr *attr, struct nfs_handle *handle)
{
	bool found = false;

	lock_acquire(&handles->lock);
	if (handles->count) {
		size_t at = position_locked(handles, attr->ino, attr->dev);

		found = handles->index[at];
		if (found) {
			const struct record *record = record_at(handles, handles->index[at] - 1);

			handle->size = record->size;
			memcpy(handle->bytes, record->bytes, record->size);
		}
	}
	lock_release(&handles->lock);
	return found;
}

void handles_forget(struct handles *handles, const struct store_attr *attr)
{
	lock_acquire(&handles->lock);
	if (handles->count) {
		size_t at = position_locked(handles, attr->ino, attr->dev);

		if (handles->index[at] &&
		    record_at(handles, handles->index[at] - 1)->tag == tag_of(attr))
			remove_locked(handles, at);
	}
	lock_release(&handles->lock);
}
