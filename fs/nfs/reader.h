/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What comes over a connection, made into replies (RFC 5531, record marking). It knows neither
 * sockets nor threads: its user receives bytes to where reader_space() says, and tells how many
 * came.
 *
 * A reply to READ has a head and the bytes of the file. The head goes into the call's small buffer,
 * and the bytes go straight to where the caller wants them: only what happens to be received
 * together with the head, less than READER_STAGE bytes, is copied.
 *
 *   phase       what comes                            then
 *   XID         the number of the call                HEAD; WHOLE; SKIP if nobody waits for it
 *   HEAD        what is before a READ's bytes         BYTES; WHOLE if it has none
 *   BYTES       the bytes                             SKIP
 *   WHOLE       a reply that is kept in one piece     SKIP if it does not fit
 *   SKIP        what nobody wants, and padding        until the record ends
 */
#ifndef SHADE_NFS_READER_H
#define SHADE_NFS_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define READER_STAGE ((size_t)4096)
#define READER_RECORD_MAX ((size_t)1 << 22) /* bytes of a reply */

/* Where a reply is to go. Part of a call. */
struct reply {
	uint8_t *buffer; /* the reply from its xid on, without a READ's bytes */
	size_t room;	 /* for a READ at least READER_HEAD_ROOM */
	void *bytes;	 /* a READ's; NULL: this is no READ */
	size_t bytes_room;

	/* What came. */
	size_t size, bytes_size;
};

#define READER_HEAD_ROOM 640

struct reader_events {
	/* NULL: nobody waits for that. */
	struct reply *(*find)(void *context, uint32_t xid);
	/* 0; -EMSGSIZE: it did not fit; -EBADMSG: it ended too early. It must not free the reader.
	 */
	void (*complete)(void *context, struct reply *reply, int rc);
};

enum reader_phase { READER_XID, READER_HEAD, READER_BYTES, READER_WHOLE, READER_SKIP };

struct reader {
	const struct reader_events *events;
	void *context;

	enum reader_phase phase;
	struct reply *reply; /* NULL: nobody's */
	int rc;		     /* of this reply */
	uint8_t mark[4];
	unsigned mark_size;
	uint32_t fragment_left;
	bool is_last; /* fragment of its record */
	size_t record_size;
	uint8_t xid[4];
	unsigned xid_size;
	size_t head_size; /* READER_HEAD: as far as it is known */
	size_t direct;	  /* of what is received next, so much goes straight to its place */
	uint8_t stage[READER_STAGE];
};

void reader_init(struct reader *reader, const struct reader_events *events, void *context);
/* Fills in where to receive; how many. */
int reader_space(struct reader *reader, struct iovec space[2]);
/* So many bytes came. 0, or -EBADMSG: no sense can be made of what follows. */
int reader_take(struct reader *reader, size_t size);
/* Nothing is written to this reply from now on. */
void reader_forget(struct reader *reader, const struct reply *reply);

#endif
