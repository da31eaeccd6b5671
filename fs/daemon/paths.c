/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The directories of the command line: what they are, and that they may be used so. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/mount.h"
#include "daemon/options.h"
#include "fail.h"

static bool is_below(const char *path, const char *dir)
{
	size_t length = strlen(dir);

	return !strncmp(path, dir, length) && (path[length] == '/' || length == 1);
}

int paths_open(const char *what, const char *path)
{
	int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 && errno == ENOTDIR && !access(path, F_OK))
		give_up("%s %s is not a directory", what, path);
	if (fd < 0)
		give_up("%s %s: %s", what, path, strerror(errno));
	return fd;
}

char *paths_name(int fd)
{
	char link[64], name[4097];
	ssize_t length;
	char *copy;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, name, sizeof(name) - 1);
	if (length < 0)
		give_up("%s: %s", link, strerror(errno));
	name[length] = 0;
	copy = strdup(name);
	if (!copy)
		give_up("out of memory");
	return copy;
}

/* By the name that it was started by, links and all, so that what has taken the place of that file
 * is found. Some start it by a descriptor, or by /proc. */
char *paths_program(void)
{
	const char *started = (const char *)getauxval(AT_EXECFN);
	const char *const unnamed[] = { "/dev/fd/", "/proc/" };
	char directory[4096], *path = NULL;
	char name[4097] = "";

	if (started && *started != '/' && getcwd(directory, sizeof(directory)) &&
	    asprintf(&path, "%s/%s", directory, started) < 0)
		path = NULL;
	if (started && *started == '/')
		path = strdup(started);
	if (path && strncmp(path, unnamed[0], strlen(unnamed[0])) != 0 &&
	    strncmp(path, unnamed[1], strlen(unnamed[1])) != 0)
		return path;
	free(path);
	return readlink("/proc/self/exe", name, sizeof(name) - 1) > 0 ? strdup(name) : NULL;
}

/* A daemon that was killed leaves a mount that only gives errors: it is unmounted. fstatfs() tells,
 * since the kernel may still remember attributes. */
static int open_mount_point(const char *path)
{
	int fd = paths_open("mount point", path);
	struct statfs stat_buffer;

	if (!fstatfs(fd, &stat_buffer) || errno != ENOTCONN)
		return fd;
	if (mount_detach(fd))
		give_up("mount point %s: its daemon is dead; run fusermount3 -u %s", path, path);
	close(fd);
	return paths_open("mount point", path);
}

/* The manifest is written when nobody reads messages any more, so what can be checked is checked
 * now. */
static void complete_manifest(struct options *options)
{
	const char *path = options->manifest;
	struct stat stat_buffer;
	const char *name;
	char *dir, *real;

	options->manifest_fd = -1;
	if (!path)
		return;
	name = strrchr(path, '/') + 1;
	dir = strndup(path, (size_t)(name - path));
	if (!dir)
		give_up("out of memory");
	options->manifest_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (options->manifest_fd < 0)
		give_up("option manifest: the directory of %s: %s", path, strerror(errno));
	real = paths_name(options->manifest_fd);
	if (!fstatat(options->manifest_fd, name, &stat_buffer,
		     AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) &&
	    S_ISDIR(stat_buffer.st_mode))
		give_up("option manifest: %s is a directory", path);
	if (options->source_fd >= 0 &&
	    (!strcmp(real, options->source) || is_below(real, options->source)))
		give_up("option manifest: %s is in the source, which is never written", path);
	if (!strcmp(real, options->mount_point) || is_below(real, options->mount_point))
		give_up("option manifest: %s is below the mount point", path);
	free(real);
	free(dir);
}

/* Neither may be in the other. */
static void check_source(const struct options *options, const char *source, const char *mount_point)
{
	if (!strcmp(options->source, options->mount_point))
		give_up("source and mount point are the same");
	/* To read the source, the daemon would wait for itself. */
	if (is_below(options->source, options->mount_point))
		give_up("source %s is below the mount point %s", source, mount_point);
	/* The mount would contain itself. */
	if (is_below(options->mount_point, options->source))
		give_up("mount point %s is below the source %s", mount_point, source);
}

/* A mount hides what is in its mount point: whoever has put files there may have meant another.
 * What cannot be listed is not looked at, nor an automount's, which would wait for this very mount.
 */
static void check_empty(const struct options *options, const char *mount_point)
{
	struct statfs stat_buffer;
	struct dirent *entry;
	DIR *dir;
	int fd;

	if (fstatfs(options->mount_fd, &stat_buffer) || stat_buffer.f_type == AUTOFS_SUPER_MAGIC)
		return;
	fd = openat(options->mount_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir && fd >= 0)
		close(fd);
	if (!dir)
		return;
	while ((entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			give_up("mount point %s is not empty; with the option nonempty the mount "
				"hides what is there",
				mount_point);
	closedir(dir);
}

void paths_complete(struct options *options, const char *source, const char *mount_point)
{
	options->mount_fd = options->fake ? paths_open("mount point", mount_point)
					  : open_mount_point(mount_point);
	options->mount_point = paths_name(options->mount_fd);
	options->above_fd = openat(options->mount_fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (options->above_fd < 0)
		give_up("mount point %s: %s", mount_point, strerror(errno));
	if (!options->fake && !faccessat(options->mount_fd, ".shade/control", F_OK, 0))
		give_up("mount point %s has a mount of shadefs already", mount_point);
	if (options->source_fd >= 0)
		check_source(options, source, mount_point);
	complete_manifest(options);
	if (!options->nonempty)
		check_empty(options, mount_point);
}
