/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tier/connection.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define IN_FIRST 16384		       /* room for replies, at first */
#define IN_MOST ((size_t)4 << 20)      /* and at most: CLUSTER SLOTS of a large cluster */
#define PEEK 512		       /* bytes that are received before a value is known to come */
#define PARTS (4 * CONNECTION_FLIGHTS) /* of what is sent at once */

/* --- begin and end -----------------------------------------------------------------------------*/

int connection_open(struct connection *connection, const struct sockaddr *address, socklen_t size,
		    uint64_t now_ms)
{
	int on = 1;

	assert(connection->state == CONNECTION_CLOSED);
	if (!connection->in) {
		connection->in = malloc(IN_FIRST);
		connection->in_room = IN_FIRST;
	}
	if (!connection->in)
		return -ENOMEM;
	connection->fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (connection->fd < 0)
		return -errno;
	setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (connect(connection->fd, address, size) && errno != EINPROGRESS) {
		int rc = -errno;

		close(connection->fd);
		return rc;
	}
	connection->state = CONNECTION_CONNECTING;
	connection->began_ms = now_ms;
	connection->in_size = 0;
	connection->sink = (struct sink){ 0 };
	connection->first = connection->count = connection->unsent = 0;
	connection->wants_out = true;
	return 0;
}

int connection_check(struct connection *connection)
{
	int error = 0;
	socklen_t size = sizeof(error);

	if (getsockopt(connection->fd, SOL_SOCKET, SO_ERROR, &error, &size))
		return -errno;
	return -error;
}

void connection_close(struct connection *connection)
{
	if (connection->state == CONNECTION_CLOSED)
		return;
	close(connection->fd);
	connection->state = CONNECTION_CLOSED;
	connection->count = connection->unsent = 0;
	connection->wants_out = false;
}

void connection_free(struct connection *connection)
{
	connection_close(connection);
	free(connection->in);
	connection->in = NULL;
}

/* --- sending -----------------------------------------------------------------------------------*/

struct flight *connection_add(struct connection *connection, enum verb verb,
			      struct engine_request *request, uint64_t now_ms)
{
	struct flight *flight;

	assert(connection_room(connection));
	flight = connection_flight(connection, connection->count++);
	connection->unsent++;
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

static unsigned collect(struct connection *connection, struct iovec *parts)
{
	unsigned count = 0;

	for (unsigned i = connection->count - connection->unsent; i < connection->count; i++) {
		if (count + 4 > PARTS)
			break;
		count += parts_of(connection_flight(connection, i), parts + count);
	}
	return count;
}

static void count_sent(struct connection *connection, size_t bytes)
{
	while (connection->unsent) {
		struct flight *flight =
			connection_flight(connection, connection->count - connection->unsent);
		size_t left = size_of(flight) - flight->sent;

		if (bytes < left) {
			flight->sent += bytes;
			return;
		}
		flight->sent += left;
		bytes -= left;
		connection->unsent--;
	}
}

int connection_send(struct connection *connection)
{
	struct iovec parts[PARTS];

	connection->wants_out = false;
	while (connection->unsent) {
		struct msghdr message = { .msg_iov = parts,
					  .msg_iovlen = collect(connection, parts) };
		ssize_t sent = sendmsg(connection->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent < 0 && errno == EAGAIN) {
			connection->wants_out = true;
			return 0;
		}
		if (sent < 0 && errno != EINTR)
			return -errno;
		if (sent > 0)
			count_sent(connection, (size_t)sent);
	}
	return 0;
}

/* --- receiving ---------------------------------------------------------------------------------*/

static void drop_input(struct connection *connection, size_t bytes)
{
	connection->in_size -= bytes;
	memmove(connection->in, connection->in + bytes, connection->in_size);
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Where the rest of the value goes; NULL: nobody wants it. */
static char *body_at(struct connection *connection)
{
	const struct engine_request *request = connection_flight(connection, 0)->request;

	return request ? (char *)request->body + request->body_size - connection->sink.body : NULL;
}

/* Takes what it can of `data`. Returns how much. */
static size_t feed(struct connection *connection, const char *data, size_t size)
{
	struct engine_request *request = connection_flight(connection, 0)->request;
	struct sink *sink = &connection->sink;
	size_t head = least(sink->head, size), body = least(sink->body, size - head);
	size_t skip = least(sink->skip, size - head - body);
	size_t end = least(sink->end, size - head - body - skip);

	if (request && head)
		memcpy(request->head + VALUE_HEAD - sink->head, data, head);
	if (request && body)
		memcpy(body_at(connection), data + head, body);
	sink->head -= head;
	sink->body -= body;
	sink->skip -= skip;
	sink->end -= end;
	return head + body + skip + end;
}

static void begin_value(struct connection *connection, size_t size)
{
	const struct engine_request *request = connection_flight(connection, 0)->request;
	struct sink *sink = &connection->sink;

	*sink = (struct sink){ .active = true, .end = 2 };
	if (request && size == VALUE_HEAD + request->body_size) {
		sink->head = VALUE_HEAD;
		sink->body = request->body_size;
	} else {
		sink->skip = size;
		sink->misfit = true;
	}
}

static int finish(struct connection *connection, const struct reply *reply,
		  connection_replied *replied, void *context)
{
	struct flight *flight = connection_flight(connection, 0);

	connection->first = (connection->first + 1) % CONNECTION_FLIGHTS;
	connection->count--;
	return replied(context, connection, flight, reply);
}

/* The reply to CLUSTER SLOTS is understood as a whole, so the buffer must have room for it. */
static int grow_input(struct connection *connection)
{
	size_t room = connection->in_room * 2;
	char *grown;

	if (connection->in_size < connection->in_room)
		return 0;
	grown = room <= IN_MOST ? realloc(connection->in, room) : NULL;
	if (!grown)
		return -ENOBUFS;
	connection->in = grown;
	connection->in_room = room;
	return 0;
}

/* A line; `*done`: it was all of the reply. */
static int take_line(struct connection *connection, struct reply *reply, bool *done)
{
	struct flight *flight = connection_flight(connection, 0);
	int rc = resp_head(connection->in, connection->in_size, &reply->head);

	*done = false;
	if (rc <= 0)
		return rc;
	*done = reply->head.kind != RESP_BULK || reply->head.number < 0;
	if (reply->head.kind == RESP_ARRAY || (!*done && flight->verb != VERB_GET))
		return -EPROTO;
	return 1;
}

static int take_map(struct connection *connection, struct reply *reply, bool *done)
{
	int64_t size = resp_whole(connection->in, connection->in_size);

	*done = size > 0;
	if (size <= 0)
		return (int)size;
	reply->walk = (struct resp_walk){ connection->in, (size_t)size };
	(void)resp_head(connection->in, (size_t)size, &reply->head);
	reply->head.size = (size_t)size;
	return 1;
}

/* One reply, or the beginning of a value. 1: there may be more; 0: not before more bytes come. */
static int take_reply(struct connection *connection, connection_replied *replied, void *context)
{
	struct reply reply = { .result = ENGINE_FAILED };
	bool done;
	int rc;

	if (!connection->in_size)
		return 0;
	/* Replies come to what was sent. */
	if (connection->count <= connection->unsent)
		return -EPROTO;
	rc = connection_flight(connection, 0)->verb == VERB_CLUSTER_SLOTS
		     ? take_map(connection, &reply, &done)
		     : take_line(connection, &reply, &done);
	if (rc <= 0)
		return rc;
	if (!done) {
		drop_input(connection, reply.head.size);
		begin_value(connection, (size_t)reply.head.number);
		return 1;
	}
	rc = finish(connection, &reply, replied, context);
	drop_input(connection, reply.head.size);
	return rc ? rc : 1;
}

static int finish_value(struct connection *connection, connection_replied *replied, void *context)
{
	struct reply reply = { .has_value = true,
			       .result = connection->sink.misfit ? ENGINE_MISFIT : ENGINE_YES };
	int rc;

	connection->sink.active = false;
	rc = finish(connection, &reply, replied, context);
	return rc ? rc : 1;
}

static int understand(struct connection *connection, connection_replied *replied, void *context)
{
	int rc = 1;

	while (rc > 0) {
		if (connection->sink.active) {
			drop_input(connection,
				   feed(connection, connection->in, connection->in_size));
			if (connection->sink.end)
				return 0;
			rc = finish_value(connection, replied, context);
		} else {
			rc = take_reply(connection, replied, context);
		}
	}
	return rc;
}

/* Whether the bytes that come next may belong into a value, and not into the buffer. */
static bool value_may_come(const struct connection *connection)
{
	const struct flight *flight = &connection->flights[connection->first];
	const struct sink *sink = &connection->sink;

	if (!connection->count || connection->in_size || flight->verb != VERB_GET)
		return false;
	return !sink->active || (!sink->skip && (flight->request || !sink->body));
}

/* Receives into the buffer, or straight into the value. */
static ssize_t receive_some(struct connection *connection)
{
	const struct sink *sink = &connection->sink;
	size_t room = connection->in_room - connection->in_size;
	ssize_t got;

	if (sink->active && !sink->head && sink->body && body_at(connection)) {
		got = recv(connection->fd, body_at(connection), sink->body, MSG_DONTWAIT);
		if (got > 0)
			connection->sink.body -= (size_t)got;
		return got;
	}
	got = recv(connection->fd, connection->in + connection->in_size,
		   value_may_come(connection) ? least(room, PEEK) : room, MSG_DONTWAIT);
	if (got > 0)
		connection->in_size += (size_t)got;
	return got;
}

int connection_receive(struct connection *connection, connection_replied *replied, void *context)
{
	for (;;) {
		ssize_t got;
		int rc = grow_input(connection);

		if (rc)
			return rc;
		got = receive_some(connection);
		if (!got)
			return -ECONNRESET;
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return errno == EAGAIN ? 0 : -errno;
		rc = understand(connection, replied, context);
		if (rc)
			return rc;
	}
}

bool connection_detach(struct connection *connection, const struct engine_request *request)
{
	for (unsigned i = 0; i < connection->count; i++) {
		struct flight *flight = connection_flight(connection, i);

		if (flight->request != request || flight->value)
			continue;
		flight->request = NULL;
		return true;
	}
	return false;
}
