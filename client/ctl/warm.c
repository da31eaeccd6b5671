/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * `shadectl warm`: asks for files and waits until the mount has dealt with all of them. A path
 * may be a directory, and only the mount knows how many samples that is, so progress is what its
 * counters have grown by and what is still pending. What another client warms at the same time is
 * counted as well.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "call.h"
#include "chart.h"
#include "fail.h"
#include "list.h"
#include "say.h"
#include "terminal.h"

#define POLL_MIN_SECONDS 0.01
#define POLL_MAX_SECONDS 0.25

/* The mount's counters, or what they have grown by. */
struct progress {
	double pending;
	double done;
	double refused;
	double failed;
	double pending_bytes;
	double done_bytes;
	double refused_bytes;
	double capacity_bytes;
};

static int progress_read(struct call *call, struct progress *progress)
{
	char *stats;
	int code = call_read(call, "stats", &stats);

	if (code)
		return code;
	*progress = (struct progress){
		.pending = pair_number(stats, "warm_pending"),
		.done = pair_number(stats, "warm_done"),
		.refused = pair_number(stats, "warm_refused"),
		.failed = pair_number(stats, "warm_failed"),
		.pending_bytes = pair_number(stats, "warm_pending_bytes"),
		.done_bytes = pair_number(stats, "warm_done_bytes"),
		.refused_bytes = pair_number(stats, "warm_refused_bytes"),
		.capacity_bytes = pair_number(stats, "capacity_bytes"),
	};
	free(stats);
	if (isnan(progress->pending + progress->done + progress->refused + progress->failed))
		return say(EXIT_FAILED, "the mount does not say how far it is: its stats have no "
					"warm_pending, warm_done, warm_refused and warm_failed");
	return EXIT_OK;
}

/* From counters since the mount to those of this call. */
static void progress_since(struct progress *now, const struct progress *before)
{
	now->done -= before->done;
	now->refused -= before->refused;
	now->failed -= before->failed;
	now->done_bytes -= before->done_bytes;
	now->refused_bytes -= before->refused_bytes;
}

static double wanted(const struct progress *progress)
{
	return progress->pending + progress->done + progress->refused + progress->failed;
}

static double wanted_bytes(const struct progress *progress)
{
	return progress->pending_bytes + progress->done_bytes + progress->refused_bytes;
}

static void draw_progress(const struct progress *progress, double seconds)
{
	unsigned columns = terminal_size().columns;
	double all = wanted(progress);
	double rate = seconds > 0 ? progress->done_bytes / seconds : NAN;
	double left = rate > 0 ? progress->pending_bytes / rate : NAN;
	char *line = NULL;
	size_t length = 0;
	FILE *out = must(open_memstream(&line, &length));

	chart_bar(out, all > 0 ? progress->done / all : 1, columns > 90 ? 30 : 12,
		  chart_has_blocks());
	fprintf(out, " %s  %s of %s  %s/s  %s left",
		say_percent(all > 0 ? progress->done / all : 1).text,
		say_count(progress->done).text, say_count(all).text, say_bytes(rate).text,
		say_duration(progress->pending > 0 ? left : 0).text);
	if (!fclose(out))
		printf("\r%.*s\033[K", (int)chart_fit(line, length, columns - 1), line);
	fflush(stdout);
	free(line);
}

static void wait_seconds(double seconds)
{
	struct timespec pause = { (time_t)seconds, (long)(fmod(seconds, 1) * 1e9) };

	nanosleep(&pause, NULL);
}

/* Polls until nothing is pending or the time is up. */
static int wait_for(struct call *call, const struct progress *before, double start, bool draw,
		    struct progress *now)
{
	double timeout = call->options.timeout;
	double pause = POLL_MIN_SECONDS;

	for (;;) {
		double seconds;
		int code = progress_read(call, now);

		if (code)
			return code;
		progress_since(now, before);
		seconds = say_now() - start;
		if (draw)
			draw_progress(now, seconds);
		if (!(now->pending > 0) || (timeout > 0 && seconds >= timeout))
			return EXIT_OK;
		if (timeout > 0)
			pause = fmin(pause, timeout - seconds);
		wait_seconds(pause);
		pause = fmin(2 * pause, POLL_MAX_SECONDS);
	}
}

static void print_number(const char *before, const char *key, double value)
{
	printf("%s\"%s\": ", before, key);
	if (isnan(value))
		fputs("null", stdout);
	else
		printf("%.0f", value);
}

static void print_json(const struct progress *progress, double seconds)
{
	print_number("{", "wanted", wanted(progress));
	print_number(", ", "resident", progress->done);
	print_number(", ", "refused", progress->refused);
	print_number(", ", "failed", progress->failed);
	print_number(", ", "bytes", progress->done_bytes);
	printf(", \"seconds\": %.3f}\n", seconds);
}

/* Says what is missing, if anything is. */
static int judge(const struct progress *progress, double seconds)
{
	double all = wanted(progress);
	double bytes = wanted_bytes(progress);

	if (progress->done >= all)
		return EXIT_OK;
	say(EXIT_FAILED, "%s of %s samples are resident", say_count(progress->done).text,
	    say_count(all).text);
	if (progress->pending > 0)
		say(EXIT_FAILED, "%s of them are not dealt with after %.3g seconds",
		    say_count(progress->pending).text, seconds);
	if (bytes > progress->capacity_bytes)
		say(EXIT_FAILED, "the data exceeds the capacity: %s do not fit into %s",
		    say_bytes(bytes).text, say_bytes(progress->capacity_bytes).text);
	else if (progress->refused > 0)
		say(EXIT_FAILED,
		    "for %s of them there is no room beside what is pinned or worth more",
		    say_count(progress->refused).text);
	if (progress->failed > 0)
		say(EXIT_FAILED, "%s of them could not be read from the source",
		    say_count(progress->failed).text);
	return EXIT_FAILED;
}

int verb_warm(struct call *call)
{
	bool draw = isatty(STDOUT_FILENO);
	struct progress before;
	struct progress now;
	double start = say_now();
	bool any;
	int sent;
	int code = progress_read(call, &before);

	if (code)
		return code;
	sent = commands_send_paths(call, &any);
	if (!any)
		return sent;
	code = wait_for(call, &before, start, draw, &now);
	if (draw)
		putchar('\n');
	if (code)
		return code;
	if (!draw)
		print_json(&now, say_now() - start);
	code = judge(&now, say_now() - start);
	return sent > code ? sent : code;
}
