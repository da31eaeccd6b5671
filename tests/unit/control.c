/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The parser of .shade/control: each command and record, each way to get one wrong, cuts at
 * every byte, and memory that runs out at every allocation (the linker sends the
 * parser's realloc here).
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "control_parse.h"

#define SAMPLES 64

void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);

static long until_failure = -1; /* -1: never */

void *__wrap_realloc(void *old, size_t size)
{
	if (until_failure >= 0 && until_failure-- == 0)
		return NULL;
	return __real_realloc(old, size);
}

/* What a parser did: a line for each command, scores one by one. */
struct world {
	char log[1 << 14];
	size_t used;
	uint32_t score_calls;
	uint64_t order_ids; /* of all orders, also of those too long to be written down */
	uint64_t order_sum;
	int refuse; /* what `evict` returns */
};

static void note(struct world *w, const char *format, ...)
{
	size_t room = sizeof(w->log) - w->used;
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vsnprintf(w->log + w->used, room, format, arguments);
	va_end(arguments);
	if ((size_t)length < room)
		w->used += (size_t)length;
}

static uint32_t world_sample_count(void *ctx)
{
	(void)ctx;
	return SAMPLES;
}

/* s/0 to s/63, and names that are not simple. */
static int world_find_sample(void *ctx, const char *path, uint32_t *id)
{
	static const char *const names[] = { "my cat.jpg", "7", "new\nline", "back\\slash" };
	char after;

	(void)ctx;
	for (uint32_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		*id = 40 + i;
		if (!strcmp(path, names[i]))
			return 0;
	}
	if (sscanf(path, "s/%" SCNu32 "%c", id, &after) == 1 && *id < SAMPLES)
		return 0;
	return -ENOENT;
}

static int world_check_path(void *ctx, const char *path)
{
	(void)ctx;
	return strstr(path, "missing") ? -ENOENT : 0;
}

static int world_check_policy(void *ctx, const char *name)
{
	(void)ctx;
	return strcmp(name, "shade") && strcmp(name, "lru") ? -EINVAL : 0;
}

static int world_scores(void *ctx, const uint32_t *ids, const float *scores, uint32_t count)
{
	struct world *w = ctx;

	cr_assert(count > 0);
	w->score_calls++;
	for (uint32_t i = 0; i < count; i++) {
		cr_assert(ids[i] < SAMPLES && scores[i] >= 0 && isfinite(scores[i]));
		note(w, "score %" PRIu32 " %g\n", ids[i], (double)scores[i]);
	}
	return 0;
}

static int world_order(void *ctx, uint64_t epoch, const uint32_t *ids, uint32_t count)
{
	struct world *w = ctx;

	note(w, "order %" PRIu64 ":", epoch);
	for (uint32_t i = 0; i < count; i++) {
		cr_assert(ids[i] < SAMPLES);
		w->order_sum += ids[i];
		if (i < 100)
			note(w, " %" PRIu32, ids[i]);
	}
	note(w, "\n");
	w->order_ids += count;
	return 0;
}

static int world_epoch(void *ctx, uint64_t epoch)
{
	note(ctx, "epoch %" PRIu64 "\n", epoch);
	return 0;
}

static int world_evict(void *ctx, const char *path)
{
	struct world *w = ctx;

	if (w->refuse)
		return w->refuse;
	note(ctx, "evict %s\n", path);
	return 0;
}

static int world_capacity(void *ctx, uint64_t bytes, double share)
{
	note(ctx, "capacity %" PRIu64 " %g\n", bytes, share);
	return 0;
}

#define NOTES_TEXT(command)                                                                        \
	static int world_##command(void *ctx, const char *text)                                    \
	{                                                                                          \
		note(ctx, #command " %s\n", text);                                                 \
		return 0;                                                                          \
	}

NOTES_TEXT(warm)
NOTES_TEXT(pin)
NOTES_TEXT(unpin)
NOTES_TEXT(policy)

static int world_rescan(void *ctx)
{
	note(ctx, "rescan\n");
	return 0;
}

static const struct control_ops world_ops = {
	.sample_count = world_sample_count,
	.find_sample = world_find_sample,
	.check_path = world_check_path,
	.check_policy = world_check_policy,
	.scores = world_scores,
	.order = world_order,
	.epoch = world_epoch,
	.warm = world_warm,
	.evict = world_evict,
	.pin = world_pin,
	.unpin = world_unpin,
	.capacity = world_capacity,
	.policy = world_policy,
	.rescan = world_rescan,
};

static struct world world;
static struct control_parser *p;

static struct control_parser *make_parser(struct world *w)
{
	struct control_parser *made = control_parser_new(&world_ops, w);

	*w = (struct world){ 0 };
	cr_assert_not_null(made);
	return made;
}

static void teardown(void)
{
	control_parser_free(p);
	p = NULL;
}

/* Also within a test, for a parser that has seen nothing. */
static void setup(void)
{
	teardown();
	p = make_parser(&world);
}

TestSuite(control, .init = setup, .fini = teardown);

static int say(const char *text)
{
	return control_parser_write(p, text, strlen(text));
}

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

/* Messages put together. */
struct bytes {
	unsigned char data[1 << 14];
	size_t size;
};

static void put(struct bytes *bytes, const void *data, size_t size)
{
	cr_assert(size <= sizeof(bytes->data) - bytes->size);
	if (size)
		memcpy(bytes->data + bytes->size, data, size);
	bytes->size += size;
}

static void put_text(struct bytes *bytes, const char *text)
{
	put(bytes, text, strlen(text));
}

static void put_u64(struct bytes *bytes, uint64_t value)
{
	unsigned char little[8];

	for (int i = 0; i < 8; i++)
		little[i] = (unsigned char)(value >> (8 * i));
	put(bytes, little, sizeof(little));
}

static void put_head(struct bytes *bytes, unsigned version, unsigned type, uint64_t payload)
{
	const unsigned char head[8] = {
		0xf5, 'S', 'H', 'D', (unsigned char)version, 0, (unsigned char)type
	};

	put(bytes, head, sizeof(head));
	put_u64(bytes, payload);
}

static void put_scores(struct bytes *bytes, const uint32_t *ids, const float *scores,
		       uint32_t count)
{
	put_head(bytes, 1, SHADE_RECORD_SCORES, 8 + 8 * (uint64_t)count);
	put_u64(bytes, count);
	put(bytes, ids, count * sizeof(*ids)); /* the tests run on little endian machines */
	put(bytes, scores, count * sizeof(*scores));
}

static void put_order(struct bytes *bytes, uint64_t epoch, const uint32_t *ids, uint32_t count)
{
	put_head(bytes, 1, SHADE_RECORD_ORDER, 16 + 4 * (uint64_t)count);
	put_u64(bytes, epoch);
	put_u64(bytes, count);
	put(bytes, ids, count * sizeof(*ids));
}

static void put_epoch(struct bytes *bytes, uint64_t epoch)
{
	put_head(bytes, 1, SHADE_RECORD_EPOCH, 8);
	put_u64(bytes, epoch);
}

static void put_table(struct bytes *bytes, uint64_t count, const void *paths, size_t size)
{
	put_head(bytes, 1, SHADE_RECORD_TABLE, 8 + size);
	put_u64(bytes, count);
	put(bytes, paths, size);
}

static int send(const struct bytes *bytes)
{
	return control_parser_write(p, bytes->data, bytes->size);
}

Test(control, every_command)
{
	cr_assert_said("# a comment\n"
		       "\n"
		       "score 5 0.25\n"
		       " score\ts/6   1e3 \n"
		       "epoch 18446744073709551615\n"
		       "warm a b/c\n"
		       "evict .\n"
		       "warm ./\n"
		       "pin x\n"
		       "unpin ././/x\n"
		       "capacity 8G\n"
		       "capacity 40%\n"
		       "policy lru\n"
		       "rescan\n",
		       "ok 12 commands\n");
	cr_assert_str_eq(world.log, "score 5 0.25\n"
				    "score 6 1000\n"
				    "epoch 18446744073709551615\n"
				    "warm a b/c\n"
				    "evict .\n"
				    "warm .\n"
				    "pin x\n"
				    "unpin x\n"
				    "capacity 8589934592 0\n"
				    "capacity 0 0.4\n"
				    "policy lru\n"
				    "rescan\n");
	cr_assert_eq(world.score_calls, 1);
}

Test(control, paths_of_any_bytes)
{
	cr_assert_said("score my cat.jpg 1\n"
		       "score ./7 2\n"
		       "score 7 3\n"
		       "score new\\012line 4\n"
		       "score back\\\\slash 5\n"
		       "warm \\040a\\377 \n",
		       "ok 6 commands\n");
	cr_assert_str_eq(world.log, "score 40 1\n"
				    "score 41 2\n"
				    "score 7 3\n"
				    "score 42 4\n"
				    "score 43 5\n"
				    "warm  a\377 \n");
}

/* Scores that follow each other are one call, and nothing overtakes anything. */
Test(control, batches_keep_the_sequence)
{
	cr_assert_said("score 1 1\nscore 2 2\n\n# more\nscore 3 3\nepoch 4\nscore 1 5\n",
		       "ok 5 commands\n");
	cr_assert_str_eq(world.log, "score 1 1\nscore 2 2\nscore 3 3\nepoch 4\nscore 1 5\n");
	cr_assert_eq(world.score_calls, 2);
}

Test(control, orders)
{
	cr_assert_said("order 3 begin\norder 3 1 2\n", "ok 2 commands, order 3 is open\n");
	cr_assert_said("order 3 2\t 63 \nscore 9 1\n", "ok 2 commands, order 3 is open\n");
	cr_assert_said("order 3 1\norder 3 end\norder 4 begin\norder 4 end\norder 5 begin\n",
		       "ok 5 commands, order 5 is open\n");
	cr_assert_str_eq(world.log, "score 9 1\norder 3: 1 2 2 63 1\norder 4:\n");
	cr_assert_refused("order 6 1\n", "line 1: order: 5 is open, not 6\n");
	cr_assert_refused("order 6 end\n", "line 1: order: 5 is open, not 6\n");
	/* Begins anew. */
	cr_assert_said("order 5 7\norder 5 begin\norder 5 8\norder 5 end\n", "ok 4 commands\n");
	cr_assert_str_eq(world.log, "score 9 1\norder 3: 1 2 2 63 1\norder 4:\norder 5: 8\n");
	cr_assert_refused("order 5 1\n", "line 1: order: write order 5 begin first\n");
}

Test(control, an_order_that_is_not_ended_is_forgotten)
{
	cr_assert_eq(say("order 3 begin\norder 3 1 2"), 0);
	cr_assert_eq(control_parser_finish(p), 0);
	cr_assert_str_eq(control_parser_answer(p), "ok 1 command, order 3 is open\n");
	teardown();
	cr_assert_str_eq(world.log, "");
}

Test(control, the_last_line_needs_no_newline)
{
	cr_assert_str_eq(control_parser_answer(p), "ok 0 commands\n");
	cr_assert_said("epoch 1", "ok 0 commands, a line is not complete\n");
	cr_assert_said("2", "ok 0 commands, a line is not complete\n");
	cr_assert_str_eq(world.log, "");
	cr_assert_eq(control_parser_finish(p), 0);
	cr_assert_str_eq(world.log, "epoch 12\n");
	cr_assert_str_eq(control_parser_answer(p), "ok 1 command\n");
	cr_assert_eq(control_parser_finish(p), 0);
	cr_assert_eq(say("epoch x"), 0);
	cr_assert_eq(control_parser_finish(p), -EINVAL);
	cr_assert_str_eq(control_parser_answer(p), "line 1: epoch: 'x' is not a number\n");
	cr_assert_eq(control_parser_finish(p), 0);
	cr_assert_str_eq(world.log, "epoch 12\n");
}

/* A line, and what is said about it. Order 9 is open. */
static const char *const bad_lines[][2] = {
	{ "fly\n", "there is no command 'fly'" },
	{ "Score 1 1\n", "there is no command 'Score'" },
	{ "\377\001\n", "there is no command '\\377\\001'" },
	{ "score\n", "score: write score SAMPLE VALUE" },
	{ "score 1\n", "score: write score SAMPLE VALUE" },
	{ "score 1 nan\n", "score: 'nan' is not a finite number of 0 or more" },
	{ "score 1 inf\n", "score: 'inf' is not a finite number of 0 or more" },
	{ "score 1 -1\n", "score: '-1' is not a finite number of 0 or more" },
	{ "score 1 1e39\n", "score: '1e39' is not a finite number of 0 or more" },
	{ "score 1 1e999\n", "score: '1e999' is not a finite number of 0 or more" },
	{ "score 1 0x10\n", "score: '0x10' is not a finite number of 0 or more" },
	{ "score 1 1,5\n", "score: '1,5' is not a finite number of 0 or more" },
	{ "score 1 .\n", "score: '.' is not a finite number of 0 or more" },
	{ "score 64 1\n", "score: id 64 is out of range, there are 64" },
	{ "score 4294967296 1\n", "score: id 4294967296 is out of range, there are 64" },
	{ "score 99999999999999999999 1\n",
	  "score: id 99999999999999999999 is out of range, there are 64" },
	{ "score -1 1\n", "there is no sample '-1'" },
	{ "score s/64 1\n", "there is no sample 's/64'" },
	{ "score /s/1 1\n", "score: '/s/1' is not a path relative to the mount" },
	{ "score a\\ 1\n", "score: a backslash is followed by three octal digits or a backslash" },
	{ "warm a\\08\n", "warm: a backslash is followed by three octal digits or a backslash" },
	{ "warm a\\000\n", "warm: a path has no byte of 0 or above 255" },
	{ "warm a\\400\n", "warm: a path has no byte of 0 or above 255" },
	{ "warm\n", "warm: '' is not a path relative to the mount" },
	{ "warm missing\n", "warm: there is no 'missing'" },
	{ "evict missing\n", "evict: there is no 'missing'" },
	{ "pin missing\n", "pin: there is no 'missing'" },
	{ "unpin missing\n", "unpin: there is no 'missing'" },
	{ "order\n", "order: '' is not an epoch" },
	{ "order x begin\n", "order: 'x' is not an epoch" },
	{ "order 18446744073709551616 begin\n", "order: '18446744073709551616' is not an epoch" },
	{ "order 1 begin now\n", "order: 'now' is too much" },
	{ "order 1 start\n", "order: 'start' is not begin, end or a sample id" },
	{ "order 9\n", "order: begin, end or sample ids are missing" },
	{ "order 9 end 1\n", "order: '1' is too much" },
	{ "order 9 64\n", "order: id 64 is out of range, there are 64" },
	{ "order 9 1 99999999999999999999 2\n",
	  "order: id 99999999999999999999 is out of range, there are 64" },
	{ "order 9 1 -1\n", "order: '-1' is not a sample id" },
	{ "order 9 1 2x 3\n", "order: '2x' is not a sample id" },
	{ "epoch\n", "epoch: '' is not a number" },
	{ "epoch -1\n", "epoch: '-1' is not a number" },
	{ "epoch 1 2\n", "epoch: '2' is too much" },
	{ "capacity\n", "capacity: '' is not a size like 512M, 8G or 40%" },
	{ "capacity 8X\n", "capacity: '8X' is not a size like 512M, 8G or 40%" },
	{ "capacity 16777216T\n", "capacity: '16777216T' is not a size like 512M, 8G or 40%" },
	{ "capacity 1 G\n", "capacity: 'G' is too much" },
	{ "policy\n", "policy: '' is not a policy" },
	{ "policy magic\n", "policy: 'magic' is not a policy" },
	{ "policy lru lru\n", "policy: 'lru' is too much" },
	{ "rescan all\n", "rescan: 'all' is too much" },
};

Test(control, bad_lines)
{
	char text[256], answer[256];

	cr_assert_eq(say("order 9 begin\norder 9 5\n"), 0);
	for (size_t i = 0; i < sizeof(bad_lines) / sizeof(bad_lines[0]); i++) {
		/* A good line before it, and one after it. */
		snprintf(text, sizeof(text), "epoch 1\n%srescan\n", bad_lines[i][0]);
		snprintf(answer, sizeof(answer), "line 2: %s\n", bad_lines[i][1]);
		cr_assert_refused(text, answer);
		cr_assert_str_eq(world.log, "");
	}
	cr_assert_said("order 9 6\norder 9 end\n", "ok 2 commands\n");
	cr_assert_str_eq(world.log, "order 9: 5 6\n");
}

Test(control, bytes_of_zero)
{
	cr_assert_eq(control_parser_write(p, "warm a\0b\n", 9), -EINVAL);
	cr_assert_eq(control_parser_write(p, "policy lru\0\n", 12), -EINVAL);
	cr_assert_eq(control_parser_write(p, "capacity 1\0\n", 12), -EINVAL);
	cr_assert_eq(control_parser_write(p, "score 1 1\0\n", 11), -EINVAL);
	cr_assert_eq(control_parser_write(p, "\0\n", 2), -EINVAL);
	cr_assert_eq(control_parser_write(p, "", 0), 0);
	cr_assert_str_eq(world.log, "");
}

/* Long hostile words do not make long answers. */
Test(control, answers_are_short_and_printable)
{
	char text[2000];

	memset(text, '\033', sizeof(text));
	text[sizeof(text) - 1] = '\n';
	cr_assert_eq(control_parser_write(p, text, sizeof(text)), -EINVAL);
	cr_assert(strlen(control_parser_answer(p)) < 120);
	cr_assert_null(strchr(control_parser_answer(p), '\033'));
}

Test(control, every_record)
{
	struct bytes bytes = { .size = 0 };

	put_scores(&bytes, (uint32_t[]){ 3, 0, 63 }, (float[]){ 1, 0, 2.5f }, 3);
	put_order(&bytes, 7, (uint32_t[]){ 5, 5, 6 }, 3);
	put_text(&bytes, "epoch 6\n");
	put_epoch(&bytes, 7);
	put_scores(&bytes, NULL, NULL, 0);
	put_order(&bytes, 8, NULL, 0);
	cr_assert_eq(send(&bytes), 0, "%s", control_parser_answer(p));
	cr_assert_str_eq(control_parser_answer(p), "ok 6 commands\n");
	cr_assert_str_eq(world.log, "score 3 1\nscore 0 0\nscore 63 2.5\norder 7: 5 5 6\n"
				    "epoch 6\nepoch 7\norder 8:\n");
}

/* A record inside a text order is none of its business. */
Test(control, a_record_between_the_lines_of_an_order)
{
	struct bytes bytes = { .size = 0 };

	put_text(&bytes, "order 1 begin\norder 1 10\n");
	put_order(&bytes, 2, (uint32_t[]){ 20, 21 }, 2);
	put_text(&bytes, "order 1 11\norder 1 end\n");
	cr_assert_eq(send(&bytes), 0);
	cr_assert_str_eq(world.log, "order 2: 20 21\norder 1: 10 11\n");
}

static const char three_paths[] = "s/9\0./s/8\0my cat.jpg"; /* with the last NUL */

Test(control, a_table_belongs_to_its_descriptor)
{
	struct world other_world;
	struct control_parser *other = make_parser(&other_world);
	struct bytes bytes = { .size = 0 };
	uint32_t id;

	put_table(&bytes, 3, three_paths, sizeof(three_paths));
	put_text(&bytes, "score 0 1\norder 1 begin\norder 1 2 1\norder 1 end\nscore s/3 1\n");
	cr_assert_eq(send(&bytes), 0, "%s", control_parser_answer(p));
	cr_assert_str_eq(world.log, "score 9 1\norder 1: 40 8\nscore 3 1\n");
	cr_assert_refused("score 3 1\n", "line 1: score: id 3 is out of range, there are 3\n");
	cr_assert_eq(control_parser_id(p, 1, &id), 0);
	cr_assert_eq(id, 8);
	cr_assert_eq(control_parser_id(p, 3, &id), -EINVAL);
	cr_assert_eq(control_parser_write(other, "score 3 1\n", 10), 0);
	/* A failed write does not change it. */
	bytes.size = 0;
	put_table(&bytes, 1, "s/1", 4);
	put_table(&bytes, 1, "s/2", 4);
	put_text(&bytes, "score 0 1\nscore 1 1\n");
	cr_assert_eq(send(&bytes), -EINVAL);
	cr_assert_eq(control_parser_id(p, 2, &id), 0);
	cr_assert_eq(id, 40);
	bytes.size = 0;
	put_table(&bytes, 0, "", 0);
	cr_assert_eq(send(&bytes), 0);
	cr_assert_eq(control_parser_id(p, 63, &id), 0);
	cr_assert_eq(id, 63);
	control_parser_free(other);
}

/* `bytes` must be refused, with a good line before them and a whole write after. */
static void refuse_record(const struct bytes *record, const char *answer)
{
	struct bytes bytes = { .size = 0 };

	setup();
	put_text(&bytes, "epoch 1\n");
	put(&bytes, record->data, record->size);
	cr_assert_eq(send(&bytes), -EINVAL, "%s", answer);
	cr_assert_str_eq(control_parser_answer(p), answer);
	cr_assert_str_eq(world.log, "");
	cr_assert_said("epoch 2\n", "ok 1 command\n");
	cr_assert_str_eq(world.log, "epoch 2\n");
}

static void refuse_head(unsigned version, unsigned type, uint64_t payload, uint64_t first,
			const char *answer)
{
	struct bytes bytes = { .size = 0 };

	put_head(&bytes, version, type, payload);
	put_u64(&bytes, first);
	put_u64(&bytes, first);
	refuse_record(&bytes, answer);
}

Test(control, bad_heads)
{
	struct bytes bytes = { .size = 0 };

	put_text(&bytes, "\365SHE");
	refuse_record(&bytes,
		      "record 1, byte 4: neither a command nor the beginning of a record\n");
	refuse_head(0, 1, 8, 0, "record 1, byte 16: version 0 is not known here, only 1\n");
	refuse_head(2, 1, 8, 0, "record 1, byte 16: version 2 is not known here, only 1\n");
	refuse_head(1, 0, 8, 0, "record 1, byte 16: there is no record type 0\n");
	refuse_head(1, 5, 8, 0, "record 1, byte 16: there is no record type 5\n");
	refuse_head(1, 1, 7, 0, "record 1, byte 16: 7 bytes are too few for a record of type 1\n");
	refuse_head(1, 2, 15, 0,
		    "record 1, byte 16: 15 bytes are too few for a record of type 2\n");
	refuse_head(1, 1, (1ull << 32) + 1, 1,
		    "record 1, byte 16: 4294967297 bytes, more than 4294967296\n");
	refuse_head(1, 1, UINT64_MAX, 1,
		    "record 1, byte 16: 18446744073709551615 bytes, more than 4294967296\n");
	refuse_head(1, 3, 16, 1, "record 1, byte 24: 8 bytes do not fit a count of 0\n");
	refuse_head(1, 1, 8, 1, "record 1, byte 24: 0 bytes do not fit a count of 1\n");
	/* 8 * 2^61 is 0 in 64 bits. */
	refuse_head(1, 1, 8, 1ull << 61,
		    "record 1, byte 24: a count of 2305843009213693952, more than 16777216\n");
	refuse_head(1, 1, 16, (1u << 24) + 1,
		    "record 1, byte 24: a count of 16777217, more than 16777216\n");
	refuse_head(1, 2, 16, 1ull << 62,
		    "record 1, byte 32: a count of 4611686018427387904, more than 67108864\n");
	refuse_head(1, 4, 9, 1, "record 1, byte 24: 1 bytes do not fit a count of 1\n");
	refuse_head(1, 4, 8 + 4097, 1, "record 1, byte 24: 4097 bytes do not fit a count of 1\n");
	refuse_head(1, 4, 8, UINT64_MAX,
		    "record 1, byte 24: a count of 18446744073709551615, more than 67108864\n");
}

Test(control, bad_entries)
{
	static const float bad[] = { NAN, -1, INFINITY, -INFINITY, -NAN };
	struct bytes bytes = { .size = 0 };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		bytes.size = 0;
		put_epoch(&bytes, 1);
		put_scores(&bytes, (uint32_t[]){ 1, 2 }, (float[]){ 1, bad[i] }, 2);
		refuse_record(&bytes, "record 2, byte 36: entry 1: a score is a finite number "
				      "of 0 or more\n");
	}
	bytes.size = 0;
	put_scores(&bytes, (uint32_t[]){ 1, 64 }, (float[]){ 1, 1 }, 2);
	refuse_record(&bytes, "record 1, byte 28: entry 1: the id is out of range\n");
	bytes.size = 0;
	put_order(&bytes, 1, (uint32_t[]){ UINT32_MAX }, 1);
	refuse_record(&bytes, "record 1, byte 32: entry 0: the id is out of range\n");
}

Test(control, bad_tables)
{
	struct bytes bytes = { .size = 0 };

	put_table(&bytes, 1, "s/64", 5);
	refuse_record(&bytes, "record 1, byte 24: there is no sample 's/64'\n");
	bytes.size = 0;
	put_table(&bytes, 1, "/s/1", 5);
	refuse_record(&bytes,
		      "record 1, byte 24: entry 0: the path is not relative to the mount\n");
	bytes.size = 0;
	put_table(&bytes, 2, "s/1\0\0", 5);
	refuse_record(&bytes,
		      "record 1, byte 28: entry 1: the path is not relative to the mount\n");
	bytes.size = 0;
	put_table(&bytes, 1, "s/1\0s/2", 8);
	refuse_record(&bytes, "record 1, byte 28: more than 1 paths\n");
	bytes.size = 0;
	put_table(&bytes, 3, "s/1\0s/2", 8);
	refuse_record(&bytes, "record 1, byte 32: fewer than 3 paths\n");
	bytes.size = 0;
	put_table(&bytes, 2, "s/1\0s/2", 7);
	refuse_record(&bytes, "record 1, byte 31: fewer than 2 paths\n");
}

Test(control, half_a_record_at_the_end)
{
	struct bytes bytes = { .size = 0 };

	put_order(&bytes, 1, (uint32_t[]){ 1, 2 }, 2);
	for (size_t size = 1; size < bytes.size; size++) {
		cr_assert_eq(control_parser_write(p, bytes.data, size), 0);
		cr_assert_str_eq(control_parser_answer(p),
				 "ok 0 commands, a record is not complete\n");
		cr_assert_eq(control_parser_finish(p), -EINVAL);
		cr_assert_said("", "ok 0 commands\n");
	}
	cr_assert_eq(control_parser_write(p, bytes.data, 37), 0);
	cr_assert_eq(control_parser_finish(p), -EINVAL);
	cr_assert_str_eq(control_parser_answer(p),
			 "record 1, byte 37: the record is not complete\n");
	cr_assert_str_eq(world.log, "");
}

/* Every kind of message, in one stream. */
static void put_everything(struct bytes *bytes)
{
	put_text(bytes, "score 5 0.25\norder 3 begin\norder 3 1 2 10\nscore my cat.jpg 1\n");
	put_scores(bytes, (uint32_t[]){ 3, 0, 63 }, (float[]){ 1, 0, 2.5f }, 3);
	put_text(bytes, "order 3   11 12\nwarm a\\040b\n# note\n\ncapacity 33.5%\n");
	put_order(bytes, 9, (uint32_t[]){ 4, 5 }, 2);
	put_table(bytes, 3, three_paths, sizeof(three_paths));
	put_scores(bytes, (uint32_t[]){ 2, 1 }, (float[]){ 7, 8 }, 2);
	put_epoch(bytes, 2);
	put_text(bytes, "order 3 0 1 2\norder 3 end\npolicy shade\nscore s/1 3\nunpin x");
}

static void cut_twice(const struct bytes *bytes, size_t first, size_t second, const char *expected)
{
	setup();
	cr_assert_eq(control_parser_write(p, bytes->data, first), 0, "%s at %zu",
		     control_parser_answer(p), first);
	cr_assert_eq(control_parser_write(p, bytes->data + first, second - first), 0, "%s at %zu",
		     control_parser_answer(p), first);
	cr_assert_eq(control_parser_write(p, bytes->data + second, bytes->size - second), 0,
		     "%s at %zu", control_parser_answer(p), second);
	cr_assert_eq(control_parser_finish(p), 0);
	cr_assert_str_eq(world.log, expected, "cut at %zu and %zu", first, second);
}

Test(control, cut_at_every_byte)
{
	struct bytes bytes = { .size = 0 };
	char expected[sizeof(world.log)];

	put_everything(&bytes);
	cr_assert_eq(send(&bytes), 0, "%s", control_parser_answer(p));
	cr_assert_eq(control_parser_finish(p), 0);
	cr_assert_str_eq(world.log, "score 5 0.25\nscore 40 1\nscore 3 1\nscore 0 0\n"
				    "score 63 2.5\nwarm a b\ncapacity 0 0.335\norder 9: 4 5\n"
				    "score 40 7\nscore 8 8\nepoch 2\n"
				    "order 3: 1 2 10 11 12 9 8 40\npolicy shade\nscore 1 3\n"
				    "unpin x\n");
	strcpy(expected, world.log);
	for (size_t first = 0; first <= bytes.size; first++)
		for (size_t second = first; second <= bytes.size; second += 7)
			cut_twice(&bytes, first, second, expected);
}

Test(control, byte_by_byte_and_two_at_once)
{
	struct bytes bytes = { .size = 0 };
	struct world worlds[2];
	struct control_parser *both[2] = { make_parser(&worlds[0]), make_parser(&worlds[1]) };

	put_everything(&bytes);
	cr_assert_eq(send(&bytes), 0);
	cr_assert_eq(control_parser_finish(p), 0);
	for (size_t i = 0; i < bytes.size + 50; i++) {
		if (i < bytes.size)
			cr_assert_eq(control_parser_write(both[0], bytes.data + i, 1), 0);
		if (i >= 50) /* the other one is always somewhere else */
			cr_assert_eq(control_parser_write(both[1], bytes.data + i - 50, 1), 0);
	}
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(control_parser_finish(both[i]), 0);
		cr_assert_str_eq(worlds[i].log, world.log);
		control_parser_free(both[i]);
	}
}

/* An error forgets the message that was begun, and only that. */
Test(control, after_an_error_a_write_begins_afresh)
{
	struct bytes bytes = { .size = 0 };

	cr_assert_eq(say("order 1 begin\norder 1 1 2\norder 1 3"), 0);
	cr_assert_refused(" 4\norder 1 5 6\nnonsense\n",
			  "line 3: there is no command 'nonsense'\n");
	cr_assert_said("order 1 7\n", "ok 1 command, order 1 is open\n");
	put_scores(&bytes, (uint32_t[]){ 1, 2 }, (float[]){ 1, NAN }, 2);
	cr_assert_eq(control_parser_write(p, bytes.data, 34), 0);
	cr_assert_eq(control_parser_write(p, bytes.data + 34, bytes.size - 34), -EINVAL);
	/* Neither an order that was begun nor one that was ended in a bad write counts. */
	cr_assert_eq(say("order 1 8\norder 1 end\norder 2 begin\norder 2 9\nbad\n"), -EINVAL);
	cr_assert_said("order 1 end\n", "ok 1 command\n");
	cr_assert_str_eq(world.log, "order 1: 1 2 7\n");
}

/* What is refused when it is applied: the rest of the write is not, and it can be repeated. */
Test(control, a_refused_command_ends_the_write)
{
	world.refuse = -ENOSPC;
	cr_assert_eq(say("order 1 begin\norder 1 1\n"), 0);
	cr_assert_eq(say("order 1 2\nepoch 1\nevict x\nepoch 2\norder 1 end\n"), -ENOSPC);
	cr_assert_str_eq(control_parser_answer(p),
			 "line 3: evict: No space left on device; what came before it was "
			 "applied, what follows was not\n");
	cr_assert_str_eq(world.log, "epoch 1\n");
	world.refuse = 0;
	cr_assert_said("order 1 2\nepoch 1\nevict x\nepoch 2\norder 1 end\n", "ok 5 commands\n");
	cr_assert_str_eq(world.log, "epoch 1\nepoch 1\nevict x\nepoch 2\norder 1: 1 2\n");
}

Test(control, long_lines)
{
	size_t size = SHADE_LINE_MAX;
	char *text = malloc(size + 2);

	/* A line of exactly the bound is fine, whole and cut. */
	memset(text, ' ', size);
	memcpy(text, "epoch 1", 7);
	text[size] = '\n';
	cr_assert_eq(control_parser_write(p, text, size + 1), 0);
	cr_assert_eq(control_parser_write(p, text, 10), 0);
	cr_assert_eq(control_parser_write(p, text + 10, size - 10), 0);
	cr_assert_eq(control_parser_write(p, text + size, 1), 0);
	cr_assert_str_eq(world.log, "epoch 1\nepoch 1\n");
	text[size] = ' ';
	text[size + 1] = '\n';
	cr_assert_eq(control_parser_write(p, text, size + 2), -EINVAL);
	cr_assert_str_eq(control_parser_answer(p), "line 1: the line is longer than 65536 bytes\n");
	cr_assert_eq(control_parser_write(p, text, 10), 0);
	cr_assert_eq(control_parser_write(p, text + 10, size - 8), -EINVAL);
	memset(text, 'a', size);
	memcpy(text, "warm ", 5);
	text[5 + SHADE_PATH_MAX] = '\n';
	cr_assert_eq(control_parser_write(p, text, 5 + SHADE_PATH_MAX + 1), 0);
	text[5 + SHADE_PATH_MAX] = 'a';
	text[5 + SHADE_PATH_MAX + 1] = '\n';
	cr_assert_eq(control_parser_write(p, text, 5 + SHADE_PATH_MAX + 2), -EINVAL);
	cr_assert_str_eq(control_parser_answer(p),
			 "line 1: warm: the path has more than 4095 bytes\n");
	free(text);
}

/* `order 1 ID ID ...` as one line of 16 MiB, in writes of `piece` bytes. */
static void send_long_order(size_t piece, const char *ending, int expected)
{
	size_t size = (size_t)16 << 20;
	char *text = malloc(size);
	uint64_t count = 0;
	int error;

	setup();
	for (size_t i = 0; i < size; i += 4, count++)
		memcpy(text + i, i % 8 ? "12\t " : " 12 ", 4);
	cr_assert_eq(say("order 1 begin\norder 1 1\norder 1 "), 0);
	for (size_t i = 0; i < size; i += piece)
		cr_assert_eq(control_parser_write(p, text + i, size - i < piece ? size - i : piece),
			     0, "%s", control_parser_answer(p));
	error = say(ending);
	cr_assert_eq(error, expected, "%s", control_parser_answer(p));
	cr_assert_eq(say("order 1 2\norder 1 end\n"), 0, "%s", control_parser_answer(p));
	cr_assert_eq(world.order_ids, 2 + (error ? 0 : count));
	cr_assert_eq(world.order_sum, 3 + (error ? 0 : 12 * count));
	free(text);
}

Test(control, an_order_in_one_long_line)
{
	send_long_order((size_t)1 << 20, "\n", 0);
	send_long_order((size_t)128 << 10, " \n", 0);
	send_long_order(99991, "\n", 0);
	send_long_order((size_t)16 << 20, "\n", 0);
	/* The whole line goes, also what earlier writes brought. */
	send_long_order((size_t)1 << 20, " 64\n", -EINVAL);
	send_long_order((size_t)1 << 20, " x\n", -EINVAL);
}

/* A bad end takes the line's ids along, also if another order left before them. */
Test(control, a_long_line_after_an_order)
{
	static const char start[] =
		"order 1 begin\norder 1 5 6\norder 1 end\norder 2 begin\norder 2 ";
	size_t size = 2 * SHADE_LINE_MAX;
	char *text = malloc(size);

	for (size_t i = 0; i < size; i += 2)
		memcpy(text + i, "3 ", 2);
	memcpy(text, start, sizeof(start) - 1);
	cr_assert_eq(control_parser_write(p, text, size), 0, "%s", control_parser_answer(p));
	cr_assert_eq(say("x\n"), -EINVAL);
	cr_assert_eq(say("order 2 7\norder 2 end\n"), 0);
	cr_assert_str_eq(world.log, "order 1: 5 6\norder 2: 7\n");
	/* An epoch is not cut in two by the end of the buffer. */
	memset(text, ' ', size);
	memcpy(text, "order", 5);
	memcpy(text + SHADE_LINE_MAX - 2, "1234 3\n", 7);
	cr_assert_eq(say("order 12 begin\n"), 0);
	cr_assert_eq(control_parser_write(p, text, SHADE_LINE_MAX + 5), -EINVAL);
	free(text);
}

/* A few ids more than an order may have: the write with the first of them is refused. */
Test(control, orders_are_bounded)
{
	size_t size = (size_t)1 << 20;
	char *text = malloc(size + 1);
	uint32_t writes = 0;
	int error;

	memcpy(text, "order 1 ", 8);
	for (size_t i = 8; i < size; i += 2)
		memcpy(text + i, "1 ", 2);
	text[size] = '\n';
	cr_assert_eq(say("order 1 begin\n"), 0);
	while (!(error = control_parser_write(p, text, size + 1)))
		writes++;
	cr_assert_eq(error, -EINVAL);
	cr_assert_str_eq(control_parser_answer(p), "line 1: order: more than 67108864 ids\n");
	cr_assert_eq(writes, SHADE_ORDER_MAX / ((size - 8) / 2));
	cr_assert_eq(say("order 1 end\n"), 0);
	cr_assert_eq(world.order_ids, writes * ((size - 8) / 2));
	cr_assert_eq(control_parser_write(p, text, CONTROL_WRITE_MAX + 1), -EINVAL);
	free(text);
}

Test(control, a_table_path_is_bounded)
{
	struct bytes bytes = { .size = 0 };
	char path[5000];

	memset(path, 'a', sizeof(path));
	path[sizeof(path) - 1] = 0;
	put_table(&bytes, 2, path, sizeof(path));
	cr_assert_eq(control_parser_write(p, bytes.data, 24 + 4095), 0);
	cr_assert_eq(control_parser_write(p, bytes.data + 24 + 4095, 1), -EINVAL);
	cr_assert_str_eq(control_parser_answer(p),
			 "record 1, byte 4119: a path of more than 4095 bytes\n");
}

Test(control, ioctl_batches)
{
	static struct shade_ioctl_scores batch;

	batch = (struct shade_ioctl_scores){ .count = 2, .ids = { 4, 5 }, .scores = { 1, 2 } };
	cr_assert_eq(control_parser_batch(p, &batch), 0);
	cr_assert_str_eq(world.log, "score 4 1\nscore 5 2\n");
	batch.ids[1] = SAMPLES;
	cr_assert_eq(control_parser_batch(p, &batch), -EINVAL);
	cr_assert_str_eq(control_parser_answer(p), "ioctl, entry 1: the id is out of range\n");
	batch.ids[1] = 5;
	batch.scores[0] = NAN;
	cr_assert_eq(control_parser_batch(p, &batch), -EINVAL);
	batch.scores[0] = 1;
	batch.count = SHADE_IOCTL_SCORES_MAX + 1;
	cr_assert_eq(control_parser_batch(p, &batch), -EINVAL);
	batch.count = 0;
	cr_assert_eq(control_parser_batch(p, &batch), -EINVAL);
	batch.count = SHADE_IOCTL_SCORES_MAX;
	cr_assert_eq(control_parser_batch(p, &batch), 0);
	cr_assert_eq(world.score_calls, 2);
}

Test(control, sizes)
{
	static const struct {
		const char *text;
		uint64_t bytes;
		double share;
	} good[] = { { "0", 0, 0 },	      { "4096", 4096, 0 },
		     { "1k", 1024, 0 },	      { "512M", 512u << 20, 0 },
		     { "2T", 2ull << 40, 0 }, { "18446744073709551615", UINT64_MAX, 0 },
		     { "100%", 0, 1 },	      { "12.5%", 0, 0.125 } };
	static const char *const bad[] = { "",	  "%",	     "-1",   "1.5G", "-5%",  "1e999%",
					   "1KB", "KK",	     "0x1",  "+1",   " 1",   "1%%",
					   "5%G", "1e-999%", "101%", "0%",   "nan%", "G" };
	uint64_t bytes;
	double share;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		cr_assert_eq(control_parse_size(good[i].text, &bytes, &share), 0);
		cr_assert(bytes == good[i].bytes && share == good[i].share, "%s", good[i].text);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		cr_assert_eq(control_parse_size(bad[i], &bytes, &share), -EINVAL, "%s", bad[i]);
}

/* Each allocation of the stream fails once. Nothing of that write is applied, and the open
 * order and the table are there for the next. */
Test(control, no_memory)
{
	struct bytes before = { .size = 0 }, bytes = { .size = 0 };
	long failing = 0;
	int error;

	put_table(&before, 3, three_paths, sizeof(three_paths));
	put_text(&before, "order 5 begin\norder 5 0\n");
	put_table(&bytes, 1, "s/1", 4);
	put_table(&bytes, 0, "", 0);
	put_text(&bytes, "order 5 0 0 0 0\norder 5 end\n");
	put_everything(&bytes);
	do {
		setup();
		cr_assert_eq(send(&before), 0);
		until_failure = failing++;
		error = send(&bytes);
		until_failure = -1;
		if (error) {
			cr_assert_eq(error, -ENOMEM);
			cr_assert_str_eq(control_parser_answer(p),
					 "out of memory: nothing of this write was applied\n");
			cr_assert_str_eq(world.log, "");
			cr_assert_eq(say("order 5 2\norder 5 end\n"), 0);
			cr_assert_str_eq(world.log, "order 5: 9 40\n");
		}
	} while (error);
	cr_assert(failing > 10, "%ld allocations", failing);
}
