/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A process that does nothing until the supervisor dies without the mounts having ended, or gives
 * the daemon up, and then ends the connections.
 *
 * The daemon is killed with the supervisor. A killed daemon does not always close the connections:
 * one of its threads may be in the kernel, waiting for a lock that a READ holds, or for an answer
 * that the daemon itself should have given. Such a thread cannot be killed, keeps the descriptor
 * open, and readers would wait for ever. Ending the connection from outside gives them all an
 * error. Neither of the two processes can do that for itself when it is killed, so there is a
 * third.
 */
#ifndef SHADE_WATCHDOG_H
#define SHADE_WATCHDOG_H

#include <sys/types.h>

#include "base/format.h"

struct mount;

/* To be called by the main thread while there is no other. 0 or a negative errno. */
int watchdog_start(void);
/* A FUSE mount that is to end with the supervisor. A second call for the same kind replaces the
 * first. Nothing happens if the watchdog was not started. */
enum watchdog_kind { WATCHDOG_FILES, WATCHDOG_CONTROL, WATCHDOG_KINDS };
void watchdog_add(enum watchdog_kind kind, const struct mount *mount);
/* The daemon cannot end well, or nobody takes it over: has the connections ended now, and waits at
 * most two seconds. */
void watchdog_act(void);
/* The daemon has ended well: ends the watchdog. */
void watchdog_stop(void);
/* The supervisor becomes another program, and goes on with the watchdog that it had. */
struct watchdog_place {
	pid_t pid;   /* 0: none */
	int channel; /* -1: none */
};
struct watchdog_place watchdog_place(void);
void watchdog_take(const struct watchdog_place *place);
extern const struct format_line watchdog_format[]; /* of what it is told */
/* In a process that was forked: the watchdog is none of its business. */
void watchdog_leave(void);

#endif
