/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "nfs/connection.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/log.h"
#include "nfs/rpc_internal.h"
#include "nfs/socket.h"

#define RECEIVES 32 /* in a row, before others have their turn */

static struct rpc_call *call_of(struct reply *reply)
{
	return (struct rpc_call *)((char *)reply - offsetof(struct rpc_call, reply));
}

/* --- replies ------------------------------------------------------------------------------------
 */

static struct reply *find_reply(void *context, uint32_t xid)
{
	struct connection *connection = context;
	struct keyed *found = keyed_find(&connection->rpc->sent, xid);
	struct rpc_call *call = (struct rpc_call *)found;

	static_assert(offsetof(struct rpc_call, keyed) == 0, "a call begins with it");
	return call && call->connection == connection && !connection->is_senseless ? &call->reply
										   : NULL;
}

static void complete_reply(void *context, struct reply *reply, int rc)
{
	struct connection *connection = context;
	struct rpc_call *call = call_of(reply);

	connection->pause_ms = 0;
	connection_remove(connection, call);
	if (!rpc_complete(connection->rpc, call, rc))
		connection->is_senseless = true;
}

void connection_init(struct connection *connection, struct rpc *rpc)
{
	connection->rpc = rpc;
	connection->state = CONNECTION_DOWN;
	connection->fd = -1;
	call_list_init(&connection->calls);
}

/* --- begin and end ------------------------------------------------------------------------------
 */

static void watch(struct connection *connection, int operation, bool for_room)
{
	struct epoll_event event = { .events = EPOLLIN | (for_room ? EPOLLOUT : 0),
				     .data.ptr = connection };

	connection->awaits_room = for_room;
	if (epoll_ctl(connection->rpc->epoll, operation, connection->fd, &event))
		log_say(LOG_ERRORS, "epoll: %s", strerror(errno));
}

/* A connection that has worked is made again at once. */
static void rest(struct connection *connection, uint64_t now_ms)
{
	uint64_t next_ms = connection->pause_ms * 2;

	if (next_ms < CONNECTION_RETRY_LEAST_MS)
		next_ms = CONNECTION_RETRY_LEAST_MS;
	if (next_ms > CONNECTION_RETRY_MOST_MS)
		next_ms = CONNECTION_RETRY_MOST_MS;
	connection->state = CONNECTION_DOWN;
	connection->retry_ms = now_ms + connection->pause_ms;
	connection->pause_ms = next_ms;
}

void connection_open(struct connection *connection, uint64_t now_ms)
{
	static const struct reader_events events = { find_reply, complete_reply };
	const struct rpc_options *options = &connection->rpc->options;

	assert(connection->state == CONNECTION_DOWN && !connection->calls.first);
	connection->fd = socket_connect(&options->server, options->server_size);
	if (connection->fd < 0) {
		int rc = connection->fd;

		connection->fd = -1;
		rest(connection, now_ms);
		rpc_miss(connection->rpc, rc);
		return;
	}
	connection->state = CONNECTION_OPENING;
	connection->heard_ms = now_ms;
	connection->is_senseless = connection->owes = false;
	connection->out_begin = connection->out_end = 0;
	reader_init(&connection->reader, &events, connection);
	watch(connection, EPOLL_CTL_ADD, true);
}

/* From the last to the first, so that the oldest is sent first again. */
static void return_calls(struct connection *connection)
{
	struct rpc *rpc = connection->rpc;
	struct call_list again;

	call_list_init(&again);
	while (connection->calls.first) {
		struct rpc_call *call = connection->calls.first;

		connection_remove(connection, call);
		call_list_add_first(&again, call);
	}
	while (again.first) {
		struct rpc_call *call = again.first;

		call_list_remove(&again, call);
		call->state = CALL_READY;
		call_list_add_first(&rpc->ready, call);
	}
}

void connection_lose(struct connection *connection, int rc, uint64_t now_ms)
{
	struct rpc *rpc = connection->rpc;
	bool was_used = connection->calls.first, was_up = connection->state == CONNECTION_UP;

	assert(connection->state != CONNECTION_DOWN);
	close(connection->fd); /* epoll forgets it with that */
	connection->fd = -1;
	return_calls(connection);
	rest(connection, now_ms);
	atomic_fetch_add_explicit(&rpc->reconnects, was_used, memory_order_relaxed);
	log_say(LOG_DETAILS, "%s: connection lost: %s", rpc->options.name, strerror(-rc));
	if (!was_up)
		rpc_miss(rpc, rc);
}

/* --- calls --------------------------------------------------------------------------------------
 */

bool connection_add(struct connection *connection, struct rpc_call *call, uint64_t now_ms)
{
	struct rpc *rpc = connection->rpc;
	size_t size;

	assert(connection->state == CONNECTION_UP);
	size = nfs_put_call(connection->out + connection->out_end,
			    sizeof(connection->out) - connection->out_end, rpc->last_xid + 1,
			    &rpc->options.identity, &call->args);
	if (!size)
		return false;
	connection->out_end += size;
	/* Calls that were given up have not been answered, either. */
	if (!connection->owes)
		connection->heard_ms = now_ms;
	connection->owes = true;
	call->sent_ms = now_ms;
	connection->weight += call->weight;
	call->connection = connection;
	call->state = CALL_SENT;
	keyed_add(&rpc->sent, &call->keyed, ++rpc->last_xid);
	call_list_add(&connection->calls, call);
	atomic_fetch_add_explicit(&rpc->calls, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&rpc->reads, call->args.procedure == NFS_READ,
				  memory_order_relaxed);
	return true;
}

void connection_remove(struct connection *connection, struct rpc_call *call)
{
	assert(call->state == CALL_SENT && call->connection == connection);
	reader_forget(&connection->reader, &call->reply);
	keyed_remove(&call->keyed);
	call_list_remove(&connection->calls, call);
	connection->weight -= call->weight;
	call->connection = NULL;
	call->state = CALL_IDLE;
}

void connection_flush(struct connection *connection, uint64_t now_ms)
{
	size_t size = connection->out_end - connection->out_begin;
	ssize_t sent = 0;

	if (connection->state != CONNECTION_UP || !size)
		return;
	sent = send(connection->fd, connection->out + connection->out_begin, size, MSG_NOSIGNAL);
	if (sent < 0 && errno != EAGAIN && errno != EINTR) {
		connection_lose(connection, -errno, now_ms);
		return;
	}
	connection->out_begin += sent > 0 ? (size_t)sent : 0;
	if (connection->out_begin == connection->out_end)
		connection->out_begin = connection->out_end = 0;
	if (connection->awaits_room != (connection->out_end > 0))
		watch(connection, EPOLL_CTL_MOD, connection->out_end > 0);
}

/* --- events -------------------------------------------------------------------------------------
 */

/* 0: there is nothing more for now; or a negative errno. */
static int receive(struct connection *connection, uint64_t now_ms)
{
	int rc = 0;

	for (unsigned i = 0; i < RECEIVES && !rc; i++) {
		struct iovec space[2];
		int parts = reader_space(&connection->reader, space);
		size_t room = space[0].iov_len + (parts > 1 ? space[1].iov_len : 0);
		ssize_t got = readv(connection->fd, space, parts);

		if (!got)
			return -ECONNRESET;
		if (got < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -errno;
		connection->heard_ms = now_ms;
		connection->rpc->heard_ms = now_ms;
		connection->rpc->stalls = 0;
		rc = reader_take(&connection->reader, (size_t)got);
		connection->owes = connection->calls.first;
		if (!rc && connection->is_senseless)
			rc = -EBADMSG;
		if ((size_t)got < room)
			break;
	}
	return rc;
}

static void finish_opening(struct connection *connection, uint64_t now_ms)
{
	socklen_t size = sizeof(int);
	int error = 0;

	if (getsockopt(connection->fd, SOL_SOCKET, SO_ERROR, &error, &size))
		error = errno;
	if (error) {
		connection_lose(connection, -error, now_ms);
		return;
	}
	connection->state = CONNECTION_UP;
	watch(connection, EPOLL_CTL_MOD, false);
}

void connection_handle(struct connection *connection, uint32_t events, uint64_t now_ms)
{
	int rc = 0;

	if (connection->state == CONNECTION_OPENING) {
		finish_opening(connection, now_ms);
		return;
	}
	if (connection->state == CONNECTION_UP && events & ~(uint32_t)EPOLLOUT)
		rc = receive(connection, now_ms);
	if (rc)
		connection_lose(connection, rc, now_ms);
	else if (events & EPOLLOUT)
		connection_flush(connection, now_ms);
}
