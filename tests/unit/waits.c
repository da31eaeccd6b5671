/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* How long readers wait for the source. */
#include <criterion/criterion.h>

#include "cache/waits.h"

static void expect(const struct waits *waits, uint64_t wait_ms, uint64_t waiting_ms,
		   uint64_t limited_ms)
{
	cr_assert_eq(waits->wait_ms, wait_ms);
	cr_assert_eq(waits->waiting_ms, waiting_ms);
	cr_assert_eq(waits->limited_ms, limited_ms);
}

/* One waits from 10 to 40, another one from 20 to 30: 40 together, in 30. */
Test(waits, counts_readers_and_time)
{
	struct waits waits = { 0 };

	waits_begin(&waits, 10);
	waits_begin(&waits, 20);
	waits_end(&waits, 30);
	waits_end(&waits, 40);
	waits_count(&waits, 100);
	expect(&waits, 40, 30, 30);
	cr_assert_eq(waits.count, 2);
	cr_assert_eq(waits.waiting, 0);
}

/* Who still waits counts up to now. */
Test(waits, counts_what_goes_on)
{
	struct waits waits = { 0 };

	waits_begin(&waits, 1000);
	waits_count(&waits, 1250);
	expect(&waits, 250, 250, 250);
}

/* It is the limit while nobody waits but no more can be fetched ahead, and what comes then counts.
 */
Test(waits, tells_when_the_source_is_the_limit)
{
	struct waits waits = { 0 };

	waits_add_bytes(&waits, 1);
	waits_set_full(&waits, true, 100);
	waits_add_bytes(&waits, 10);
	waits_begin(&waits, 150);
	waits_set_full(&waits, false, 200);
	waits_add_bytes(&waits, 100);
	waits_end(&waits, 220);
	waits_add_bytes(&waits, 1000);
	waits_count(&waits, 500);
	expect(&waits, 70, 70, 120);
	cr_assert_eq(waits.limited_bytes, 110);
}

/* Of two threads the later one may have looked at the clock first. */
Test(waits, takes_a_time_that_has_passed)
{
	struct waits waits = { 0 };

	waits_begin(&waits, 50);
	waits_begin(&waits, 49);
	waits_end(&waits, 48);
	waits_end(&waits, 60);
	expect(&waits, 10, 10, 10);
}
