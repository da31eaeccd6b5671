/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The end of a command that cannot go on: one sentence on standard error, after the command's name.
 * Libraries and threads of the daemon must not call these. */
#ifndef SHADE_FAIL_H
#define SHADE_FAIL_H

/* Exits with 2: the user's input is wrong. */
__attribute__((noreturn, format(printf, 1, 2))) void fail(const char *format, ...);
/* The same with FILE:LINE in front. */
__attribute__((noreturn, format(printf, 3, 4))) void fail_at(const char *file, unsigned long line,
							     const char *format, ...);
/* Exits with 1: something other than the input is wrong. */
__attribute__((noreturn, format(printf, 1, 2))) void give_up(const char *format, ...);
/* Returns what was allocated, or exits if that is NULL. */
void *must(void *allocated);
/* Exits unless `rc`, 0 or a negative errno, is 0. */
void must_do(int rc, const char *what);

#endif
