/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The parser of .shade/control: binary records, cuts at every byte, and memory that runs out at
 * every allocation (the linker sends the parser's realloc here). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "control_world.h"

TestSuite(control_records, .init = setup, .fini = teardown);

Test(control_records, every_record)
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

static void put_shared(struct bytes *bytes, uint64_t epoch, const uint32_t *ids,
		       const float *weights, uint32_t count)
{
	put_head(bytes, 1, SHADE_RECORD_SHARED, 16 + (uint64_t)count * (weights ? 8 : 4));
	put_u64(bytes, epoch);
	put_u64(bytes, count);
	put(bytes, ids, count * sizeof(*ids));
	if (weights)
		put(bytes, weights, count * sizeof(*weights));
}

Test(control_records, orders_of_a_group)
{
	struct bytes bytes = { .size = 0 };

	put_shared(&bytes, 3, (uint32_t[]){ 5, 6 }, NULL, 2);
	put_shared(&bytes, 4, (uint32_t[]){ 7, 7 }, (float[]){ 0.5f, 2 }, 2);
	put_shared(&bytes, 5, NULL, NULL, 0);
	cr_assert_eq(send(&bytes), 0, "%s", control_parser_answer(p));
	cr_assert_str_eq(world.log, "shared order 3: 5 6\nshared order 4: 7 7\nweight 0.5\n"
				    "weight 2\nshared order 5:\n");
	bytes.size = 0;
	put_shared(&bytes, 4, (uint32_t[]){ 7, 7 }, (float[]){ 1, -1 }, 2);
	cr_assert_eq(send(&bytes), -EINVAL);
	cr_assert_str_eq(control_parser_answer(p), "record 1, byte 44: entry 1: a weight is a "
						   "finite number of 0 or more\n");
}

/* A record inside a text order is none of its business. */
Test(control_records, a_record_between_the_lines_of_an_order)
{
	struct bytes bytes = { .size = 0 };

	put_text(&bytes, "order 1 begin\norder 1 10\n");
	put_order(&bytes, 2, (uint32_t[]){ 20, 21 }, 2);
	put_text(&bytes, "order 1 11\norder 1 end\n");
	cr_assert_eq(send(&bytes), 0);
	cr_assert_str_eq(world.log, "order 2: 20 21\norder 1: 10 11\n");
}

static const char three_paths[] = "s/9\0./s/8\0my cat.jpg"; /* with the last NUL */

Test(control_records, a_table_belongs_to_its_descriptor)
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

Test(control_records, bad_heads)
{
	struct bytes bytes = { .size = 0 };

	put_text(&bytes, "\365SHE");
	refuse_record(&bytes,
		      "record 1, byte 4: neither a command nor the beginning of a record\n");
	refuse_head(0, 1, 8, 0, "record 1, byte 6: version 0 is not known here, only 1\n");
	refuse_head(2, 1, 8, 0, "record 1, byte 6: version 2 is not known here, only 1\n");
	refuse_head(1, 0, 8, 0, "record 1, byte 8: there is no record type 0\n");
	refuse_head(1, 6, 8, 0, "record 1, byte 8: there is no record type 6\n");
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

/* Whoever sends too few bytes for a head must not wait for an answer that never comes. */
Test(control_records, the_first_wrong_byte_is_refused)
{
	static const struct {
		const char *bytes;
		size_t good; /* so many bytes are taken, and the next one is refused */
	} cases[] = {
		{ "\365\n", 1 },	  { "\365epoch 1\n", 1 },   { "\365S ", 2 },
		{ "\365SHd", 3 },	  { "\365SHD\2\0", 5 },	    { "\365SHD\1\1", 5 },
		{ "\365SHD\1\0\0\0", 7 }, { "\365SHD\1\0\6\0", 7 }, { "\365SHD\1\0\1\1", 7 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		setup();
		cr_assert_eq(control_parser_write(p, cases[i].bytes, cases[i].good), 0, "%zu", i);
		cr_assert_str_eq(control_parser_answer(p),
				 "ok 0 commands, a record is not complete\n");
		cr_assert_eq(control_parser_write(p, cases[i].bytes + cases[i].good, 1), -EINVAL,
			     "%zu: %s", i, control_parser_answer(p));
		cr_assert_said("epoch 2\n", "ok 1 command\n");
	}
}

Test(control_records, bad_entries)
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

Test(control_records, bad_tables)
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

Test(control_records, half_a_record_at_the_end)
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

Test(control_records, cut_at_every_byte)
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

Test(control_records, byte_by_byte_and_two_at_once)
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
Test(control_records, after_an_error_a_write_begins_afresh)
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
Test(control_records, a_refused_command_ends_the_write)
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

/* Each allocation of the stream fails once. Nothing of that write is applied, and the open
 * order and the table are there for the next. */
Test(control_records, no_memory)
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
