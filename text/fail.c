/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "fail.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A name may contain newlines and terminal escapes: the sentence stays one line, and does nothing
 * to the terminal. */
__attribute__((noreturn)) static void end(int status, const char *format, va_list args)
{
	char sentence[8192];

	vsnprintf(sentence, sizeof(sentence), format, args);
	for (char *at = sentence; *at; at++)
		if (iscntrl((unsigned char)*at))
			*at = '?';
	fflush(stdout);
	fprintf(stderr, "%s: %s\n", program_invocation_short_name, sentence);
	exit(status);
}

void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	end(2, format, args);
}

void fail_at(const char *file, unsigned long line, const char *format, ...)
{
	char sentence[4096];
	va_list args;

	va_start(args, format);
	vsnprintf(sentence, sizeof(sentence), format, args);
	va_end(args);
	fail("%s:%lu: %s", file, line, sentence);
}

void give_up(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	end(1, format, args);
}

void *must(void *allocated)
{
	if (!allocated)
		give_up("out of memory");
	return allocated;
}

void must_do(int rc, const char *what)
{
	if (rc)
		give_up("%s: %s", what, strerror(-rc));
}
