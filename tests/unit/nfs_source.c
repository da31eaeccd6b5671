/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the NFS source does without a server: URLs, numbers on the wire, replies, and handles. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include <criterion/criterion.h>

#include "nfs/handles.h"
#include "nfs/reader.h"
#include "nfs/url.h"

/* --- URLs ---------------------------------------------------------------------------------------
 */

static void check_url(const char *text, const char *server, unsigned port, const char *path)
{
	struct nfs_url url;
	const char *wrong = nfs_url_parse(text, &url);

	cr_assert(nfs_url_is(text));
	cr_assert_null(wrong, "%s: %s", text, wrong);
	cr_assert_str_eq(url.server, server);
	cr_assert_eq(url.port, port, "%s: port %u", text, url.port);
	cr_assert_str_eq(url.path, path);
}

Test(nfs, urls_that_are_right)
{
	check_url("nfs://server/export", "server", 0, "/export");
	check_url("nfs://server:12049/export/dir/", "server", 12049, "/export/dir");
	check_url("nfs://[fe80::1]/export", "fe80::1", 0, "/export");
	check_url("nfs://[::1]:2049//a///b", "::1", 2049, "/a/b");
	check_url("nfs://10.0.0.1/", "10.0.0.1", 0, "/");
	check_url("nfs://h/a%20b%2fc%25", "h", 0, "/a b/c%");
	check_url("nfs://h/...", "h", 0, "/...");
	cr_assert(!nfs_url_is("/nfs://x"));
	cr_assert(!nfs_url_is("nfs:/x"));
}

static void refuse_url(const char *text, const char *part)
{
	struct nfs_url url;
	const char *wrong = nfs_url_parse(text, &url);

	cr_assert_not_null(wrong, "%s", text);
	cr_assert_not_null(strstr(wrong, part), "%s: %s", text, wrong);
}

Test(nfs, urls_that_are_wrong)
{
	char text[2048];

	refuse_url("nfs://", "no server");
	refuse_url("nfs:///export", "no server");
	refuse_url("nfs://:2049/export", "no server");
	refuse_url("nfs://[]/export", "no server");
	refuse_url("nfs://server", "no export");
	refuse_url("nfs://server:2049", "no export");
	refuse_url("nfs://server:/export", "port");
	refuse_url("nfs://server:0/export", "port");
	refuse_url("nfs://server:65536/export", "port");
	refuse_url("nfs://server:12x/export", "port");
	refuse_url("nfs://[::1]2049/export", "brackets");
	refuse_url("nfs://fe80::1/export", "brackets");
	refuse_url("nfs://[::1/export", "]");
	refuse_url("nfs://user@server/export", "user");
	refuse_url("nfs://h/a%", "%25");
	refuse_url("nfs://h/a%2", "%25");
	refuse_url("nfs://h/a%zz", "%25");
	refuse_url("nfs://h/a%00b", "%25");
	refuse_url("nfs://h/a?b", "%3F");
	refuse_url("nfs://h/a/../b", "..");
	refuse_url("nfs://h/%2e%2E/b", "..");
	refuse_url("nfs://h/.", ".");
	snprintf(text, sizeof(text), "nfs://h/%01200d", 0);
	refuse_url(text, "too long");
	snprintf(text, sizeof(text), "nfs://%0300d/x", 0);
	refuse_url(text, "too long");
}

/* --- numbers ------------------------------------------------------------------------------------
 */

Test(nfs, numbers_come_back)
{
	uint8_t bytes[64];
	struct xdr_out out = { .at = bytes, .end = bytes + sizeof(bytes) };
	struct xdr in = { .at = bytes };
	const uint8_t *opaque;
	uint32_t size;

	xdr_put_number(&out, 0x01020304);
	xdr_put_long(&out, 0x0102030405060708);
	xdr_put_opaque(&out, "abcde", 5);
	cr_assert(!out.bad);
	cr_assert_eq(out.at - bytes, 4 + 8 + 4 + 8);
	cr_assert(!memcmp(bytes, "\1\2\3\4", 4));
	in.end = out.at;
	cr_assert_eq(xdr_get_number(&in), 0x01020304u);
	cr_assert_eq(xdr_get_long(&in), 0x0102030405060708u);
	opaque = xdr_get_opaque(&in, 5, &size);
	cr_assert(!in.bad && size == 5 && !memcmp(opaque, "abcde\0\0\0", 8));
	cr_assert_eq(xdr_get_number(&in), 0u);
	cr_assert(in.bad);
}

Test(nfs, nothing_is_read_or_written_beyond_the_end)
{
	uint8_t bytes[12] = { 0, 0, 0, 5, 1, 2, 3, 4, 5 };

	for (size_t size = 0; size < 12; size++) {
		struct xdr in = { .at = bytes, .end = bytes + size };
		struct xdr_out out = { .at = bytes, .end = bytes + size };
		uint32_t length;

		cr_assert_null(xdr_get_opaque(&in, 100, &length));
		cr_assert(in.bad);
		xdr_put_opaque(&out, "abcde", 5);
		cr_assert(out.bad);
		cr_assert(out.at <= out.end);
		memcpy(bytes, "\0\0\0\5\1\2\3\4\5\0\0", 12);
	}
}

/* --- replies ------------------------------------------------------------------------------------
 */

#define XID 77

struct maker {
	uint8_t bytes[8192];
	struct xdr_out out;
};

static void begin_accepted(struct maker *maker, uint32_t status)
{
	maker->out = (struct xdr_out){ maker->bytes, maker->bytes + sizeof(maker->bytes), false };
	xdr_put_number(&maker->out, XID);
	xdr_put_number(&maker->out, 1); /* a reply */
	xdr_put_number(&maker->out, 0); /* accepted */
	xdr_put_number(&maker->out, 0);
	xdr_put_opaque(&maker->out, "", 0);
	xdr_put_number(&maker->out, 0);
	xdr_put_number(&maker->out, status);
}

static void put_attr(struct maker *maker, uint32_t type, uint64_t size)
{
	struct xdr_out *out = &maker->out;

	xdr_put_number(out, type);
	xdr_put_number(out, 0640);
	xdr_put_number(out, 2);
	xdr_put_number(out, 1000);
	xdr_put_number(out, 100);
	xdr_put_long(out, size);
	xdr_put_long(out, 4096);
	xdr_put_number(out, 8);
	xdr_put_number(out, 1);
	xdr_put_long(out, 0x1122334455667788);
	xdr_put_long(out, 4711);
	for (uint32_t i = 0; i < 3; i++) {
		xdr_put_number(out, 1000 + i);
		xdr_put_number(out, 500 + i);
	}
}

static size_t made(const struct maker *maker)
{
	return (size_t)(maker->out.at - maker->bytes);
}

static void make_read(struct maker *maker, const char *text, size_t size, bool has_attr)
{
	begin_accepted(maker, 0);
	xdr_put_number(&maker->out, has_attr);
	if (has_attr)
		put_attr(maker, 1, size);
	xdr_put_number(&maker->out, (uint32_t)size);
	xdr_put_number(&maker->out, 1);
	xdr_put_opaque(&maker->out, text, size);
}

Test(nfs, attributes)
{
	struct nfs_args args = { .procedure = NFS_GETATTR };
	struct nfs_attr attr;
	struct maker maker;
	uint32_t status;
	struct xdr in;

	begin_accepted(&maker, 0);
	put_attr(&maker, 1, (uint64_t)5 << 32);
	in = (struct xdr){ maker.bytes, maker.out.at, false };
	cr_assert_eq(nfs_open_reply(&in, &args, &status), 0);
	nfs_get_attr(&in, &attr);
	cr_assert(!in.bad && in.at == in.end);
	cr_assert_eq(attr.attr.mode, 0100640);
	cr_assert_eq(attr.attr.size, (uint64_t)5 << 32);
	cr_assert_eq(attr.attr.ino, 4711);
	cr_assert_eq(attr.fsid, 0x1122334455667788);
	cr_assert_eq(attr.attr.nlink, 2);
	cr_assert_eq(attr.attr.uid, 1000);
	cr_assert_eq(attr.attr.gid, 100);
	cr_assert_eq(attr.attr.mtime_ns, 1001 * 1000000000ll + 501);
	cr_assert_eq(attr.attr.ctime_ns, 1002 * 1000000000ll + 502);

	begin_accepted(&maker, 0);
	put_attr(&maker, 4, 9);
	in = (struct xdr){ maker.bytes, maker.out.at, false };
	cr_assert_eq(nfs_open_reply(&in, &args, &status), 0);
	nfs_get_attr(&in, &attr);
	cr_assert_eq(attr.attr.mode, 0020640);
	cr_assert_eq(attr.attr.size, makedev(8, 1));

	begin_accepted(&maker, 0);
	put_attr(&maker, 8, 9);
	in = (struct xdr){ maker.bytes, maker.out.at, false };
	(void)nfs_open_reply(&in, &args, &status);
	nfs_get_attr(&in, &attr);
	cr_assert(in.bad, "there is no such type");
}

Test(nfs, errors_of_the_server)
{
	static const uint32_t pairs[][2] = { { 2, ENOENT },	   { 13, EACCES },
					     { 63, ENAMETOOLONG }, { 70, ESTALE },
					     { 10001, ESTALE },	   { 10003, EAGAIN },
					     { 10006, EIO },	   { 4242, EIO } };
	struct nfs_args args = { .procedure = NFS_READ };
	struct maker maker;
	uint32_t status;

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		struct xdr in;

		begin_accepted(&maker, pairs[i][0]);
		in = (struct xdr){ maker.bytes, maker.out.at, false };
		cr_assert_eq(nfs_open_reply(&in, &args, &status), -(int)pairs[i][1]);
		cr_assert_eq(status, pairs[i][0]);
	}
}

/* A refused call: that the version of RPC is wrong, or who asks. */
Test(nfs, errors_of_rpc)
{
	struct nfs_args args = { .procedure = NFS_READ };
	uint8_t bytes[28] = { 0, 0, 0, XID, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1 };
	struct xdr in = { bytes, bytes + 20, false };
	uint32_t status;

	cr_assert_eq(nfs_open_reply(&in, &args, &status), -EACCES);
	bytes[15] = 0;
	in = (struct xdr){ bytes, bytes + 24, false };
	cr_assert_eq(nfs_open_reply(&in, &args, &status), -EPROTONOSUPPORT);
	bytes[7] = 0; /* a call, and no reply */
	in = (struct xdr){ bytes, bytes + 24, false };
	cr_assert_eq(nfs_open_reply(&in, &args, &status), -EBADMSG);
}

/* Every call can be read again by hand: the mark, and where the handle is. */
Test(nfs, calls)
{
	struct nfs_identity identity = { 1000, 100 };
	struct nfs_args args = { .procedure = NFS_READ,
				 .handle = { 28, "a handle of 28 bytes, yes .." },
				 .offset = 1 << 20,
				 .count = 110000 };
	uint8_t bytes[NFS_CALL_MAX];
	size_t size = nfs_put_call(bytes, sizeof(bytes), XID, &identity, &args);

	cr_assert_eq(xdr_number_at(bytes), 0x80000000u | (size - 4));
	cr_assert_eq(xdr_number_at(bytes + 4), XID);
	cr_assert_eq(xdr_number_at(bytes + 16), 100003);
	cr_assert_eq(xdr_number_at(bytes + 24), 6);
	cr_assert_eq(xdr_number_at(bytes + 28), 1);
	cr_assert_eq(xdr_number_at(bytes + 32), 28, "the credential's own length");
	cr_assert_eq(xdr_number_at(bytes + size - 4), 110000);
	cr_assert(!memcmp(bytes + size - 12 - 28, args.handle.bytes, 28));
	for (size_t room = 0; room < size; room++)
		cr_assert_eq(nfs_put_call(bytes, room, XID, &identity, &args), 0);
}

/* --- the reader ---------------------------------------------------------------------------------
 */

struct world {
	struct reply reply;
	uint8_t buffer[READER_HEAD_ROOM];
	char bytes[8192];
	unsigned completed;
	int rc;
};

static struct reply *find(void *context, uint32_t xid)
{
	struct world *world = context;

	return xid == XID ? &world->reply : NULL;
}

static void complete(void *context, struct reply *reply, int rc)
{
	struct world *world = context;

	cr_assert_eq(reply, &world->reply);
	world->completed++;
	world->rc = rc;
}

static const struct reader_events events = { find, complete };

static void prepare(struct world *world, struct reader *reader, size_t bytes_room)
{
	memset(world, 0, sizeof(*world));
	world->reply.buffer = world->buffer;
	world->reply.room = sizeof(world->buffer);
	world->reply.bytes = bytes_room ? world->bytes : NULL;
	world->reply.bytes_room = bytes_room;
	reader_init(reader, &events, world);
}

/* Hands over `size` bytes, at most `most` at a time. */
static int hand_over(struct reader *reader, const uint8_t *from, size_t size, size_t most)
{
	int rc = 0;

	while (size && !rc) {
		struct iovec space[2];
		int parts = reader_space(reader, space);
		size_t given = 0;

		for (int i = 0; i < parts && given < most && given < size; i++) {
			size_t part = space[i].iov_len;

			part = part < size - given ? part : size - given;
			part = part < most - given ? part : most - given;
			memcpy(space[i].iov_base, from + given, part);
			given += part;
		}
		rc = reader_take(reader, given);
		from += given;
		size -= given;
	}
	return rc;
}

/* The same record in fragments of at most `fragment` bytes. */
static size_t in_fragments(const struct maker *maker, size_t fragment, uint8_t *to)
{
	size_t left = made(maker), size = 0;
	const uint8_t *from = maker->bytes;

	while (left) {
		size_t part = left < fragment ? left : fragment;
		struct xdr_out mark = { to + size, to + size + 4, false };

		left -= part;
		xdr_put_number(&mark, (uint32_t)part | (left ? 0 : 0x80000000u));
		memcpy(to + size + 4, from, part);
		from += part;
		size += part + 4;
	}
	return size;
}

/* However the bytes are cut, by the server into fragments and by the network into pieces. */
Test(nfs, a_read_comes_in_any_pieces)
{
	static const size_t fragments[] = { 1, 3, 17, 128, 1000, 100000 };
	static const size_t pieces[] = { 1, 2, 5, 127, 4096, 100000 };
	static uint8_t wire[65536];
	static char text[5001];
	static struct reader reader;
	static struct maker maker;
	static struct world world;

	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (char)(i * 7 + i / 256);
	for (unsigned i = 0; i < 72; i++) {
		bool has_attr = i >= 36;
		size_t fragment = fragments[i / 6 % 6], piece = pieces[i % 6], size;
		struct nfs_read_head head;
		uint32_t status;
		struct xdr in;

		make_read(&maker, text, sizeof(text), has_attr);
		size = in_fragments(&maker, fragment, wire);
		prepare(&world, &reader, sizeof(text));
		for (unsigned twice = 1; twice <= 2; twice++) {
			memset(world.bytes, 0, sizeof(world.bytes));
			cr_assert_eq(hand_over(&reader, wire, size, piece), 0);
			cr_assert_eq(world.completed, twice);
			cr_assert_eq(world.rc, 0);
			cr_assert_eq(world.reply.bytes_size, sizeof(text));
			cr_assert(!memcmp(world.bytes, text, sizeof(text)));
		}
		in = (struct xdr){ world.buffer, world.buffer + world.reply.size, false };
		cr_assert_eq(nfs_open_reply(&in, &(struct nfs_args){ .procedure = NFS_READ },
					    &status),
			     0);
		nfs_get_read_head(&in, &head);
		cr_assert(!in.bad && in.at == in.end && head.at_end);
		cr_assert_eq(head.count, sizeof(text));
		cr_assert_eq(head.has_attr, has_attr);
	}
}

/* Nothing is written after a read was given up, and what follows is still understood. */
Test(nfs, a_forgotten_read_writes_nothing)
{
	static uint8_t wire[16384];
	static char text[5000] = { 1 };
	static struct reader reader;
	static struct maker maker;
	static struct world world;
	size_t size;

	memset(text, 'x', sizeof(text));
	make_read(&maker, text, sizeof(text), true);
	size = in_fragments(&maker, 100000, wire);
	for (size_t cut = 1; cut < size; cut += 13) {
		prepare(&world, &reader, sizeof(text));
		cr_assert_eq(hand_over(&reader, wire, cut, 50), 0);
		reader_forget(&reader, &world.reply);
		memset(world.bytes, 'y', sizeof(world.bytes));
		world.reply.buffer = NULL;
		if (cut < 8)
			continue; /* it would still be found */
		cr_assert_eq(hand_over(&reader, wire + cut, size - cut, 100000), 0);
		cr_assert_eq(world.completed, 0);
		for (size_t i = 0; i < sizeof(world.bytes); i++)
			cr_assert_eq(world.bytes[i], 'y');
		world.reply.buffer = world.buffer;
		cr_assert_eq(hand_over(&reader, wire, size, 100000), 0);
		cr_assert_eq(world.completed, 1);
	}
}

Test(nfs, replies_that_do_not_fit)
{
	static uint8_t wire[16384];
	static char text[5000];
	static struct reader reader;
	static struct maker maker;
	static struct world world;
	size_t size;

	make_read(&maker, text, sizeof(text), true);
	size = in_fragments(&maker, 1000, wire);
	prepare(&world, &reader, sizeof(text) - 1); /* more bytes than were asked for */
	cr_assert_eq(hand_over(&reader, wire, size, 100), 0);
	cr_assert(world.completed == 1 && world.rc == -EMSGSIZE);
	prepare(&world, &reader, 0); /* one that is to be kept whole */
	cr_assert_eq(hand_over(&reader, wire, size, 100), 0);
	cr_assert(world.completed == 1 && world.rc == -EMSGSIZE);

	size = in_fragments(&maker, 100000, wire); /* says more than it has */
	wire[2] = 1;
	wire[3] = 0;
	prepare(&world, &reader, sizeof(text));
	cr_assert_eq(hand_over(&reader, wire, size, 100), -EBADMSG);
	cr_assert(world.completed == 1 && world.rc == -EBADMSG);

	memset(wire, 0x7f, sizeof(wire)); /* endless */
	prepare(&world, &reader, sizeof(text));
	cr_assert_eq(hand_over(&reader, wire, sizeof(wire), 100), -EBADMSG);
	cr_assert_eq(world.completed, 0);
}

/* --- handles ------------------------------------------------------------------------------------
 */

static struct nfs_handle handle_of(uint64_t ino, unsigned size, bool alike)
{
	struct nfs_handle handle = { .size = (uint8_t)size };

	for (unsigned i = 0; i < size; i++)
		handle.bytes[i] =
			alike && i + 8 < size ? 'x' : (uint8_t)(ino >> (size - i) % 8 * 8 ^ i);
	return handle;
}

/* As many come and go as a directory has that changes, of all sizes. At first handles are alike but
 * for their ends, then all are different, more than the table keeps beginnings of. */
static void try_handles(unsigned (*next_size)(uint64_t), bool alike)
{
	enum { FILES = 20000 };
	unsigned *sizes = calloc(FILES, sizeof(*sizes)); /* 0: it is not there */
	struct handles handles;
	uint64_t state = 1;

	handles_init(&handles);
	for (unsigned round = 0; round < 10 * FILES; round++) {
		struct store_attr attr = { 0 };
		unsigned which, size;
		struct nfs_handle put, found = { 0 };

		state = state * 6364136223846793005u + 1442695040888963407u;
		which = (unsigned)(state >> 33) % FILES;
		size = next_size(state);
		attr.ino = (uint64_t)which / 2 * 4096;
		attr.dev = which % 2;
		cr_assert_eq(handles_find(&handles, &attr, &found), sizes[which] > 0);
		put = handle_of(which, sizes[which], alike);
		cr_assert(!sizes[which] || nfs_same_handle(&found, &put));
		if (sizes[which] && state >> 60 < 7) {
			handles_forget(&handles, &attr);
			sizes[which] = 0;
		} else {
			put = handle_of(which, size, alike);
			handles_put(&handles, &attr, &put);
			sizes[which] = size;
		}
	}
	handles_destroy(&handles);
	free(sizes);
}

static unsigned any_size(uint64_t random)
{
	return 1 + (unsigned)(random >> 50) % NFS_HANDLE_MAX;
}

static unsigned one_size(uint64_t random)
{
	(void)random;
	return 28;
}

Test(nfs, handles_are_found)
{
	try_handles(any_size, false);
	try_handles(any_size, true);
	try_handles(one_size, true);
}

/* What docs/memory.md promises for a million files. */
Test(nfs, handles_take_little_memory)
{
	enum { FILES = 1000000 };
	struct handles handles;
	size_t bytes = 0;

	handles_init(&handles);
	for (unsigned i = 0; i < FILES; i++) {
		struct store_attr attr = { .ino = 1000 + i };
		struct nfs_handle handle = handle_of(i, 28, true);

		handles_put(&handles, &attr, &handle);
	}
	cr_assert_eq(handles.count, FILES);
	cr_assert_eq(handles.prefix_count, 1);
	bytes = handles.index_room * sizeof(*handles.index);
	for (unsigned kind = 0; kind < HANDLE_KINDS; kind++)
		bytes += (size_t)handles.kinds[kind].used * (11 + (kind + 1) * 4);
	cr_assert_leq(bytes / FILES, 31);
	handles_destroy(&handles);
}

/* The old version's end leaves what the new one needs. */
Test(nfs, a_handle_stays_for_the_next_version)
{
	struct store_attr old = { .ino = 5, .size = 100, .mtime_ns = 7, .ctime_ns = 7 };
	struct store_attr fresh = { .ino = 5, .size = 101, .mtime_ns = 8, .ctime_ns = 8 };
	struct nfs_handle handle = handle_of(5, 28, false), found;
	struct handles handles;

	handles_init(&handles);
	handles_put(&handles, &old, &handle);
	handles_put(&handles, &fresh, &handle);
	handles_forget(&handles, &old);
	cr_assert(handles_find(&handles, &fresh, &found));
	handles_forget(&handles, &fresh);
	cr_assert(!handles_find(&handles, &fresh, &found));
	handles_destroy(&handles);
}
