/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Paths are taken apart as text first: a list may have a million lines, and asking the kernel
 * about each would cost more than sending it. Symbolic links on the way to the mount are only
 * resolved for paths that do not begin with its name.
 */
#include "path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool path_is_below(const char *path, const char *point)
{
	size_t length = strlen(point);

	if (length && point[length - 1] == '/')
		length--;
	return !strncmp(path, point, length) && (!path[length] || path[length] == '/');
}

int path_normalise(char *path)
{
	char *root = path + (*path == '/');
	char *to = root;
	char *from = root;

	while (*from) {
		size_t length = strcspn(from, "/");

		if (length == 2 && !memcmp(from, "..", 2)) {
			if (to == root && root == path)
				return -EXDEV;
			while (to > root && *--to != '/')
				;
		} else if (length && !(length == 1 && *from == '.')) {
			if (to > root)
				*to++ = '/';
			memmove(to, from, length);
			to += length;
		}
		from += length;
		from += *from == '/';
	}
	*to = '\0';
	return 0;
}

/* Writes the part of the normal, absolute PATH that is below MOUNT. */
static bool take_below(const char *mount, const char *path, char *found)
{
	if (!path_is_below(path, mount))
		return false;
	path += strlen(mount);
	path += *path == '/';
	memmove(found, path, strlen(path) + 1);
	return true;
}

/* The same for a path that reaches the mount through symbolic links; the last name is not resolved.
 */
static bool take_real(const char *mount, const char *path, char *found)
{
	char directory[PATH_MAX];
	char full[PATH_MAX];
	char real[PATH_MAX];
	const char *name = strrchr(path, '/') + 1;

	if (realpath(path, real) && !strcmp(real, mount))
		return take_below(mount, real, found);
	snprintf(directory, sizeof(directory), "%.*s", (int)(name - path), path);
	if (!realpath(directory, real) || strlen(real) + strlen(name) + 2 > sizeof(full))
		return false;
	stpcpy(stpcpy(stpcpy(full, real), "/"), name);
	path_normalise(full);
	return take_below(mount, full, found);
}

/* Whether GIVEN, seen from the current directory, is something below the mount. */
static bool take_from_here(const char *mount, const char *given, char *found)
{
	char here[PATH_MAX];
	char full[PATH_MAX];
	struct stat st;
	size_t length;

	if (!getcwd(here, sizeof(here)) || *here != '/')
		return false;
	length = strlen(here);
	if (length + strlen(given) + 2 > sizeof(here))
		return false;
	stpcpy(stpcpy(here + length, "/"), given);
	strcpy(full, here);
	path_normalise(full);
	if (path_is_below(full, mount) && !lstat(full, &st))
		return take_below(mount, full, found);
	return !lstat(here, &st) && take_real(mount, here, found);
}

/* Puts the folder that is bound before a path in it. */
static int add_prefix(const char *prefix, char *found)
{
	char whole[PATH_MAX];

	if (!*prefix)
		return 0;
	if (snprintf(whole, sizeof(whole), "%s%s%s", prefix, *found ? "/" : "", found) >= PATH_MAX)
		return -ENAMETOOLONG;
	strcpy(found, whole);
	return 0;
}

int path_resolve(const char *mount, const char *prefix, const char *given, char *found)
{
	int rc = 0;

	if (!*given)
		return -ENOENT;
	if (strlen(given) >= PATH_MAX)
		return -ENAMETOOLONG;
	if (*given == '/') {
		strcpy(found, given);
		path_normalise(found);
		if (!take_below(mount, found, found) && !take_real(mount, given, found))
			return -EXDEV;
	} else if (!take_from_here(mount, given, found)) {
		strcpy(found, given);
		rc = path_normalise(found);
	}
	if (!rc)
		rc = add_prefix(prefix, found);
	if (!rc && !*found)
		strcpy(found, ".");
	return rc;
}
