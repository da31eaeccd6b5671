/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The time that requests take: round trips and a shared link. Safe from any thread. */
#ifndef SLOWFS_PACE_H
#define SLOWFS_PACE_H

#include <stddef.h>
#include <stdint.h>

/* Call once, before any thread. Returns 0 or -errno. */
int pace_init(void);
void pace_destroy(void);

/* Each waits by the settings of this moment, alongside all others that wait. */
void pace_delay(uint64_t delay_us);
void pace_transfer(size_t bytes);

/* Ends the waits of now: settings have changed. */
void pace_reset(void);

/* Ends the waits of now and of later. */
void pace_close(void);

#endif
