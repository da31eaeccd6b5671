/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cache/waits.h"

#include <assert.h>

static bool is_limited(const struct waits *waits)
{
	return waits->waiting || waits->is_full;
}

/* Threads read the clock before they acquire the lock: time may seem to go back a little. */
void waits_count(struct waits *waits, uint64_t now_ms)
{
	uint64_t passed_ms = now_ms > waits->counted_ms ? now_ms - waits->counted_ms : 0;

	waits->wait_ms += passed_ms * waits->waiting;
	if (waits->waiting)
		waits->waiting_ms += passed_ms;
	if (is_limited(waits))
		waits->limited_ms += passed_ms;
	waits->counted_ms += passed_ms;
}

void waits_begin(struct waits *waits, uint64_t now_ms)
{
	waits_count(waits, now_ms);
	waits->waiting++;
	waits->count++;
}

void waits_end(struct waits *waits, uint64_t now_ms)
{
	assert(waits->waiting);
	waits_count(waits, now_ms);
	waits->waiting--;
}

void waits_set_full(struct waits *waits, bool is_full, uint64_t now_ms)
{
	waits_count(waits, now_ms);
	waits->is_full = is_full;
}

void waits_add_bytes(struct waits *waits, uint64_t bytes)
{
	if (is_limited(waits))
		waits->limited_bytes += bytes;
}
