/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* All servers of the cluster: which of them has a key, and the thread that serves them. */
#include "tier/engine.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"
#include "tier/server.h"

#define REDIRECTIONS_MAX 5
#define EVENTS 64
#define SLEEP_MOST_MS 1000

/* --- queues ------------------------------------------------------------------------------------*/

void queue_init(struct request_queue *queue)
{
	queue->first = NULL;
	queue->end = &queue->first;
}

void queue_add(struct request_queue *queue, struct engine_request *request)
{
	request->next = NULL;
	*queue->end = request;
	queue->end = &request->next;
}

void queue_add_first(struct request_queue *queue, struct engine_request *request)
{
	request->next = queue->first;
	queue->first = request;
	if (!request->next)
		queue->end = &request->next;
}

struct engine_request *queue_take(struct request_queue *queue)
{
	struct engine_request *request = queue->first;

	if (!request)
		return NULL;
	queue->first = request->next;
	if (!queue->first)
		queue->end = &queue->first;
	return request;
}

void engine_finish(struct engine *engine, struct engine_request *request, enum engine_result result)
{
	request->result = result;
	queue_add(&engine->finished, request);
}

static void answer_finished(struct engine *engine)
{
	struct engine_request *request;

	while ((request = queue_take(&engine->finished)))
		request->done(request, request->result);
}

/* --- the map -----------------------------------------------------------------------------------*/

static int get_map(const struct engine *engine, uint16_t slot)
{
	return __atomic_load_n(&engine->map[slot], __ATOMIC_RELAXED);
}

static void set_map(struct engine *engine, uint16_t slot, int index)
{
	__atomic_store_n(&engine->map[slot], (int16_t)index, __ATOMIC_RELAXED);
}

static bool has_map(const struct engine *engine)
{
	return __atomic_load_n(&engine->has_map, __ATOMIC_RELAXED);
}

static bool is_address(const struct server *server, const struct slots_address *address)
{
	return server->address.port == address->port &&
	       !strcmp(server->address.host, address->host);
}

/* The server with this address, which may be a new one; NULL: there are too many. */
static struct server *find_server(struct engine *engine, const struct slots_address *address)
{
	struct server *server;
	unsigned free_index = SERVERS_MAX;

	for (unsigned i = SERVERS_MAX; i-- > 0;) {
		if (!engine->servers[i])
			free_index = i;
		else if (is_address(engine->servers[i], address))
			return engine->servers[i];
	}
	if (free_index == SERVERS_MAX)
		return NULL;
	server = server_create(engine, free_index, address);
	lock_acquire(&engine->lock);
	engine->servers[free_index] = server;
	lock_release(&engine->lock);
	return server;
}

struct map_update {
	struct engine *engine;
	int16_t *map;
};

static int take_range(void *context, uint16_t first, uint16_t last,
		      const struct slots_address *address)
{
	struct map_update *update = context;
	struct server *server = find_server(update->engine, address);

	for (unsigned slot = first; server && slot <= last; slot++)
		update->map[slot] = (int16_t)server->index;
	return 0;
}

/* A slot without a server may get one at any time, and no request would tell of it. */
static void install_map(struct engine *engine, const int16_t *map)
{
	for (unsigned i = 0; i < SERVERS_MAX; i++)
		if (engine->servers[i])
			engine->servers[i]->is_mapped = false;
	for (unsigned slot = 0; slot < SLOTS; slot++) {
		set_map(engine, (uint16_t)slot, map[slot]);
		if (map[slot] >= 0)
			engine->servers[map[slot]]->is_mapped = true;
		else
			engine->refresh_wanted = true;
	}
	__atomic_store_n(&engine->has_map, true, __ATOMIC_RELAXED);
}

/* A single server has no slots, and gets all of them. */
static bool is_single(const struct resp_head *error)
{
	return resp_is_error(error, "ERR") || resp_is_error(error, "NOPERM");
}

void engine_take_map(struct engine *engine, struct server *server, const struct reply *reply)
{
	int16_t *map = malloc(SLOTS * sizeof(*map));
	struct map_update update = { engine, map };
	bool single = is_single(&reply->head);
	int rc = 0;

	if (!map)
		return;
	for (unsigned slot = 0; slot < SLOTS; slot++)
		map[slot] = (int16_t)(single ? (int)server->index : -1);
	if (!single)
		rc = reply->head.kind == RESP_ARRAY
			     ? slots_parse_map(reply->walk, server->address.host, take_range,
					       &update)
			     : -EPROTO;
	if (!rc) {
		install_map(engine, map);
	} else {
		engine->refresh_wanted = has_map(engine); /* else requests find their way */
		log_say(LOG_NOTES, "tier: %s does not say where keys are", server->name);
	}
	free(map);
}

/* Any server that answers is asked, each in turn. */
static void ask_map(struct engine *engine, uint64_t now_ms)
{
	if (!engine->refresh_wanted || now_ms < engine->refresh_ms)
		return;
	for (unsigned i = 1; i <= SERVERS_MAX; i++) {
		unsigned index = (engine->asked_last + i) % SERVERS_MAX;

		if (!engine->servers[index] || !server_ask_map(engine->servers[index], now_ms))
			continue;
		engine->asked_last = index;
		engine->refresh_wanted = false;
		engine->refresh_ms = now_ms + REFRESH_MS;
		return;
	}
}

/* Servers that nobody has named any more. */
static void remove_unused(struct engine *engine)
{
	for (unsigned i = 0; i < SERVERS_MAX; i++) {
		struct server *server = engine->servers[i];

		if (!server || server->is_seed || server->is_mapped || !server_is_idle(server) ||
		    !has_map(engine))
			continue;
		lock_acquire(&engine->lock);
		engine->servers[i] = NULL;
		lock_release(&engine->lock);
		server_destroy(server);
	}
}

/* --- routes ------------------------------------------------------------------------------------*/

static struct server *any_server(struct engine *engine)
{
	for (unsigned i = 0; i < SERVERS_MAX; i++)
		if (engine->servers[i] && server_state(engine->servers[i]) != SERVER_DOWN)
			return engine->servers[i];
	return NULL;
}

void engine_route(struct engine *engine, struct engine_request *request, uint64_t now_ms)
{
	int index = get_map(engine, request->slot);
	struct server *server = index >= 0 ? engine->servers[index] : NULL;

	if (!has_map(engine))
		server = any_server(engine);
	if (server) {
		server_submit(server, request, now_ms);
		return;
	}
	engine->refresh_wanted = true;
	engine_finish(engine, request, ENGINE_FAILED);
}

bool engine_redirect(struct engine *engine, struct server *from, struct engine_request *request,
		     const struct resp_head *error, uint64_t now_ms)
{
	const char *host = from->address.host;
	struct slots_address address;
	struct server *server;
	uint16_t slot;
	bool moved = !slots_parse_redirection(error->text, error->text_size, "MOVED", host, &slot,
					      &address);

	if (!moved &&
	    slots_parse_redirection(error->text, error->text_size, "ASK", host, &slot, &address))
		return false;
	server = find_server(engine, &address);
	if (server && moved) {
		set_map(engine, slot, (int)server->index);
		server->is_mapped = true;
		engine->refresh_wanted = true;
	}
	if (!request)
		return true;
	if (!server || ++request->redirections > REDIRECTIONS_MAX) {
		server_count_error(from);
		engine_finish(engine, request, ENGINE_FAILED);
		return true;
	}
	request->asking = !moved;
	server_submit(server, request, now_ms);
	return true;
}

bool engine_reaches(struct engine *engine, const char *key, size_t key_size)
{
	int index = get_map(engine, slots_of_key(key, key_size));

	if (has_map(engine))
		return index >= 0 &&
		       __atomic_load_n(&engine->states[index], __ATOMIC_RELAXED) != SERVER_DOWN;
	for (unsigned i = 0; i < engine->options.seed_count; i++)
		if (__atomic_load_n(&engine->states[i], __ATOMIC_RELAXED) != SERVER_DOWN)
			return true;
	return false;
}

/* --- the thread --------------------------------------------------------------------------------*/

static void wake_locked(struct engine *engine)
{
	uint64_t one = 1;
	ssize_t written = 0;

	lock_assert_held(&engine->lock);
	if (!engine->awake)
		written = write(engine->wake, &one, sizeof(one));
	(void)written;
	engine->awake = true;
}

void engine_submit(struct engine *engine, struct engine_request *request)
{
	request->slot = slots_of_key(request->key, request->key_size);
	request->redirections = 0;
	request->prepared = request->asking = false;
	lock_acquire(&engine->lock);
	engine->cancels |= request->cancelled;
	queue_add(&engine->incoming, request);
	wake_locked(engine);
	lock_release(&engine->lock);
}

void engine_cancel(struct engine *engine, struct engine_request *request)
{
	lock_acquire(&engine->lock);
	request->cancelled = true;
	engine->cancels = true;
	wake_locked(engine);
	lock_release(&engine->lock);
}

void engine_wake(struct engine *engine)
{
	lock_acquire(&engine->lock);
	engine->ticks = true;
	wake_locked(engine);
	lock_release(&engine->lock);
}

/* Takes what others have left. False: the end. */
static bool take_incoming(struct engine *engine, uint64_t now_ms)
{
	struct request_queue incoming;
	struct engine_request *request;
	bool stopping, ticks;

	queue_init(&incoming);
	lock_acquire(&engine->lock);
	while ((request = queue_take(&engine->incoming)))
		queue_add(&incoming, request);
	ticks = engine->ticks;
	stopping = engine->stopping;
	engine->ticks = false;
	lock_release(&engine->lock);
	while ((request = queue_take(&incoming)))
		engine_route(engine, request, now_ms);
	if (ticks)
		engine->tick_ms = now_ms;
	return !stopping;
}

static void drop_cancelled(struct engine *engine)
{
	lock_acquire(&engine->lock);
	if (engine->cancels)
		for (unsigned i = 0; i < SERVERS_MAX; i++)
			if (engine->servers[i])
				server_drop_cancelled_locked(engine->servers[i]);
	engine->cancels = false;
	lock_release(&engine->lock);
}

/* Returns when to come again. */
static uint64_t tick(struct engine *engine, uint64_t looked_ms)
{
	uint64_t now_ms = clock_now_ms(), next_ms = now_ms + SLEEP_MOST_MS;

	ask_map(engine, now_ms);
	for (unsigned i = 0; i < SERVERS_MAX; i++) {
		struct server *server = engine->servers[i];

		if (!server)
			continue;
		next_ms = earlier(next_ms, server_tick(server, looked_ms));
		server_pump(server, now_ms);
	}
	if (engine->options.tick && engine->tick_ms <= now_ms)
		engine->tick_ms = engine->options.tick(engine->options.context, now_ms);
	if (engine->refresh_wanted && engine->refresh_ms > now_ms)
		next_ms = earlier(next_ms, engine->refresh_ms);
	return earlier(next_ms, engine->tick_ms);
}

/* False: there is something to do before. */
static bool may_sleep(struct engine *engine)
{
	bool may;

	lock_acquire(&engine->lock);
	may = !engine->incoming.first && !engine->cancels && !engine->ticks && !engine->stopping;
	engine->awake = !may;
	lock_release(&engine->lock);
	return may;
}

static void handle_event(struct engine *engine, const struct epoll_event *event, uint64_t now_ms)
{
	uint64_t unused;
	ssize_t got;

	if (event->data.ptr) {
		server_event(event->data.ptr, event->events, now_ms);
		return;
	}
	got = read(engine->wake, &unused, sizeof(unused));
	(void)got;
}

/* Returns when it was looked at what has come. Who has not answered by then is late, and nobody is
 * because this thread was busy with other things meanwhile. */
static uint64_t wait_for_events(struct engine *engine, uint64_t until_ms)
{
	struct epoll_event events[EVENTS];
	uint64_t now_ms = clock_now_ms();
	int count, wait_ms = until_ms > now_ms ? (int)(until_ms - now_ms) : 0;

	count = epoll_wait(engine->epoll, events, EVENTS, may_sleep(engine) ? wait_ms : 0);
	lock_acquire(&engine->lock);
	engine->awake = true;
	lock_release(&engine->lock);
	now_ms = clock_now_ms();
	for (int i = 0; i < count; i++)
		handle_event(engine, &events[i], now_ms);
	return now_ms;
}

static void end_all(struct engine *engine)
{
	uint64_t now_ms = clock_now_ms();

	for (unsigned i = 0; i < SERVERS_MAX; i++) {
		if (!engine->servers[i])
			continue;
		engine->servers[i]->told_down = true; /* nothing is wrong with it */
		server_fail(engine->servers[i], NULL, now_ms);
	}
	answer_finished(engine);
}

static void serve(void *argument)
{
	struct engine *engine = argument;
	uint64_t looked_ms = clock_now_ms();

	while (take_incoming(engine, clock_now_ms())) {
		uint64_t next_ms;

		drop_cancelled(engine);
		next_ms = tick(engine, looked_ms);
		remove_unused(engine);
		answer_finished(engine);
		looked_ms = wait_for_events(engine, next_ms);
		answer_finished(engine);
	}
	end_all(engine);
}

/* --- begin and end -----------------------------------------------------------------------------*/

static void free_engine(struct engine *engine)
{
	for (unsigned i = 0; i < SERVERS_MAX; i++)
		if (engine->servers[i])
			server_destroy(engine->servers[i]);
	if (engine->resolver)
		resolver_destroy(engine->resolver);
	if (engine->epoll >= 0)
		close(engine->epoll);
	if (engine->wake >= 0)
		close(engine->wake);
	lock_destroy(&engine->lock);
	if (engine->password)
		explicit_bzero(engine->password, strlen(engine->password));
	free(engine->password);
	free(engine->user);
	free(engine);
}

static int copy_text(char **copy, const char *text, size_t most)
{
	if (!text)
		return 0;
	if (strlen(text) > most)
		return -ENAMETOOLONG;
	*copy = strdup(text);
	return *copy ? 0 : -ENOMEM;
}

static int add_seeds(struct engine *engine)
{
	for (unsigned i = 0; i < engine->options.seed_count; i++) {
		struct server *server = find_server(engine, &engine->options.seeds[i]);

		if (!server)
			return i < SERVERS_MAX ? -ENOMEM : -E2BIG;
		server->is_seed = true;
	}
	engine->options.seeds = NULL;
	return 0;
}

static int begin(struct engine *engine)
{
	struct epoll_event event = { .events = EPOLLIN };
	int rc = copy_text(&engine->user, engine->options.user, ENGINE_USER_MAX);

	if (!rc)
		rc = copy_text(&engine->password, engine->options.password, ENGINE_PASSWORD_MAX);
	if (!rc)
		rc = add_seeds(engine);
	if (rc)
		return rc;
	engine->resolver = resolver_create();
	if (!engine->resolver)
		return -ENOMEM;
	engine->options.user = engine->options.password = NULL;
	engine->epoll = epoll_create1(EPOLL_CLOEXEC);
	engine->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (engine->epoll < 0 || engine->wake < 0 ||
	    epoll_ctl(engine->epoll, EPOLL_CTL_ADD, engine->wake, &event))
		return -errno;
	return thread_start(&engine->thread, "shade-tier", serve, engine);
}

int engine_create(struct engine **out, const struct engine_options *options)
{
	struct engine *engine = calloc(1, sizeof(*engine));
	int rc;

	if (!engine)
		return -ENOMEM;
	assert(options->seed_count);
	engine->options = *options;
	engine->epoll = engine->wake = -1;
	engine->awake = true;
	engine->tick_ms = UINT64_MAX;
	lock_init(&engine->lock, LOCK_ENGINE);
	queue_init(&engine->incoming);
	queue_init(&engine->finished);
	memset(engine->map, 0xff, sizeof(engine->map));
	rc = begin(engine);
	if (rc)
		free_engine(engine);
	else
		*out = engine;
	return rc;
}

void engine_destroy(struct engine *engine)
{
	struct engine_request *request;

	lock_acquire(&engine->lock);
	engine->stopping = true;
	wake_locked(engine);
	lock_release(&engine->lock);
	thread_join(&engine->thread);
	while ((request = queue_take(&engine->incoming)))
		request->done(request, ENGINE_FAILED);
	free_engine(engine);
}

unsigned engine_stats(struct engine *engine, struct engine_server_stats *servers, unsigned room)
{
	unsigned count = 0;

	lock_acquire(&engine->lock);
	for (unsigned i = 0; i < SERVERS_MAX; i++) {
		struct server *server = engine->servers[i];
		struct engine_server_stats *out = &servers[count];

		if (!server || count++ >= room)
			continue;
		memcpy(out->name, server->name, sizeof(out->name));
		out->up = server_state(server) == SERVER_UP;
		out->hits = __atomic_load_n(&server->hits, __ATOMIC_RELAXED);
		out->misses = __atomic_load_n(&server->misses, __ATOMIC_RELAXED);
		out->puts = __atomic_load_n(&server->puts, __ATOMIC_RELAXED);
		out->errors = __atomic_load_n(&server->errors, __ATOMIC_RELAXED);
	}
	lock_release(&engine->lock);
	return count;
}

uint64_t engine_errors(const struct engine *engine)
{
	return __atomic_load_n(&engine->errors, __ATOMIC_RELAXED);
}

uint64_t engine_losses(const struct engine *engine)
{
	return __atomic_load_n(&engine->losses, __ATOMIC_RELAXED);
}
