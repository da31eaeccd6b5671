/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A process that does nothing until the daemon dies without having unmounted, and then ends the
 * connections.
 *
 * A killed daemon does not always close them: one of its threads may be in the kernel, waiting
 * for a lock that a READ holds, or for an answer that the daemon itself should have given. Such a
 * thread cannot be killed, keeps the descriptor open, and readers would wait for ever. Ending the
 * connection from outside gives them all an error.
 */
#ifndef SHADE_WATCHDOG_H
#define SHADE_WATCHDOG_H

struct mount;

/* To be called by the main thread while there is no other. 0 or a negative errno. */
int watchdog_start(void);
/* A FUSE mount that is to end with the daemon. A second call for the same kind replaces the first.
 * Nothing happens if the watchdog was not started. */
enum watchdog_kind { WATCHDOG_FILES, WATCHDOG_CONTROL, WATCHDOG_KINDS };
void watchdog_add(enum watchdog_kind kind, const struct mount *mount);
/* The daemon cannot end well: has the connections ended now, and waits at most two seconds. */
void watchdog_act(void);
/* The daemon ends well: ends the watchdog. */
void watchdog_stop(void);

#endif
