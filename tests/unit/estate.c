/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Memory that outlives the daemon: what was kept is there after a death, and nothing else. */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/estate.h"

static struct estate *estate;

static void begin(void)
{
	cr_assert_eq(estate_create(&estate), 0);
}

static void end(void)
{
	estate_destroy(estate);
}

TestSuite(estate, .init = begin, .fini = end);

/* As a daemon would: does something, and is killed. */
static void die_after(void (*act)(void))
{
	pid_t child = fork();
	int status;

	if (!child) {
		act();
		kill(getpid(), SIGKILL);
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert(WIFSIGNALED(status));
}

static unsigned count(enum estate_kind kind)
{
	unsigned found = 0;

	for (void *at = NULL; (at = estate_next(estate, kind, at));)
		found++;
	return found;
}

static void keep_two_of_three(void)
{
	uint64_t *first = estate_new(estate, 100), *second = estate_new(estate, 100);
	uint64_t **third = estate_new(estate, 4000);

	*first = 11;
	*second = 22;
	*third = first;
	estate_keep(first, ESTATE_NODE);
	estate_keep(third, ESTATE_OPEN);
	strcpy(estate_front(estate), "front");
}

Test(estate, outlives_a_kill)
{
	uint64_t **third;

	die_after(keep_two_of_three);
	estate_inherit(estate);
	cr_assert_eq(count(ESTATE_NODE), 1);
	cr_assert_eq(count(ESTATE_OPEN), 1);
	third = estate_next(estate, ESTATE_OPEN, NULL);
	cr_assert_eq((void *)*third, estate_next(estate, ESTATE_NODE, NULL));
	cr_assert_eq(**third, 11);
	cr_assert_str_eq(estate_front(estate), "front");
}

Test(estate, gives_what_was_not_kept_again)
{
	uint64_t before = estate_bytes(estate), after;
	unsigned char *again;

	die_after(keep_two_of_three);
	estate_inherit(estate);
	after = estate_bytes(estate);
	cr_assert_gt(after, before);
	again = estate_new(estate, 100); /* the second */
	cr_assert_eq(estate_bytes(estate), after);
	for (unsigned i = 0; i < 100; i++)
		cr_assert_eq(again[i], 0);
	(void)estate_new(estate, 100);
	cr_assert_gt(estate_bytes(estate), after);
}

/* Another program has it at the same address; where something else is, nothing is lost. */
Test(estate, is_taken_by_another_program)
{
	struct estate_place place = estate_place(estate);
	char *front = estate_front(estate);

	strcpy(front, "it was there");
	estate_keep(estate_new(estate, 100), ESTATE_NODE);
	place.fd = dup(place.fd);
	estate_destroy(estate);
	cr_assert_eq(estate_take(&estate, &place, true), 0);
	cr_assert_eq(estate_front(estate), front);
	cr_assert_str_eq(front, "it was there");
	place.fd = dup(place.fd);
	estate_destroy(estate);
	cr_assert_eq(estate_take(&estate, &place, false), 0);
	estate_inherit(estate);
	cr_assert_eq(count(ESTATE_NODE), 1);
	cr_assert_str_eq(front, "it was there");
}

Test(estate, is_not_taken_where_something_else_is)
{
	struct estate_place place = estate_place(estate);
	struct estate *another;

	cr_assert_eq(estate_take(&another, &place, false), -EEXIST);
	cr_assert_not(another);
	estate_keep(estate_new(estate, 100), ESTATE_NODE);
	cr_assert_eq(count(ESTATE_NODE), 1);
}

Test(estate, has_room_for_each_size)
{
	static void *blocks[200];

	for (unsigned round = 0; round < 2; round++) {
		uint64_t bytes = estate_bytes(estate);

		for (size_t i = 0; i < 200; i++) {
			size_t size = i * i * i + 1;

			blocks[i] = estate_new(estate, size);
			cr_assert(blocks[i]);
			for (size_t at = 0; at < size; at += 997)
				cr_assert_eq(((char *)blocks[i])[at], 0);
			memset(blocks[i], 0xee, size);
			estate_keep(blocks[i], ESTATE_NODE);
		}
		cr_assert_eq(count(ESTATE_NODE), 200);
		for (unsigned i = 0; i < 200; i++)
			estate_free(estate, blocks[i]);
		cr_assert_eq(count(ESTATE_NODE), 0);
		cr_assert(!round || estate_bytes(estate) == bytes, "free blocks are used again");
	}
}

Test(estate, blocks_do_not_overlap)
{
	static unsigned char *blocks[1000];
	unsigned state = 1;

	for (unsigned step = 0; step < 20000; step++) {
		unsigned i = (state = state * 1103515245 + 12345) >> 16 & 0x3ff;

		if (i >= 1000)
			continue;
		if (blocks[i]) {
			for (unsigned at = 0; at <= i; at++)
				cr_assert_eq(blocks[i][at], (unsigned char)i);
			estate_free(estate, blocks[i]);
			blocks[i] = NULL;
		} else {
			blocks[i] = estate_new(estate, i + 1);
			memset(blocks[i], (int)(i & 0xff), i + 1);
		}
	}
}

Test(estate, refuses_more_than_there_is)
{
	cr_assert_null(estate_new(estate, (size_t)1 << 40));
}
