/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who a thread belongs to, by /proc: its process, that one's parents, and its control group.
 *
 * Processes come and go while this is read, so what it says may be of a moment ago.
 * process_lineage() reads files that the kernel fills in without waiting for anybody;
 * process_cgroup() may wait for a lock of the kernel's on all control groups, so it is not for a
 * thread that answers readers.
 */
#ifndef SHADE_PROCESS_H
#define SHADE_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#define PROCESS_DEPTH 32 /* of a lineage */

/* A process by its number, which another may get later, and by when it began. */
struct process {
	int32_t pid;
	int32_t parent; /* 0: none, or not visible */
	uint64_t start; /* ticks since the machine was booted */
	bool has_ended; /* and its parent has not asked how */
};

#define PROCESS_TEXT 4096

/* A text file that /proc has of a thread, as far as it fits. 0, or a negative errno: the thread is
 * gone, or cannot be seen. */
int process_read(int32_t thread, const char *name, char text[PROCESS_TEXT]);
/* The process of a thread, its parent, the parent of that, and so on, up to PROCESS_DEPTH. Returns
 * how many; 0: the thread is gone, or cannot be seen. */
unsigned process_lineage(int32_t thread, struct process *lineage);
/* Whether the very process is still there, and runs. */
bool process_lives(const struct process *process);
/* Whether two processes run the same program, as a worker and the process that made it do. False:
 * or that cannot be seen. */
bool process_is_same_program(int32_t a, int32_t b);
/* A number that stands for the control groups of a thread. 0: it is in no other than the root, or
 * cannot be seen. */
uint64_t process_cgroup(int32_t thread);

/* What the texts of /proc say: for the functions above and for tests. 0 or -EINVAL. */
int process_parse_stat(const char *text, struct process *process);
int process_parse_status(const char *text, int32_t *pid);
uint64_t process_parse_cgroup(const char *text);

#endif
