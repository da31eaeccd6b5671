/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the tests of the control parser share: a world that writes down what it is told, and
 * messages put together. */
#ifndef SHADE_TEST_CONTROL_WORLD_H
#define SHADE_TEST_CONTROL_WORLD_H

#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "control/parse.h"

#define SAMPLES 64

/* What a parser did: a line for each command, scores one by one. */
struct world {
	char log[1 << 14];
	size_t used;
	uint32_t score_calls;
	int table_calls;
	uint64_t order_ids; /* of all orders, also of those too long to be written down */
	uint64_t order_sum;
	int refuse; /* what `evict` returns */
};

extern struct world world;
extern struct control_parser *p;
extern long until_failure; /* allocations that succeed; -1: all */

/* Messages put together. */
struct bytes {
	unsigned char data[1 << 14];
	size_t size;
};

struct control_parser *make_parser(struct world *w);
void teardown(void);
/* Also within a test, for a parser that has seen nothing. */
void setup(void);
int say(const char *text);
void put(struct bytes *bytes, const void *data, size_t size);
void put_text(struct bytes *bytes, const char *text);
void put_u64(struct bytes *bytes, uint64_t value);
void put_head(struct bytes *bytes, unsigned version, unsigned type, uint64_t payload);
void put_scores(struct bytes *bytes, const uint32_t *ids, const float *scores, uint32_t count);
void put_order(struct bytes *bytes, uint64_t epoch, const uint32_t *ids, uint32_t count);
void put_epoch(struct bytes *bytes, uint64_t epoch);
void put_table(struct bytes *bytes, uint64_t count, const void *paths, size_t size);
int send(const struct bytes *bytes);

#define cr_assert_said(text, answer)                                                               \
	do {                                                                                       \
		cr_assert_eq(say(text), 0, "%s", control_parser_answer(p));                        \
		cr_assert_str_eq(control_parser_answer(p), answer);                                \
	} while (0)

#define cr_assert_refused(text, answer)                                                            \
	do {                                                                                       \
		cr_assert_eq(say(text), -EINVAL);                                                  \
		cr_assert_str_eq(control_parser_answer(p), answer);                                \
	} while (0)

#endif
