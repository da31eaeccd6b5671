/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Messages for people: standard error in the foreground, syslog in the background. A message that
 * cannot be written is lost and nothing else. */
#ifndef SHADE_LOG_H
#define SHADE_LOG_H

#include <stdbool.h>

enum log_level { LOG_ERRORS, LOG_WARNINGS, LOG_NOTES, LOG_DETAILS };

void log_setup(enum log_level level, bool to_syslog);
/* "error", "warning", "info", "debug". 0 or -EINVAL. */
int log_level_find(const char *name, enum log_level *level);
const char *log_level_name(enum log_level level);

__attribute__((format(printf, 2, 3))) void log_say(enum log_level level, const char *format, ...);

#endif
