/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A connection to a Redis server, and what is under way on it: commands are sent and their replies
 * come in the same sequence. Nothing here waits; whoever has the connection calls when the socket
 * is ready. A connection that has failed is closed and nothing of it is used again.
 *
 * The value of a GET goes straight to where it is wanted: the first bytes of a reply are received
 * into a small buffer, since only they tell what follows.
 */
#ifndef SHADE_PIPELINE_H
#define SHADE_PIPELINE_H

#include <sys/socket.h>

#include "tier/engine.h"
#include "tier/resp.h"

#define PIPELINE_FLIGHTS 8
#define PIPELINE_TEXT 640

enum verb {
	VERB_GET,
	VERB_SET,
	VERB_EXPIRE,
	VERB_ASKING,
	VERB_AUTH,
	VERB_PING,
	VERB_CLUSTER_SLOTS,
};

/* A command on its way. */
struct flight {
	enum verb verb;
	bool extends; /* a GET that is sent as GETEX */
	struct engine_request
		*request; /* NULL: nobody wants the reply, or it is the server's own */
	char text[PIPELINE_TEXT];
	size_t text_size;
	const struct engine_request *value; /* a SET: what follows the text */
	size_t sent;
	uint64_t sent_ms;
};

enum pipeline_state {
	PIPELINE_CLOSED,
	PIPELINE_CONNECTING,
	PIPELINE_GREETING, /* authenticates */
	PIPELINE_READY,
};

/* Of the value that is received: what is still to come of each part. */
struct sink {
	bool active;
	bool misfit; /* it has another length than is wanted, and is skipped */
	bool torn;   /* it does not end as it must */
	size_t head, body, skip, end;
};

struct pipeline {
	enum pipeline_state state;
	int fd;
	bool wants_out; /* there is more to send than the socket takes */
	uint64_t began_ms;
	struct flight flights[PIPELINE_FLIGHTS];
	unsigned first, count;
	unsigned unsent; /* how many of them, from the last on, are not sent whole */
	char *in;	 /* what has come and is not understood yet */
	size_t in_room, in_size;
	uint64_t received; /* bytes */
	struct sink sink;
};

/* What a flight was answered. `head` is of no use for a GET with a value. */
struct reply {
	struct resp_head head;
	enum engine_result result; /* of a GET with a value */
	bool has_value;
	struct resp_walk walk; /* VERB_CLUSTER_SLOTS: all of it */
};

/* 0 or a negative errno. */
int pipeline_open(struct pipeline *pipeline, const struct sockaddr *address, socklen_t size,
		  uint64_t now_ms);
/* The socket can be written to: 0 if it is connected, else a negative errno. */
int pipeline_check(struct pipeline *pipeline);
/* What is under way is the caller's to take before. */
void pipeline_close(struct pipeline *pipeline);
/* Frees its memory. */
void pipeline_free(struct pipeline *pipeline);

static inline unsigned pipeline_room(const struct pipeline *pipeline)
{
	return PIPELINE_FLIGHTS - pipeline->count;
}

static inline struct flight *pipeline_flight(struct pipeline *pipeline, unsigned i)
{
	return &pipeline->flights[(pipeline->first + i) % PIPELINE_FLIGHTS];
}

/* Adds a flight, whose text the caller writes before pipeline_send(). There must be room. */
struct flight *pipeline_add(struct pipeline *pipeline, enum verb verb,
			    struct engine_request *request, uint64_t now_ms);
/* 0 or a negative errno; see `wants_out`. */
int pipeline_send(struct pipeline *pipeline);
/* Receives what there is, up to a bound, and calls `replied` for each reply: the flight is no
 * longer under way. `replied` must neither add flights nor close the connection; a result other
 * than 0 ends it all. 0, that result, or a negative errno: -ECONNRESET if the server has closed it,
 * -EPROTO if it does not speak RESP. */
typedef int pipeline_replied(void *context, struct pipeline *pipeline, struct flight *flight,
			     const struct reply *reply);
int pipeline_receive(struct pipeline *pipeline, pipeline_replied *replied, void *context);
/* Nobody wants the reply to this request any more. False: it is not under way here, or it is a SET,
 * whose value is still needed. */
bool pipeline_detach(struct pipeline *pipeline, const struct engine_request *request);

#endif
