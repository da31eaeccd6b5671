/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "fail.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("shade-sim: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	exit(2);
}

void fail_at(const char *file, unsigned long line, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "shade-sim: %s:%lu: ", file, line);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	exit(2);
}

void *must(void *allocated)
{
	if (!allocated) {
		fputs("shade-sim: out of memory\n", stderr);
		exit(1);
	}
	return allocated;
}

void must_do(int rc, const char *what)
{
	if (!rc)
		return;
	fprintf(stderr, "shade-sim: %s: %s\n", what, strerror(-rc));
	exit(1);
}
