/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The trainings that share a mount, besides job 0. */
#ifndef SHADE_CTL_JOBS_H
#define SHADE_CTL_JOBS_H

#include <stdio.h>

#include "mount.h"

/* Prints a line for each, and for each group of them, after `indent`. */
void jobs_print(const struct mount *mount, const char *indent, FILE *out);

#endif
