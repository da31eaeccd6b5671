/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Traces: what happened to a cache, a line each.
 *
 *   a ID [SIZE]          an access; size 1 unless given
 *   s ID SCORE           a score
 *   o EPOCH ID ID ...    the order of an epoch is announced
 *   e EPOCH              an epoch begins
 *
 * The ids of a file are any whole numbers; in memory they are 0 to samples-1, numbered as
 * they appear.
 */
#ifndef SHADE_TRACE_H
#define SHADE_TRACE_H

#include <stddef.h>
#include <stdint.h>

enum trace_kind { TRACE_ACCESS, TRACE_SCORE, TRACE_ORDER, TRACE_EPOCH };

struct trace_event {
	uint32_t kind;
	uint32_t id; /* access, score; order: how many ids */
	union {
		uint64_t size;	 /* access */
		double score;	 /* score */
		uint64_t epoch;	 /* epoch */
		size_t order_at; /* order: the epoch, as two words, then the ids, in `pool` */
	};
	unsigned long line;
};

struct trace {
	const char *name; /* for errors */
	struct trace_event *events;
	size_t event_count, event_room;
	uint32_t *pool; /* of all orders */
	size_t pool_count, pool_room;
	uint32_t samples;
	uint64_t accesses;
	uint64_t distinct_bytes; /* of the samples that are accessed */
};

void trace_read(struct trace *trace, const char *path);
/* The same of a text in memory, which errors call `name`. */
void trace_read_text(struct trace *trace, const char *name, const char *text, size_t size);
void trace_free(struct trace *trace);

uint64_t trace_order_epoch(const struct trace *trace, const struct trace_event *event);
const uint32_t *trace_order_ids(const struct trace *trace, const struct trace_event *event);

#endif
