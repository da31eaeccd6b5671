/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Verbs that print: status for people, stats for programs, debug for bug reports. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "call.h"
#include "jobs.h"
#include "mountinfo.h"
#include "path.h"
#include "say.h"

int verb_stats(struct call *call)
{
	char *stats;
	int code = call_read(call, "stats", &stats);

	if (code)
		return code;
	if (call->options.json) {
		call_print_json(stdout, stats);
		putchar('\n');
	} else {
		fputs(stats, stdout);
	}
	free(stats);
	return EXIT_OK;
}

/* KEY as it is, or "-". */
static void print_word(const char *label, const char *stats, const char *key)
{
	struct pair pair;

	if (pair_find(stats, key, &pair) && pair.value_length)
		printf("  %-10s %.*s\n", label, (int)pair.value_length, pair.value);
	else
		printf("  %-10s -\n", label);
}

/* The source of the files: as the configuration names it, else as the kernel does. */
static void print_source(const struct call *call, const char *config)
{
	struct mountinfo info;
	struct pair pair;

	if (config && pair_find(config, "source", &pair)) {
		const char *comment = memmem(pair.value, pair.value_length, " # ", 3);
		size_t length = comment ? (size_t)(comment - pair.value) : pair.value_length;

		printf("  %-10s %.*s\n", "source", (int)length, pair.value);
	} else if (mountinfo_find(&info, mount_path(call->mount)) > 0) {
		say_line(stdout, "  %-10s %s", "source", info.source);
		mountinfo_close(&info);
	} else {
		printf("  %-10s -\n", "source");
	}
}

static void print_use(const char *stats, bool several)
{
	double capacity = pair_number(stats, "capacity_bytes");
	double resident = pair_number(stats, "resident_bytes");
	double accesses = pair_number(stats, "accesses");

	printf("  %-10s %s of %s used (%s), %s samples resident\n", "capacity",
	       say_bytes(resident).text, say_bytes(capacity).text,
	       say_percent(capacity > 0 ? resident / capacity : NAN).text,
	       say_count(pair_number(stats, "resident_samples")).text);
	/* A hit ratio can be had by reading few samples often: coverage says so. */
	printf("  %-10s %s of %s accesses, %s of them prefetched", "hits",
	       say_percent(accesses > 0 ? pair_number(stats, "hits") / accesses : NAN).text,
	       say_count(accesses).text,
	       say_percent(accesses > 0 ? pair_number(stats, "hits_prefetched") / accesses : NAN)
		       .text);
	if (!several)
		printf("; coverage %s", say_percent(pair_number(stats, "coverage")).text);
	putchar('\n');
}

/* What the training waited for, and what it does about it. */
static void print_waiting(const char *stats)
{
	double limited = pair_number(stats, "limited_ms") / 1000, uses = pair_number(stats, "uses");
	double bytes = pair_number(stats, "limited_bytes");

	printf("  %-10s %s reads waited, for %s s in all; the source was the limit for %s s",
	       "waits", say_count(pair_number(stats, "waits")).text,
	       say_count(pair_number(stats, "wait_ms") / 1000).text, say_count(limited).text);
	if (limited > 0)
		printf(" and gave %s/s", say_bytes(bytes / limited).text);
	putchar('\n');
	if (uses > 0)
		printf("  %-10s each fetched sample is used %.2f times on the mean\n", "uses",
		       uses);
}

/* Trainings that were recognised, a line each. */
static void print_predictions(const struct call *call)
{
	char *text, *line, *rest;

	if (mount_read(call->mount, "predictions", &text))
		return; /* a mount of an older version */
	rest = text;
	while ((line = strsep(&rest, "\n")))
		if (*line)
			say_line(stdout, "  %-10s %s", "predicted", line);
	free(text);
}

static void print_scan(const char *stats)
{
	double complete = pair_number(stats, "scan_complete");

	printf("  %-10s %s, %s samples%s\n", "scan",
	       isnan(complete) ? "-"
	       : complete > 0  ? "complete"
			       : "running",
	       say_count(pair_number(stats, "samples")).text, complete == 0 ? " so far" : "");
}

/* What to do about a source that has ended. */
static void print_gone(const char *stats)
{
	double gone = pair_number(stats, "source_gone");

	if (gone == 1)
		printf("  %-10s the source's file system has ended; unmount it (umount -l) and "
		       "mount "
		       "it again at the same place, and it is found within seconds\n",
		       "gone");
	else if (gone == 2)
		printf("  %-10s what is mounted where the source was is another file system, or "
		       "another user's, and is not used; mount the same one there, or mount "
		       "shadefs again\n",
		       "gone");
}

/* Daemons that died. An older version says nothing of it. */
static void print_takeovers(const char *stats)
{
	double count = pair_number(stats, "takeovers");

	if (count > 0)
		printf("  %-10s %s daemons died and were taken over; the log says when and of "
		       "what\n",
		       "taken over", say_count(count).text);
	count = pair_number(stats, "upgrades");
	if (count > 0)
		printf("  %-10s %s times, by which another version went on with this mount\n",
		       "upgraded", say_count(count).text);
	if (pair_number(stats, "takeover_possible") == 0)
		printf("  %-10s a crash of the daemon ends this mount: the kernel cannot resend "
		       "requests\n",
		       "crash");
}

/* The field of a line after `tabs` tabs, up to the next one or the end. */
static struct pair field_of(const char *line, unsigned tabs)
{
	size_t length = strcspn(line, "\n");
	const char *end = line + length;

	for (; tabs && line < end; line++)
		tabs -= *line == '\t';
	return (struct pair){ .value = line, .value_length = strcspn(line, "\t\n") };
}

/* Writes to `control` that the daemon refused: how many, and why the last one. */
static void print_refused(const struct call *call)
{
	struct pair count, age, user, why;
	char *text, *last;

	if (mount_read(call->mount, "refused", &text))
		return;
	if (*text)
		text[strlen(text) - 1] = '\0';
	last = strrchr(text, '\n');
	if (last && pair_find(text, "#", &count)) {
		age = field_of(last + 1, 0);
		user = field_of(last + 1, 1);
		why = field_of(last + 1, 3);
		printf("  %-10s %.*s writes to .shade/control, the last %.*s s ago by user %.*s: "
		       "%.*s\n",
		       "refused", (int)strcspn(count.value, " "), count.value,
		       (int)age.value_length, age.value, (int)user.value_length, user.value,
		       (int)why.value_length, why.value);
	}
	free(text);
}

int verb_status(struct call *call)
{
	char *config = NULL;
	char *stats;
	double errors, left_out;
	int code = call_read(call, "stats", &stats);
	bool several;

	if (code)
		return code;
	if (mount_read(call->mount, "config", &config))
		config = NULL;
	say_line(stdout, "%s", mount_path(call->mount));
	print_source(call, config);
	print_word("mode", stats, "mode");
	print_word("policy", stats, "policy");
	several = jobs_are_several(call->mount);
	print_use(stats, several);
	print_waiting(stats);
	if (!several)
		print_word("epoch", stats, "epoch");
	print_scan(stats);
	if (!several)
		printf("  %-10s %s accesses of announced orders\n", "ahead",
		       say_count(pair_number(stats, "order_ahead")).text);
	print_predictions(call);
	jobs_print(call->mount, stats, "  ", stdout);
	print_gone(stats);
	print_takeovers(stats);
	errors = pair_number(stats, "fetch_errors");
	if (errors > 0)
		printf("  %-10s %s reads of the source failed\n", "errors", say_count(errors).text);
	left_out = pair_number(stats, "names_left_out");
	if (left_out > 0)
		printf("  %-10s %s names that the source fails to tell of; the log has the first\n",
		       "left out", say_count(left_out).text);
	print_refused(call);
	free(config);
	free(stats);
	return EXIT_OK;
}

static int print_file(const struct call *call, const char *name)
{
	char *text;
	int rc = mount_read(call->mount, name, &text);

	printf("\n--- %s\n", name);
	if (rc) {
		printf("could not be read: %s\n", strerror(-rc));
		return EXIT_FAILED;
	}
	fputs(text, stdout);
	free(text);
	return EXIT_OK;
}

static void print_mounts(const char *given)
{
	char point[PATH_MAX];
	struct mountinfo info;
	int rc;

	puts("\n--- mountinfo");
	if (!realpath(given, point))
		snprintf(point, sizeof(point), "%s", given);
	rc = mountinfo_open(&info);
	while (!rc && (rc = mountinfo_next(&info)) > 0) {
		rc = 0;
		if (path_is_below(info.point, point))
			say_line(stdout, "%s", info.line);
	}
	if (rc)
		printf("could not be read: %s\n", strerror(-rc));
	mountinfo_close(&info);
}

static void print_memory(void)
{
	char *line = NULL;
	size_t size = 0;
	FILE *file = fopen("/proc/meminfo", "re");

	puts("\n--- memory");
	while (file && getline(&line, &size, file) > 0)
		if (!strncmp(line, "Mem", 3) || !strncmp(line, "Cached", 6))
			fputs(line, stdout);
	free(line);
	if (file)
		fclose(file);
}

int verb_debug(struct call *call)
{
	struct utsname kernel;
	int code = EXIT_OK;

	printf("--- version\nshadectl %s\n", SHADE_VERSION);
	if (!uname(&kernel))
		printf("\n--- kernel\n%s %s %s %s\n", kernel.sysname, kernel.release,
		       kernel.version, kernel.machine);
	print_memory();
	print_mounts(call->given_mount);
	if (!call->mount)
		return call_say_no_mount(call->given_mount, call->mount_error);
	code |= print_file(call, "config");
	code |= print_file(call, "stats");
	(void)print_file(call, "refused"); /* not every daemon has it */
	return code;
}
