/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "native/run_dir.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mount.h"
#include "mountinfo.h"
#include "native/utab.h"

#define TOP_FLAGS (MS_NOSUID | MS_NODEV)
#define NAMES_MAX 100 /* directories of processes with the same number */

static void name_all(struct run_dir *run_dir, const char *name)
{
	snprintf(run_dir->dir, sizeof(run_dir->dir), RUN_DIRS "/%.40s", name);
	snprintf(run_dir->top, sizeof(run_dir->top), "%.50s/top", run_dir->dir);
	snprintf(run_dir->files, sizeof(run_dir->files), "%.50s/files", run_dir->dir);
}

static void lock_path(const struct run_dir *run_dir, char *path, size_t room)
{
	snprintf(path, room, "%s/lock", run_dir->dir);
}

static void remove_all(const struct run_dir *run_dir)
{
	char path[RUN_DIR_PATH_MAX + 8];

	lock_path(run_dir, path, sizeof(path));
	umount2(run_dir->top, MNT_DETACH);
	rmdir(run_dir->top);
	rmdir(run_dir->files);
	unlink(path);
	rmdir(run_dir->dir);
}

int run_dir_lock(void)
{
	struct stat stat_buffer;
	int fd;

	for (;;) {
		fd = open(RUN_DIRS, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0)
			return -errno;
		/* Whoever had the lock may have removed the directory. */
		if (!flock(fd, LOCK_EX) && !fstat(fd, &stat_buffer) && stat_buffer.st_nlink)
			return fd;
		close(fd);
		if (access(RUN_DIRS, F_OK))
			return -errno;
	}
}

/* Unless there are others. Whoever has the lock may be about to make one. */
static void remove_run_dirs(void)
{
	int run_dirs = run_dir_lock();

	if (run_dirs < 0)
		return;
	rmdir(RUN_DIRS);
	close(run_dirs);
}

static int take_lock(struct run_dir *run_dir)
{
	char path[RUN_DIR_PATH_MAX + 8];

	lock_path(run_dir, path, sizeof(path));
	run_dir->lock = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	return run_dir->lock < 0 || flock(run_dir->lock, LOCK_EX | LOCK_NB) ? -errno : 0;
}

/* Containers that share /run may have processes of the same number. */
static int make_dir(struct run_dir *run_dir, pid_t owner)
{
	for (unsigned i = 0; i < NAMES_MAX; i++) {
		char name[32];

		snprintf(name, sizeof(name), i ? "%d.%u" : "%d", owner, i);
		name_all(run_dir, name);
		if (!mkdir(run_dir->dir, 0700))
			return 0;
		if (errno != EEXIST)
			break;
	}
	*run_dir->dir = 0; /* there is nothing to remove */
	return -errno;
}

static int fill_dir(struct run_dir *run_dir, pid_t owner)
{
	int rc = make_dir(run_dir, owner);

	if (rc)
		return rc;
	if (mkdir(run_dir->top, 0755) || mkdir(run_dir->files, 0700))
		return -errno;
	/* The upper layer is a file system of its own, since an overlay tells its layers apart by
	 * their ids: FUSE has none, and some disks have none either. */
	if (mount("shadefs", run_dir->top, "tmpfs", TOP_FLAGS, "size=64k,nr_inodes=16"))
		return -errno;
	return take_lock(run_dir);
}

int run_dir_size(const struct run_dir *run_dir, uint64_t bytes)
{
	char size[32];

	snprintf(size, sizeof(size), "size=%" PRIu64, bytes);
	return mount("shadefs", run_dir->top, "tmpfs", MS_REMOUNT | TOP_FLAGS, size) ? -errno : 0;
}

int run_dir_open(struct run_dir *run_dir, pid_t owner)
{
	int run_dirs, rc;

	assert(!*run_dir->dir);
	do {
		if (mkdir(RUN_DIRS, 0700) && errno != EEXIST)
			return -errno;
		run_dirs = run_dir_lock();
	} while (run_dirs == -ENOENT);
	if (run_dirs < 0)
		return run_dirs;
	rc = fchmod(run_dirs, 0700) ? -errno : fill_dir(run_dir, owner);
	close(run_dirs);
	return rc;
}

void run_dir_hand_over(struct run_dir *run_dir)
{
	if (run_dir->lock > 0)
		close(run_dir->lock);
	run_dir->lock = 0;
}

void run_dir_close(struct run_dir *run_dir)
{
	if (!*run_dir->dir)
		return;
	remove_all(run_dir);
	remove_run_dirs();
	*run_dir->dir = 0;
	run_dir_hand_over(run_dir);
}

/* --- what others left --------------------------------------------------------------------------*/

/* Whether a mount is the overlay over these files. */
static bool is_overlay_of(const struct mountinfo *info, const struct run_dir *run_dir)
{
	char layers[2 * RUN_DIR_PATH_MAX + 16];
	const char *found;

	snprintf(layers, sizeof(layers), "lowerdir=%s:%s", run_dir->top, run_dir->files);
	found = strcmp(info->type, "overlay") ? NULL : strstr(info->options, layers);
	return found && (!found[strlen(layers)] || found[strlen(layers)] == ',');
}

/* The mount point may have been renamed: the overlay is told by its layers. With it goes the
 * .shade that is mounted in it. */
static void unmount_left(const struct run_dir *run_dir)
{
	struct mountinfo info;

	if (mountinfo_open(&info))
		return;
	while (mountinfo_next(&info) > 0) {
		int root = is_overlay_of(&info, run_dir) ? mountinfo_reach(info.id) : -1;

		if (root < 0)
			continue;
		if (!mount_detach(root))
			log_say(LOG_NOTES, "unmounted what a daemon left at %s", info.point);
		close(root);
		utab_remove(info.point);
	}
	mountinfo_close(&info);
}

/* Without a lock file its daemon died while it made the directory. */
static void clean_one(const char *name)
{
	struct run_dir run_dir = { .lock = -1 };
	char path[RUN_DIR_PATH_MAX + 8];

	name_all(&run_dir, name);
	lock_path(&run_dir, path, sizeof(path));
	run_dir.lock = open(path, O_RDWR | O_CLOEXEC);
	if (run_dir.lock < 0 ? errno != ENOENT : flock(run_dir.lock, LOCK_EX | LOCK_NB)) {
		if (run_dir.lock >= 0)
			close(run_dir.lock); /* its daemon lives */
		return;
	}
	if (run_dir.lock >= 0)
		unmount_left(&run_dir);
	umount2(run_dir.files, MNT_DETACH);
	remove_all(&run_dir);
	if (run_dir.lock >= 0)
		close(run_dir.lock);
}

void run_dir_clean_up(void)
{
	int run_dirs = run_dir_lock();
	DIR *dir = run_dirs < 0 ? NULL : opendir(RUN_DIRS);
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (*entry->d_name != '.')
			clean_one(entry->d_name);
	if (dir)
		closedir(dir);
	if (run_dirs < 0)
		return;
	rmdir(RUN_DIRS); /* unless there are others */
	close(run_dirs);
}
