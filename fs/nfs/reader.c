/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "nfs/reader.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "nfs/proto.h"

void reader_init(struct reader *reader, const struct reader_events *events, void *context)
{
	*reader = (struct reader){ .events = events, .context = context };
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* --- what a record consists of ------------------------------------------------------------------
 */

/* Copies unless the bytes are in their place already. */
static void put(uint8_t *to, const uint8_t *from, size_t size)
{
	if (from)
		memcpy(to, from, size);
}

static void begin_reply(struct reader *reader)
{
	struct reply *reply = reader->events->find(reader->context, xdr_number_at(reader->xid));

	reader->reply = reply;
	if (!reply) {
		reader->phase = READER_SKIP;
		return;
	}
	assert(reply->room >= (reply->bytes ? READER_HEAD_ROOM : sizeof(reader->xid)));
	memcpy(reply->buffer, reader->xid, sizeof(reader->xid));
	reply->size = sizeof(reader->xid);
	reply->bytes_size = 0;
	reader->head_size = NFS_SPLIT_LEAST;
	reader->phase = reply->bytes ? READER_HEAD : READER_WHOLE;
}

static size_t take_xid(struct reader *reader, const uint8_t *from, size_t size)
{
	assert(from); /* only what goes to one place is there already */
	size = least(size, sizeof(reader->xid) - reader->xid_size);
	memcpy(reader->xid + reader->xid_size, from, size);
	reader->xid_size += (unsigned)size;
	if (reader->xid_size == sizeof(reader->xid))
		begin_reply(reader);
	return size;
}

static void give_up_on(struct reader *reader, int rc)
{
	reader->rc = rc;
	reader->phase = READER_SKIP;
}

/* How far the head reaches is known step by step. */
static void look_at_head(struct reader *reader)
{
	struct reply *reply = reader->reply;
	size_t count;

	switch (nfs_split_read(reply->buffer, reply->size, &reader->head_size, &count)) {
	case NFS_SPLIT_MORE:
		assert(reader->head_size > reply->size && reader->head_size <= reply->room);
		break;
	case NFS_SPLIT_NONE:
		reader->phase = READER_WHOLE;
		break;
	case NFS_SPLIT_BYTES:
		if (count > reply->bytes_room)
			give_up_on(reader, -EMSGSIZE);
		else
			reader->phase = count ? READER_BYTES : READER_SKIP;
		reader->head_size = count; /* to come */
	}
}

static size_t take_head(struct reader *reader, const uint8_t *from, size_t size)
{
	struct reply *reply = reader->reply;

	assert(from);
	size = least(size, reader->head_size - reply->size);
	memcpy(reply->buffer + reply->size, from, size);
	reply->size += size;
	if (reply->size == reader->head_size)
		look_at_head(reader);
	return size;
}

static size_t take_bytes(struct reader *reader, const uint8_t *from, size_t size)
{
	struct reply *reply = reader->reply;

	size = least(size, reader->head_size - reply->bytes_size);
	put((uint8_t *)reply->bytes + reply->bytes_size, from, size);
	reply->bytes_size += size;
	if (reply->bytes_size == reader->head_size)
		reader->phase = READER_SKIP;
	return size;
}

static size_t take_whole(struct reader *reader, const uint8_t *from, size_t size)
{
	struct reply *reply = reader->reply;

	if (size > reply->room - reply->size) {
		give_up_on(reader, -EMSGSIZE);
		return size;
	}
	put(reply->buffer + reply->size, from, size);
	reply->size += size;
	return size;
}

/* --- records ------------------------------------------------------------------------------------
 */

/* The reply is complete, or will never be. */
static int end_record(struct reader *reader)
{
	bool cut = reader->phase == READER_XID || reader->phase == READER_HEAD ||
		   reader->phase == READER_BYTES;
	struct reply *reply = reader->reply;
	int rc = cut ? -EBADMSG : reader->rc;

	reader->phase = READER_XID;
	reader->reply = NULL;
	reader->rc = 0;
	reader->xid_size = 0;
	reader->record_size = 0;
	if (reply)
		reader->events->complete(reader->context, reply, rc);
	return cut ? -EBADMSG : 0;
}

static size_t take_mark(struct reader *reader, const uint8_t *from, size_t size, int *rc)
{
	uint32_t mark;

	size = least(size, sizeof(reader->mark) - reader->mark_size);
	memcpy(reader->mark + reader->mark_size, from, size);
	reader->mark_size += (unsigned)size;
	if (reader->mark_size < sizeof(reader->mark))
		return size;
	mark = xdr_number_at(reader->mark);
	reader->is_last = mark >> 31;
	reader->fragment_left = mark & 0x7fffffff;
	reader->record_size += reader->fragment_left;
	if (reader->record_size > READER_RECORD_MAX)
		*rc = -EBADMSG;
	return size;
}

static size_t take_part(struct reader *reader, const uint8_t *from, size_t size)
{
	switch (reader->phase) {
	case READER_XID:
		return take_xid(reader, from, size);
	case READER_HEAD:
		return take_head(reader, from, size);
	case READER_BYTES:
		return take_bytes(reader, from, size);
	case READER_WHOLE:
		return take_whole(reader, from, size);
	case READER_SKIP:
		break;
	}
	return size;
}

/* Bytes of a fragment. */
static int advance(struct reader *reader, size_t size)
{
	reader->fragment_left -= (uint32_t)size;
	if (reader->fragment_left)
		return 0;
	reader->mark_size = 0;
	return reader->is_last ? end_record(reader) : 0;
}

static int feed(struct reader *reader, const uint8_t *from, size_t size)
{
	int rc = 0;

	while (size && !rc) {
		bool is_mark = reader->mark_size < sizeof(reader->mark);
		size_t part = is_mark ? take_mark(reader, from, size, &rc)
				      : take_part(reader, from, least(size, reader->fragment_left));

		from += part;
		size -= part;
		if (!rc && reader->mark_size == sizeof(reader->mark) &&
		    (!is_mark || !reader->fragment_left))
			rc = advance(reader, is_mark ? 0 : part);
	}
	return rc;
}

/* --- space --------------------------------------------------------------------------------------
 */

/* What certainly goes to one place. */
static size_t find_direct(const struct reader *reader, uint8_t **to)
{
	const struct reply *reply = reader->reply;
	size_t left = 0;

	if (reader->mark_size < sizeof(reader->mark))
		return 0;
	if (reader->phase == READER_BYTES) {
		*to = (uint8_t *)reply->bytes + reply->bytes_size;
		left = reader->head_size - reply->bytes_size;
	} else if (reader->phase == READER_WHOLE) {
		*to = reply->buffer + reply->size;
		left = reply->room - reply->size;
	}
	return least(left, reader->fragment_left);
}

int reader_space(struct reader *reader, struct iovec space[2])
{
	struct iovec stage = { reader->stage, sizeof(reader->stage) };
	uint8_t *to = NULL;

	reader->direct = find_direct(reader, &to);
	if (!reader->direct) {
		space[0] = stage;
		return 1;
	}
	space[0] = (struct iovec){ to, reader->direct };
	space[1] = stage;
	return 2;
}

int reader_take(struct reader *reader, size_t size)
{
	size_t direct = least(size, reader->direct);
	int rc = 0;

	assert(size - direct <= sizeof(reader->stage));
	reader->direct = 0;
	if (direct) {
		(void)take_part(reader, NULL, direct);
		rc = advance(reader, direct);
	}
	return rc ? rc : feed(reader, reader->stage, size - direct);
}

void reader_forget(struct reader *reader, const struct reply *reply)
{
	if (reader->reply != reply)
		return;
	reader->reply = NULL;
	reader->rc = 0;
	reader->phase = READER_SKIP;
}
