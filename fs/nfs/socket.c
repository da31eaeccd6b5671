/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "nfs/socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/threads.h"
#include "nfs/reader.h"

#define PORT_FIRST 665 /* of those that only root may use; the kernel's client takes these, too */
#define PORT_COUNT 359

static int bind_to(int fd, sa_family_t family, unsigned port)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };
	int rc = family == AF_INET6 ? bind(fd, (struct sockaddr *)&v6, sizeof(v6))
				    : bind(fd, (struct sockaddr *)&v4, sizeof(v4));

	return rc ? -errno : 0;
}

/* Any port will do if none of these can be had. */
static void bind_reserved(int fd, sa_family_t family)
{
	unsigned from = (unsigned)(clock_now_ns() / 1000 % PORT_COUNT);
	int rc = -EADDRINUSE;

	for (unsigned i = 0; i < PORT_COUNT && rc == -EADDRINUSE; i++)
		rc = bind_to(fd, family, PORT_FIRST + (from + i) % PORT_COUNT);
}

int socket_connect(const struct sockaddr_storage *server, socklen_t size)
{
	int fd = socket(server->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int on = 1, rc;

	if (fd < 0)
		return -errno;
	bind_reserved(fd, server->ss_family);
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (!connect(fd, (const struct sockaddr *)server, size) || errno == EINPROGRESS)
		return fd;
	rc = -errno;
	close(fd);
	return rc;
}

/* --- one call -----------------------------------------------------------------------------------
 */

static int wait_for(int fd, short events, uint64_t until_ms)
{
	struct pollfd poll_fd = { .fd = fd, .events = events };
	uint64_t now_ms = clock_now_ms();
	int count, error = 0;
	socklen_t size = sizeof(error);

	if (now_ms >= until_ms)
		return -ETIMEDOUT;
	count = poll(&poll_fd, 1, (int)(until_ms - now_ms));
	if (count < 0)
		return errno == EINTR ? 0 : -errno;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size))
		return -errno;
	return -error;
}

static int send_call(int fd, const struct socket_call *call)
{
	uint8_t bytes[NFS_CALL_MAX];
	size_t size = nfs_put_call(bytes, sizeof(bytes), 1, &call->identity, &call->args);
	size_t sent = 0;

	if (!size)
		return -ENAMETOOLONG;
	while (sent < size) {
		int rc = wait_for(fd, POLLOUT, call->until_ms);
		ssize_t part;

		if (rc)
			return rc;
		part = send(fd, bytes + sent, size - sent, MSG_NOSIGNAL);
		if (part < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
		sent += part > 0 ? (size_t)part : 0;
	}
	return 0;
}

/* The only reply that is waited for. */
struct expected {
	struct reply reply;
	bool is_complete;
	int rc;
};

static struct reply *find_expected(void *context, uint32_t xid)
{
	struct expected *expected = context;

	return xid == 1 ? &expected->reply : NULL;
}

static void complete_expected(void *context, struct reply *reply, int rc)
{
	struct expected *expected = context;

	(void)reply;
	expected->is_complete = true;
	expected->rc = rc;
}

static int receive(int fd, struct expected *expected, uint64_t until_ms)
{
	static const struct reader_events events = { find_expected, complete_expected };
	struct reader reader;
	int rc = 0;

	reader_init(&reader, &events, expected);
	while (!rc && !expected->is_complete) {
		struct iovec space[2];
		ssize_t got;

		rc = wait_for(fd, POLLIN, until_ms);
		if (rc)
			break;
		got = readv(fd, space, reader_space(&reader, space));
		if (!got)
			rc = -ECONNRESET;
		else if (got < 0)
			rc = errno == EAGAIN || errno == EINTR ? 0 : -errno;
		else
			rc = reader_take(&reader, (size_t)got);
	}
	return rc ? rc : expected->rc;
}

int socket_ask(struct socket_call *call)
{
	struct expected expected = { .reply = { .buffer = call->buffer,
						.room = sizeof(call->buffer) } };
	int fd = socket_connect(&call->server, call->server_size), rc;
	uint32_t status;

	if (fd < 0)
		return fd;
	rc = send_call(fd, call);
	if (!rc)
		rc = receive(fd, &expected, call->until_ms);
	close(fd);
	if (rc)
		return rc;
	call->result =
		(struct xdr){ .at = call->buffer, .end = call->buffer + expected.reply.size };
	return nfs_open_reply(&call->result, &call->args, &status);
}
