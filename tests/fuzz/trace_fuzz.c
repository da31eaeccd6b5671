/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Any text as a trace. What is accepted is consistent: ids are below the number of samples, orders
 * are within their pool, and nothing is left allocated; written again and read again it is the
 * same. What is refused names a line.
 */
#include "lines_fuzz.h"

/* NOLINTNEXTLINE(bugprone-suspicious-include): its memory is to come from the list. */
#include "trace.c"

const char fuzz_name[] = "trace";

#define NAME "fuzz.trace"

static void read_trace(void *context)
{
	trace_read(context, NAME);
}

static void check_events(const struct trace *trace)
{
	uint64_t accesses = 0;

	for (size_t i = 0; i < trace->event_count; i++) {
		const struct trace_event *event = &trace->events[i];

		fuzz_require(event->kind <= TRACE_EPOCH, "an event is of a known kind");
		if (event->kind == TRACE_ACCESS || event->kind == TRACE_SCORE)
			fuzz_require(event->id < trace->samples, "the id of an event is in range");
		if (event->kind == TRACE_SCORE)
			fuzz_require(isfinite((float)event->score) && event->score >= 0,
				     "a score is finite and not negative");
		accesses += event->kind == TRACE_ACCESS;
		if (event->kind != TRACE_ORDER)
			continue;
		fuzz_require(event->order_at + 2 + event->id <= trace->pool_count,
			     "an order is within the pool");
		for (uint32_t j = 0; j < event->id; j++)
			fuzz_require(trace_order_ids(trace, event)[j] < trace->samples,
				     "the ids of an order are in range");
	}
	fuzz_require(accesses && accesses == trace->accesses, "the accesses are counted");
}

static void write_event(FILE *file, const struct trace *trace, const struct trace_event *event)
{
	switch ((enum trace_kind)event->kind) {
	case TRACE_ACCESS:
		fprintf(file, "a %" PRIu32 " %" PRIu64 "\n", event->id, event->size);
		break;
	case TRACE_SCORE:
		fprintf(file, "s %" PRIu32 " %.17g\n", event->id, event->score);
		break;
	case TRACE_EPOCH:
		fprintf(file, "e %" PRIu64 "\n", event->epoch);
		break;
	case TRACE_ORDER:
		fprintf(file, "o %" PRIu64, trace_order_epoch(trace, event));
		for (uint32_t i = 0; i < event->id; i++)
			fprintf(file, " %" PRIu32, trace_order_ids(trace, event)[i]);
		fputc('\n', file);
		break;
	}
}

static bool is_same(const struct trace *one, const struct trace *other)
{
	if (one->event_count != other->event_count || one->pool_count != other->pool_count ||
	    one->samples != other->samples || one->accesses != other->accesses ||
	    one->distinct_bytes != other->distinct_bytes)
		return false;
	for (size_t i = 0; i < one->event_count; i++)
		if (one->events[i].kind != other->events[i].kind ||
		    one->events[i].id != other->events[i].id ||
		    one->events[i].epoch != other->events[i].epoch)
			return false;
	return !one->pool_count ||
	       !memcmp(one->pool, other->pool, one->pool_count * sizeof(*one->pool));
}

static void read_again(const struct trace *trace)
{
	static char *text; /* gcc thinks that the stream outlives us */
	size_t size;
	FILE *file = open_memstream(&text, &size);
	struct trace again;

	fuzz_require(file, "there is memory");
	for (size_t i = 0; i < trace->event_count; i++)
		write_event(file, trace, &trace->events[i]);
	fclose(file);
	fuzz_require(lines_try(read_trace, &again, text, size), "a written trace is read again");
	fuzz_require(is_same(trace, &again), "and is the same");
	trace_free(&again);
#undef free
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct trace trace;

	if (!size)
		return 0; /* fmemopen() may refuse it */
	if (lines_try(read_trace, &trace, data, size)) {
		check_events(&trace);
		read_again(&trace);
		trace_free(&trace);
		fuzz_require(!lines_forget(), "nothing is left");
	} else {
		if (strcmp(lines_sentence, NAME " has no access"))
			lines_check_sentence(NAME, data, size);
		lines_forget();
	}
	return 0;
}

size_t fuzz_make(struct fuzz_random *random, uint8_t *data)
{
	static const struct fuzz_part parts[] = {
		FUZZ_PART("a 5 110000\n"),
		FUZZ_PART("a 18446744073709551615\n"),
		FUZZ_PART("a 7 4096 # hit\n"),
		FUZZ_PART("s 5 2.302585\n"),
		FUZZ_PART("s 7 1e-300\n"),
		FUZZ_PART("s 8 0x1.8p3\n"),
		FUZZ_PART("o 3 5 7 5 9\n"),
		FUZZ_PART("o 4\n"),
		FUZZ_PART("e 3\n"),
		FUZZ_PART("# 12 were lost\n\n \t\r\n"),
		FUZZ_PART("a\t6\v1\n"),
		FUZZ_PART("a 6 4611686018427387904\n"),
	};

	return fuzz_join(random, parts, sizeof(parts) / sizeof(parts[0]), 16, data);
}
