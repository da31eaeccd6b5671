/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * An NFS export as the source: the contents of files.
 *
 * A read becomes a transfer, which is one READ by the file's handle, or several at a time if the
 * file is larger than what one READ gives. Each reply has the file's attributes from after the
 * READ, and they are compared with what was known before it: a change in between shows. If a server
 * leaves them out, they are asked for.
 *
 *   step     it ends                                         next
 *   LOOKUP   the next directory on the path is found         LOOKUP
 *            the file is found                               READ, or CHECK if no bytes are wanted
 *   READ     with the attributes that are expected           READ of what is left, or over
 *            without attributes                              CHECK
 *   CHECK    with the attributes that are expected           READ of what is left, or over
 *   READ, CHECK   the handle is unknown, or another file's   LOOKUP, once; then -ESTALE
 *
 * A transfer begins with LOOKUP if no handle is known. All of this is done by the I/O thread.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fnv.h"
#include "nfs/internal.h"

#define KNOWN_DIRS 256 /* directories whose handles are remembered, for files without */
#define PARTS_MOST                                                                                 \
	16	    /* of a transfer at a time: enough to fill a link, few enough to wait behind */
#define BUFFER 1024 /* for a LOOKUP's reply and the head of a READ's */
static_assert(BUFFER >= READER_HEAD_ROOM, "the reader wants so much");

enum step { STEP_LOOKUP, STEP_READ, STEP_CHECK };

/* A part of a transfer, with a call under way. */
struct chunk {
	struct rpc_call call;
	struct transfer *transfer; /* unless it is free */
	enum step step;
	size_t from, size, got; /* of what the transfer wants */
	bool is_short;		/* the last READ brought nothing, or the end of the file */
	struct chunk *next;	/* of its transfer, or free */
	uint8_t buffer[BUFFER];
};

struct transfer {
	struct reads *reads;
	struct store_read *read; /* NULL: it is free */
	struct nfs_handle handle;
	size_t size;		     /* bytes that are wanted */
	size_t begun;		     /* of them */
	bool by_name;		     /* the handle is what the path led to */
	bool from_known;	     /* the path is followed from a directory that is remembered */
	const char *rest;	     /* of the path */
	struct chunk *chunks;	     /* at least one, */
	unsigned chunk_count;	     /* and PARTS_MOST at most */
	struct transfer *next;	     /* free, or hungry */
	char name[NFS_NAME_MAX + 1]; /* that is looked up */
};

struct known_dir {
	char *path; /* NULL: none */
	struct nfs_handle handle;
};

struct reads {
	struct nfs_store *store;

	/* The I/O thread's. */
	struct chunk *chunks, *free_chunks;	     /* `depth` of them */
	struct transfer *transfers, *free_transfers; /* as many */
	struct transfer *hungry, **hungry_end;	     /* have parts that are not begun */
	struct store_read *waiting, **waiting_end;   /* for a transfer */
	struct known_dir known[KNOWN_DIRS];

	struct lock lock;
	struct store_read *added, **added_end; /* lock */
	bool has_cancels;		       /* lock: some read has `cancelled` set */
};

static void run(struct chunk *chunk);

/* --- directories that are remembered ------------------------------------------------------------
 */

static struct known_dir *known_dir(struct reads *reads, const char *path, size_t length)
{
	return &reads->known[fnv32_add(FNV32_BEGIN, path, length) % KNOWN_DIRS];
}

static size_t dir_length(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? (size_t)(slash - path) : 0;
}

static bool is_known(const struct known_dir *known, const char *path, size_t length)
{
	return known->path && !strncmp(known->path, path, length) && !known->path[length];
}

static void remember_dir(struct reads *reads, const char *path, const struct nfs_handle *handle)
{
	size_t length = dir_length(path);
	struct known_dir *known = known_dir(reads, path, length);

	free(known->path);
	known->path = strndup(path, length);
	known->handle = *handle;
}

static void forget_dir(struct reads *reads, const char *path)
{
	size_t length = dir_length(path);
	struct known_dir *known = known_dir(reads, path, length);

	if (!is_known(known, path, length))
		return;
	free(known->path);
	known->path = NULL;
}

/* --- begin and end of a transfer ----------------------------------------------------------------
 */

static struct chunk *add_chunk(struct transfer *transfer)
{
	struct reads *reads = transfer->reads;
	struct chunk *chunk = reads->free_chunks;

	assert(chunk);
	reads->free_chunks = chunk->next;
	chunk->transfer = transfer;
	chunk->next = transfer->chunks;
	transfer->chunks = chunk;
	transfer->chunk_count++;
	return chunk;
}

static void free_chunk(struct chunk *chunk)
{
	struct transfer *transfer = chunk->transfer;
	struct reads *reads = transfer->reads;
	struct chunk **at = &transfer->chunks;

	while (*at != chunk)
		at = &(*at)->next;
	*at = chunk->next;
	transfer->chunk_count--;
	rpc_forget(reads->store->rpc, &chunk->call);
	chunk->next = reads->free_chunks;
	reads->free_chunks = chunk;
}

static void set_hungry(struct transfer *transfer)
{
	transfer->next = NULL;
	*transfer->reads->hungry_end = transfer;
	transfer->reads->hungry_end = &transfer->next;
}

static void unset_hungry(struct transfer *transfer)
{
	struct transfer **at = &transfer->reads->hungry;

	while (*at && *at != transfer)
		at = &(*at)->next;
	if (!*at)
		return;
	*at = transfer->next;
	if (!*at)
		transfer->reads->hungry_end = at;
}

/* Nothing is received for it any more. Returns its read. */
static struct store_read *free_transfer(struct transfer *transfer)
{
	struct reads *reads = transfer->reads;
	struct store_read *read = transfer->read;

	while (transfer->chunks)
		free_chunk(transfer->chunks);
	unset_hungry(transfer);
	transfer->read = NULL;
	transfer->next = reads->free_transfers;
	reads->free_transfers = transfer;
	return read;
}

static void end(struct transfer *transfer, int rc)
{
	size_t size = transfer->size;
	struct store_read *read = free_transfer(transfer);

	read->got = rc ? 0 : size;
	read->done(read, rc);
}

/* --- looking a name up --------------------------------------------------------------------------
 */

static void walk_from_root(struct transfer *transfer)
{
	transfer->rest = transfer->read->path;
	transfer->from_known = false;
	nfs_get_root(transfer->reads->store, &transfer->handle);
}

/* No name on the path is longer than the server could be told. */
static bool can_be_asked(const char *path)
{
	size_t length = strcspn(path, "/");

	while (path[length] && length <= NFS_NAME_MAX) {
		path += length + 1;
		length = strcspn(path, "/");
	}
	return length <= NFS_NAME_MAX;
}

/* With one chunk, which is the only one that the transfer has then. */
static void find(struct transfer *transfer, struct chunk *chunk)
{
	const char *path = transfer->read->path;
	size_t length = dir_length(path);
	struct known_dir *known = known_dir(transfer->reads, path, length);

	while (transfer->chunks->next)
		free_chunk(transfer->chunks == chunk ? chunk->next : transfer->chunks);
	unset_hungry(transfer);
	if (!can_be_asked(path)) {
		end(transfer, -ENAMETOOLONG);
		return;
	}
	transfer->by_name = true;
	walk_from_root(transfer);
	if (length && is_known(known, path, length)) {
		transfer->rest = path + length + 1;
		transfer->from_known = true;
		transfer->handle = known->handle;
	}
	chunk->step = STEP_LOOKUP;
	run(chunk);
}

/* The path does not lead to the version, or cannot be followed. A directory that is remembered may
 * have another path by now. */
static void miss(struct chunk *chunk, int rc)
{
	struct transfer *transfer = chunk->transfer;

	if (transfer->from_known) {
		forget_dir(transfer->reads, transfer->read->path);
		walk_from_root(transfer);
		run(chunk);
		return;
	}
	end(transfer, rc == -ENOENT || rc == -ENOTDIR ? -ESTALE : rc);
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

static void take_part(struct chunk *chunk)
{
	struct transfer *transfer = chunk->transfer;

	chunk->step = transfer->size ? STEP_READ : STEP_CHECK;
	chunk->from = transfer->begun;
	chunk->size = least(transfer->size - transfer->begun, transfer->reads->store->read_most);
	chunk->got = 0;
	transfer->begun += chunk->size;
}

/* The handle is known: the first part, by this chunk. */
static void begin_parts(struct chunk *chunk)
{
	struct transfer *transfer = chunk->transfer;

	transfer->begun = 0;
	take_part(chunk);
	if (transfer->begun < transfer->size)
		set_hungry(transfer);
	run(chunk);
}

static void after_lookup(struct chunk *chunk, int rc)
{
	struct transfer *transfer = chunk->transfer;
	struct nfs_store *store = transfer->reads->store;
	const struct store_attr *expected = transfer->read->expected;
	struct nfs_found found;
	struct store_attr attr;

	if (!rc) {
		nfs_get_found(&chunk->call.result, &found);
		rc = chunk->call.result.bad ? -EIO : 0;
	}
	if (!rc && !*transfer->rest && found.has_attr) {
		nfs_convert(store, &found.attr, &attr);
		rc = store_same_version(&attr, expected) ? 0 : -ESTALE;
	}
	if (rc) {
		miss(chunk, rc);
		return;
	}
	transfer->handle = found.handle;
	if (*transfer->rest) {
		run(chunk);
		return;
	}
	handles_put(&store->handles, expected, &found.handle);
	begin_parts(chunk);
}

/* The handle is unknown, or another file's. A name is looked up once; but if it was looked up in a
 * directory that is remembered, and the server did not tell what it has found, that directory may
 * have been the wrong one. */
static void find_again(struct chunk *chunk)
{
	struct transfer *transfer = chunk->transfer;

	if (transfer->by_name && !transfer->from_known) {
		end(transfer, -ESTALE);
		return;
	}
	if (transfer->by_name)
		forget_dir(transfer->reads, transfer->read->path);
	find(transfer, chunk);
}

/* --- reading ------------------------------------------------------------------------------------
 */

/* So much of the transfer is there: the chunk takes what is left, or goes. Where others wait, one
 * chunk must do. */
static void finish_part(struct chunk *chunk)
{
	struct transfer *transfer = chunk->transfer;
	bool yields = transfer->reads->waiting && transfer->chunk_count > 1;

	if (transfer->begun < transfer->size && !yields) {
		take_part(chunk);
		if (transfer->begun == transfer->size)
			unset_hungry(transfer);
		run(chunk);
		return;
	}
	free_chunk(chunk);
	if (!transfer->chunks)
		end(transfer, 0);
}

/* The attributes are from after the READ. */
static void judge(struct chunk *chunk, const struct nfs_attr *attr)
{
	struct transfer *transfer = chunk->transfer;
	struct store_attr found;

	nfs_convert(transfer->reads->store, attr, &found);
	if (!store_same_version(&found, transfer->read->expected)) {
		find_again(chunk);
	} else if (chunk->got == chunk->size) {
		finish_part(chunk);
	} else if (chunk->is_short) {
		end(transfer, -EIO); /* the version has more bytes than the server gives */
	} else {
		chunk->step = STEP_READ;
		run(chunk);
	}
}

static void after_read(struct chunk *chunk)
{
	struct nfs_read_head head;

	nfs_get_read_head(&chunk->call.result, &head);
	if (chunk->call.result.bad || head.count != chunk->call.reply.bytes_size) {
		end(chunk->transfer, -EIO);
		return;
	}
	chunk->got += head.count;
	chunk->is_short = !head.count || head.at_end;
	if (head.has_attr) {
		judge(chunk, &head.attr);
		return;
	}
	chunk->step = STEP_CHECK;
	run(chunk);
}

static void after_check(struct chunk *chunk)
{
	struct nfs_attr attr;

	nfs_get_attr(&chunk->call.result, &attr);
	if (chunk->call.result.bad)
		end(chunk->transfer, -EIO);
	else
		judge(chunk, &attr);
}

/* --- steps --------------------------------------------------------------------------------------
 */

static void begin_waiting(struct reads *reads);

static void after_step(struct rpc_call *call, int rc)
{
	struct chunk *chunk = call->context;
	struct transfer *transfer = chunk->transfer;
	struct reads *reads = transfer->reads;

	if (chunk->step == STEP_LOOKUP)
		after_lookup(chunk, rc);
	else if (rc == -ESTALE)
		find_again(chunk);
	else if (rc)
		end(transfer, rc);
	else if (chunk->step == STEP_READ)
		after_read(chunk);
	else
		after_check(chunk);
	begin_waiting(reads);
}

static void next_name(struct transfer *transfer)
{
	size_t length = strcspn(transfer->rest, "/");

	if (!strchr(transfer->rest, '/') && transfer->rest != transfer->read->path &&
	    !transfer->from_known)
		remember_dir(transfer->reads, transfer->read->path, &transfer->handle);
	assert(length <= NFS_NAME_MAX);
	memcpy(transfer->name, transfer->rest, length);
	transfer->name[length] = 0;
	transfer->rest += length + (transfer->rest[length] == '/');
}

/* Makes the call of a step. */
static void run(struct chunk *chunk)
{
	struct transfer *transfer = chunk->transfer;
	struct store_read *read = transfer->read;
	struct rpc_call *call = &chunk->call;

	if (chunk->step == STEP_LOOKUP)
		next_name(transfer);
	call->args = (struct nfs_args){ .handle = transfer->handle, .name = transfer->name };
	call->reply = (struct reply){ .buffer = chunk->buffer, .room = sizeof(chunk->buffer) };
	if (chunk->step == STEP_READ) {
		call->args.procedure = NFS_READ;
		call->args.offset = read->offset + chunk->from + chunk->got;
		call->args.count = (uint32_t)(chunk->size - chunk->got);
		call->reply.bytes = (char *)read->buffer + chunk->from + chunk->got;
		call->reply.bytes_room = call->args.count;
	} else {
		call->args.procedure = chunk->step == STEP_LOOKUP ? NFS_LOOKUP : NFS_GETATTR;
	}
	rpc_start(transfer->reads->store->rpc, call);
}

/* --- what waits ---------------------------------------------------------------------------------
 */

/* How many bytes of the version are wanted. */
static size_t wanted(const struct store_read *read)
{
	uint64_t size = read->expected->size;

	if (!read->buffer || read->offset >= size)
		return 0;
	return size - read->offset < read->size ? (size_t)(size - read->offset) : read->size;
}

static void begin(struct reads *reads, struct store_read *read)
{
	struct transfer *transfer = reads->free_transfers;
	struct chunk *chunk;

	assert(transfer); /* there are as many as chunks */
	reads->free_transfers = transfer->next;
	transfer->read = read;
	transfer->size = wanted(read);
	transfer->begun = 0;
	transfer->by_name = false;
	chunk = add_chunk(transfer);
	if (handles_find(&reads->store->handles, read->expected, &transfer->handle))
		begin_parts(chunk);
	else
		find(transfer, chunk);
}

/* NULL: none can have another part under way. */
static struct transfer *find_hungry(struct reads *reads)
{
	struct transfer *transfer = reads->hungry;

	while (transfer && transfer->chunk_count == PARTS_MOST)
		transfer = transfer->next;
	return transfer;
}

static void feed(struct transfer *transfer)
{
	struct chunk *chunk = add_chunk(transfer);

	take_part(chunk);
	if (transfer->begun == transfer->size)
		unset_hungry(transfer);
	run(chunk);
}

/* What waits goes first: what has begun goes on with the chunks that it has, however large it
 * is. */
static void begin_waiting(struct reads *reads)
{
	struct transfer *transfer;

	while (reads->free_chunks && reads->waiting) {
		struct store_read *read = reads->waiting;

		reads->waiting = read->next;
		if (!reads->waiting)
			reads->waiting_end = &reads->waiting;
		begin(reads, read);
	}
	while (reads->free_chunks && (transfer = find_hungry(reads)))
		feed(transfer);
}

static void take_added_locked(struct reads *reads)
{
	lock_assert_held(&reads->lock);
	if (!reads->added)
		return;
	*reads->waiting_end = reads->added;
	reads->waiting_end = reads->added_end;
	reads->added = NULL;
	reads->added_end = &reads->added;
}

/* Reads that were cancelled, as a list. */
static struct store_read *take_cancelled_locked(struct reads *reads)
{
	struct store_read **at = &reads->waiting, *list = NULL, *read;

	lock_assert_held(&reads->lock);
	reads->has_cancels = false;
	while ((read = *at)) {
		if (!read->cancelled) {
			at = &read->next;
			continue;
		}
		*at = read->next;
		read->next = list;
		list = read;
	}
	reads->waiting_end = at;
	for (unsigned i = 0; i < reads->store->options.depth; i++) {
		struct transfer *transfer = &reads->transfers[i];

		if (!transfer->read || !transfer->read->cancelled)
			continue;
		read = free_transfer(transfer);
		read->next = list;
		list = read;
	}
	return list;
}

void reads_woken(void *argument)
{
	struct reads *reads = argument;
	struct store_read *cancelled;

	lock_acquire(&reads->lock);
	take_added_locked(reads);
	cancelled = reads->has_cancels ? take_cancelled_locked(reads) : NULL;
	lock_release(&reads->lock);
	for (struct store_read *next; cancelled; cancelled = next) {
		next = cancelled->next;
		cancelled->done(cancelled, -ETIMEDOUT);
	}
	begin_waiting(reads);
}

/* --- for others ---------------------------------------------------------------------------------
 */

void reads_add(struct reads *reads, struct store_read *read)
{
	read->next = NULL;
	lock_acquire(&reads->lock);
	*reads->added_end = read;
	reads->added_end = &read->next;
	reads->has_cancels |= read->cancelled;
	lock_release(&reads->lock);
	rpc_wake(reads->store->rpc);
}

void reads_cancel(struct reads *reads, struct store_read *read)
{
	lock_acquire(&reads->lock);
	read->cancelled = true;
	reads->has_cancels = true;
	lock_release(&reads->lock);
	rpc_wake(reads->store->rpc);
}

static void make_free(struct reads *reads, unsigned depth)
{
	for (unsigned i = 0; i < depth; i++) {
		struct chunk *chunk = &reads->chunks[i];
		struct transfer *transfer = &reads->transfers[i];

		chunk->call.done = after_step;
		chunk->call.context = chunk;
		chunk->next = reads->free_chunks;
		reads->free_chunks = chunk;
		transfer->reads = reads;
		transfer->next = reads->free_transfers;
		reads->free_transfers = transfer;
	}
}

int reads_create(struct reads **out, struct nfs_store *store)
{
	struct reads *reads = calloc(1, sizeof(*reads));
	unsigned depth = store->options.depth;

	if (!reads)
		return -ENOMEM;
	reads->store = store;
	lock_init(&reads->lock, LOCK_STORE);
	reads->hungry_end = &reads->hungry;
	reads->waiting_end = &reads->waiting;
	reads->added_end = &reads->added;
	reads->chunks = calloc(depth, sizeof(*reads->chunks));
	reads->transfers = calloc(depth, sizeof(*reads->transfers));
	if (!reads->chunks || !reads->transfers) {
		reads_destroy(reads);
		return -ENOMEM;
	}
	make_free(reads, depth);
	*out = reads;
	return 0;
}

void reads_destroy(struct reads *reads)
{
	assert(!reads->waiting && !reads->added);
	for (unsigned i = 0; i < KNOWN_DIRS; i++)
		free(reads->known[i].path);
	lock_destroy(&reads->lock);
	free(reads->transfers);
	free(reads->chunks);
	free(reads);
}
