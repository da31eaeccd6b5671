/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Turns nodes into paths and paths into system calls below one descriptor, the root's. */
#include "source.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "node.h"
#include "rule.h"

static int root_fd = -1;

int source_init(const char *directory)
{
	struct stat st;

	assert(root_fd == -1);
	root_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (root_fd < 0)
		return -errno;
	if (fstat(root_fd, &st))
		return -errno;
	node_init(&st);
	return 0;
}

void source_destroy(void)
{
	if (root_fd >= 0)
		close(root_fd);
	root_fd = -1;
}

/* The kernel holds the node, so a name that is gone is a file that is gone. On ESTALE the
 * kernel looks the path up again before it gives up. */
static int stale_if_gone(int ret)
{
	return ret == -ENOENT || ret == -ENOTDIR ? -ESTALE : ret;
}

int source_open(const struct node *node, int flags)
{
	char path[PATH_MAX];
	struct stat st;
	int fd, ret;

	ret = node_path(node, path, sizeof(path));
	if (ret)
		return ret;
	fd = openat(root_fd, path, flags | O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return stale_if_gone(-errno);
	if (fstat(fd, &st))
		ret = -errno;
	else if (!node_is(node, &st))
		ret = -ESTALE;
	if (!ret)
		return fd;
	close(fd);
	return ret;
}

int source_open_directory(const char *path)
{
	int fd = openat(root_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int stat_path(const char *path, struct stat *st)
{
	if (fstatat(root_fd, path, st, AT_SYMLINK_NOFOLLOW))
		return -errno;
	rule_stamp(path, st);
	return 0;
}

int source_stat(const struct node *node, struct stat *st)
{
	char path[PATH_MAX];
	int ret;

	ret = node_path(node, path, sizeof(path));
	if (!ret)
		ret = stale_if_gone(stat_path(path, st));
	if (!ret && !node_is(node, st))
		ret = -ESTALE;
	return ret;
}

int source_stat_child(const struct node *parent, const char *name, struct stat *st)
{
	char path[PATH_MAX], child[PATH_MAX + NAME_MAX + 2];
	int ret;

	if (parent == node_root())
		return stat_path(name, st);
	ret = node_path(parent, path, sizeof(path));
	if (ret)
		return ret;
	snprintf(child, sizeof(child), "%s/%s", path, name);
	return stat_path(child, st);
}

int source_readlink(const struct node *node, char *target, size_t size)
{
	char path[PATH_MAX];
	ssize_t length;
	int ret;

	ret = node_path(node, path, sizeof(path));
	if (ret)
		return ret;
	length = readlinkat(root_fd, path, target, size);
	return length < 0 ? -errno : (int)length;
}

int source_statfs(struct statvfs *st)
{
	return fstatvfs(root_fd, st) ? -errno : 0;
}
