/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A process that does nothing until the daemon dies without having unmounted, and then ends the
 * connections.
 *
 * A killed daemon does not always let go of them: one of its threads may be in the kernel, waiting
 * for a lock that a READ holds, or for an answer of its own, and can neither be killed nor
 * answered; with it the descriptor stays open, and readers would wait for ever. Ending the
 * connection from outside gives everybody an error.
 */
#ifndef SHADE_GUARDIAN_H
#define SHADE_GUARDIAN_H

#include <sys/types.h>

/* To be called by the main thread while there is no other. 0 or a negative errno. */
int guardian_start(void);
/* A mount that is to end with the daemon. Up to two; before the mount answers anybody. */
void guardian_add(const char *mount_point);
/* The daemon cannot end well: has the connections ended now, and waits for that, a moment at most.
 */
void guardian_act(void);
/* The daemon ends well. */
void guardian_stop(void);

#endif
