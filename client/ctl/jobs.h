/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The trainings that share a mount. */
#ifndef SHADE_CTL_JOBS_H
#define SHADE_CTL_JOBS_H

#include <stdio.h>

#include "mount.h"

/* Whether there are others than job 0, whose epoch and coverage are not those of the mount then. */
bool jobs_are_several(const struct mount *mount);
/* If so, prints a line for each, and for each group of them, after `indent`. `stats` are the
 * mount's. */
void jobs_print(const struct mount *mount, const char *stats, const char *indent, FILE *out);

#endif
