/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The command line: one table of options, one initialiser, one validator. */
#ifndef SHADE_OPTIONS_H
#define SHADE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/log.h"

struct option_text {
	struct option_text *next;
	char text[];
};

struct options {
	char *source;
	char *mount_point; /* absolute */
	bool foreground;
	bool fake;   /* look whether all is well, and mount nothing */
	bool sloppy; /* unknown options are none of our business */
	uint64_t capacity_bytes;
	const char *capacity_from; /* "option", "cgroup limit" or "RAM" */
	uint64_t inflight_bytes;
	uint64_t prefetch_bytes;
	unsigned threads;
	double staleness_s;
	double deadline_s;
	const char *policy;
	const char *policy_from; /* NULL: as given or not */
	const char *mode;
	const char *group_name; /* NULL: nobody else may use .shade */
	gid_t group;
	bool allow_other;
	bool noexec;
	enum log_level log;
	char *manifest; /* absolute; NULL: none */

	/* The parser's own. */
	struct {
		const char *capacity, *inflight, *prefetch;
	} raw;
	unsigned given; /* bit by row of the table */
	struct option_text *texts;
	char directory[4096]; /* where it was started */
};

/* Fills in `options`, or says what is wrong in one sentence and exits: with 0 after --help,
 * --version and a mount that was to be faked, else with 1. */
void options_parse(struct options *options, int argc, char **argv);

/* The lesser of RAM and the cgroup's limit, and which it is. */
uint64_t options_memory(const char **which);

/* Every option with its value and where it came from, a line each. */
void options_print(const struct options *options, FILE *out);

void options_free(struct options *options);

#endif
