/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Any bytes in place of what an NFS server sends. The first byte says how the network cuts the
 * rest.
 *
 * However it is cut, the same replies must come of it, and nothing may be written beyond what a
 * call has room for. Each reply is then decoded as what the call asked for, from a copy of exactly
 * its size.
 */
#include <stdlib.h>
#include <string.h>

#include "fnv.h"
#include "fuzz.h"
#include "nfs/proto.h"
#include "nfs/reader.h"

#define CALLS 8
#define ROOM 2048
#define BYTES 600

const char fuzz_name[] = "nfs";

static const enum nfs_procedure asked[CALLS] = { NFS_READ,     NFS_LOOKUP, NFS_READDIRPLUS,
						 NFS_GETATTR,  NFS_FSINFO, NFS_FSSTAT,
						 NFS_READLINK, NFS_MOUNT };

/* Calls that wait for their replies; their xids are 1, 2 and so on. */
struct world {
	struct reply *replies[CALLS];
	uint32_t hash; /* of all that came */
	unsigned completed;
};

static struct reply *find(void *context, uint32_t xid)
{
	struct world *world = context;

	return xid >= 1 && xid <= CALLS ? world->replies[xid - 1] : NULL;
}

static void decode_list(struct xdr *reply)
{
	struct nfs_entry entry;
	uint64_t verifier;
	uint32_t sum = 0;

	nfs_get_list_head(reply, &verifier);
	while (nfs_get_entry(reply, &entry)) {
		fuzz_require(entry.name + entry.size <= reply->end, "a name is in the reply");
		for (uint32_t i = 0; i < entry.size; i++)
			sum += entry.name[i];
		fuzz_require(!entry.has_handle || entry.handle.size, "a handle has bytes");
	}
	fuzz_require(sum != 1 || verifier + 1 != verifier, "all of it was read");
}

static void decode_read(struct xdr *reply, size_t bytes_size)
{
	struct nfs_read_head head;

	nfs_get_read_head(reply, &head);
	fuzz_require(reply->bad || head.count == bytes_size, "as many bytes came as it says");
}

static void decode(enum nfs_procedure procedure, struct xdr *reply, size_t bytes_size)
{
	struct nfs_handle handle = { 0 };
	struct nfs_limits limits;
	struct nfs_space space;
	struct nfs_found found;
	struct nfs_attr attr;
	bool has_attr;
	uint32_t size;

	if (procedure == NFS_READ)
		decode_read(reply, bytes_size);
	else if (procedure == NFS_LOOKUP)
		nfs_get_found(reply, &found);
	else if (procedure == NFS_READDIRPLUS)
		decode_list(reply);
	else if (procedure == NFS_GETATTR)
		nfs_get_attr(reply, &attr);
	else if (procedure == NFS_FSINFO)
		nfs_get_limits(reply, &limits);
	else if (procedure == NFS_FSSTAT)
		nfs_get_space(reply, &space);
	else if (procedure == NFS_READLINK)
		(void)nfs_get_link(reply, &attr, &has_attr, &size);
	else
		(void)nfs_get_mounted(reply, &handle);
	fuzz_require(reply->at <= reply->end, "the cursor stays inside");
	fuzz_require(handle.size <= NFS_HANDLE_MAX, "a handle fits");
}

static void complete(void *context, struct reply *reply, int rc)
{
	struct world *world = context;
	unsigned which = 0;
	struct xdr in;
	uint8_t *copy;
	uint32_t status;

	while (world->replies[which] != reply)
		which++;
	fuzz_require(reply->size <= reply->room, "a reply fits");
	fuzz_require(reply->bytes_size <= reply->bytes_room, "its bytes fit");
	world->completed++;
	world->hash = fnv32_add(world->hash, &which, sizeof(which));
	world->hash = fnv32_add(world->hash, &rc, sizeof(rc));
	if (rc)
		return;
	world->hash = fnv32_add(world->hash, reply->buffer, reply->size);
	if (reply->bytes)
		world->hash = fnv32_add(world->hash, reply->bytes, reply->bytes_size);
	copy = fuzz_copy(reply->buffer, reply->size);
	in = (struct xdr){ copy, copy + reply->size, false };
	if (!nfs_open_reply(&in, &(struct nfs_args){ .procedure = asked[which] }, &status))
		decode(asked[which], &in, reply->bytes_size);
	free(copy);
}

static int hand_over(struct reader *reader, const uint8_t *data, size_t size, size_t most)
{
	int rc = 0;

	while (size && !rc) {
		struct iovec space[2];
		int parts = reader_space(reader, space);
		size_t given = 0;

		for (int i = 0; i < parts; i++) {
			size_t part = space[i].iov_len, left = most - given;

			part = part < left ? part : left;
			part = part < size - given ? part : size - given;
			memcpy(space[i].iov_base, data + given, part);
			given += part;
		}
		rc = reader_take(reader, given);
		data += given;
		size -= given;
	}
	return rc;
}

/* Returns what came of the bytes, in pieces of at most `most`. */
static uint32_t receive(const uint8_t *data, size_t size, size_t most)
{
	static const struct reader_events events = { find, complete };
	struct world world = { .hash = FNV32_BEGIN };
	struct reader *reader = malloc(sizeof(*reader));
	int rc;

	fuzz_require(reader, "there is memory");
	for (unsigned i = 0; i < CALLS; i++) {
		struct reply *reply = calloc(1, sizeof(*reply));

		fuzz_require(reply, "there is memory");
		world.replies[i] = reply;
		reply->room = ROOM;
		reply->buffer = malloc(ROOM);
		reply->bytes_room = asked[i] == NFS_READ ? BYTES : 0;
		reply->bytes = asked[i] == NFS_READ ? malloc(BYTES) : NULL;
	}
	reader_init(reader, &events, &world);
	rc = hand_over(reader, data, size, most);
	for (unsigned i = 0; i < CALLS; i++) {
		free(world.replies[i]->bytes);
		free(world.replies[i]->buffer);
		free(world.replies[i]);
	}
	free(reader);
	return fnv32_add(world.hash, &rc, sizeof(rc));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint32_t wanted;

	if (!size)
		return 0;
	wanted = receive(data + 1, size - 1, SIZE_MAX);
	fuzz_require(receive(data + 1, size - 1, 1u + data[0]) == wanted,
		     "pieces make no difference");
	fuzz_require(receive(data + 1, size - 1, 1) == wanted, "nor do single bytes");
	return 0;
}

/* --- inputs -------------------------------------------------------------------------------------
 */

#define HEAD "\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0" /* from REPLY on, status 0 */
#define TIMES "\x12\x34\0\0\0\0\1\0\x12\x35\0\0\0\0\2\0\x12\x36\0\0\0\0\3\0"
#define ATTR                                                                                       \
	"\0\0\0\1\0\0\1\xa4\0\0\0\1\0\0\3\xe8\0\0\0\x64\0\0\0\0\0\0\0\5\0\0\0\0\0\0\x10\0"         \
	"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\7\0\0\0\0\0\0\1\1" TIMES
#define HANDLE "\0\0\0\7abcdefg\0"

size_t fuzz_make(struct fuzz_random *random, uint8_t *data)
{
	/* Without marks and xids: each is one record's content. */
	static const struct fuzz_part contents[CALLS] = {
		FUZZ_PART(HEAD "\0\0\0\1" ATTR "\0\0\0\5\0\0\0\1\0\0\0\5hello\0\0\0"),
		FUZZ_PART(HEAD HANDLE "\0\0\0\1" ATTR "\0\0\0\0"),
		FUZZ_PART(HEAD "\0\0\0\0\0\0\0\0\0\0\0\1"
			       "\0\0\0\1\0\0\0\0\0\0\0\5\0\0\0\3abc\0\0\0\0\0\0\0\0\1"
			       "\0\0\0\1" ATTR "\0\0\0\1" HANDLE "\0\0\0\0\0\0\0\1"),
		FUZZ_PART(HEAD ATTR),
		FUZZ_PART(HEAD "\0\0\0\0\0\x10\0\0\0\x10\0\0\0\0\0\1\0\x10\0\0\0\x10\0\0\0\0\0\1"
			       "\0\0\x40\0"),
		FUZZ_PART(HEAD "\0\0\0\0"
			       "12345678123456781234567812345678123456781234567812345678"),
		FUZZ_PART(HEAD "\0\0\0\1" ATTR "\0\0\0\6target\0\0"),
		FUZZ_PART(HEAD HANDLE "\0\0\0\2\0\0\0\1\0\0\0\6"),
	};
	size_t size = 0;

	data[size++] = (uint8_t)fuzz_roll(random, 256);
	while (size < 2048 && fuzz_roll(random, 5)) {
		unsigned which = fuzz_roll(random, CALLS);
		const struct fuzz_part *content = &contents[which];
		size_t first = fuzz_roll(random, 3) ? content->size + 4
						    : fuzz_roll(random, (uint32_t)content->size);
		struct xdr_out out = { data + size, data + FUZZ_INPUT_MAX, false };
		uint8_t record[1024];

		memcpy(record, (uint8_t[]){ 0, 0, 0, (uint8_t)(which + 1) }, 4);
		memcpy(record + 4, content->text, content->size);
		if (first < content->size + 4) {
			xdr_put_number(&out, (uint32_t)first);
			memcpy(out.at, record, first);
			out.at += first;
		} else {
			first = 0;
		}
		xdr_put_number(&out, 0x80000000u | (uint32_t)(content->size + 4 - first));
		memcpy(out.at, record + first, content->size + 4 - first);
		size = (size_t)(out.at - data) + content->size + 4 - first;
	}
	return size;
}
