/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "trace.h"

#include <float.h>
#include <stdlib.h>

#include "fail.h"
#include "grow.h"
#include "lines.h"
#include "shade/sched.h"

#define HASH_NONFATAL_OOM 1
#define uthash_nonfatal_oom(element) must(NULL)
#include <uthash.h>

/* Maps an id of the file to one in memory. */
struct known_id {
	uint64_t outside;
	uint32_t inside;
	uint64_t size; /* the largest that was accessed */
	UT_hash_handle hh;
};

struct reader {
	struct lines lines;
	struct trace *trace;
	struct known_id *known;
};

static struct known_id *take_id(struct reader *reader)
{
	uint64_t outside = lines_take_number(&reader->lines, "the sample id", UINT64_MAX);
	struct known_id *id;

	HASH_FIND(hh, reader->known, &outside, sizeof(outside), id);
	if (id)
		return id;
	if (reader->trace->samples == SCHED_SAMPLES_MAX)
		lines_fail(&reader->lines, "more than %u samples", SCHED_SAMPLES_MAX);
	id = must(calloc(1, sizeof(*id)));
	id->outside = outside;
	id->inside = reader->trace->samples++;
	HASH_ADD(hh, reader->known, outside, sizeof(outside), id);
	return id;
}

static struct trace_event *add_event(struct trace *trace, enum trace_kind kind, unsigned long line)
{
	struct trace_event *event;

	must_do(grow(trace->events, trace->event_room, trace->event_count, 1), "reading the trace");
	event = &trace->events[trace->event_count++];
	*event = (struct trace_event){ .kind = kind, .line = line };
	return event;
}

static void pool_add(struct trace *trace, uint32_t word)
{
	must_do(grow(trace->pool, trace->pool_room, trace->pool_count, 1), "reading the trace");
	trace->pool[trace->pool_count++] = word;
}

static void read_access(struct reader *reader)
{
	struct trace *trace = reader->trace;
	struct known_id *id = take_id(reader);
	struct trace_event *event = add_event(trace, TRACE_ACCESS, reader->lines.number);
	uint64_t size = 1;

	if (lines_has_word(&reader->lines))
		size = lines_take_number(&reader->lines, "the size", UINT64_MAX);
	event->id = id->inside;
	event->size = size;
	trace->accesses++;
	if (size <= id->size)
		return;
	if (__builtin_add_overflow(trace->distinct_bytes, size - id->size, &trace->distinct_bytes))
		lines_fail(&reader->lines, "the sizes add up to too much");
	id->size = size;
}

static void read_score(struct reader *reader)
{
	uint32_t id = take_id(reader)->inside;
	double score = lines_take_amount(&reader->lines, "the score");
	struct trace_event *event;

	if (score > FLT_MAX)
		lines_fail(&reader->lines, "the score is too large: %g", score);
	event = add_event(reader->trace, TRACE_SCORE, reader->lines.number);
	event->id = id;
	event->score = score;
}

static void read_order(struct reader *reader)
{
	uint64_t epoch = lines_take_number(&reader->lines, "the epoch", UINT64_MAX);
	size_t start = reader->trace->pool_count;
	struct trace_event *event;

	pool_add(reader->trace, (uint32_t)epoch);
	pool_add(reader->trace, (uint32_t)(epoch >> 32));
	while (lines_has_word(&reader->lines))
		pool_add(reader->trace, take_id(reader)->inside);
	if (reader->trace->pool_count - start - 2 > SCHED_ORDER_MAX)
		lines_fail(&reader->lines, "more than %u ids in an order", SCHED_ORDER_MAX);
	event = add_event(reader->trace, TRACE_ORDER, reader->lines.number);
	event->id = (uint32_t)(reader->trace->pool_count - start - 2);
	event->order_at = start;
}

static void read_line(struct reader *reader)
{
	struct lines *lines = &reader->lines;
	char kind = lines_take_letter(lines, "the kind of a line");

	switch (kind) {
	case 'a':
		read_access(reader);
		break;
	case 's':
		read_score(reader);
		break;
	case 'o':
		read_order(reader);
		break;
	case 'e':
		add_event(reader->trace, TRACE_EPOCH, lines->number)->epoch =
			lines_take_number(lines, "the epoch", UINT64_MAX);
		break;
	default:
		lines_fail(lines, "a line begins with a, s, o, e or #, not '%c'", kind);
	}
	lines_end(lines);
}

static void read_all(struct reader *reader)
{
	struct trace *trace = reader->trace;
	struct known_id *id, *next;

	*trace = (struct trace){ .name = reader->lines.name };
	while (lines_next(&reader->lines))
		if (lines_has_word(&reader->lines))
			read_line(reader);
	if (!trace->accesses)
		fail("%s has no access", reader->lines.name);
	lines_close(&reader->lines);
	/* The analyzer loses track of uthash's list and believes that `id` was freed before. */
	HASH_ITER (hh, reader->known, id, next) {
		HASH_DEL(reader->known, id); /* NOLINT(clang-analyzer-unix.Malloc) */
		free(id);
	}
}

void trace_read(struct trace *trace, const char *path)
{
	struct reader reader = { .trace = trace };

	lines_open(&reader.lines, path);
	read_all(&reader);
}

void trace_read_text(struct trace *trace, const char *name, const char *text, size_t size)
{
	struct reader reader = { .trace = trace };

	lines_open_text(&reader.lines, name, text, size);
	read_all(&reader);
}

void trace_free(struct trace *trace)
{
	free(trace->events);
	free(trace->pool);
}

uint64_t trace_order_epoch(const struct trace *trace, const struct trace_event *event)
{
	const uint32_t *words = trace->pool + event->order_at;

	return words[0] | (uint64_t)words[1] << 32;
}

const uint32_t *trace_order_ids(const struct trace *trace, const struct trace_event *event)
{
	return trace->pool + event->order_at + 2;
}
