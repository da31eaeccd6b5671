/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Counters of requests: nothing is ordered by them, so relaxed atomics are enough. */
#include "counter.h"

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>

static const char *const names[COUNTER_COUNT] = {
	[COUNTER_OPENS] = "opens",
	[COUNTER_DIRECT_OPENS] = "direct_opens",
	[COUNTER_READS] = "reads",
	[COUNTER_BYTES] = "bytes",
	[COUNTER_SEEKS] = "seeks",
	[COUNTER_LOOKUPS] = "lookups",
	[COUNTER_GETATTRS] = "getattrs",
	[COUNTER_READDIRS] = "readdirs",
	[COUNTER_READDIRPLUS] = "readdirplus",
};

static _Atomic uint64_t values[COUNTER_COUNT];

void counter_add(enum counter counter, uint64_t amount)
{
	assert(counter < COUNTER_COUNT);
	atomic_fetch_add_explicit(&values[counter], amount, memory_order_relaxed);
}

void counter_reset(void)
{
	for (int i = 0; i < COUNTER_COUNT; i++)
		atomic_store_explicit(&values[i], 0, memory_order_relaxed);
}

void counter_print(FILE *out)
{
	for (int i = 0; i < COUNTER_COUNT; i++)
		fprintf(out, "%s %" PRIu64 "\n", names[i],
			atomic_load_explicit(&values[i], memory_order_relaxed));
}
