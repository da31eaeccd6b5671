/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which node of a Redis Cluster has a key: keys have slots, and slots have nodes. The nodes tell so
 * in the reply to CLUSTER SLOTS, and in the errors MOVED and ASK.
 */
#ifndef SHADE_SLOTS_H
#define SHADE_SLOTS_H

#include <stddef.h>
#include <stdint.h>

#include "tier/resp.h"

#define SLOTS 16384
#define SLOTS_HOST_MAX 255 /* bytes of a host's name or address */

/* A node as it is called: "HOST:PORT". */
struct slots_address {
	char host[SLOTS_HOST_MAX + 1];
	uint16_t port;
};

/* CRC16 as in XMODEM. */
uint16_t slots_crc16(const char *data, size_t size);
/* Of the key, or of what is between the first { and the next }, if that is something. */
uint16_t slots_of_key(const char *key, size_t size);

/* "HOST:PORT"; a host with colons may be in brackets. 0 or -EINVAL. */
int slots_parse_address(const char *text, size_t size, struct slots_address *address);

/* "MOVED SLOT HOST:PORT" and "ASK SLOT HOST:PORT". Without a host it is `from`'s. 0, or -EPROTO if
 * this is something else. */
int slots_parse_redirection(const char *text, size_t size, const char *word, const char *from,
			    uint16_t *slot, struct slots_address *address);

/* Calls `range` for each range of slots in the reply to CLUSTER SLOTS, with the node that may be
 * written to. A node without a host has that of `from`, whom the reply comes from. 0, -EPROTO, or
 * what `range` returned if that was not 0. */
typedef int slots_range(void *context, uint16_t first, uint16_t last,
			const struct slots_address *address);
int slots_parse_map(struct resp_walk walk, const char *from, slots_range *range, void *context);

#endif
