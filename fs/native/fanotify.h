/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Tells the cache what is opened and closed in an overlay, and notices its end. */
#ifndef SHADE_OBSERVE_H
#define SHADE_OBSERVE_H

#include "daemon/daemon.h"

struct observe;

/* The overlay is mounted, .shade in it not yet. `reopen` mounts that again after
 * somebody else has unmounted it. 0 or a negative errno. */
int observe_open(struct observe **out, struct front *front, int (*reopen)(struct front *front));
/* Ends its thread; it can still be told that .shade has ended. */
void observe_stop(struct observe *observe);
void observe_close(struct observe *observe);
/* Tells of all that has happened so far. Otherwise it is told of in a few milliseconds. */
void observe_drain(struct observe *observe);
/* Whether the overlay is still where it was mounted; another one may be there by now. */
bool observe_is_mounted(struct observe *observe);
/* Whether it is what its mount point shows: something else may be mounted over it. */
bool observe_is_on_top(const struct observe *observe);
/* Somebody has unmounted .shade. */
void observe_control_ended(struct observe *observe);

#endif
