/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fusermount3, the program that mounts and unmounts FUSE file systems for those who may not.
 *
 * It goes by name, and makes sure itself that it does so only for its caller. What it says goes to
 * standard error.
 */
#ifndef SHADE_FUSERMOUNT_H
#define SHADE_FUSERMOUNT_H

/* A descriptor of the connection, or a negative errno. */
int fusermount_mount(const char *mount_point, const char *options);
/* Unmounts even what is in use. */
void fusermount_unmount(const char *mount_point);

#endif
