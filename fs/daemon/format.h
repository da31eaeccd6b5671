/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Whether another version of the program can go on with what this one keeps in the estate and hands
 * over: all that is laid out by structs, as text, a line each. The two texts must be the same.
 */
#ifndef SHADE_DAEMON_FORMAT_H
#define SHADE_DAEMON_FORMAT_H

#include <stdbool.h>
#include <stddef.h>

#define FORMAT_MAX 16384

/* The version of this program. */
const char *format_program(void);
/* Writes the text of this program. */
void format_write(char text[FORMAT_MAX]);
/* False: with the first difference, as part of a sentence, in `why`. */
bool format_is_same(const char *theirs, char *why, size_t room);

#endif
