/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tier/resp.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- replies -----------------------------------------------------------------------------------*/

/* The length of the line at `data` without its end; -1: its end has not come; -EPROTO. */
static int64_t line_length(const char *data, size_t size)
{
	size_t seen = size < RESP_LINE_MAX + 1 ? size : RESP_LINE_MAX + 1;
	const char *end = memchr(data, '\r', seen);

	if (!end)
		return size > RESP_LINE_MAX ? -EPROTO : -1;
	if (end + 1 == data + size)
		return -1;
	return end[1] == '\n' ? end - data : -EPROTO;
}

/* A whole number with or without a minus. 0 or -EPROTO. */
static int parse_number(const char *text, size_t size, int64_t *value)
{
	bool negative = size && *text == '-';
	uint64_t sum = 0;

	text += negative;
	size -= negative;
	if (!size || size > 18)
		return -EPROTO;
	for (size_t i = 0; i < size; i++) {
		if (text[i] < '0' || text[i] > '9')
			return -EPROTO;
		sum = sum * 10 + (uint64_t)(text[i] - '0');
	}
	*value = negative ? -(int64_t)sum : (int64_t)sum;
	return 0;
}

static int parse_count(struct resp_head *head, const char *text, size_t size, int64_t most)
{
	int rc = parse_number(text, size, &head->number);

	return rc || head->number < -1 || head->number > most ? -EPROTO : 1;
}

int resp_head(const char *data, size_t size, struct resp_head *head)
{
	int64_t length;

	if (!size)
		return 0;
	if (!*data || !strchr("+-:$*", *data))
		return -EPROTO;
	length = line_length(data, size);
	if (length < 0)
		return length == -1 ? 0 : (int)length;
	*head = (struct resp_head){ .text = data + 1,
				    .text_size = (size_t)length - 1,
				    .size = (size_t)length + 2 };
	switch (*data) {
	case '+':
		head->kind = RESP_STATUS;
		return 1;
	case '-':
		head->kind = RESP_ERROR;
		return 1;
	case ':':
		head->kind = RESP_INTEGER;
		return parse_number(head->text, head->text_size, &head->number) ? -EPROTO : 1;
	case '$':
		head->kind = RESP_BULK;
		return parse_count(head, head->text, head->text_size, RESP_BULK_MAX);
	default:
		head->kind = RESP_ARRAY;
		return parse_count(head, head->text, head->text_size, RESP_ARRAY_MAX);
	}
}

int resp_next(struct resp_walk *walk, struct resp_head *head)
{
	int rc = resp_head(walk->at, walk->left, head);
	size_t bytes;

	if (rc != 1)
		return -EPROTO;
	walk->at += head->size;
	walk->left -= head->size;
	if (head->kind != RESP_BULK || head->number < 0)
		return 0;
	bytes = (size_t)head->number;
	if (walk->left < bytes + 2 || memcmp(walk->at + bytes, "\r\n", 2) != 0)
		return -EPROTO;
	head->text = walk->at;
	head->text_size = bytes;
	walk->at += bytes + 2;
	walk->left -= bytes + 2;
	return 0;
}

int resp_skip(struct resp_walk *walk)
{
	struct resp_head head;

	for (int64_t left = 1; left; left--) {
		if (resp_next(walk, &head))
			return -EPROTO;
		if (head.kind == RESP_ARRAY && head.number > 0)
			left += head.number;
	}
	return 0;
}

/* What is left to come, by depth. */
struct nesting {
	int64_t left[RESP_DEPTH_MAX];
	unsigned depth;
};

/* One reply has come. True: it was the last of all. */
static bool close_reply(struct nesting *nesting)
{
	while (nesting->depth) {
		if (--nesting->left[nesting->depth - 1])
			return false;
		nesting->depth--;
	}
	return true;
}

int64_t resp_whole(const char *data, size_t size)
{
	struct nesting nesting = { 0 };
	struct resp_head head;
	size_t at = 0;

	for (;;) {
		int rc = resp_head(data + at, size - at, &head);

		if (rc != 1)
			return rc;
		at += head.size;
		if (head.kind == RESP_BULK && head.number >= 0) {
			if (size - at < (size_t)head.number + 2)
				return 0;
			at += (size_t)head.number + 2;
			if (memcmp(data + at - 2, "\r\n", 2) != 0)
				return -EPROTO;
		}
		if (head.kind == RESP_ARRAY && head.number > 0) {
			if (nesting.depth == RESP_DEPTH_MAX)
				return -EPROTO;
			nesting.left[nesting.depth++] = head.number;
		} else if (close_reply(&nesting)) {
			return (int64_t)at;
		}
	}
}

bool resp_is_error(const struct resp_head *head, const char *word)
{
	size_t length = strlen(word);

	return head->kind == RESP_ERROR && head->text_size >= length &&
	       !memcmp(head->text, word, length) &&
	       (head->text_size == length || head->text[length] == ' ');
}

/* --- commands ----------------------------------------------------------------------------------*/

static void put(struct resp_out *out, const void *data, size_t size)
{
	if (out->size <= out->room && size <= out->room - out->size)
		memcpy(out->data + out->size, data, size);
	out->size += size;
}

static void put_count(struct resp_out *out, char sign, uint64_t count)
{
	char line[32];

	put(out, line, (size_t)snprintf(line, sizeof(line), "%c%" PRIu64 "\r\n", sign, count));
}

void resp_begin(struct resp_out *out, unsigned words)
{
	put_count(out, '*', words);
}

void resp_word_head(struct resp_out *out, size_t size)
{
	put_count(out, '$', size);
}

void resp_word(struct resp_out *out, const void *data, size_t size)
{
	resp_word_head(out, size);
	put(out, data, size);
	put(out, "\r\n", 2);
}

void resp_string(struct resp_out *out, const char *text)
{
	resp_word(out, text, strlen(text));
}

void resp_number(struct resp_out *out, uint64_t value)
{
	char digits[24];

	resp_word(out, digits, (size_t)snprintf(digits, sizeof(digits), "%" PRIu64, value));
}
