/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The kernel's list of mounts, /proc/self/mountinfo; proc(5) has the format. Nothing here prints or
 * exits. */
#ifndef SHADE_MOUNTINFO_H
#define SHADE_MOUNTINFO_H

#include <stdint.h>
#include <stdio.h>

/* libshade contains these functions; a program that links it statically may have the same names. */
#define mountinfo_open shade_mountinfo_open
#define mountinfo_next shade_mountinfo_next
#define mountinfo_close shade_mountinfo_close
#define mountinfo_find shade_mountinfo_find
#define mountinfo_reach shade_mountinfo_reach
#define mountinfo_reach_in shade_mountinfo_reach_in

/* One mount after the other. The strings hold until the next call. */
struct mountinfo {
	FILE *file;
	size_t line_room, copy_room;
	char *line;	 /* as the kernel wrote it, without the newline */
	char *copy;	 /* taken apart: the fields below point into it */
	uint64_t id;	 /* what statx() calls stx_mnt_id */
	uint64_t parent; /* the mount that it is mounted in */
	char *device;	 /* "0:25" */
	char *root;	 /* the directory of the file system that is mounted, without escapes */
	char *point;	 /* where it is mounted, without escapes */
	char *type;	 /* "fuse.shadefs", "overlay" */
	char *source;	 /* without escapes */
	char *options;
};

/* 0 or a negative errno. */
int mountinfo_open(struct mountinfo *info);
/* 1: there is a mount; 0: there are no more; or a negative errno. Lines of another format are
 * skipped. */
int mountinfo_next(struct mountinfo *info);
/* A struct of zeros is closed already. */
void mountinfo_close(struct mountinfo *info);

/* Finds the uppermost mount at `point`. 1, and then the caller closes `info`; 0: nothing is mounted
 * there; or a negative errno. */
int mountinfo_find(struct mountinfo *info, const char *point);

/* Opens the root of the mount with this number, wherever its mount point was renamed to, and never
 * another mount: a descriptor for O_PATH, -ENOENT if there is no such mount, -EBUSY if something is
 * mounted over it, or another negative errno. As long as the descriptor is open, the mount is
 * busy. */
int mountinfo_reach(uint64_t id);
/* The same if its mount point is `name` in the directory `above`; -EAGAIN if it is not. It waits
 * for no file system. */
int mountinfo_reach_in(uint64_t id, int above, const char *name);

#endif
