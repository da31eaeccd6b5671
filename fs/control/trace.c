/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * .shade/trace: accesses as they happen, in the language of shade-sim's traces. A read waits
 * until there is something to tell; the cache's clock looks every few milliseconds, so that a
 * busy mount is told of in large pieces.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "control/shade.h"

#define LINE_MAX_BYTES 64

/* A read that waits. */
struct trace_wait {
	struct trace_wait *next;
	struct shade_handle *handle;
	fuse_req_t req;
	size_t size;
};

static const char *const outcomes[] = { [SCHED_HIT] = "hit",
					[SCHED_ADMIT] = "admit",
					[SCHED_JOIN] = "join",
					[SCHED_BYPASS] = "bypass" };

void trace_open(struct shade_handle *handle)
{
	handle->traces = true;
	handle->trace_at = cache_trace_begin(handle->front->cache);
}

void trace_close(struct shade_handle *handle)
{
	cache_trace_end(handle->front->cache);
}

/* What there is to tell, up to `size` bytes. */
static size_t tell(struct shade_handle *handle, char *text, size_t size)
{
	struct cache_access accesses[256];
	size_t used = 0;

	while (size - used >= 2 * LINE_MAX_BYTES) {
		uint32_t room = (uint32_t)((size - used) / LINE_MAX_BYTES) - 1; /* and `lost` */
		uint64_t lost;
		uint32_t count = cache_trace(handle->front->cache, &handle->trace_at, accesses,
					     room < 256 ? room : 256, &lost);

		if (lost)
			used += (size_t)snprintf(text + used, size - used,
						 "# %" PRIu64 " were lost\n", lost);
		for (uint32_t i = 0; i < count; i++)
			used += (size_t)snprintf(text + used, size - used,
						 "a %" PRIu32 " %" PRIu64 " # %s\n", accesses[i].id,
						 accesses[i].size, outcomes[accesses[i].action]);
		if (!count)
			break;
	}
	return used;
}

/* True: there was something, and it is answered. */
static bool try_answer(struct shade_handle *handle, fuse_req_t req, size_t size)
{
	char *text = malloc(size + 1);
	size_t used;

	if (!text) {
		fuse_reply_err(req, ENOMEM);
		return true;
	}
	used = tell(handle, text, size);
	if (used)
		fuse_reply_buf(req, text, used);
	free(text);
	return used > 0;
}

void trace_read(struct shade_handle *handle, fuse_req_t req, size_t size)
{
	struct front *front = handle->front;
	struct trace_wait *wait;

	if (size < 2 * LINE_MAX_BYTES || !(wait = calloc(1, sizeof(*wait)))) {
		fuse_reply_err(req, size < 2 * LINE_MAX_BYTES ? EINVAL : ENOMEM);
		return;
	}
	*wait = (struct trace_wait){ .handle = handle, .req = req, .size = size };
	lock_acquire(&front->trace_lock);
	wait->next = front->trace_waits;
	front->trace_waits = wait;
	lock_release(&front->trace_lock);
}

/* Once the kernel has an answer its handle may be released, so the list is taken apart first. */
void shade_trace_tick(struct front *front, bool ending)
{
	struct trace_wait *waits, *again = NULL, **end = &again;

	lock_acquire(&front->trace_lock);
	waits = front->trace_waits;
	front->trace_waits = NULL;
	for (struct trace_wait *next; waits; waits = next) {
		next = waits->next;
		if (fuse_req_interrupted(waits->req)) {
			fuse_reply_err(waits->req, EINTR);
		} else if (!try_answer(waits->handle, waits->req, waits->size)) {
			if (!ending) {
				*end = waits;
				end = &waits->next;
				continue;
			}
			fuse_reply_buf(waits->req, NULL, 0);
		}
		free(waits);
	}
	*end = NULL;
	front->trace_waits = again;
	lock_release(&front->trace_lock);
}
