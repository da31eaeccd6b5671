/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A client of a Redis Cluster, or of a single Redis server: one thread has all connections.
 *
 * Requests are handed to it and end by `done`, always: with an answer, or with ENGINE_FAILED if
 * their server does not answer within the timeout, cannot be reached, or is known to be down. The
 * caller then does without. Nothing is asked a second time, but for redirections.
 */
#ifndef SHADE_ENGINE_H
#define SHADE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tier/slots.h"
#include "tier/value.h"

struct engine;

enum engine_verb {
	ENGINE_GET,    /* the value, and sets its time to live */
	ENGINE_SET,    /* the value and its time to live */
	ENGINE_EXPIRE, /* sets the time to live of a key, if it is there */
};

enum engine_result {
	ENGINE_YES,	/* here is the value; it is set; the key is there */
	ENGINE_NO,	/* the key is not there */
	ENGINE_MISFIT,	/* a value of another length is there */
	ENGINE_REFUSED, /* the server has replied with an error */
	ENGINE_FAILED,	/* nobody knows */
};

struct engine_request {
	enum engine_verb verb;
	char key[VALUE_KEY_MAX];
	size_t key_size;
	unsigned char head[VALUE_HEAD]; /* of the value: to send, or what has come */
	void *body;			/* and the rest of it, until `done` */
	size_t body_size;
	uint32_t ttl;
	/* ENGINE_SET: fills in `head`, in the engine's thread. 0 or a negative errno. */
	int (*prepare)(struct engine_request *request);
	/* Called once, from the engine's thread, without a lock. */
	void (*done)(struct engine_request *request, enum engine_result result);
	void *context; /* the caller's */

	/* The engine's own; 0 before engine_submit() and engine_cancel(). */
	uint16_t slot;
	bool prepared;
	bool asking;	/* the server is to be told that it was asked for */
	bool cancelled; /* the engine's lock */
	unsigned redirections;
	uint64_t deadline_ms;
	enum engine_result result;
	struct engine_request *next;
};

struct engine_options {
	const struct slots_address *seeds; /* the servers that are asked for all others; copied */
	unsigned seed_count;
	const char *user, *password; /* NULL: none; copied */
	uint64_t timeout_ms;
	/* Called from the engine's thread when it is time; returns when the next time is, in the
	 * time of clock_now_ms(). */
	uint64_t (*tick)(void *context, uint64_t now_ms);
	void *context;
};

#define ENGINE_USER_MAX 128
#define ENGINE_PASSWORD_MAX 256

/* Does not wait for any server. 0 or a negative errno. */
int engine_create(struct engine **out, const struct engine_options *options);
/* Ends all requests, with ENGINE_FAILED. */
void engine_destroy(struct engine *engine);

/* Whether a request for this key has a chance by now. */
bool engine_reaches(struct engine *engine, const char *key, size_t key_size);
void engine_submit(struct engine *engine, struct engine_request *request);
/* Makes a GET end soon. It must not have ended yet, and may be submitted after this. */
void engine_cancel(struct engine *engine, struct engine_request *request);
/* Has `tick` called soon. */
void engine_wake(struct engine *engine);

struct engine_server_stats {
	char name[SLOTS_HOST_MAX + 16]; /* HOST:PORT */
	bool up;
	uint64_t hits, misses, puts, errors;
};

/* Fills in up to `room` of them. Returns how many there are. */
unsigned engine_stats(struct engine *engine, struct engine_server_stats *servers, unsigned room);

/* How often a server was lost: what it had may be gone. */
uint64_t engine_losses(const struct engine *engine);
/* Of all servers there have been. */
uint64_t engine_errors(const struct engine *engine);

#endif
