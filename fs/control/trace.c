/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * .shade/trace: accesses as they happen, in the language of shade-sim's traces. A read waits in
 * control->waiters until there is something to tell; control_tick() looks.
 *
 * Interrupts are asked for by control_tick(), too. A front end that took an interrupted waiter out
 * would have to cope with an INTERRUPT that overtakes its read and finds no waiter yet.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "control/internal.h"

#define LINE_MAX_BYTES ((size_t)64)

static const char *const outcomes[] = { [SCHED_HIT] = "hit",
					[SCHED_ADMIT] = "admit",
					[SCHED_JOIN] = "join",
					[SCHED_BYPASS] = "bypass" };

void trace_open(struct control_file *file)
{
	file->trace_at = cache_trace_begin(file->control->options.cache);
}

/* A read that came twice may still wait. */
static void answer_file(struct control_file *file)
{
	struct control_waiter **at = &file->control->waiters;

	lock_acquire(&file->control->trace_lock);
	while (*at) {
		struct control_waiter *waiter = *at;

		if (waiter->file != file) {
			at = &waiter->next;
			continue;
		}
		*at = waiter->next;
		waiter->answer(waiter, -EIO, NULL, 0);
	}
	lock_release(&file->control->trace_lock);
}

void trace_close(struct control_file *file)
{
	answer_file(file);
	cache_trace_end(file->control->options.cache);
}

/* Writes what there is to tell, up to `size` bytes; returns how many it wrote. */
static size_t tell_locked(struct control_file *file, char *text, size_t size)
{
	struct cache_access accesses[256];
	size_t used = 0;

	lock_assert_held(&file->control->trace_lock);
	while (size - used >= 2 * LINE_MAX_BYTES) {
		uint32_t room = (uint32_t)((size - used) / LINE_MAX_BYTES) - 1; /* and `lost` */
		uint64_t lost;
		uint32_t count = cache_trace(file->control->options.cache, &file->trace_at,
					     accesses, room < 256 ? room : 256, &lost);

		if (lost)
			used += (size_t)snprintf(text + used, size - used,
						 "# %" PRIu64 " were lost\n", lost);
		for (uint32_t i = 0; i < count; i++)
			used += (size_t)snprintf(text + used, size - used,
						 "a %" PRIu32 " %" PRIu64 " # %s %" PRId32 "\n",
						 accesses[i].id, accesses[i].size,
						 outcomes[accesses[i].action], accesses[i].thread);
		if (!count)
			break;
	}
	return used;
}

/* False: the waiter has to wait. With `ends` nobody has to. */
static bool answer_locked(struct control *control, struct control_waiter *waiter, bool ends)
{
	size_t used = 0;
	char *text;

	lock_assert_held(&control->trace_lock);
	if (waiter->is_interrupted(waiter)) {
		waiter->answer(waiter, -EINTR, NULL, 0);
		return true;
	}
	text = malloc(waiter->size);
	if (text)
		used = tell_locked(waiter->file, text, waiter->size);
	if (!text || used || ends)
		waiter->answer(waiter, text ? 0 : -ENOMEM, text, used);
	free(text);
	return !text || used || ends;
}

void trace_read(struct control_file *file, struct control_waiter *waiter)
{
	struct control *control = file->control;

	if (waiter->size < 2 * LINE_MAX_BYTES) {
		waiter->answer(waiter, -EINVAL, NULL, 0);
		return;
	}
	waiter->file = file;
	lock_acquire(&control->trace_lock);
	if (!control->stopping || !answer_locked(control, waiter, true)) {
		waiter->next = control->waiters;
		control->waiters = waiter;
	}
	lock_release(&control->trace_lock);
}

/* The lock is held all the time, so that control_close_all() frees no file that is looked at. */
static void answer_all_locked(struct control *control, bool ends)
{
	struct control_waiter **at = &control->waiters;

	lock_assert_held(&control->trace_lock);
	while (*at) {
		struct control_waiter *waiter = *at, *next = waiter->next;

		if (answer_locked(control, waiter, ends))
			*at = next;
		else
			at = &waiter->next;
	}
}

void trace_tick(struct control *control)
{
	lock_acquire(&control->trace_lock);
	answer_all_locked(control, false);
	lock_release(&control->trace_lock);
}

void trace_end(struct control *control, bool stops)
{
	lock_acquire(&control->trace_lock);
	control->stopping |= stops;
	answer_all_locked(control, true);
	lock_release(&control->trace_lock);
}
