/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Resolves the names of hosts in a thread of its own, since getaddrinfo() may wait for long.
 * Numeric addresses need no thread. All functions are for one caller, the engine's thread. */
#ifndef SHADE_RESOLVER_H
#define SHADE_RESOLVER_H

#include <netdb.h>

#include "tier/slots.h"

struct resolver;
struct lookup; /* of one name */

/* NULL: no memory. The thread starts with the first lookup. */
struct resolver *resolver_create(void);
/* All lookups must be over. A thread that is in the middle of getaddrinfo() is left to it. */
void resolver_destroy(struct resolver *resolver);

/* At once, if the host is an address; else NULL. */
struct addrinfo *resolver_numeric(const struct slots_address *address);
/* NULL: no memory, or no thread. */
struct lookup *resolver_ask(struct resolver *resolver, const struct slots_address *address);
/* False: not yet. True: the lookup is over, and `*rc` is 0 with the addresses, or an error of
 * getaddrinfo(). */
bool resolver_take(struct resolver *resolver, struct lookup *lookup, int *rc,
		   struct addrinfo **found);
/* Nobody wants to know any more. */
void resolver_forget(struct resolver *resolver, struct lookup *lookup);

#endif
