/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "native/run_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

#define NAMES_MAX 100 /* places of processes of one number */

static void name_all(struct place *place, const char *name)
{
	snprintf(place->dir, sizeof(place->dir), PLACES "/%.40s", name);
	snprintf(place->top, sizeof(place->top), "%.50s/top", place->dir);
	snprintf(place->files, sizeof(place->files), "%.50s/files", place->dir);
}

static void lock_path(const struct place *place, char *path, size_t room)
{
	snprintf(path, room, "%s/lock", place->dir);
}

static void remove_all(const struct place *place)
{
	char path[PLACE_PATH_MAX + 8];

	lock_path(place, path, sizeof(path));
	umount2(place->top, MNT_DETACH);
	rmdir(place->top);
	rmdir(place->files);
	unlink(path);
	rmdir(place->dir);
	rmdir(PLACES); /* unless there are others */
}

/* Nobody makes a place or looks for abandoned ones meanwhile: one that is not finished yet would
 * look as if nobody held it. A descriptor, or a negative errno. */
static int lock_places(void)
{
	struct stat stat_buffer;
	int fd;

	for (;;) {
		fd = open(PLACES, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0)
			return -errno;
		/* Whoever had the lock may have removed it. */
		if (!flock(fd, LOCK_EX) && !fstat(fd, &stat_buffer) && stat_buffer.st_nlink)
			return fd;
		close(fd);
		if (access(PLACES, F_OK))
			return -errno;
	}
}

/* The lock file holds the mount point. */
static int take_lock(struct place *place, const char *mount_point)
{
	char path[PLACE_PATH_MAX + 8];
	size_t length = strlen(mount_point);

	lock_path(place, path, sizeof(path));
	place->lock = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (place->lock < 0 || flock(place->lock, LOCK_EX | LOCK_NB) ||
	    write(place->lock, mount_point, length) != (ssize_t)length)
		return errno ? -errno : -EIO;
	return 0;
}

/* Containers that share /run may have processes of the same number. */
static int make_dir(struct place *place)
{
	for (unsigned i = 0; i < NAMES_MAX; i++) {
		char name[32];

		snprintf(name, sizeof(name), i ? "%d.%u" : "%d", getpid(), i);
		name_all(place, name);
		if (!mkdir(place->dir, 0700))
			return 0;
		if (errno != EEXIST)
			break;
	}
	*place->dir = 0; /* nobody's to remove */
	return -errno;
}

static int fill_place(struct place *place, const char *mount_point)
{
	int rc = make_dir(place);

	if (rc)
		return rc;
	if (mkdir(place->top, 0755) || mkdir(place->files, 0700))
		return -errno;
	/* A file system of its own: an overlay tells its layers by their ids, FUSE has none, and
	 * so have some disks. */
	if (mount("shadefs", place->top, "tmpfs", MS_NOSUID | MS_NODEV, "size=64k,nr_inodes=16"))
		return -errno;
	return take_lock(place, mount_point);
}

int place_open(struct place *place, const char *mount_point)
{
	int places, rc;

	do {
		if (mkdir(PLACES, 0700) && errno != EEXIST)
			return -errno;
		places = lock_places();
	} while (places == -ENOENT);
	if (places < 0)
		return places;
	rc = fchmod(places, 0700) ? -errno : fill_place(place, mount_point);
	close(places);
	return rc;
}

void place_close(struct place *place)
{
	if (!*place->dir)
		return;
	remove_all(place);
	if (place->lock > 0)
		close(place->lock);
}

/* --- what others left ---------------------------------------------------------------------------
 */

static bool is_octal(char c)
{
	return c >= '0' && c <= '7';
}

/* proc(5) writes spaces, tabs, newlines and backslashes as \nnn; undone in place. */
static void unescape(char *text)
{
	char *to = text;

	for (const char *from = text; *from; to++) {
		if (*from == '\\' && is_octal(from[1]) && is_octal(from[2]) && is_octal(from[3])) {
			*to = (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 | (from[3] - '0'));
			from += 4;
		} else {
			*to = *from++;
		}
	}
	*to = 0;
}

/* The mount point in a line of mountinfo, its fifth word. NULL: there is none. */
static const char *take_point(char *line)
{
	char *rest = NULL, *word = strtok_r(line, " ", &rest);

	for (int i = 1; word && i < 5; i++)
		word = strtok_r(NULL, " ", &rest);
	if (word)
		unescape(word);
	return word;
}

/* Whether the mount at a place, the uppermost one, is the overlay over these files. */
static bool is_overlay_of(const char *mount_point, const char *files)
{
	FILE *file = fopen("/proc/self/mountinfo", "re");
	char *line = NULL;
	size_t room = 0;
	bool found = false;

	while (file && getline(&line, &room, file) > 0) {
		bool ours = strstr(line, " - overlay ") && strstr(line, files);
		const char *point = take_point(line);

		if (point && !strcmp(point, mount_point))
			found = ours;
	}
	free(line);
	if (file)
		fclose(file);
	return found;
}

static void unmount_left(const struct place *place)
{
	char mount_point[4096], control[4200];
	ssize_t length = read(place->lock, mount_point, sizeof(mount_point) - 1);

	mount_point[length > 0 ? length : 0] = 0;
	if (length > 0 && is_overlay_of(mount_point, place->files)) {
		snprintf(control, sizeof(control), "%s/.shade", mount_point);
		umount2(control, MNT_DETACH);
		umount2(mount_point, MNT_DETACH);
		log_say(LOG_NOTES, "unmounted what a daemon left at %s", mount_point);
	}
}

/* Without a lock file somebody died while it was made. */
static void clean_one(const char *name)
{
	struct place place = { .lock = -1 };
	char path[PLACE_PATH_MAX + 8];

	name_all(&place, name);
	lock_path(&place, path, sizeof(path));
	place.lock = open(path, O_RDWR | O_CLOEXEC);
	if (place.lock < 0 ? errno != ENOENT : flock(place.lock, LOCK_EX | LOCK_NB)) {
		if (place.lock >= 0)
			close(place.lock); /* it lives */
		return;
	}
	if (place.lock >= 0)
		unmount_left(&place);
	umount2(place.files, MNT_DETACH);
	remove_all(&place);
	if (place.lock >= 0)
		close(place.lock);
}

void place_clean_up(void)
{
	int places = lock_places();
	DIR *dir = places < 0 ? NULL : opendir(PLACES);
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (*entry->d_name != '.')
			clean_one(entry->d_name);
	if (dir)
		closedir(dir);
	if (places >= 0)
		close(places);
}
