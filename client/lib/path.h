/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Paths: from what a user wrote to what the mount understands. */
#ifndef SHADE_LIB_PATH_H
#define SHADE_LIB_PATH_H

#include <limits.h>
#include <stdbool.h>

#include "escape.h"

/* A path as a word of a command: its form for escape_text(), and the bytes it takes at most. */
#define PATH_WORD (ESCAPE_SPACE | ESCAPE_HIGH)
#define PATH_WORD_MAX (ESCAPE_MAX * PATH_MAX)

/* A program that links libshade statically may have functions of these names. */
#define path_resolve shade_path_resolve
#define path_normalise shade_path_normalise
#define path_is_below shade_path_is_below

/*
 * GIVEN, as a path below MOUNT: absolute, or relative to the current directory if it exists
 * there below the mount, or relative to the mount. FOUND has PATH_MAX bytes; the mount itself is
 * ".". If only a folder of the mount is bound at MOUNT, PREFIX is its path, and comes first; else
 * it is "". -EXDEV: not below the mount; -ENAMETOOLONG; -ENOENT: empty.
 */
int path_resolve(const char *mount, const char *prefix, const char *given, char *found);

/* Takes "//", "." and ".." out of PATH without looking at any file; "" where nothing is left. */
int path_normalise(char *path);

/* Whether PATH is POINT or below it. */
bool path_is_below(const char *path, const char *point);

#endif
