/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "source/anchor.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mountinfo.h"

#define NAME_MAX_READ 4096 /* bytes of a path that /proc tells */

/* A directory below another one, by names alone; the last of them may be a mount point. */
static int open_dir(int from, const char *path)
{
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
				.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
					   RESOLVE_NO_MAGICLINKS };
	long fd = syscall(SYS_openat2, from, path, &how, sizeof(how));

	return fd < 0 ? -errno : (int)fd;
}

/* The number of the mount that a descriptor is in; 0: it is not known. Asks no file system. */
static uint64_t mount_of(int fd)
{
	struct statx stat;

	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, &stat)
		       ? 0
		       : stat.stx_mnt_id;
}

/* The line of a mount, which the caller closes. */
static bool find_mount(uint64_t id, struct mountinfo *info)
{
	if (!id || mountinfo_open(info))
		return false;
	while (mountinfo_next(info) > 0)
		if (info->id == id)
			return true;
	mountinfo_close(info);
	return false;
}

/* The user who has mounted a FUSE file system, as its options tell; else nothing. */
static const char *find_user(const char *options, int *length)
{
	const char *user = strstr(options, "user_id=");

	while (user && user != options && user[-1] != ',')
		user = strstr(user + 1, "user_id=");
	*length = user ? (int)strcspn(user, ",") : 0;
	return user ? user : "";
}

/* What must be the same. To be freed; NULL: no memory. */
static char *kind_of(const struct mountinfo *info)
{
	int length;
	const char *user = find_user(info->options, &length);
	char *kind;

	return asprintf(&kind, "%s\n%s\n%s\n%.*s", info->type, info->source, info->root, length,
			user) < 0
		       ? NULL
		       : kind;
}

/* Opens the directory above a mount point, and makes sure that it is. */
static int open_above(struct anchor *anchor, char *point, uint64_t id)
{
	char *slash = strrchr(point, '/');
	int above, mount;

	anchor->name = strdup(slash + 1);
	slash[slash == point] = '\0';
	above = open(point, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (above < 0 || !anchor->name || !*anchor->name)
		return above;
	mount = mountinfo_reach_in(id, above, anchor->name);
	if (mount >= 0) {
		close(mount);
		return above;
	}
	close(above); /* it was renamed at this very moment */
	return -1;
}

void anchor_set(struct anchor *anchor, int root)
{
	uint64_t id = mount_of(root);
	struct mountinfo info;
	char link[64], path[NAME_MAX_READ + 1];
	ssize_t length;
	size_t point;

	*anchor = (struct anchor){ .above = -1 };
	snprintf(link, sizeof(link), "/proc/self/fd/%d", root);
	length = readlink(link, path, NAME_MAX_READ);
	if (length < 0 || length == NAME_MAX_READ || !find_mount(id, &info))
		return;
	path[length] = '\0';
	point = strlen(info.point);
	if (point > 1 && !strncmp(path, info.point, point) &&
	    (!path[point] || path[point] == '/')) {
		anchor->below = strdup(path[point] ? path + point + 1 : ".");
		anchor->kind = kind_of(&info);
		if (anchor->below && anchor->kind)
			anchor->above = open_above(anchor, info.point, id);
	}
	mountinfo_close(&info);
}

static int check_kind(const struct anchor *anchor, int mount)
{
	struct mountinfo info;
	char *kind;
	int rc;

	if (mount_of(mount) == mount_of(anchor->above))
		return -ENOENT;
	if (!find_mount(mount_of(mount), &info))
		return -EXDEV;
	kind = kind_of(&info);
	rc = !kind ? -ENOMEM : strcmp(kind, anchor->kind) ? -EXDEV : 0;
	free(kind);
	mountinfo_close(&info);
	return rc;
}

int anchor_reopen(const struct anchor *anchor)
{
	int mount, fd, rc;

	if (anchor->above < 0)
		return -ENOENT;
	mount = open_dir(anchor->above, anchor->name);
	if (mount < 0)
		return mount;
	rc = check_kind(anchor, mount);
	fd = rc ? rc : open_dir(mount, anchor->below);
	close(mount);
	return fd;
}

void anchor_free(struct anchor *anchor)
{
	if (anchor->above >= 0)
		close(anchor->above);
	free(anchor->name);
	free(anchor->below);
	free(anchor->kind);
	*anchor = (struct anchor){ .above = -1 };
}
