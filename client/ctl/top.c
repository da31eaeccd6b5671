/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * `shadectl top`: takes stats every interval and shows what changed. Scores and order are large
 * and cost the daemon more than stats, so they are read less often.
 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "call.h"
#include "chart.h"
#include "fail.h"
#include "frame.h"
#include "jobs.h"
#include "say.h"
#include "scores.h"
#include "terminal.h"

#define SCORES_SECONDS 5
#define AHEAD_SECONDS 2
#define SCORES_PATIENCE 2 /* seconds: whoever serves them may never end */

struct top {
	struct call *call;
	char *stats; /* of the last frame, or NULL */
	double stats_at;
	double scores_at;
	double ahead_at;
	struct frame frame;
};

/* How much KEY grew; NaN if that is not known, or if it shrank, as after a new mount. */
static double grown(const char *before, const char *now, const char *key)
{
	double by = before ? pair_number(now, key) - pair_number(before, key) : NAN;

	return by >= 0 ? by : NAN;
}

static double ratio(double part, double whole)
{
	return whole > 0 ? part / whole : NAN;
}

static void copy_word(char *to, size_t size, const char *stats, const char *key)
{
	struct pair pair;

	if (pair_find(stats, key, &pair) && pair.value_length)
		snprintf(to, size, "%.*s", (int)pair.value_length, pair.value);
	else
		snprintf(to, size, "-");
}

static void history_add(struct frame *frame, double value)
{
	if (frame->history_count == FRAME_HISTORY) {
		memmove(frame->history, frame->history + 1,
			(FRAME_HISTORY - 1) * sizeof(frame->history[0]));
		frame->history_count--;
	}
	frame->history[frame->history_count++] = value;
}

static void take_rates(struct frame *frame, const char *before, const char *now, double seconds)
{
	double hits = grown(before, now, "hits");

	frame->ratio_now = ratio(hits, grown(before, now, "accesses"));
	frame->ratio_all = ratio(pair_number(now, "hits"), pair_number(now, "accesses"));
	frame->hits_rate = ratio(hits, seconds);
	frame->misses_rate = ratio(grown(before, now, "misses"), seconds);
	frame->source_rate = ratio(grown(before, now, "backend_bytes"), seconds);
	frame->waiting = ratio(grown(before, now, "waiting_ms") / 1000, seconds);
	if (before)
		history_add(frame, frame->ratio_now);
}

static void take_levels(struct frame *frame, const char *stats)
{
	copy_word(frame->mode, sizeof(frame->mode), stats, "mode");
	copy_word(frame->policy, sizeof(frame->policy), stats, "policy");
	frame->epoch = pair_number(stats, "epoch");
	frame->coverage = pair_number(stats, "coverage");
	frame->resident_bytes = pair_number(stats, "resident_bytes");
	frame->capacity_bytes = pair_number(stats, "capacity_bytes");
	frame->inflight_bytes = pair_number(stats, "inflight_bytes");
	frame->resident_samples = pair_number(stats, "resident_samples");
	frame->samples = pair_number(stats, "samples");
	frame->uses = pair_number(stats, "uses");
	frame->order_ahead = pair_number(stats, "order_ahead");
	frame->scanning = pair_number(stats, "scan_complete") == 0;
}

static void take_ahead(struct top *top)
{
	char *ahead = top->frame.ahead;
	ssize_t got = 0;
	int fd = mount_file(top->call->mount, "order");

	if (fd >= 0) {
		got = read(fd, ahead, FRAME_AHEAD_MAX - 1);
		close(fd);
	}
	if (got < 0)
		got = 0;
	/* Half an id is another: end with the last whole line. */
	while (got && ahead[got - 1] != '\n')
		got--;
	if (got)
		got--;
	ahead[got] = '\0';
	for (char *at = ahead; *at; at++)
		if (!isdigit((unsigned char)*at))
			*at = ' ';
}

static bool is_due(double *last, double now, double every)
{
	if (*last && now - *last < every)
		return false;
	*last = now;
	return true;
}

static void take_jobs(struct top *top, const char *stats)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = must(open_memstream(&text, &length));

	jobs_print(top->call->mount, stats, "", out);
	if (fclose(out)) {
		free(text);
		text = NULL;
	}
	free(top->frame.jobs);
	top->frame.jobs = text;
}

/* Looks at the mount. Returns negative errno. */
static int top_take(struct top *top)
{
	double now = say_now();
	char *stats;
	int rc = mount_read(top->call->mount, "stats", &stats);

	if (rc)
		return rc;
	take_rates(&top->frame, top->stats, stats, now - top->stats_at);
	take_levels(&top->frame, stats);
	take_jobs(top, stats);
	free(top->stats);
	top->stats = stats;
	top->stats_at = now;
	if (is_due(&top->scores_at, now, SCORES_SECONDS))
		scores_take(top->call->mount, &top->frame.scores, SCORES_PATIENCE);
	if (is_due(&top->ahead_at, now, AHEAD_SECONDS))
		take_ahead(top);
	return 0;
}

static void top_show(const struct top *top)
{
	struct terminal_size size = terminal_size();
	char *text = NULL;
	size_t length = 0;
	FILE *out = must(open_memstream(&text, &length));

	frame_draw(&top->frame, out, size.rows, size.columns, chart_has_blocks());
	if (!fclose(out))
		terminal_show(text, length);
	free(text);
}

/* Two looks, since rates need them; and one frame as text. */
static int top_once(struct top *top)
{
	double wait = top->call->options.interval;
	struct timespec pause = { (time_t)wait, (long)(fmod(wait, 1) * 1e9) };
	int rc = top_take(top);

	if (!rc) {
		nanosleep(&pause, NULL);
		rc = top_take(top);
	}
	if (rc)
		return call_say_no_file(top->call, "stats", rc);
	frame_draw(&top->frame, stdout, 24, 80, chart_has_blocks());
	return EXIT_OK;
}

static int top_live(struct top *top)
{
	double interval = top->call->options.interval;
	double due = say_now();
	int key = 0;
	int rc = 0;

	terminal_enter();
	while (!rc && key != 'q' && key != 'Q' && key >= 0) {
		if (say_now() >= due) {
			rc = top_take(top);
			due = say_now() + interval;
		}
		if (!rc) {
			top_show(top);
			key = terminal_key(fmin(fmax(due - say_now(), 0.001), 3600));
		}
	}
	terminal_leave();
	return rc ? call_say_no_file(top->call, "stats", rc) : EXIT_OK;
}

int verb_top(struct call *call)
{
	struct top *top = must(calloc(1, sizeof(*top)));
	int code;

	top->call = call;
	top->frame.mount_point = mount_path(call->mount);
	histogram_clear(&top->frame.scores);
	if (call->options.once || !isatty(STDOUT_FILENO))
		code = top_once(top);
	else
		code = top_live(top);
	free(top->frame.jobs);
	free(top->stats);
	free(top);
	return code;
}
