/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Tells a service manager how it is, by sd_notify(3)'s protocol. */
#ifndef SHADE_NOTIFY_H
#define SHADE_NOTIFY_H

/* The mount answers; `status` is one line for people. Without a manager nothing happens. */
void notify_ready(const char *status);
void notify_stopping(void);

#endif
