/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What umount(8) is told of a native mount. The overlay has .shade mounted in it, so the kernel
 * calls it busy. In its own table of mounts, /run/mount/utab, umount(8) finds that another program
 * unmounts it: helper=shadefs has it run /sbin/umount.shadefs, which is shadectl. mount(8) and
 * umount(8) write that table themselves when they are told to mount and unmount nothing (--fake),
 * so that neither its format nor its lock is our business. Where they are missing, or cannot, plain
 * umount says busy and nothing else is lost.
 *
 * The caller holds run_dir_lock(), so that no daemon takes out what the next one at the same mount
 * point has put in.
 */
#ifndef SHADE_UTAB_H
#define SHADE_UTAB_H

#include "base/mount.h"

/* Puts the mount into the table. Its mount point, to be freed, or NULL: it is not there. */
char *utab_add(const struct mount *mount);
/* Takes out what is said of a mount point, unless something is mounted there. */
void utab_remove(const char *point);

#endif
