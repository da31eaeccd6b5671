/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Tells the service manager the state of the daemon, by sd_notify(3)'s protocol. Without a service
 * manager nothing happens. */
#ifndef SHADE_SYSTEMD_H
#define SHADE_SYSTEMD_H

/* The mount answers; `status` is one line for people. */
void systemd_ready(const char *status);
/* Another line for people. */
void systemd_status(const char *status);
/* The daemon begins to end. */
void systemd_stopping(void);

#endif
