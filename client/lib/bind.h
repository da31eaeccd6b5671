/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A mount whose .shade is not above the path that is asked for. */
#ifndef SHADE_LIB_BIND_H
#define SHADE_LIB_BIND_H

#include "lib.h"

/* A program that links libshade statically may have functions of these names. */
#define lib_open_shade shade_lib_open_shade
#define lib_open_bound shade_lib_open_bound

/* Opens DIRECTORY/NAME. -ENODEV: it is not the .shade of a shadefs. */
int lib_open_shade(int directory, const char *name);

/* PATH, without symbolic links, has no .shade above it. If it is in a folder of a shadefs that is
 * bound there, opens the .shade that the environment names, and sets root, path and prefix of
 * SHADE. -ENODEV, without a message: it is in no shadefs; -ENXIO: it is, and .shade is not to be
 * had. */
int lib_open_bound(struct shade *shade, const char *path);

#endif
