/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>

static const char *const names[] = { "error", "warning", "info", "debug" };
static const int priorities[] = { LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG };

static enum log_level threshold = LOG_WARNINGS; /* set before the first thread starts */
static bool use_syslog;

void log_setup(enum log_level level, bool to_syslog)
{
	threshold = level;
	use_syslog = to_syslog;
	if (to_syslog)
		openlog("shadefs", LOG_PID, LOG_DAEMON);
}

int log_level_find(const char *name, enum log_level *level)
{
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(names[i], name)) {
			*level = (enum log_level)i;
			return 0;
		}
	return -EINVAL;
}

const char *log_level_name(enum log_level level)
{
	return names[level];
}

void log_say(enum log_level level, const char *format, ...)
{
	char text[1024];
	va_list args;

	if (level > threshold)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (use_syslog)
		syslog(priorities[level], "%s", text);
	else
		fprintf(stderr, "shadefs: %s\n", text);
}
