/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The inside of the engine: a server of the cluster, for server.c, and all of them, for engine.c.
 * Everything here is the engine's thread's, unless a lock or "atomic" is named.
 */
#ifndef SHADE_SERVER_H
#define SHADE_SERVER_H

#include <netdb.h>

#include "base/threads.h"
#include "tier/engine.h"
#include "tier/pipeline.h"
#include "tier/resolver.h"

#define SERVERS_MAX 256
#define PROBE_MS 1000	/* between attempts to reach a server that is down */
#define REFRESH_MS 1000 /* between questions where slots are */

/*
 * NEW    it is being connected to for the first time, and requests wait for that
 * UP     it answers
 * DOWN   requests fail at once; once a second it is connected to, and sent a PING
 * TRIAL  it has answered that; one request at a time is sent, and only reads if it was too slow
 *
 *          greeted            answers in time            fails, or is late
 * NEW      UP                                            DOWN
 * UP                                                     DOWN, or NEW if nothing waits; or
 *                                                        UP, if it is late for the first times
 * DOWN     TRIAL                                         DOWN, for another second
 * TRIAL                       UP                         DOWN
 */
enum server_state { SERVER_NEW, SERVER_UP, SERVER_DOWN, SERVER_TRIAL };

/* Requests in the sequence of their arrival. */
struct request_queue {
	struct engine_request *first, **end;
};

/* Values that are put must not delay those that somebody waits for. */
enum link_use { LINK_READS, LINK_WRITES, LINKS };

struct link {
	struct server *server;
	struct pipeline pipeline;
	struct request_queue waiting;
	uint64_t progress_ms; /* when bytes came or went, or the first flight took off */
	unsigned late;	      /* requests in a row that took too long */
	bool polled_out;      /* epoll tells when the socket can be written to */
};

struct server {
	struct engine *engine;
	unsigned index; /* in engine->servers */
	struct slots_address address;
	char name[SLOTS_HOST_MAX + 16];
	bool is_seed;
	bool is_mapped;		 /* it has slots */
	uint64_t plain_until_ms; /* it has refused GETEX */
	struct link links[LINKS];
	uint64_t retry_ms;	       /* DOWN: when the next attempt is */
	uint64_t puts_from_ms;	       /* it has refused a value: nothing is put before this */
	bool slow;		       /* it is down because it took too long */
	struct lookup *lookup;	       /* the name is being resolved */
	uint64_t lookup_ms;	       /* since then */
	struct addrinfo *found;	       /* to be freed */
	struct addrinfo *address_next; /* of `found` */
	unsigned address_turn;	       /* how often connecting has failed */
	char why[160];		       /* what failed */
	bool told_down;		       /* the log says so */
	uint64_t told_ms;
	uint64_t told_full_ms; /* when it last refused a value; the log says so */
	/* atomic */
	uint64_t hits, misses, puts, errors;
};

struct engine {
	struct engine_options options;
	char *user, *password; /* or NULL */
	struct thread thread;
	int epoll, wake; /* descriptors */
	struct resolver *resolver;
	struct server *servers[SERVERS_MAX]; /* lock, to change it */
	uint8_t states[SERVERS_MAX];	     /* atomic: enum server_state */
	int16_t map[SLOTS];		     /* atomic: an index of servers; -1: none */
	bool has_map;			     /* atomic */
	uint64_t errors;		     /* atomic: of all servers */
	uint64_t losses;		     /* atomic: of connections that were in use */
	bool refresh_wanted;
	uint64_t refresh_ms; /* when it may be asked again */
	unsigned asked_last; /* whom */
	uint64_t tick_ms;
	struct request_queue finished;

	struct lock lock;
	struct request_queue incoming; /* lock */
	bool cancels;		       /* lock: there are cancelled requests */
	bool ticks;		       /* lock: `tick` is to be called */
	bool awake;		       /* lock: the thread will look at all this before it sleeps */
	bool stopping;		       /* lock */
};

/* --- engine.c ----------------------------------------------------------------------------------*/

void queue_init(struct request_queue *queue);
void queue_add(struct request_queue *queue, struct engine_request *request);
void queue_add_first(struct request_queue *queue, struct engine_request *request);
struct engine_request *queue_take(struct request_queue *queue);

static inline uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* It has ended; `done` is called soon. */
void engine_finish(struct engine *engine, struct engine_request *request,
		   enum engine_result result);
/* To the server that has its slot, or its end. */
void engine_route(struct engine *engine, struct engine_request *request, uint64_t now_ms);
/* The error that a server replied with is a redirection: follows it. False: it is none. */
bool engine_redirect(struct engine *engine, struct server *server, struct engine_request *request,
		     const struct resp_head *error, uint64_t now_ms);
/* A server was asked where slots are. */
void engine_take_map(struct engine *engine, struct server *server, const struct reply *reply);

/* --- server.c ----------------------------------------------------------------------------------*/

static inline enum server_state server_state(const struct server *server)
{
	return (enum server_state)__atomic_load_n(&server->engine->states[server->index],
						  __ATOMIC_RELAXED);
}

/* NULL: no memory. It is connected to at the next server_tick(). */
struct server *server_create(struct engine *engine, unsigned index,
			     const struct slots_address *address);
/* Nothing may wait for it. */
void server_destroy(struct server *server);
/* Takes the request, or ends it. */
void server_submit(struct server *server, struct engine_request *request, uint64_t now_ms);
/* Ends what was cancelled. The engine's lock is held. */
void server_drop_cancelled_locked(struct server *server);
/* Sends what waits and fits. */
void server_pump(struct server *server, uint64_t now_ms);
void server_event(struct link *link, uint32_t events, uint64_t now_ms);
/* Deadlines and attempts to connect. Returns when to come again. */
uint64_t server_tick(struct server *server, uint64_t now_ms);
/* Asks where slots are. False: it cannot now. */
bool server_ask_map(struct server *server, uint64_t now_ms);
/* Closes its connections; everything that waits for it has failed. */
void server_fail(struct server *server, const char *why, uint64_t now_ms);
bool server_is_idle(const struct server *server);
void server_count_error(struct server *server);

#endif
