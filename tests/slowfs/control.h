/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The text that goes into and comes out of the control file. */
#ifndef SLOWFS_CONTROL_H
#define SLOWFS_CONTROL_H

#include <stddef.h>

#define CONTROL_NAME ".slowfs"

/* Carries out all lines of `text`. Returns 0, -EINVAL if one of them is bad (then none was
 * carried out), -E2BIG, -ENOMEM or -ENOSPC. */
int control_apply(const char *text, size_t size);

/* Process id, counters, settings, faults: a new string, for the caller to free. NULL: no memory. */
char *control_status(size_t *size);

#endif
