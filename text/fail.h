/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef SHADE_SIM_FAIL_H
#define SHADE_SIM_FAIL_H

/* One sentence on standard error, then exit with 2: the user's input is wrong. */
__attribute__((noreturn, format(printf, 1, 2))) void fail(const char *format, ...);
/* The same with FILE:LINE in front. */
__attribute__((noreturn, format(printf, 3, 4))) void fail_at(const char *file, unsigned long line,
							     const char *format, ...);
/* For what must not fail: memory. Exit with 1. */
void *must(void *allocated);
/* The answer of a sched or pads call: exits unless it is 0. */
void must_do(int rc, const char *what);

#endif
