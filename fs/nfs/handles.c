/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "nfs/handles.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "grow.h"

/* Records of one size are kept together, in chunks that never move. A record is known by a number:
 * its kind, and which one of its kind it is. */
#define CHUNK 1024 /* records */
#define KIND_SHIFT 27
#define WHICH_MASK (((uint32_t)1 << KIND_SHIFT) - 1)
#define INDEX_LEAST ((size_t)64)
#define SUFFIX 12 /* bytes that tell the files of a file system apart */

struct record {
	uint64_t ino; /* of a free record: the next one that is free, plus 1; 0: none */
	uint16_t dev : 11;
	uint16_t tag : 5; /* of the version: see tag_of() */
	uint8_t prefix;	  /* plus 1; 0: none, and `kept` is the handle's size, and all of it */
	uint8_t kept[];
} __attribute__((packed));

static_assert(sizeof(struct record) + SUFFIX == 23, "handles.h says how much it takes");
static_assert((NFS_HANDLE_MAX + 1 + 3) / 4 <= HANDLE_KINDS, "the largest is kept whole");
static_assert(HANDLE_KINDS <= 1 << (32 - KIND_SHIFT), "a number has room for the kind");

/* What is kept of a handle. */
struct kept {
	uint8_t prefix; /* as in a record */
	uint8_t size;
	uint8_t bytes[NFS_HANDLE_MAX + 1];
};

static unsigned kind_of(const struct kept *kept)
{
	return (kept->size - 1u) / 4;
}

static size_t record_size(unsigned kind)
{
	return sizeof(struct record) + (size_t)(kind + 1) * 4;
}

static struct record *record_at(const struct handles *handles, uint32_t number)
{
	unsigned kind = number >> KIND_SHIFT;
	uint32_t which = number & WHICH_MASK;

	return (struct record *)(handles->kinds[kind].chunks[which / CHUNK] +
				 which % CHUNK * record_size(kind));
}

/* Tells two versions of a file apart, mostly. */
static unsigned tag_of(const struct store_attr *attr)
{
	uint64_t mixed = attr->size ^ (uint64_t)attr->mtime_ns * 3 ^ (uint64_t)attr->ctime_ns * 5;

	return (unsigned)(mixed * UINT64_C(0x9e3779b97f4a7c15) >> 59);
}

/* --- what is kept of a handle -------------------------------------------------------------------
 */

/* The number of a beginning, plus 1. 0: there are too many of them. */
static unsigned find_prefix_locked(struct handles *handles, const struct nfs_handle *handle)
{
	struct nfs_handle prefix = { .size = (uint8_t)(handle->size - SUFFIX) };

	lock_assert_held(&handles->lock);
	memcpy(prefix.bytes, handle->bytes, prefix.size);
	for (unsigned i = 0; i < handles->prefix_count; i++)
		if (nfs_same_handle(&handles->prefixes[i], &prefix))
			return i + 1;
	if (handles->prefix_count == HANDLE_PREFIXES_MAX)
		return 0;
	handles->prefixes[handles->prefix_count++] = prefix;
	return handles->prefix_count;
}

static void keep_locked(struct handles *handles, const struct nfs_handle *handle, struct kept *kept)
{
	lock_assert_held(&handles->lock);
	assert(handle->size && handle->size <= NFS_HANDLE_MAX);
	kept->prefix = handle->size > SUFFIX ? (uint8_t)find_prefix_locked(handles, handle) : 0;
	if (kept->prefix) {
		kept->size = SUFFIX;
		memcpy(kept->bytes, handle->bytes + handle->size - SUFFIX, SUFFIX);
		return;
	}
	kept->size = handle->size + 1;
	kept->bytes[0] = handle->size;
	memcpy(kept->bytes + 1, handle->bytes, handle->size);
}

static void restore_locked(const struct handles *handles, const struct record *record,
			   struct nfs_handle *handle)
{
	lock_assert_held(&handles->lock);
	if (!record->prefix) {
		handle->size = record->kept[0];
		memcpy(handle->bytes, record->kept + 1, handle->size);
		return;
	}
	*handle = handles->prefixes[record->prefix - 1];
	memcpy(handle->bytes + handle->size, record->kept, SUFFIX);
	handle->size += SUFFIX;
}

/* Where a file would be in an index of this size. */
static size_t hash_of(uint64_t ino, unsigned dev, size_t room)
{
	uint64_t hash = (ino ^ (uint64_t)dev << 53) * UINT64_C(0x9e3779b97f4a7c15);

	hash = (hash ^ hash >> 32) * UINT64_C(0xd6e8feb86659fd93);
	return (size_t)((unsigned __int128)hash * room >> 64);
}

/* --- the index: open addressing, without gaps in a row of collisions ----------------------------
 */

/* Where the file is, or where it would be. */
static size_t position_locked(const struct handles *handles, uint64_t ino, unsigned dev)
{
	size_t at = hash_of(ino, dev, handles->index_room);

	lock_assert_held(&handles->lock);
	while (handles->index[at]) {
		const struct record *record = record_at(handles, handles->index[at] - 1);

		if (record->ino == ino && record->dev == dev)
			break;
		at = at + 1 < handles->index_room ? at + 1 : 0;
	}
	return at;
}

static bool grow_index_locked(struct handles *handles)
{
	size_t old_room = handles->index_room;
	uint32_t *old = handles->index;

	lock_assert_held(&handles->lock);
	if (handles->count + 1 <= old_room / 5 * 4)
		return true;
	handles->index_room = old_room ? old_room / 2 * 3 : INDEX_LEAST;
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

/* How far it is from one position to another, forwards. */
static size_t distance(size_t from, size_t to, size_t room)
{
	return to >= from ? to - from : to + room - from;
}

/* What stands after it in its row moves up, as far as it may. */
static void remove_position_locked(struct handles *handles, size_t at)
{
	size_t room = handles->index_room, next = at;

	lock_assert_held(&handles->lock);
	for (;;) {
		const struct record *record;
		size_t wanted;

		next = next + 1 < room ? next + 1 : 0;
		if (!handles->index[next])
			break;
		record = record_at(handles, handles->index[next] - 1);
		wanted = hash_of(record->ino, record->dev, room);
		if (distance(wanted, next, room) < distance(at, next, room))
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
	if (kind->used == WHICH_MASK ||
	    (kind->used == (uint64_t)kind->chunk_count * CHUNK && !add_chunk(kind, number)))
		return 0;
	return (record | kind->used++) + 1;
}

static void free_record_locked(struct handles *handles, uint32_t number)
{
	struct handle_kind *kind = &handles->kinds[number >> KIND_SHIFT];
	struct record *record = record_at(handles, number);

	lock_assert_held(&handles->lock);
	record->ino = kind->free;
	kind->free = (number & WHICH_MASK) + 1;
}

static void remove_locked(struct handles *handles, size_t at)
{
	uint32_t number = handles->index[at] - 1;

	lock_assert_held(&handles->lock);
	remove_position_locked(handles, at);
	free_record_locked(handles, number);
	handles->count--;
}

static void fill(struct record *record, const struct store_attr *attr, const struct kept *kept)
{
	record->ino = attr->ino;
	record->dev = attr->dev;
	record->tag = tag_of(attr) & 31;
	record->prefix = kept->prefix;
	memcpy(record->kept, kept->bytes, kept->size);
}

static void put_locked(struct handles *handles, const struct store_attr *attr,
		       const struct nfs_handle *handle)
{
	struct kept kept;
	uint32_t number;
	size_t at;

	lock_assert_held(&handles->lock);
	if (!grow_index_locked(handles))
		return;
	keep_locked(handles, handle, &kept);
	at = position_locked(handles, attr->ino, attr->dev);
	if (handles->index[at] && (handles->index[at] - 1) >> KIND_SHIFT == kind_of(&kept)) {
		fill(record_at(handles, handles->index[at] - 1), attr, &kept);
		return;
	}
	if (handles->index[at])
		remove_locked(handles, at);
	number = new_record_locked(handles, kind_of(&kept));
	if (!number)
		return;
	fill(record_at(handles, number - 1), attr, &kept);
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
		if (found)
			restore_locked(handles, record_at(handles, handles->index[at] - 1), handle);
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
