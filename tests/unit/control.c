/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The parser of .shade/control: each command, each way to get one wrong, and bounds. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "control_world.h"

TestSuite(control, .init = setup, .fini = teardown);

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
		       "uses 2.5\n"
		       "capacity 8G\n"
		       "capacity 40%\n"
		       "policy lru\n"
		       "forget a job\n"
		       "rescan\n"
		       "upgrade\n",
		       "ok 15 commands\n");
	cr_assert_str_eq(world.log, "score 5 0.25\n"
				    "score 6 1000\n"
				    "epoch 18446744073709551615\n"
				    "warm a b/c\n"
				    "evict .\n"
				    "warm .\n"
				    "pin x\n"
				    "unpin x\n"
				    "uses 2.5\n"
				    "capacity 8589934592 0\n"
				    "capacity 0 0.4\n"
				    "policy lru\n"
				    "forget a job\n"
				    "rescan\n"
				    "upgrade\n");
	cr_assert_eq(world.score_calls, 1);
}

Test(control, an_upgrade_that_is_refused)
{
	world.refuse = -ENOEXEC;
	cr_assert_eq(say("upgrade\n"), -ENOEXEC);
	cr_assert_str_eq(control_parser_answer(p), "it is refused\n");
	cr_assert_eq(say("epoch 1\nupgrade\n"), -ENOEXEC);
	cr_assert_str_eq(control_parser_answer(p),
			 "line 2: upgrade: it is refused; what came before it was applied, what "
			 "follows was not\n");
}

Test(control, orders_of_a_group)
{
	cr_assert_said("group sweep-1\n"
		       "order 3 begin group\n"
		       "order 3 5 6\n"
		       "order 3 end\n"
		       "order 3 begin\n"
		       "order 3 7\n"
		       "order 3 end\n"
		       "order 3 read\n"
		       "importance\n"
		       "group\n",
		       "ok 10 commands\n");
	cr_assert_str_eq(world.log, "group 'sweep-1'\nshared order 3: 5 6\norder 3: 7\nread 3\n"
				    "importance\ngroup ''\n");
	world.refuse = -EEXIST;
	cr_assert_eq(say("order 4 begin group\norder 4 1\norder 4 end\n"), -EEXIST);
	cr_assert_str_eq(control_parser_answer(p),
			 "line 3: order: the group has an order of that epoch; what came before "
			 "it was applied, what follows was not\n");
	world.refuse = -ENOENT;
	cr_assert_eq(say("order 9 read\n"), -ENOENT);
	cr_assert_not_null(strstr(control_parser_answer(p), "the group has no order"));
	world.refuse = -ENXIO;
	cr_assert_eq(say("importance\n"), -ENXIO);
	cr_assert_not_null(strstr(control_parser_answer(p), "write group NAME first"));
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
	{ "order 1 begin now\n", "order: 'now' is not group" },
	{ "order 1 begin group now\n", "order: 'now' is too much" },
	{ "order 1 read now\n", "order: 'now' is too much" },
	{ "order 1 start\n", "order: 'start' is not begin, end, read or a sample id" },
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
	{ "uses\n", "uses: '' is not a number from 1 to 1000" },
	{ "uses 0.5\n", "uses: '0.5' is not a number from 1 to 1000" },
	{ "uses nan\n", "uses: 'nan' is not a number from 1 to 1000" },
	{ "uses 2 3\n", "uses: '3' is too much" },
	{ "group .a\n",
	  "group: '.a' is not the name of a group: up to 63 letters, digits and . _ -" },
	{ "group a/b\n",
	  "group: 'a/b' is not the name of a group: up to 63 letters, digits and . _ -" },
	{ "group a b\n", "group: 'b' is too much" },
	{ "importance now\n", "importance: 'now' is too much" },
	{ "capacity\n", "capacity: '' is not a size like 512M, 8G or 40%" },
	{ "capacity 8X\n", "capacity: '8X' is not a size like 512M, 8G or 40%" },
	{ "capacity 16777216T\n", "capacity: '16777216T' is not a size like 512M, 8G or 40%" },
	{ "capacity 4K\n",
	  "capacity: '4K' is not between the mount's inflight and the memory that there is" },
	{ "capacity 8G G\n", "capacity: 'G' is too much" },
	{ "policy\n", "policy: '' is not a policy" },
	{ "policy magic\n", "policy: 'magic' is not a policy" },
	{ "policy lru lru\n", "policy: 'lru' is too much" },
	{ "rescan all\n", "rescan: 'all' is too much" },
	{ "upgrade now\n", "upgrade: 'now' is too much" },
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
	size_t size = (size_t)2 * SHADE_LINE_MAX;
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
	cr_assert_eq(control_parser_scores(p, &batch), 0);
	cr_assert_str_eq(world.log, "score 4 1\nscore 5 2\n");
	batch.ids[1] = SAMPLES;
	cr_assert_eq(control_parser_scores(p, &batch), -EINVAL);
	cr_assert_str_eq(control_parser_answer(p), "ioctl, entry 1: the id is out of range\n");
	batch.ids[1] = 5;
	batch.scores[0] = NAN;
	cr_assert_eq(control_parser_scores(p, &batch), -EINVAL);
	batch.scores[0] = 1;
	batch.count = SHADE_IOCTL_SCORES_MAX + 1;
	cr_assert_eq(control_parser_scores(p, &batch), -EINVAL);
	batch.count = 0;
	cr_assert_eq(control_parser_scores(p, &batch), -EINVAL);
	batch.count = SHADE_IOCTL_SCORES_MAX;
	cr_assert_eq(control_parser_scores(p, &batch), 0);
	cr_assert_eq(world.score_calls, 2);
}

/* The caller has no memory for a write: what it was part of is dropped, the open order stays. */
Test(control, a_write_that_the_caller_refuses)
{
	struct bytes bytes = { 0 };
	const uint32_t ids[] = { 1, 2, 3 };

	cr_assert_said("order 1 begin\norder 1 4 5\n", "ok 2 commands, order 1 is open\n");
	put_order(&bytes, 2, ids, 3);
	cr_assert_eq(control_parser_write(p, bytes.data, bytes.size - 1), 0);
	cr_assert_eq(control_parser_refuse(p), -ENOMEM);
	cr_assert_not_null(strstr(control_parser_answer(p), "nothing of this write"));
	cr_assert_said("order 1 6\norder 1 end\n", "ok 2 commands\n");
	cr_assert_str_eq(world.log, "order 1: 4 5 6\n");
}

Test(control, tells_what_it_has_allocated)
{
	uint64_t before = control_parser_bytes(p), grown;

	cr_assert_eq(say("order 1 begin\norder 1"), 0);
	for (int i = 0; i < 100000; i++)
		cr_assert_eq(say(" 1 2 3 4 5"), 0);
	grown = control_parser_bytes(p) - before;
	cr_assert_geq(grown, UINT64_C(2000000));
	cr_assert_lt(grown, UINT64_C(4000000));
	cr_assert_eq(say("\norder 1 end\n"), 0);
	cr_assert_lt(control_parser_bytes(p), before + ((uint64_t)1 << 20));
}
