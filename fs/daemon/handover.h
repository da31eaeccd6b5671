/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the supervisor hands over to the program that it becomes in an upgrade: a memory file with
 * its state, and the numbers of the descriptors that stay open. It says first how it is laid out,
 * so that another version can refuse it.
 */
#ifndef SHADE_HANDOVER_H
#define SHADE_HANDOVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/estate.h"
#include "daemon/watchdog.h"
#include "native/overlay.h"

#define HANDOVER_DEATHS 3
#define HANDOVER_STUCK 8
#define HANDOVER_WORDS 1024 /* of the command line, at most */

struct handover {
	pid_t supervisor; /* the process that made it, and is to go on with it */
	struct estate_place estate;
	struct watchdog_place watchdog;

	/* Of the supervisor; what it means is said there. Descriptors are -1 if there are none. */
	int parts[OVERLAY_PARTS];
	uint64_t deaths_ms[HANDOVER_DEATHS];
	pid_t stuck[HANDOVER_STUCK];
	uint32_t stuck_count;
	bool repeat_due;
	uint64_t ready_ms, end_ms;

	/* Of the options: what must not be looked up again. The strings are the reader's. */
	int source_fd, above_fd, manifest_fd;
	uint32_t word_count;
	const char *program, *directory, *source, *mount_point;
	const char *password; /* of the environment; NULL: there was none */
	const char *words[HANDOVER_WORDS + 1];
};

extern const struct format_line handover_format[];

/* A memory file with it, which is closed on exec, or a negative errno. */
int handover_write(const struct handover *handover);
/* Reads one that a program has made whose format is the same: that must be known. 0 or a negative
 * errno. It stays until the process ends. */
int handover_read(int fd, const struct handover **out);
/* How that program says that it is laid out. 0 or a negative errno. */
int handover_read_format(int fd, char *text);

/* Has the descriptors outlive exec, or not any more. */
void handover_keep_open(const struct handover *handover, bool open);

#endif
