/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The inside of a directory as the source, for store_dir.c (contents) and store_names.c. */
#ifndef SHADE_STORE_INTERNAL_H
#define SHADE_STORE_INTERNAL_H

#include <sys/stat.h>

#include "source/store.h"

#define STORE_WANTED (STATX_BASIC_STATS) /* for store_convert() */

/* A descriptor of the directory, good for the calls that end in `at`. */
int store_root(const struct store *store);
void store_convert(const struct statx *from, struct store_attr *to);

#endif
