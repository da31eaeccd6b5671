/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tier/slots.h"

#include <errno.h>
#include <string.h>

#include "number.h"

/* --- keys --------------------------------------------------------------------------------------*/

uint16_t slots_crc16(const char *data, size_t size)
{
	/* Of the numbers below 16, in their highest four bits. */
	static const uint16_t table[16] = { 0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5,
					    0x60c6, 0x70e7, 0x8108, 0x9129, 0xa14a, 0xb16b,
					    0xc18c, 0xd1ad, 0xe1ce, 0xf1ef };
	uint16_t crc = 0;

	for (size_t i = 0; i < size; i++) {
		unsigned char byte = (unsigned char)data[i];

		crc = (uint16_t)(crc << 4 ^ table[(crc >> 12 ^ byte >> 4) & 15]);
		crc = (uint16_t)(crc << 4 ^ table[(crc >> 12 ^ byte) & 15]);
	}
	return crc;
}

uint16_t slots_of_key(const char *key, size_t size)
{
	const char *open = memchr(key, '{', size);
	const char *close = open ? memchr(open, '}', (size_t)(key + size - open)) : NULL;

	if (close && close > open + 1)
		return slots_crc16(open + 1, (size_t)(close - open - 1)) % SLOTS;
	return slots_crc16(key, size) % SLOTS;
}

/* --- addresses ---------------------------------------------------------------------------------*/

/* Names and addresses of hosts have no others, and logs, stats and metrics show them as they are.
 */
static bool is_plain(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
	       (c && strchr("._-:%", c));
}

static int set_host(struct slots_address *address, const char *host, size_t size)
{
	if (!size || size > SLOTS_HOST_MAX)
		return -EINVAL;
	for (size_t i = 0; i < size; i++)
		if (!is_plain(host[i]))
			return -EINVAL;
	memcpy(address->host, host, size);
	address->host[size] = 0;
	return 0;
}

static int set_port(struct slots_address *address, int64_t port)
{
	if (port < 1 || port > 65535)
		return -EINVAL;
	address->port = (uint16_t)port;
	return 0;
}

/* Splits at the last colon: addresses of IPv6 have more. */
static const char *port_of(const char *text, size_t size)
{
	return memrchr(text, ':', size);
}

int slots_parse_address(const char *text, size_t size, struct slots_address *address)
{
	const char *colon = port_of(text, size);
	size_t host = colon ? (size_t)(colon - text) : 0;
	uint64_t port;

	if (!host || number_whole(colon + 1, size - host - 1, &port) || port > 65535 ||
	    set_port(address, (int64_t)port))
		return -EINVAL;
	if (host > 2 && *text == '[' && text[host - 1] == ']')
		return set_host(address, text + 1, host - 2);
	return set_host(address, text, host);
}

/* --- redirections ------------------------------------------------------------------------------*/

int slots_parse_redirection(const char *text, size_t size, const char *word, const char *from,
			    uint16_t *slot, struct slots_address *address)
{
	size_t length = strlen(word);
	const char *number = text + length + 1, *space;
	uint64_t value;

	if (size <= length || memcmp(text, word, length) != 0 || text[length] != ' ')
		return -EPROTO;
	size -= length + 1;
	space = memchr(number, ' ', size);
	if (!space || number_whole(number, (size_t)(space - number), &value) || value >= SLOTS)
		return -EPROTO;
	size -= (size_t)(space + 1 - number);
	*slot = (uint16_t)value;
	if (!slots_parse_address(space + 1, size, address))
		return 0;
	if (!size || space[1] != ':' || number_whole(space + 2, size - 1, &value) ||
	    value > 65535 || set_port(address, (int64_t)value))
		return -EPROTO;
	return set_host(address, from, strlen(from)) ? -EPROTO : 0;
}

/* --- the map -----------------------------------------------------------------------------------*/

static int next_of_kind(struct resp_walk *walk, enum resp_kind kind, struct resp_head *head)
{
	int rc = resp_next(walk, head);

	return rc || head->kind != kind ? -EPROTO : 0;
}

/* A node: host, port, and more that does not matter. A host of NULL, "" or "?" is unknown. */
static int parse_node(struct resp_walk *walk, const char *from, struct slots_address *address)
{
	struct resp_head node, host, port;

	if (next_of_kind(walk, RESP_ARRAY, &node) || node.number < 2 ||
	    next_of_kind(walk, RESP_BULK, &host) || next_of_kind(walk, RESP_INTEGER, &port))
		return -EPROTO;
	for (int64_t i = 2; i < node.number; i++)
		if (resp_skip(walk))
			return -EPROTO;
	if (host.number <= 0 || (host.number == 1 && *host.text == '?'))
		return set_host(address, from, strlen(from)) || set_port(address, port.number)
			       ? -EPROTO
			       : 0;
	return set_host(address, host.text, host.text_size) || set_port(address, port.number)
		       ? -EPROTO
		       : 0;
}

int slots_parse_map(struct resp_walk walk, const char *from, slots_range *range, void *context)
{
	struct slots_address address;
	struct resp_head all, one, first, last;
	int rc;

	if (next_of_kind(&walk, RESP_ARRAY, &all))
		return -EPROTO;
	for (int64_t i = 0; i < all.number; i++) {
		if (next_of_kind(&walk, RESP_ARRAY, &one) || one.number < 3 ||
		    next_of_kind(&walk, RESP_INTEGER, &first) ||
		    next_of_kind(&walk, RESP_INTEGER, &last) || first.number < 0 ||
		    first.number > last.number || last.number >= SLOTS ||
		    parse_node(&walk, from, &address))
			return -EPROTO;
		for (int64_t replica = 3; replica < one.number; replica++)
			if (resp_skip(&walk))
				return -EPROTO;
		rc = range(context, (uint16_t)first.number, (uint16_t)last.number, &address);
		if (rc)
			return rc;
	}
	return 0;
}
