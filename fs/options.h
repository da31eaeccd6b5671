/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The command line: one table of options, one initialiser, one validator. */
#ifndef SHADE_OPTIONS_H
#define SHADE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "log.h"

struct options {
	char *source;
	char *mount_point; /* absolute */
	bool foreground;
	uint64_t capacity_bytes;
	const char *capacity_from; /* "option", "cgroup limit" or "RAM" */
	uint64_t inflight_bytes;
	uint64_t prefetch_bytes;
	unsigned threads;
	double staleness_s;
	double deadline_s;
	const char *policy;
	const char *mode;
	const char *group_name; /* NULL: nobody else may use .shade */
	gid_t group;
	bool allow_other;
	enum log_level log;
};

/* Fills in `options`, or says what is wrong in one sentence and exits: with 0 after --help
 * and --version, else with 1. */
void options_parse(struct options *options, int argc, char **argv);

/* The lesser of RAM and the cgroup's limit, and which it is. */
uint64_t options_memory(const char **which);

/* Calls `each` for every option with its value as text and where it came from. */
void options_list(const struct options *options,
		  void (*each)(void *context, const char *name, const char *value,
			       const char *from),
		  void *context);

#endif
