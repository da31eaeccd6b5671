/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A folder of a mount that is bound somewhere else, as container engines do (docker -v
 * MNT/train:/data), has no .shade above it. The kernel's list of mounts tells that it is a shadefs,
 * and which folder of it: /data/a.jpg is train/a.jpg of the mount. Where .shade is, the environment
 * variable SHADE_CONTROL says; it is bound there, too.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "bind.h"
#include "lib.h"
#include "mountinfo.h"

#define CONTROL_VARIABLE "SHADE_CONTROL"

/* In portable mode the mount has a type of its own; in native mode it is an overlay over what the
 * daemon has below /run/shadefs. */
static bool is_shadefs(const struct mountinfo *info)
{
	return !strcmp(info->type, "fuse.shadefs") ||
	       (!strcmp(info->type, "overlay") && strstr(info->options, "lowerdir=/run/shadefs/"));
}

/* The mount that a path is in, which the caller closes. */
static bool find_mount(const char *path, struct mountinfo *info)
{
	struct statx stat;

	if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_MNT_ID, &stat) || mountinfo_open(info))
		return false;
	while (mountinfo_next(info) > 0)
		if (info->id == stat.stx_mnt_id)
			return true;
	mountinfo_close(info);
	return false;
}

int lib_open_shade(int directory, const char *name)
{
	struct statfs fs;
	int rc = 0;
	int shade = openat(directory, name, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (shade < 0)
		return errno == ENOENT || errno == ENOTDIR ? -ENODEV : -errno;
	/* In both modes .shade is FUSE; a directory that happens to be named so is not. */
	if (fstatfs(shade, &fs))
		rc = -errno;
	else if (fs.f_type != FUSE_SUPER_MAGIC)
		rc = -ENODEV;
	else if (faccessat(shade, "control", F_OK, 0))
		rc = errno == ENOENT ? -ENODEV : -errno;
	if (!rc)
		return shade;
	close(shade);
	return rc;
}

/* Whether the .shade at a path is that of a mount: both have the mount's source as theirs. */
static bool belongs(const char *control, const char *source)
{
	struct mountinfo info;
	bool same;

	if (!find_mount(control, &info))
		return true; /* the user has said so */
	same = !strcmp(info.source, source);
	mountinfo_close(&info);
	return same;
}

/* A descriptor of .shade, or a negative errno. */
static int open_told(const char *path, const struct mountinfo *info)
{
	const char *control = secure_getenv(CONTROL_VARIABLE);
	int rc;

	if (!control || !*control)
		return lib_fail(
			-ENXIO,
			"'%s' is '%s' of a shadefs, but its .shade is not here: bind "
			"MNT/.shade, too (docker -v MNT/.shade:/shade), and set " CONTROL_VARIABLE
			"=/shade",
			path, info->root);
	rc = lib_open_shade(AT_FDCWD, control);
	if (rc == -ENODEV)
		return lib_fail(-ENXIO,
				CONTROL_VARIABLE " is '%s', which is no .shade of a shadefs",
				control);
	if (rc < 0)
		return lib_fail(rc, CONTROL_VARIABLE " is '%s': %s", control, strerror(-rc));
	if (belongs(control, info->source))
		return rc;
	close(rc);
	return lib_fail(-ENXIO,
			CONTROL_VARIABLE " is '%s', which belongs to another mount than '%s'",
			control, path);
}

static int set_place(struct shade *shade, const struct mountinfo *info)
{
	char *point = strdup(info->point);
	char *prefix = strdup(info->root + (*info->root == '/'));

	if (!point || !prefix) {
		free(point);
		free(prefix);
		return lib_fail(-ENOMEM, "%s", strerror(ENOMEM));
	}
	free(shade->path);
	free(shade->prefix);
	shade->path = point;
	shade->prefix = prefix;
	return 0;
}

int lib_open_bound(struct shade *shade, const char *path)
{
	struct mountinfo info;
	int rc;

	if (!find_mount(path, &info))
		return -ENODEV;
	rc = is_shadefs(&info) ? open_told(path, &info) : -ENODEV;
	if (rc >= 0) {
		shade->root = rc;
		rc = set_place(shade, &info);
	}
	mountinfo_close(&info);
	return rc;
}
