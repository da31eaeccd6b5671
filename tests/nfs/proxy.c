/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A TCP proxy that makes a fast server far away, slow or faulty:
 *
 *	nfs-proxy HOST:PORT
 *
 * It listens at a port of 127.0.0.1 that it prints first, and connects to HOST:PORT (an address of
 * IPv4) for each connection that it takes. Standard input has commands, one a line; each is
 *answered by a line, and the end of the input ends the proxy:
 *
 *	delay US	each byte arrives so many microseconds later, in both directions
 *	rate BYTES	the server's bytes pass at this speed, over all connections; 0: at any
 *	cut N		resets the connection that carries the N-th byte of the server from now on,
 *			which still arrives; 0: the connection whose next byte would come
 *	end N		the same, but the connection ends as if the server had closed it
 *	chop N		like cut, for each N-th byte; 0: no more
 *	stall		nothing passes in either direction, and new connections hang, until
 *	go		it does again
 *	count		connections, connections that are open, bytes to the server, bytes of the
 *			server, and connections that were cut
 *
 * Bytes never come into this process: splice(2) moves them from a socket to a pipe and from there
 *to the other socket. The pipe is the queue in which bytes wait for their time; a ring beside it
 *says how many bytes are due when. The delay is part of the due time, so it does not bound the
 *speed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS 512
#define LISTENER CONNECTIONS /* what epoll calls them; a connection has its index */
#define COMMANDS (CONNECTIONS + 1)
#define PIPE_BYTES (1 << 20)	     /* what one may have under way: what any user may have */
#define SMALL_PIPE_BYTES (128 << 10) /* the same, if there are many */
#define FEW 16
#define CHUNKS 4096		/* of that, with due times of their own */
#define MOVE_BYTES (256u << 10) /* at a time */
#define PACED_BYTES (32u << 10) /* the same, if the speed is limited */
#define NEVER INT64_MAX

enum cut { CUT_NONE, CUT_RESET, CUT_END };

struct chunk {
	int64_t due_ns;
	size_t bytes;
};

/* One direction of a connection. */
struct flow {
	int from, to;
	int pipe[2];
	struct chunk chunks[CHUNKS];
	size_t first, count;
	uint64_t *bytes; /* that have passed, over all connections */
	bool limited;	 /* it is the server's */
	bool ended;	 /* the sender has closed */
	enum cut cut;	 /* what happens when all that is queued has passed */
};

struct connection {
	int client, server;
	struct flow up, down;
};

static struct {
	struct connection *connections[CONNECTIONS];
	struct sockaddr_in target;
	int epoll, listener;
	int64_t delay_ns, link_free_ns;
	uint64_t rate, to_server, to_client, accepted, cuts;
	uint64_t left; /* bytes until the cut */
	uint64_t chop; /* from one cut to the next, or 0 */
	enum cut cut;
	bool stalled;
} proxy;

static void fail(const char *what)
{
	fprintf(stderr, "nfs-proxy: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* When bytes that come now arrive: after the delay, and when the link has carried those before. */
static int64_t due_ns(const struct flow *flow, size_t bytes)
{
	int64_t now = now_ns();

	if (!flow->limited || !proxy.rate)
		return now + proxy.delay_ns;
	if (proxy.link_free_ns < now)
		proxy.link_free_ns = now;
	proxy.link_free_ns += (int64_t)((double)bytes * 1e9 / (double)proxy.rate);
	return proxy.link_free_ns + proxy.delay_ns;
}

/* How many bytes may be taken at once; 0: this direction is to be cut. */
static size_t most(const struct flow *flow)
{
	size_t bytes = flow->limited && proxy.rate ? PACED_BYTES : MOVE_BYTES;

	if (flow->limited && proxy.cut != CUT_NONE && proxy.left < bytes)
		bytes = proxy.left;
	return bytes;
}

static bool readable(int fd)
{
	char byte;

	return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

/* Takes the cut that is due. */
static void flow_cut(struct flow *flow)
{
	flow->cut = proxy.cut;
	proxy.cut = proxy.chop ? CUT_RESET : CUT_NONE;
	proxy.left = proxy.chop;
}

/* Takes what the sender has sent. */
static void flow_take(struct flow *flow)
{
	while (!flow->ended && flow->cut == CUT_NONE && flow->count < CHUNKS) {
		size_t limit = most(flow);
		ssize_t got;

		if (!limit) {
			if (!readable(flow->from))
				return;
			flow_cut(flow);
			return;
		}
		got = splice(flow->from, NULL, flow->pipe[1], NULL, limit,
			     SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
		if (got < 0 && errno == EAGAIN)
			return;
		if (got <= 0) {
			flow->ended = true;
			return;
		}
		flow->chunks[(flow->first + flow->count++) % CHUNKS] =
			(struct chunk){ .due_ns = due_ns(flow, (size_t)got), .bytes = (size_t)got };
		if (!flow->limited || proxy.cut == CUT_NONE)
			continue;
		proxy.left -= (uint64_t)got;
		if (!proxy.left)
			flow_cut(flow);
	}
}

/* Passes on what is due. False: the receiver is gone. */
static bool flow_give(struct flow *flow)
{
	while (flow->count && flow->chunks[flow->first].due_ns <= now_ns()) {
		struct chunk *chunk = &flow->chunks[flow->first];
		ssize_t put = splice(flow->pipe[0], NULL, flow->to, NULL, chunk->bytes,
				     SPLICE_F_MOVE | SPLICE_F_NONBLOCK);

		if (put < 0 && errno == EAGAIN)
			return true;
		if (put <= 0)
			return false;
		*flow->bytes += (uint64_t)put;
		chunk->bytes -= (size_t)put;
		if (chunk->bytes)
			continue;
		flow->first = (flow->first + 1) % CHUNKS;
		flow->count--;
	}
	return true;
}

/* Room in the pipe lets more come, which the edge-triggered epoll does not tell of. */
static bool flow_run(struct flow *flow)
{
	size_t before;

	do {
		flow_take(flow);
		before = flow->count;
		if (!flow_give(flow))
			return false;
	} while (flow->count < before);
	return flow->count || (!flow->ended && flow->cut == CUT_NONE);
}

static void reset(int fd)
{
	struct linger linger = { .l_onoff = 1 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
}

static void connection_close(size_t i)
{
	struct connection *connection = proxy.connections[i];
	int fds[] = { connection->up.pipe[0],	connection->up.pipe[1], connection->down.pipe[0],
		      connection->down.pipe[1], connection->client,	connection->server };

	if (connection->down.cut != CUT_NONE)
		proxy.cuts++;
	if (connection->down.cut == CUT_RESET)
		reset(connection->client);
	reset(connection->server);
	for (size_t k = 0; k < sizeof(fds) / sizeof(*fds); k++)
		close(fds[k]);
	free(connection);
	proxy.connections[i] = NULL;
}

static void flow_init(struct flow *flow, int from, int to, bool limited, size_t i)
{
	if (pipe2(flow->pipe, O_NONBLOCK | O_CLOEXEC))
		fail("pipe");
	/* All pipes of a user share a bound, and calls are short. */
	if (limited && i < FEW)
		fcntl(flow->pipe[1], F_SETPIPE_SZ, PIPE_BYTES);
	else if (limited)
		fcntl(flow->pipe[1], F_SETPIPE_SZ, SMALL_PIPE_BYTES);
	flow->from = from;
	flow->to = to;
	flow->limited = limited;
	flow->bytes = limited ? &proxy.to_client : &proxy.to_server;
}

static void watch(int fd, uint32_t events, uint64_t data)
{
	struct epoll_event event = { .events = events, .data.u64 = data };

	if (epoll_ctl(proxy.epoll, EPOLL_CTL_ADD, fd, &event))
		fail("epoll_ctl");
}

static void connection_open(int client, size_t i)
{
	struct connection *connection = calloc(1, sizeof(*connection));
	int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	if (!connection || server < 0)
		fail("connection");
	/* It is on this machine: it accepts at once or not at all. */
	if (connect(server, (struct sockaddr *)&proxy.target, sizeof(proxy.target))) {
		reset(client);
		close(client);
		close(server);
		free(connection);
		return;
	}
	fcntl(server, F_SETFL, O_NONBLOCK);
	setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	connection->client = client;
	connection->server = server;
	flow_init(&connection->up, client, server, false, i);
	flow_init(&connection->down, server, client, true, i);
	proxy.connections[i] = connection;
	proxy.accepted++;
	watch(client, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, i);
	watch(server, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, i);
}

static void accept_all(void)
{
	int client;

	for (size_t i = 0; i < CONNECTIONS; i++) {
		if (proxy.connections[i])
			continue;
		client = accept4(proxy.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (client < 0)
			return;
		connection_open(client, i);
	}
}

static void count(void)
{
	size_t open = 0;

	for (size_t i = 0; i < CONNECTIONS; i++)
		open += proxy.connections[i] != NULL;
	printf("%" PRIu64 " %zu %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", proxy.accepted, open,
	       proxy.to_server, proxy.to_client, proxy.cuts);
}

static void obey(const char *line)
{
	char word[16] = "";
	uint64_t value = 0;
	int words = sscanf(line, "%15s %" SCNu64, word, &value);
	bool ok = true;

	if (!strcmp(word, "delay") && words == 2) {
		proxy.delay_ns = (int64_t)value * 1000;
	} else if (!strcmp(word, "rate") && words == 2) {
		proxy.rate = value;
	} else if ((!strcmp(word, "cut") || !strcmp(word, "end")) && words == 2) {
		proxy.cut = word[0] == 'c' ? CUT_RESET : CUT_END;
		proxy.left = value;
		proxy.chop = 0;
	} else if (!strcmp(word, "chop") && words == 2) {
		proxy.cut = value ? CUT_RESET : CUT_NONE;
		proxy.left = proxy.chop = value;
	} else if (!strcmp(word, "stall") || !strcmp(word, "go")) {
		proxy.stalled = word[0] == 's';
	} else if (!strcmp(word, "count")) {
		count();
		return;
	} else {
		ok = false;
	}
	puts(ok ? "ok" : "what?");
}

static void read_commands(void)
{
	static char text[4096];
	static size_t used;
	ssize_t got = read(STDIN_FILENO, text + used, sizeof(text) - 1 - used);
	char *end;

	if (got <= 0)
		exit(0);
	used += (size_t)got;
	text[used] = 0;
	while ((end = strchr(text, '\n'))) {
		*end = 0;
		obey(text);
		used -= (size_t)(end + 1 - text);
		memmove(text, end + 1, used + 1);
	}
	fflush(stdout);
}

/* Runs all connections; returns when the next byte is due. */
static int64_t run_connections(void)
{
	int64_t next = NEVER;

	for (size_t i = 0; i < CONNECTIONS; i++) {
		struct connection *connection = proxy.connections[i];

		if (!connection)
			continue;
		if (!flow_run(&connection->up) || !flow_run(&connection->down)) {
			connection_close(i);
			continue;
		}
		for (int k = 0; k < 2; k++) {
			const struct flow *flow = k ? &connection->up : &connection->down;
			int64_t due = flow->count ? flow->chunks[flow->first].due_ns : NEVER;

			/* What is due already waits for room, of which epoll tells. */
			if (due > now_ns() && due < next)
				next = due;
		}
	}
	return next;
}

static void begin(const char *target)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t length = sizeof(address);
	char host[64];
	unsigned port;

	if (sscanf(target, "%63[0-9.]:%u", host, &port) != 2 ||
	    inet_pton(AF_INET, host, &proxy.target.sin_addr) != 1) {
		fputs("usage: nfs-proxy HOST:PORT < COMMANDS\n", stderr);
		exit(2);
	}
	proxy.target.sin_family = AF_INET;
	proxy.target.sin_port = htons((uint16_t)port);
	signal(SIGPIPE, SIG_IGN); /* of a receiver that has gone */
	prctl(PR_SET_TIMERSLACK, 1UL);
	prctl(PR_SET_PDEATHSIG, (unsigned long)SIGKILL);
	proxy.epoll = epoll_create1(EPOLL_CLOEXEC);
	proxy.listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (proxy.epoll < 0 || proxy.listener < 0 ||
	    bind(proxy.listener, (struct sockaddr *)&address, sizeof(address)) ||
	    listen(proxy.listener, 128) ||
	    getsockname(proxy.listener, (struct sockaddr *)&address, &length))
		fail("listen");
	watch(proxy.listener, EPOLLIN, LISTENER);
	watch(STDIN_FILENO, EPOLLIN, COMMANDS);
	printf("%u\n", ntohs(address.sin_port));
	fflush(stdout);
}

/* Waits until then or until something happens, and does what concerns no connection. */
static void wait_for_events(int64_t until_ns)
{
	struct epoll_event events[64];
	int64_t wait_ns = until_ns - now_ns();
	struct timespec timeout = { .tv_sec = 1 };
	int found;

	if (wait_ns < 1000000000)
		timeout = (struct timespec){ .tv_nsec = wait_ns > 0 ? (long)wait_ns : 0 };
	found = epoll_pwait2(proxy.epoll, events, 64, &timeout, NULL);
	for (int i = 0; i < found; i++) {
		if (events[i].data.u64 == COMMANDS)
			read_commands();
		else if (events[i].data.u64 == LISTENER)
			accept_all(); /* while it is stalled, nothing comes through */
	}
}

int main(int argc, char **argv)
{
	begin(argc == 2 ? argv[1] : "");
	for (;;)
		wait_for_events(proxy.stalled ? NEVER : run_connections());
}
