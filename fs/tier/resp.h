/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * RESP2, the protocol of Redis: replies are read from a buffer that others fill, and commands are
 * written to one. Nothing here knows sockets.
 */
#ifndef SHADE_RESP_H
#define SHADE_RESP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RESP_LINE_MAX 4096		   /* bytes of a line without its end */
#define RESP_BULK_MAX ((int64_t)512 << 20) /* Redis has no longer strings */
#define RESP_ARRAY_MAX ((int64_t)1 << 20)  /* elements */
#define RESP_DEPTH_MAX 8		   /* arrays in arrays */

enum resp_kind { RESP_STATUS, RESP_ERROR, RESP_INTEGER, RESP_BULK, RESP_ARRAY };

/* The first line of a reply. What follows it is `number` bytes and the end of a line (RESP_BULK),
 * or `number` replies (RESP_ARRAY); -1 means that there is nothing, not even that. */
struct resp_head {
	enum resp_kind kind;
	int64_t number;	  /* RESP_INTEGER: the value */
	const char *text; /* RESP_STATUS, RESP_ERROR; in the buffer, not terminated */
	size_t text_size;
	size_t size; /* of the line with its end */
};

/* 1: `*head` is filled in; 0: the line has not come to its end; -EPROTO: this is no reply. */
int resp_head(const char *data, size_t size, struct resp_head *head);

/* How many bytes the whole reply at `data` has; 0: it has not come to its end; -EPROTO: this is no
 * reply. */
int64_t resp_whole(const char *data, size_t size);

/* Whether an error begins with this word. */
bool resp_is_error(const struct resp_head *head, const char *word);

/* Walks through a reply that resp_whole() has found complete. */
struct resp_walk {
	const char *at;
	size_t left;
};

/* The next head, or the next string with `text` pointing to its bytes. 0 or -EPROTO. */
int resp_next(struct resp_walk *walk, struct resp_head *head);
/* Leaves out the next reply with everything in it. 0 or -EPROTO. */
int resp_skip(struct resp_walk *walk);

/* --- commands ----------------------------------------------------------------------------------*/

/* A command that is being written. If it does not fit, `size` becomes more than `room`. */
struct resp_out {
	char *data;
	size_t room, size;
};

void resp_begin(struct resp_out *out, unsigned words);
void resp_word(struct resp_out *out, const void *data, size_t size);
void resp_string(struct resp_out *out, const char *text);
void resp_number(struct resp_out *out, uint64_t value);
/* The head of a word whose `size` bytes and end of line the caller sends. */
void resp_word_head(struct resp_out *out, size_t size);

#endif
