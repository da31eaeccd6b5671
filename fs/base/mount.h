/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Mounts that we make, and how they are found again.
 *
 * The daemon may be root's, while others can rename the directories above its mount point and put
 * something else there, at any moment. So a mount point is resolved once, to a descriptor, and
 * what is mounted is known by the kernel's number for it. No call here mounts, changes or unmounts
 * anything by name.
 */
#ifndef SHADE_MOUNT_H
#define SHADE_MOUNT_H

#include <stdbool.h>
#include <stdint.h>

/* The kernel uses both numbers again after the mount and its file system have ended: whoever
 * unmounts makes sure that the file system lives. */
struct mount {
	uint64_t id;	       /* of the mount; 0: there is none */
	unsigned major, minor; /* the device number of its file system */
	int above;	/* the directory that it is in: the caller's descriptor; -1: unknown */
	char name[256]; /* and its name there */
};

/* A list of them ends with a name that is NULL. */
struct mount_setting {
	const char *name;
	const char *value; /* NULL: a flag */
};

/* Makes a file system that is mounted nowhere. A descriptor of it, for mount_attach() and
 * mount_refresh(), which keeps the file system alive; or a negative errno, -EPERM if the caller may
 * not mount. */
int mount_create(const char *type, const struct mount_setting *settings);
/* Mounts it on a directory, given by a descriptor, with MOUNT_ATTR_...: a descriptor of the
 * mount's root, which keeps the mount busy; or a negative errno. */
int mount_attach(struct mount *mount, int file_system, unsigned attributes, int directory);
/* Reads which mount a descriptor is in. 0 or a negative errno. */
int mount_identify(struct mount *mount, int fd);
/* Says where it is mounted, `path` for its last name alone. Nobody can rename a mount point, only
 * what leads to it, so that this finds it by one name, and walks through nobody's directories. */
void mount_set_above(struct mount *mount, int above, const char *path);

/* A descriptor of the mount's root; see mountinfo_reach() for the errors. */
int mount_reach(const struct mount *mount);
/* Whether it is mounted, or a negative errno if that cannot be found out; something else may be
 * mounted over it. */
int mount_exists(const struct mount *mount);
/* Unmounts what a descriptor of mount_reach() is the root of, even if it is in use. 0 or a negative
 * errno. */
int mount_detach(int root);
/* Ends the connection of a FUSE file system, given by such a descriptor: who uses it sees errors,
 * since it stays mounted. 0 or a negative errno. */
int mount_abort(int root);
/* Remounts a file system that is read-only as it is, so that the kernel forgets all names in it
 * that are not in use. The flags of its mounts stay. 0 or a negative errno. */
int mount_refresh(int file_system);

#endif
