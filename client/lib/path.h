/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Paths: from what a user wrote to what the mount understands, and the escapes in its files. */
#ifndef SHADE_LIB_PATH_H
#define SHADE_LIB_PATH_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#define PATH_ESCAPED_MAX (4 * PATH_MAX)

/* libshade has these as well, and who links it statically may have such names of his own. */
#define path_resolve shade_path_resolve
#define path_normalise shade_path_normalise
#define path_escape shade_path_escape
#define path_unescape shade_path_unescape
#define path_is_below shade_path_is_below

/*
 * GIVEN, as a path below MOUNT: absolute, or relative to the current directory if it exists
 * there below the mount, or relative to the mount. FOUND has PATH_MAX bytes; the mount itself is
 * ".". -EXDEV: not below the mount; -ENAMETOOLONG; -ENOENT: empty.
 */
int path_resolve(const char *mount, const char *given, char *found);

/* Takes "//", "." and ".." out of PATH without looking at any file; "" where nothing is left. */
int path_normalise(char *path);

/* PATH as a word of a line: all but printable ASCII, spaces and \ as \nnn or \\. */
void path_escape(const char *path, char *escaped);

/* Undoes that in place. False if there is a \ that begins no escape, or a \000. */
bool path_unescape(char *path);

/* Whether PATH is POINT or below it. */
bool path_is_below(const char *path, const char *point);

#endif
