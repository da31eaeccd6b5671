/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tier/resolver.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/threads.h"

enum lookup_state { LOOKUP_WAITING, LOOKUP_UNDER_WAY, LOOKUP_FORGOTTEN, LOOKUP_OVER };

struct lookup {
	struct slots_address address;
	enum lookup_state state; /* lock */
	int rc;
	struct addrinfo *found;
	struct lookup *next; /* lock */
};

struct resolver {
	struct lock lock;
	struct cond changed;
	struct thread thread;
	bool started;
	bool stopping;		/* lock */
	bool busy;		/* lock: in getaddrinfo() */
	struct lookup *waiting; /* lock */
};

static int resolve(const struct slots_address *address, int flags, struct addrinfo **found)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = flags };
	char port[8];

	snprintf(port, sizeof(port), "%u", address->port);
	return getaddrinfo(address->host, port, &hints, found);
}

struct addrinfo *resolver_numeric(const struct slots_address *address)
{
	struct addrinfo *found;

	return resolve(address, AI_NUMERICHOST, &found) ? NULL : found;
}

static void free_lookup(struct lookup *lookup)
{
	if (lookup->found)
		freeaddrinfo(lookup->found);
	free(lookup);
}

static void free_resolver(struct resolver *resolver)
{
	cond_destroy(&resolver->changed);
	lock_destroy(&resolver->lock);
	free(resolver);
}

/* --- the thread --------------------------------------------------------------------------------*/

/* NULL: the end. */
static struct lookup *next_locked(struct resolver *resolver)
{
	struct lookup *lookup;

	lock_assert_held(&resolver->lock);
	while (!resolver->waiting && !resolver->stopping)
		cond_wait(&resolver->changed, &resolver->lock);
	lookup = resolver->stopping ? NULL : resolver->waiting;
	if (lookup) {
		resolver->waiting = lookup->next;
		lookup->state = LOOKUP_UNDER_WAY;
		resolver->busy = true;
	}
	return lookup;
}

static void serve(void *argument)
{
	struct resolver *resolver = argument;
	struct lookup *lookup;
	bool left_alone = false;

	lock_acquire(&resolver->lock);
	while (!left_alone && (lookup = next_locked(resolver))) {
		lock_release(&resolver->lock);
		lookup->rc = resolve(&lookup->address, 0, &lookup->found);
		if (lookup->rc)
			lookup->found = NULL;
		lock_acquire(&resolver->lock);
		resolver->busy = false;
		left_alone = resolver->stopping;
		if (lookup->state == LOOKUP_FORGOTTEN)
			free_lookup(lookup);
		else
			lookup->state = LOOKUP_OVER;
	}
	lock_release(&resolver->lock);
	if (left_alone) /* resolver_destroy() has not waited */
		free_resolver(resolver);
}

/* --- the engine's side -------------------------------------------------------------------------*/

struct resolver *resolver_create(void)
{
	struct resolver *resolver = calloc(1, sizeof(*resolver));

	if (!resolver)
		return NULL;
	lock_init(&resolver->lock, LOCK_ENGINE);
	cond_init(&resolver->changed);
	return resolver;
}

void resolver_destroy(struct resolver *resolver)
{
	bool busy;

	lock_acquire(&resolver->lock);
	resolver->stopping = true;
	busy = resolver->busy;
	cond_wake_all(&resolver->changed);
	lock_release(&resolver->lock);
	if (busy)
		return;
	if (resolver->started)
		thread_join(&resolver->thread);
	free_resolver(resolver);
}

struct lookup *resolver_ask(struct resolver *resolver, const struct slots_address *address)
{
	struct lookup *lookup = calloc(1, sizeof(*lookup));

	if (!resolver->started &&
	    thread_start(&resolver->thread, "shade-resolver", serve, resolver)) {
		free(lookup);
		return NULL;
	}
	resolver->started = true;
	if (!lookup)
		return NULL;
	lookup->address = *address;
	lock_acquire(&resolver->lock);
	lookup->next = resolver->waiting;
	resolver->waiting = lookup;
	cond_wake_one(&resolver->changed);
	lock_release(&resolver->lock);
	return lookup;
}

bool resolver_take(struct resolver *resolver, struct lookup *lookup, int *rc,
		   struct addrinfo **found)
{
	bool over;

	lock_acquire(&resolver->lock);
	over = lookup->state == LOOKUP_OVER;
	lock_release(&resolver->lock);
	if (!over)
		return false;
	*rc = lookup->rc;
	*found = lookup->found;
	free(lookup);
	return true;
}

void resolver_forget(struct resolver *resolver, struct lookup *lookup)
{
	enum lookup_state state;

	lock_acquire(&resolver->lock);
	state = lookup->state;
	if (state == LOOKUP_UNDER_WAY)
		lookup->state = LOOKUP_FORGOTTEN;
	for (struct lookup **at = &resolver->waiting; *at; at = &(*at)->next)
		if (*at == lookup) {
			*at = lookup->next;
			break;
		}
	lock_release(&resolver->lock);
	if (state != LOOKUP_UNDER_WAY)
		free_lookup(lookup);
}
