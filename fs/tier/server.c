/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One server of the cluster: its two connections, what waits for them, and the breaker, whose
 * states are in server.h. */
#include "tier/server.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "tier/command.h"

#define LATE_MOST 3	   /* requests in a row */
#define QUIET_MS 10000	   /* between two lines of the log on one server */
#define LOOKUP_MS 50	   /* between looks whether a name is resolved */
#define PLAIN_MS 60000	   /* after GETEX was refused */
#define PUTS_PAUSE_MS 1000 /* after a value was refused */
#define ADDRESSES 60	   /* of a name, that have their turn */
#define WRITES_PATIENCE 4  /* nobody waits for values that are put: so many timeouts */

static void count(uint64_t *counter)
{
	__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

void server_count_error(struct server *server)
{
	count(&server->errors);
	count(&server->engine->errors);
}

static void enter(struct server *server, enum server_state state)
{
	__atomic_store_n(&server->engine->states[server->index], (uint8_t)state, __ATOMIC_RELAXED);
}

static uint64_t timeout_of(const struct link *link)
{
	uint64_t timeout_ms = link->server->engine->options.timeout_ms;

	return link == &link->server->links[LINK_WRITES] ? timeout_ms * WRITES_PATIENCE
							 : timeout_ms;
}

/* --- the log -----------------------------------------------------------------------------------*/

static void tell_down(struct server *server, uint64_t now_ms)
{
	if (server->told_down || (server->told_ms && now_ms - server->told_ms < QUIET_MS))
		return;
	log_say(LOG_WARNINGS, "tier: %s: %s; the source is asked instead", server->name,
		server->why);
	server->told_down = true;
	server->told_ms = now_ms;
}

static void tell_up(struct server *server)
{
	if (server->told_down)
		log_say(LOG_WARNINGS, "tier: %s answers again", server->name);
	server->told_down = false;
}

static void tell_full(struct server *server, uint64_t now_ms)
{
	bool quiet = server->told_full_ms && now_ms - server->told_full_ms < QUIET_MS;

	server->told_full_ms = now_ms;
	if (!quiet)
		log_say(LOG_WARNINGS, "tier: %s takes no values: %s", server->name, server->why);
}

/* Of an error reply, without what could confuse a terminal. */
static void set_why(struct server *server, const struct resp_head *error)
{
	size_t size =
		error->text_size < sizeof(server->why) ? error->text_size : sizeof(server->why) - 1;

	for (size_t i = 0; i < size; i++) {
		char c = error->text[i];

		server->why[i] = (char)(c >= ' ' && c < 0x7f ? c : '?');
	}
	server->why[size] = 0;
}

/* A server may repeat what it has not understood, which is the password. So only the error's first
 * word is told. */
static void set_why_auth(struct server *server, const struct resp_head *error)
{
	int size = 0;

	while ((size_t)size < error->text_size && size < 32 && error->text[size] >= 'A' &&
	       error->text[size] <= 'Z')
		size++;
	snprintf(server->why, sizeof(server->why), "AUTH is refused with %.*s", size, error->text);
}

/* --- begin and end -----------------------------------------------------------------------------*/

struct server *server_create(struct engine *engine, unsigned index,
			     const struct slots_address *address)
{
	struct server *server = calloc(1, sizeof(*server));
	bool v6 = strchr(address->host, ':');

	if (!server)
		return NULL;
	server->engine = engine;
	server->index = index;
	server->address = *address;
	snprintf(server->name, sizeof(server->name), "%s%s%s:%u", v6 ? "[" : "", address->host,
		 v6 ? "]" : "", address->port);
	for (unsigned i = 0; i < LINKS; i++) {
		server->links[i].server = server;
		queue_init(&server->links[i].waiting);
	}
	enter(server, SERVER_NEW);
	return server;
}

static void forget_addresses(struct server *server)
{
	if (server->found)
		freeaddrinfo(server->found);
	server->found = server->address_next = NULL;
}

void server_destroy(struct server *server)
{
	for (unsigned i = 0; i < LINKS; i++)
		pipeline_free(&server->links[i].pipeline);
	forget_addresses(server);
	if (server->lookup)
		resolver_forget(server->engine->resolver, server->lookup);
	free(server);
}

bool server_is_idle(const struct server *server)
{
	for (unsigned i = 0; i < LINKS; i++)
		if (server->links[i].waiting.first || server->links[i].pipeline.count)
			return false;
	return true;
}

static void fail_link(struct link *link)
{
	struct engine *engine = link->server->engine;
	struct engine_request *request;

	if (link->pipeline.state == PIPELINE_READY)
		count(&engine->losses);
	for (unsigned i = 0; i < link->pipeline.count; i++) {
		request = pipeline_flight(&link->pipeline, i)->request;
		if (request)
			engine_finish(engine, request, ENGINE_FAILED);
	}
	while ((request = queue_take(&link->waiting)))
		engine_finish(engine, request, ENGINE_FAILED);
	pipeline_close(&link->pipeline);
	link->polled_out = false;
	link->late = 0;
}

void server_fail(struct server *server, const char *why, uint64_t now_ms)
{
	if (why)
		snprintf(server->why, sizeof(server->why), "%s", why);
	server_count_error(server);
	for (unsigned i = 0; i < LINKS; i++)
		fail_link(&server->links[i]);
	enter(server, SERVER_DOWN);
	server->retry_ms = now_ms + PROBE_MS;
	server->engine->refresh_wanted = true;
	forget_addresses(server);
	tell_down(server, now_ms);
}

static void fail_with(struct server *server, int rc, uint64_t now_ms)
{
	server_fail(server, rc == -ECONNRESET ? "connection lost" : strerror(-rc), now_ms);
}

/* --- sending -----------------------------------------------------------------------------------*/

static void poll_link(struct link *link)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = link };

	if (link->pipeline.wants_out == link->polled_out)
		return;
	link->polled_out = link->pipeline.wants_out;
	if (link->polled_out)
		event.events |= EPOLLOUT;
	epoll_ctl(link->server->engine->epoll, EPOLL_CTL_MOD, link->pipeline.fd, &event);
}

static void send_link(struct link *link, uint64_t now_ms)
{
	unsigned unsent = link->pipeline.unsent;
	int rc = pipeline_send(&link->pipeline);

	if (link->pipeline.unsent != unsent)
		link->progress_ms = now_ms;
	if (rc)
		fail_with(link->server, rc, now_ms);
	else
		poll_link(link);
}

/* Values are sealed as late as this, by the thread that is not in a hurry. */
static bool prepare(struct engine_request *request)
{
	int rc = 0;

	if (request->prepare && !request->prepared)
		rc = request->prepare(request);
	request->prepared = !rc;
	return !rc;
}

static unsigned count_puts(struct link *link)
{
	unsigned puts = 0;

	for (unsigned i = 0; i < link->pipeline.count; i++)
		puts += pipeline_flight(&link->pipeline, i)->verb == VERB_SET;
	return puts;
}

/* While somebody waits for values of this server, it gets one at a time to keep. */
static bool must_yield(struct link *link, const struct engine_request *request)
{
	const struct link *reads = &link->server->links[LINK_READS];

	return request->verb == ENGINE_SET && (reads->pipeline.count || reads->waiting.first) &&
	       count_puts(link);
}

static void fill_link(struct link *link, uint64_t now_ms)
{
	struct engine_request *request;

	while ((request = link->waiting.first)) {
		if (pipeline_room(&link->pipeline) < 1u + request->asking ||
		    must_yield(link, request))
			return;
		queue_take(&link->waiting);
		if (!prepare(request)) {
			engine_finish(link->server->engine, request, ENGINE_FAILED);
			continue;
		}
		if (!link->pipeline.count)
			link->progress_ms = now_ms;
		command_request(&link->pipeline, request, link->server->plain_until_ms <= now_ms,
				now_ms);
	}
}

static void connect_link(struct link *link, const struct addrinfo *address, uint64_t now_ms)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLOUT, .data.ptr = link };
	struct server *server = link->server;
	int rc = pipeline_open(&link->pipeline, address->ai_addr, address->ai_addrlen, now_ms);

	if (!rc && epoll_ctl(server->engine->epoll, EPOLL_CTL_ADD, link->pipeline.fd, &event))
		rc = -errno;
	link->polled_out = true;
	link->progress_ms = now_ms;
	if (rc)
		fail_with(server, rc, now_ms);
}

/* The connection for writes is made when there is something to write, to where that for reads
 * leads. */
static void open_writes(struct server *server, uint64_t now_ms)
{
	struct sockaddr_storage address;
	socklen_t size = sizeof(address);
	struct addrinfo info = { .ai_addr = (struct sockaddr *)&address };

	if (getpeername(server->links[LINK_READS].pipeline.fd, info.ai_addr, &size)) {
		fail_with(server, -errno, now_ms);
		return;
	}
	info.ai_addrlen = size;
	connect_link(&server->links[LINK_WRITES], &info, now_ms);
}

void server_pump(struct server *server, uint64_t now_ms)
{
	const struct pipeline *reads = &server->links[LINK_READS].pipeline;
	const struct link *writes = &server->links[LINK_WRITES];

	if (reads->state != PIPELINE_READY)
		return;
	if (writes->waiting.first && writes->pipeline.state == PIPELINE_CLOSED)
		open_writes(server, now_ms);
	for (unsigned i = 0; i < LINKS; i++) {
		struct link *link = &server->links[i];

		if (link->pipeline.state != PIPELINE_READY)
			continue;
		fill_link(link, now_ms);
		if (link->pipeline.unsent && !link->pipeline.wants_out)
			send_link(link, now_ms);
	}
}

static bool accepts(const struct server *server, const struct engine_request *request,
		    uint64_t now_ms)
{
	enum server_state state = server_state(server);

	if (request->verb == ENGINE_SET && now_ms < server->puts_from_ms)
		return false;
	if (state == SERVER_TRIAL)
		return server_is_idle(server) && (!server->slow || request->verb == ENGINE_GET);
	return state != SERVER_DOWN;
}

void server_submit(struct server *server, struct engine_request *request, uint64_t now_ms)
{
	struct link *link = &server->links[request->verb == ENGINE_GET ? LINK_READS : LINK_WRITES];

	if (accepts(server, request, now_ms)) {
		if (request->redirections) {
			queue_add_first(&link->waiting, request); /* it has waited before */
			return;
		}
		request->deadline_ms = now_ms + timeout_of(link);
		queue_add(&link->waiting, request);
		return;
	}
	if (server_state(server) == SERVER_DOWN)
		server->engine->refresh_wanted = true;
	engine_finish(server->engine, request, ENGINE_FAILED);
}

bool server_ask_map(struct server *server, uint64_t now_ms)
{
	struct link *link = &server->links[LINK_READS];

	if (link->pipeline.state != PIPELINE_READY || !pipeline_room(&link->pipeline))
		return false;
	if (!link->pipeline.count)
		link->progress_ms = now_ms;
	command_cluster_slots(&link->pipeline, now_ms);
	if (!link->pipeline.wants_out)
		send_link(link, now_ms);
	return true;
}

/* --- replies -----------------------------------------------------------------------------------*/

/* Whether whatever else is asked would be answered the same. */
static bool concerns_all(const struct flight *flight, const struct resp_head *error)
{
	static const char *const words[] = { "NOAUTH", "WRONGPASS", "LOADING", "MASTERDOWN",
					     "CLUSTERDOWN" };

	for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (resp_is_error(error, words[i]))
			return true;
	return flight->verb == VERB_GET && resp_is_error(error, "NOPERM");
}

/* A cluster that need not be complete says this of a single slot. */
static bool is_unserved(const struct resp_head *error)
{
	return resp_is_error(error, "CLUSTERDOWN") &&
	       memmem(error->text, error->text_size, "slot not served", 15);
}

/* GETEX is a command that writes: old servers do not know it, and others may refuse it for the time
 * being, or to this user, and answer a plain GET. */
static bool retry_plain(struct server *server, struct flight *flight, const struct resp_head *error,
			uint64_t now_ms)
{
	if (!flight->extends || resp_is_error(error, "TRYAGAIN") ||
	    (concerns_all(flight, error) && !resp_is_error(error, "NOPERM")))
		return false;
	server->plain_until_ms = now_ms + PLAIN_MS;
	if (flight->request)
		queue_add_first(&server->links[LINK_READS].waiting, flight->request);
	return true;
}

static void pause_puts(struct server *server, const struct resp_head *error, uint64_t now_ms)
{
	server->puts_from_ms = now_ms + PUTS_PAUSE_MS;
	if (resp_is_error(error, "READONLY")) /* it has become a replica */
		server->engine->refresh_wanted = true;
	set_why(server, error);
	tell_full(server, now_ms);
}

/* 0, or a negative errno if the server is of no use. */
static int take_error(struct server *server, struct flight *flight, const struct resp_head *error,
		      uint64_t now_ms)
{
	struct engine_request *request = flight->request;
	bool useless = concerns_all(flight, error) && !is_unserved(error);

	if (engine_redirect(server->engine, server, request, error, now_ms) ||
	    retry_plain(server, flight, error, now_ms))
		return 0;
	if (!useless) /* else server_fail() counts it */
		server_count_error(server);
	if (is_unserved(error) && request)
		__atomic_store_n(&server->engine->map[request->slot], -1, __ATOMIC_RELAXED);
	if (is_unserved(error))
		server->engine->refresh_wanted = true;
	else if (useless)
		set_why(server, error);
	else if (flight->verb == VERB_SET)
		pause_puts(server, error, now_ms);
	if (request)
		engine_finish(server->engine, request, useless ? ENGINE_FAILED : ENGINE_REFUSED);
	return useless ? -EREMOTEIO : 0;
}

/* 0, or -EPROTO if this is no answer to such a question. */
static int result_of(const struct flight *flight, const struct reply *reply,
		     enum engine_result *result)
{
	const struct resp_head *head = &reply->head;

	if (flight->verb == VERB_GET) {
		if (!reply->has_value && (head->kind != RESP_BULK || head->number >= 0))
			return -EPROTO;
		*result = reply->has_value ? reply->result : ENGINE_NO;
		return 0;
	}
	if (head->kind != (flight->verb == VERB_SET ? RESP_STATUS : RESP_INTEGER))
		return -EPROTO;
	*result = flight->verb == VERB_SET || head->number ? ENGINE_YES : ENGINE_NO;
	return 0;
}

static void count_result(struct server *server, const struct flight *flight,
			 enum engine_result result)
{
	if (flight->verb == VERB_GET && flight->request)
		count(result == ENGINE_YES ? &server->hits : &server->misses);
	if (flight->verb == VERB_SET)
		count(&server->puts);
}

/* In time: nobody waits any more for what comes too late. */
static void answered(struct link *link)
{
	struct server *server = link->server;

	link->late = 0;
	if (server_state(server) == SERVER_TRIAL)
		enter(server, SERVER_UP);
	server->slow = false;
	tell_up(server);
}

static int take_answer(struct link *link, struct flight *flight, const struct reply *reply)
{
	struct server *server = link->server;
	enum engine_result result = ENGINE_FAILED;
	int rc = result_of(flight, reply, &result);

	if (rc) {
		if (flight->request)
			engine_finish(server->engine, flight->request, ENGINE_FAILED);
		return rc;
	}
	count_result(server, flight, result);
	if (!flight->request)
		return 0;
	answered(link);
	engine_finish(server->engine, flight->request, result);
	return 0;
}

static void greeted(struct link *link)
{
	struct server *server = link->server;

	link->pipeline.state = PIPELINE_READY;
	if (link != &server->links[LINK_READS])
		return;
	enter(server, server_state(server) == SERVER_NEW ? SERVER_UP : SERVER_TRIAL);
	if (!__atomic_load_n(&server->engine->has_map, __ATOMIC_RELAXED))
		server->engine->refresh_wanted = true;
}

static int replied(void *context, struct pipeline *pipeline, struct flight *flight,
		   const struct reply *reply)
{
	struct link *link = context;
	struct server *server = link->server;
	uint64_t now_ms = clock_now_ms();
	bool is_error = !reply->has_value && reply->head.kind == RESP_ERROR;

	assert(pipeline == &link->pipeline);
	link->progress_ms = now_ms;
	switch (flight->verb) {
	case VERB_AUTH:
	case VERB_PING:
		if (is_error && flight->verb == VERB_AUTH)
			set_why_auth(server, &reply->head);
		else if (is_error)
			set_why(server, &reply->head);
		else if (flight->verb == VERB_PING)
			greeted(link);
		return is_error ? -EREMOTEIO : 0;
	case VERB_ASKING:
		return 0;
	case VERB_CLUSTER_SLOTS:
		engine_take_map(server->engine, server, reply);
		return 0;
	default:
		return is_error ? take_error(server, flight, &reply->head, now_ms)
				: take_answer(link, flight, reply);
	}
}

/* --- events ------------------------------------------------------------------------------------*/

/* Other addresses of the same name may answer. */
static void connect_failed(struct server *server, int rc, uint64_t now_ms)
{
	struct link *link = &server->links[LINK_READS];

	if (!server->address_next || link->pipeline.state != PIPELINE_CONNECTING) {
		server->address_turn++;
		fail_with(server, rc, now_ms);
		return;
	}
	pipeline_close(&link->pipeline);
	connect_link(link, server->address_next, now_ms);
	if (server->address_next)
		server->address_next = server->address_next->ai_next;
}

static void connected(struct link *link, uint64_t now_ms)
{
	const struct engine *engine = link->server->engine;

	link->pipeline.state = PIPELINE_GREETING;
	if (engine->password)
		command_auth(&link->pipeline, engine->user, engine->password, now_ms);
	command_ping(&link->pipeline, now_ms);
	link->progress_ms = now_ms;
	send_link(link, now_ms);
}

/* Servers close connections that nobody has used for long, and before they are started again. */
static bool may_begin_again(const struct link *link, uint64_t now_ms)
{
	return server_state(link->server) == SERVER_UP && server_is_idle(link->server) &&
	       link->pipeline.began_ms + PROBE_MS <= now_ms;
}

static void begin_again(struct server *server, uint64_t now_ms)
{
	for (unsigned i = 0; i < LINKS; i++)
		fail_link(&server->links[i]);
	forget_addresses(server);
	enter(server, SERVER_NEW);
	server->retry_ms = now_ms;
}

void server_event(struct link *link, uint32_t events, uint64_t now_ms)
{
	struct pipeline *pipeline = &link->pipeline;
	uint64_t received = pipeline->received;
	int rc;

	if (pipeline->state == PIPELINE_CLOSED)
		return; /* it has been, since epoll told of this */
	if (pipeline->state == PIPELINE_CONNECTING) {
		rc = pipeline_check(pipeline);
		if (rc)
			connect_failed(link->server, rc, now_ms);
		else if (events & EPOLLOUT)
			connected(link, now_ms);
		return;
	}
	if (events & EPOLLOUT) {
		link->progress_ms = now_ms;
		send_link(link, now_ms);
	}
	if (pipeline->state == PIPELINE_CLOSED || !(events & ~(uint32_t)EPOLLOUT))
		return;
	rc = pipeline_receive(pipeline, replied, link);
	if (pipeline->received != received)
		link->progress_ms = now_ms;
	if (rc == -EREMOTEIO)
		server_fail(link->server, NULL, now_ms); /* set_why() was called */
	else if (rc == -ECONNRESET && may_begin_again(link, now_ms))
		begin_again(link->server, now_ms);
	else if (rc)
		fail_with(link->server, rc, now_ms);
}

/* --- time --------------------------------------------------------------------------------------*/

static void drop_late(struct server *server, struct engine_request *request)
{
	server_count_error(server);
	engine_finish(server->engine, request, ENGINE_FAILED);
}

/* The server answers others, but this takes too long. That is the server's fault only if the
 * request has not spent its time in our own queue. */
static void detach_late(struct link *link, uint64_t now_ms)
{
	for (unsigned i = 0; i < link->pipeline.count; i++) {
		const struct flight *flight = pipeline_flight(&link->pipeline, i);
		struct engine_request *request = flight->request;

		if (!request || request->deadline_ms > now_ms ||
		    !pipeline_detach(&link->pipeline, request))
			continue;
		link->late += flight->sent_ms + timeout_of(link) * 3 / 4 <= now_ms;
		drop_late(link->server, request);
	}
}

/* When it is clear that nothing comes any more. */
static uint64_t hung_at_ms(const struct link *link)
{
	switch (link->pipeline.state) {
	case PIPELINE_CLOSED:
		return UINT64_MAX;
	case PIPELINE_CONNECTING:
	case PIPELINE_GREETING:
		return link->pipeline.began_ms + timeout_of(link);
	default:
		return link->pipeline.count ? link->progress_ms + timeout_of(link) : UINT64_MAX;
	}
}

/* Returns when to come again. */
static uint64_t tick_link(struct link *link, uint64_t now_ms)
{
	struct pipeline *pipeline = &link->pipeline;
	uint64_t next_ms;

	if (hung_at_ms(link) <= now_ms) {
		link->server->address_turn += pipeline->state == PIPELINE_CONNECTING;
		server_fail(link->server, "does not answer", now_ms);
		return now_ms;
	}
	next_ms = hung_at_ms(link);
	detach_late(link, now_ms);
	while (link->waiting.first && link->waiting.first->deadline_ms <= now_ms)
		drop_late(link->server, queue_take(&link->waiting));
	if (link->waiting.first)
		next_ms = earlier(next_ms, link->waiting.first->deadline_ms);
	for (unsigned i = 0; i < pipeline->count; i++) {
		const struct flight *flight = pipeline_flight(pipeline, i);

		if (flight->request && !flight->value)
			next_ms = earlier(next_ms, flight->request->deadline_ms);
	}
	return next_ms;
}

/* Begins to resolve the name. Numbers need no asking. */
static void look_up(struct server *server, uint64_t now_ms)
{
	server->found = resolver_numeric(&server->address);
	if (server->found)
		return;
	server->lookup = resolver_ask(server->engine->resolver, &server->address);
	server->lookup_ms = now_ms;
	if (!server->lookup)
		fail_with(server, -ENOMEM, now_ms);
}

static void take_lookup(struct server *server, uint64_t now_ms)
{
	int rc;

	if (!resolver_take(server->engine->resolver, server->lookup, &rc, &server->found))
		return;
	server->lookup = NULL;
	if (rc)
		server_fail(server, gai_strerror(rc), now_ms);
}

/* Where nobody has answered, the next attempt is at the next address of the name. */
static struct addrinfo *address_in_turn(const struct server *server)
{
	struct addrinfo *address = server->found;

	for (unsigned i = 0; i < server->address_turn % ADDRESSES; i++)
		address = address->ai_next ? address->ai_next : server->found;
	return address;
}

static void begin(struct server *server, uint64_t now_ms)
{
	const struct addrinfo *address;

	if (!server->found && !server->lookup)
		look_up(server, now_ms);
	if (server->lookup)
		take_lookup(server, now_ms);
	if (!server->found)
		return;
	address = address_in_turn(server);
	server->address_next = address->ai_next;
	connect_link(&server->links[LINK_READS], address, now_ms);
}

static bool is_slow(const struct server *server)
{
	unsigned most = server_state(server) == SERVER_TRIAL ? 1 : LATE_MOST;

	return server->links[LINK_READS].late >= most || server->links[LINK_WRITES].late >= most;
}

uint64_t server_tick(struct server *server, uint64_t now_ms)
{
	const struct pipeline *reads = &server->links[LINK_READS].pipeline;
	uint64_t next_ms;

	if (reads->state == PIPELINE_CLOSED && server->retry_ms <= now_ms)
		begin(server, now_ms);
	if (server->lookup && server_state(server) == SERVER_NEW &&
	    server->lookup_ms + server->engine->options.timeout_ms <= now_ms)
		server_fail(server, "its name is not resolved yet", now_ms);
	next_ms = earlier(tick_link(&server->links[LINK_READS], now_ms),
			  tick_link(&server->links[LINK_WRITES], now_ms));
	if (is_slow(server)) {
		server->slow = true;
		server_fail(server, "is too slow", now_ms);
		return now_ms;
	}
	if (reads->state == PIPELINE_CLOSED)
		next_ms = earlier(next_ms, server->lookup ? now_ms + LOOKUP_MS : server->retry_ms);
	return next_ms;
}

void server_drop_cancelled_locked(struct server *server)
{
	struct link *link = &server->links[LINK_READS]; /* only these are cancelled */
	struct engine_request **at = &link->waiting.first, *request;

	lock_assert_held(&server->engine->lock);
	while ((request = *at)) {
		if (!request->cancelled) {
			at = &request->next;
			continue;
		}
		*at = request->next;
		engine_finish(server->engine, request, ENGINE_FAILED);
	}
	link->waiting.end = at;
	for (unsigned i = 0; i < link->pipeline.count; i++) {
		request = pipeline_flight(&link->pipeline, i)->request;
		if (request && request->cancelled && pipeline_detach(&link->pipeline, request))
			engine_finish(server->engine, request, ENGINE_FAILED);
	}
}
