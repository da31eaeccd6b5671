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

static void print_use(const char *stats)
{
	double capacity = pair_number(stats, "capacity_bytes");
	double resident = pair_number(stats, "resident_bytes");
	double accesses = pair_number(stats, "accesses");

	printf("  %-10s %s of %s used (%s), %s samples resident\n", "capacity",
	       say_bytes(resident).text, say_bytes(capacity).text,
	       say_percent(capacity > 0 ? resident / capacity : NAN).text,
	       say_count(pair_number(stats, "resident_samples")).text);
	/* A hit ratio can be had by reading few samples often: coverage says so. */
	printf("  %-10s %s of %s accesses, %s of them prefetched; coverage %s\n", "hits",
	       say_percent(accesses > 0 ? pair_number(stats, "hits") / accesses : NAN).text,
	       say_count(accesses).text,
	       say_percent(accesses > 0 ? pair_number(stats, "hits_prefetched") / accesses : NAN)
		       .text,
	       say_percent(pair_number(stats, "coverage")).text);
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

int verb_status(struct call *call)
{
	char *config = NULL;
	char *stats;
	double errors, left_out;
	int code = call_read(call, "stats", &stats);

	if (code)
		return code;
	if (mount_read(call->mount, "config", &config))
		config = NULL;
	say_line(stdout, "%s", mount_path(call->mount));
	print_source(call, config);
	print_word("mode", stats, "mode");
	print_word("policy", stats, "policy");
	print_use(stats);
	print_waiting(stats);
	print_word("epoch", stats, "epoch");
	print_scan(stats);
	printf("  %-10s %s accesses of announced orders\n", "ahead",
	       say_count(pair_number(stats, "order_ahead")).text);
	print_predictions(call);
	jobs_print(call->mount, "  ", stdout);
	errors = pair_number(stats, "fetch_errors");
	if (errors > 0)
		printf("  %-10s %s reads of the source failed\n", "errors", say_count(errors).text);
	left_out = pair_number(stats, "names_left_out");
	if (left_out > 0)
		printf("  %-10s %s names that the source fails to tell of; the log has the first\n",
		       "left out", say_count(left_out).text);
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
	return code;
}
