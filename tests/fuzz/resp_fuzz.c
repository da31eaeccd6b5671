/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Any bytes in place of what a Redis server sends.
 *
 * A reply is whole at one size and at no smaller one; walking through it ends exactly there; and a
 * map of slots and redirections name slots and ports that there are, whatever was sent.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "tier/resp.h"
#include "tier/slots.h"

const char fuzz_name[] = "resp";

static int check_range(void *context, uint16_t first, uint16_t last,
		       const struct slots_address *address)
{
	(void)context;
	fuzz_require(first <= last && last < SLOTS, "there are such slots");
	fuzz_require(address->port && *address->host, "there is such a node");
	fuzz_require(strlen(address->host) <= SLOTS_HOST_MAX, "its name has room");
	return 0;
}

static void check_redirections(const struct resp_head *head)
{
	static const char *const words[] = { "MOVED", "ASK" };
	struct slots_address address;
	uint16_t slot;

	for (unsigned i = 0; i < 2; i++)
		if (!slots_parse_redirection(head->text, head->text_size, words[i], "here", &slot,
					     &address)) {
			fuzz_require(resp_is_error(head, words[i]) || head->kind != RESP_ERROR,
				     "the word is the error's");
			check_range(NULL, slot, slot, &address);
		}
}

static void check_head(const char *data, size_t size)
{
	struct resp_head head, again;
	int rc = resp_head(data, size, &head);

	fuzz_require(rc == 0 || rc == 1 || rc == -EPROTO, "a head, none yet, or none");
	if (rc != 1)
		return;
	fuzz_require(head.size <= size && head.text + head.text_size <= data + size,
		     "a head is within its bytes");
	for (size_t cut = 0; cut < head.size; cut++)
		fuzz_require(resp_head(data, cut, &again) != 1, "a head that is cut is none");
	check_redirections(&head);
}

static void check_whole(const char *data, size_t size)
{
	int64_t whole = resp_whole(data, size);
	struct resp_walk walk = { data, (size_t)whole };

	fuzz_require(whole >= 0 || whole == -EPROTO, "whole, not yet, or no reply");
	if (whole <= 0)
		return;
	fuzz_require((size_t)whole <= size, "a reply is within its bytes");
	fuzz_require(!resp_whole(data, (size_t)whole - 1), "a reply that is cut is not whole");
	fuzz_require(!resp_skip(&walk) && !walk.left, "walking ends where the reply does");
	walk = (struct resp_walk){ data, (size_t)whole };
	(void)slots_parse_map(walk, "here", check_range, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *copy = fuzz_copy(data, size);

	check_head(copy, size);
	check_whole(copy, size);
	free(copy);
	return 0;
}

size_t fuzz_make(struct fuzz_random *random, uint8_t *data)
{
	static const struct fuzz_part parts[] = {
		FUZZ_PART("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:7000\r\n"),
		FUZZ_PART("*2\r\n"),
		FUZZ_PART("*3\r\n:0\r\n:5460\r\n*4\r\n$3\r\n::1\r\n:1\r\n$2\r\nid\r\n*0\r\n"),
		FUZZ_PART("*3\r\n:5461\r\n:16383\r\n*2\r\n$-1\r\n:65535\r\n"),
		FUZZ_PART("-MOVED 16383 10.0.0.1:7001\r\n"),
		FUZZ_PART("-ASK 0 :1\r\n"),
		FUZZ_PART("-OOM command not allowed\r\n"),
		FUZZ_PART("$5\r\nhello\r\n"),
		FUZZ_PART("$-1\r\n"),
		FUZZ_PART("+OK\r\n"),
		FUZZ_PART(":1\r\n"),
		FUZZ_PART("*1\r\n*1\r\n*1\r\n"),
	};

	return fuzz_join(random, parts, sizeof(parts) / sizeof(parts[0]), 8, data);
}
