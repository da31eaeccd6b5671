/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tier/pipeline.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define IN_FIRST 16384		     /* room for replies, at first */
#define IN_MOST ((size_t)4 << 20)    /* and at most: CLUSTER SLOTS of a large cluster */
#define PEEK 512		     /* bytes that are received before a value is known to come */
#define AT_ONCE ((uint64_t)4 << 20)  /* bytes that are received before others have their turn */
#define PARTS (4 * PIPELINE_FLIGHTS) /* of what is sent at once */

/* --- begin and end -----------------------------------------------------------------------------*/

int pipeline_open(struct pipeline *pipeline, const struct sockaddr *address, socklen_t size,
		  uint64_t now_ms)
{
	int on = 1;

	assert(pipeline->state == PIPELINE_CLOSED);
	if (!pipeline->in) {
		pipeline->in = malloc(IN_FIRST);
		pipeline->in_room = IN_FIRST;
	}
	if (!pipeline->in)
		return -ENOMEM;
	pipeline->fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (pipeline->fd < 0)
		return -errno;
	setsockopt(pipeline->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (connect(pipeline->fd, address, size) && errno != EINPROGRESS) {
		int rc = -errno;

		close(pipeline->fd);
		return rc;
	}
	pipeline->state = PIPELINE_CONNECTING;
	pipeline->began_ms = now_ms;
	pipeline->in_size = 0;
	pipeline->sink = (struct sink){ 0 };
	pipeline->first = pipeline->count = pipeline->unsent = 0;
	pipeline->wants_out = true;
	return 0;
}

int pipeline_check(struct pipeline *pipeline)
{
	int error = 0;
	socklen_t size = sizeof(error);

	if (getsockopt(pipeline->fd, SOL_SOCKET, SO_ERROR, &error, &size))
		return -errno;
	return -error;
}

void pipeline_close(struct pipeline *pipeline)
{
	if (pipeline->state == PIPELINE_CLOSED)
		return;
	close(pipeline->fd);
	pipeline->state = PIPELINE_CLOSED;
	pipeline->count = pipeline->unsent = 0;
	pipeline->wants_out = false;
}

void pipeline_free(struct pipeline *pipeline)
{
	pipeline_close(pipeline);
	free(pipeline->in);
	pipeline->in = NULL;
}

/* --- sending -----------------------------------------------------------------------------------*/

struct flight *pipeline_add(struct pipeline *pipeline, enum verb verb,
			    struct engine_request *request, uint64_t now_ms)
{
	struct flight *flight;

	assert(pipeline_room(pipeline));
	flight = pipeline_flight(pipeline, pipeline->count++);
	pipeline->unsent++;
	flight->verb = verb;
	flight->extends = false;
	flight->request = request;
	flight->value = verb == VERB_SET ? request : NULL;
	flight->text_size = 0;
	flight->sent = 0;
	flight->sent_ms = now_ms;
	return flight;
}

static size_t size_of(const struct flight *flight)
{
	return flight->text_size + (flight->value ? VALUE_HEAD + flight->value->body_size + 2 : 0);
}

/* The parts of a flight that are not sent yet. Returns how many they are. */
static unsigned parts_of(const struct flight *flight, struct iovec *parts)
{
	const struct engine_request *value = flight->value;
	const struct iovec all[] = {
		{ (void *)flight->text, flight->text_size },
		{ value ? (void *)value->head : NULL, value ? VALUE_HEAD : 0 },
		{ value ? value->body : NULL, value ? value->body_size : 0 },
		{ (void *)"\r\n", value ? 2 : 0 },
	};
	size_t sent = flight->sent;
	unsigned count = 0;

	for (unsigned i = 0; i < 4; i++) {
		size_t skip = sent < all[i].iov_len ? sent : all[i].iov_len;

		sent -= skip;
		if (skip < all[i].iov_len)
			parts[count++] = (struct iovec){ (char *)all[i].iov_base + skip,
							 all[i].iov_len - skip };
	}
	return count;
}

static unsigned collect(struct pipeline *pipeline, struct iovec *parts)
{
	unsigned count = 0;

	for (unsigned i = pipeline->count - pipeline->unsent; i < pipeline->count; i++) {
		if (count + 4 > PARTS)
			break;
		count += parts_of(pipeline_flight(pipeline, i), parts + count);
	}
	return count;
}

static void count_sent(struct pipeline *pipeline, size_t bytes)
{
	while (pipeline->unsent) {
		struct flight *flight =
			pipeline_flight(pipeline, pipeline->count - pipeline->unsent);
		size_t left = size_of(flight) - flight->sent;

		if (bytes < left) {
			flight->sent += bytes;
			return;
		}
		flight->sent += left;
		bytes -= left;
		pipeline->unsent--;
	}
}

int pipeline_send(struct pipeline *pipeline)
{
	struct iovec parts[PARTS];

	pipeline->wants_out = false;
	while (pipeline->unsent) {
		struct msghdr message = { .msg_iov = parts,
					  .msg_iovlen = collect(pipeline, parts) };
		ssize_t sent = sendmsg(pipeline->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent < 0 && errno == EAGAIN) {
			pipeline->wants_out = true;
			return 0;
		}
		if (sent < 0 && errno != EINTR)
			return -errno;
		if (sent > 0)
			count_sent(pipeline, (size_t)sent);
	}
	return 0;
}

/* --- receiving ---------------------------------------------------------------------------------*/

static void drop_input(struct pipeline *pipeline, size_t bytes)
{
	pipeline->in_size -= bytes;
	memmove(pipeline->in, pipeline->in + bytes, pipeline->in_size);
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Where the rest of the value goes; NULL: nobody wants it. */
static char *body_at(struct pipeline *pipeline)
{
	const struct engine_request *request = pipeline_flight(pipeline, 0)->request;

	return request ? (char *)request->body + request->body_size - pipeline->sink.body : NULL;
}

/* Takes what it can of `data`. Returns how much. */
static size_t feed(struct pipeline *pipeline, const char *data, size_t size)
{
	struct engine_request *request = pipeline_flight(pipeline, 0)->request;
	struct sink *sink = &pipeline->sink;
	size_t head = least(sink->head, size), body = least(sink->body, size - head);
	size_t skip = least(sink->skip, size - head - body);
	size_t end = least(sink->end, size - head - body - skip);
	const char *tail = data + head + body + skip;

	if (request && head)
		memcpy(request->head + VALUE_HEAD - sink->head, data, head);
	if (request && body)
		memcpy(body_at(pipeline), data + head, body);
	sink->head -= head;
	sink->body -= body;
	sink->skip -= skip;
	for (size_t i = 0; i < end; i++)
		sink->torn |= tail[i] != "\r\n"[2 - sink->end + i];
	sink->end -= end;
	return head + body + skip + end;
}

static void begin_value(struct pipeline *pipeline, size_t size)
{
	const struct engine_request *request = pipeline_flight(pipeline, 0)->request;
	struct sink *sink = &pipeline->sink;

	*sink = (struct sink){ .active = true, .end = 2 };
	if (request && size == VALUE_HEAD + request->body_size) {
		sink->head = VALUE_HEAD;
		sink->body = request->body_size;
	} else {
		sink->skip = size;
		sink->misfit = true;
	}
}

static int finish(struct pipeline *pipeline, const struct reply *reply, pipeline_replied *replied,
		  void *context)
{
	struct flight *flight = pipeline_flight(pipeline, 0);

	pipeline->first = (pipeline->first + 1) % PIPELINE_FLIGHTS;
	pipeline->count--;
	return replied(context, pipeline, flight, reply);
}

/* The reply to CLUSTER SLOTS is understood as a whole, so the buffer must have room for it. */
static int grow_input(struct pipeline *pipeline)
{
	size_t room = pipeline->in_room * 2;
	char *grown;

	if (pipeline->in_size < pipeline->in_room)
		return 0;
	grown = room <= IN_MOST ? realloc(pipeline->in, room) : NULL;
	if (!grown)
		return -ENOBUFS;
	pipeline->in = grown;
	pipeline->in_room = room;
	return 0;
}

/* A line; `*done`: it was all of the reply. */
static int take_line(struct pipeline *pipeline, struct reply *reply, bool *done)
{
	struct flight *flight = pipeline_flight(pipeline, 0);
	int rc = resp_head(pipeline->in, pipeline->in_size, &reply->head);

	*done = false;
	if (rc <= 0)
		return rc;
	*done = reply->head.kind != RESP_BULK || reply->head.number < 0;
	if (reply->head.kind == RESP_ARRAY || (!*done && flight->verb != VERB_GET))
		return -EPROTO;
	return 1;
}

static int take_map(struct pipeline *pipeline, struct reply *reply, bool *done)
{
	int64_t size = resp_whole(pipeline->in, pipeline->in_size);

	*done = size > 0;
	if (size <= 0)
		return (int)size;
	reply->walk = (struct resp_walk){ pipeline->in, (size_t)size };
	(void)resp_head(pipeline->in, (size_t)size, &reply->head);
	reply->head.size = (size_t)size;
	return 1;
}

/* One reply, or the beginning of a value. 1: there may be more; 0: not before more bytes come. */
static int take_reply(struct pipeline *pipeline, pipeline_replied *replied, void *context)
{
	struct reply reply = { .result = ENGINE_FAILED };
	bool done;
	int rc;

	if (!pipeline->in_size)
		return 0;
	/* Replies come to what was sent. */
	if (pipeline->count <= pipeline->unsent)
		return -EPROTO;
	rc = pipeline_flight(pipeline, 0)->verb == VERB_CLUSTER_SLOTS
		     ? take_map(pipeline, &reply, &done)
		     : take_line(pipeline, &reply, &done);
	if (rc <= 0)
		return rc;
	if (!done) {
		drop_input(pipeline, reply.head.size);
		begin_value(pipeline, (size_t)reply.head.number);
		return 1;
	}
	rc = finish(pipeline, &reply, replied, context);
	drop_input(pipeline, reply.head.size);
	return rc ? rc : 1;
}

static int finish_value(struct pipeline *pipeline, pipeline_replied *replied, void *context)
{
	struct reply reply = { .has_value = true,
			       .result = pipeline->sink.misfit ? ENGINE_MISFIT : ENGINE_YES };
	int rc;

	pipeline->sink.active = false;
	rc = finish(pipeline, &reply, replied, context);
	return rc ? rc : 1;
}

static int understand(struct pipeline *pipeline, pipeline_replied *replied, void *context)
{
	int rc = 1;

	while (rc > 0) {
		if (pipeline->sink.active) {
			drop_input(pipeline, feed(pipeline, pipeline->in, pipeline->in_size));
			if (pipeline->sink.torn)
				return -EPROTO;
			if (pipeline->sink.end)
				return 0;
			rc = finish_value(pipeline, replied, context);
		} else {
			rc = take_reply(pipeline, replied, context);
		}
	}
	return rc;
}

/* Whether the bytes that come next may belong into a value, and not into the buffer. */
static bool value_may_come(const struct pipeline *pipeline)
{
	const struct flight *flight = &pipeline->flights[pipeline->first];
	const struct sink *sink = &pipeline->sink;

	if (!pipeline->count || pipeline->in_size || flight->verb != VERB_GET)
		return false;
	return !sink->active || (!sink->skip && (flight->request || !sink->body));
}

/* Receives into the buffer, or straight into the value. */
static ssize_t receive_some(struct pipeline *pipeline)
{
	const struct sink *sink = &pipeline->sink;
	size_t room = pipeline->in_room - pipeline->in_size;
	ssize_t got;

	if (sink->active && !sink->head && sink->body && body_at(pipeline)) {
		got = recv(pipeline->fd, body_at(pipeline), sink->body, MSG_DONTWAIT);
		if (got > 0)
			pipeline->sink.body -= (size_t)got;
		return got;
	}
	got = recv(pipeline->fd, pipeline->in + pipeline->in_size,
		   value_may_come(pipeline) ? least(room, PEEK) : room, MSG_DONTWAIT);
	if (got > 0)
		pipeline->in_size += (size_t)got;
	return got;
}

int pipeline_receive(struct pipeline *pipeline, pipeline_replied *replied, void *context)
{
	uint64_t enough = pipeline->received + AT_ONCE;

	while (pipeline->received < enough) {
		ssize_t got;
		int rc = grow_input(pipeline);

		if (rc)
			return rc;
		got = receive_some(pipeline);
		if (!got)
			return -ECONNRESET;
		if (got > 0)
			pipeline->received += (uint64_t)got;
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return errno == EAGAIN ? 0 : -errno;
		rc = understand(pipeline, replied, context);
		if (rc)
			return rc;
	}
	return 0;
}

bool pipeline_detach(struct pipeline *pipeline, const struct engine_request *request)
{
	for (unsigned i = 0; i < pipeline->count; i++) {
		struct flight *flight = pipeline_flight(pipeline, i);

		if (flight->request != request || flight->value)
			continue;
		flight->request = NULL;
		return true;
	}
	return false;
}
