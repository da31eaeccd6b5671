/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The first reads since an epoch seems to have begun. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shade/shuffle.h"

#define PAUSE_MS 2000  /* after which something else has begun */
#define IDLE_MS 100    /* after which nothing more is waited for */
#define NEW_THREAD 256 /* reads before a thread that is new means anything */
#define TRY_MIN 8      /* reads; then twice as many, and so on */

/* Makes room for the bit of a slot. */
static int reserve(struct shuffle_window *window, uint32_t slot)
{
	size_t words = (size_t)slot / 64 + 1, old = (size_t)window->slots / 64;
	uint64_t *grown;

	if (slot < window->slots)
		return 0;
	words += words / 4;
	grown = realloc(window->seen, words * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	memset(grown + old, 0, (words - old) * sizeof(*grown));
	window->seen = grown;
	window->slots = (uint32_t)(words * 64);
	return 0;
}

static bool knows_thread(const struct shuffle_window *window, int32_t thread)
{
	for (unsigned i = 0; i < window->count; i++)
		if (window->reads[i].thread == thread)
			return true;
	return false;
}

/* Whether the read is the first of something else. */
static bool begins(const struct shuffle_window *window, int32_t thread, bool seen, uint64_t now_ms)
{
	bool full = window->count == SHUFFLE_READS;

	if (!window->total)
		return false;
	if (now_ms > window->last_ms + PAUSE_MS)
		return true;
	return full && (seen || (window->total >= NEW_THREAD && !knows_thread(window, thread)));
}

void shuffle_window_restart(struct shuffle_window *window)
{
	if (window->seen)
		memset(window->seen, 0, window->slots / 8);
	window->count = window->tried = 0;
	window->total = 0;
}

int shuffle_window_add(struct shuffle_window *window, int32_t thread, uint32_t slot,
		       uint64_t now_ms)
{
	uint64_t bit = (uint64_t)1 << slot % 64;
	bool seen;

	if (reserve(window, slot))
		return -ENOMEM;
	seen = window->seen[slot / 64] & bit;
	if (begins(window, thread, seen, now_ms)) {
		shuffle_window_restart(window);
		seen = false;
	}
	window->last_ms = now_ms;
	window->total++;
	window->seen[slot / 64] |= bit;
	if (!seen && window->count < SHUFFLE_READS)
		window->reads[window->count++] = (struct shuffle_read){ thread, slot };
	return 0;
}

bool shuffle_window_is_due(struct shuffle_window *window, uint64_t now_ms)
{
	unsigned next = TRY_MIN;

	while (next <= window->tried)
		next *= 2;
	if (window->count < TRY_MIN || window->count == window->tried)
		return false;
	/* A training that is slow is not asked for as much. */
	if (window->count < next && (now_ms < window->last_ms + IDLE_MS ||
				     window->count < window->tried + window->tried / 4))
		return false;
	window->tried = window->count;
	return true;
}

void shuffle_window_free(struct shuffle_window *window)
{
	free(window->seen);
	*window = (struct shuffle_window){ 0 };
}
