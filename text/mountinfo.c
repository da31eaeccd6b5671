/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "mountinfo.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "escape.h"
#include "grow.h"
#include "number.h"

#define REACH_TRIES                                                                                \
	100 /* directories may be renamed between the look into the list and the open              \
	     */

#define PIECE_MAX 2000 /* bytes of a path that are resolved at a time: more than a name has */

int mountinfo_open(struct mountinfo *info)
{
	*info = (struct mountinfo){ .file = fopen("/proc/self/mountinfo", "re") };
	return info->file ? 0 : -errno;
}

void mountinfo_close(struct mountinfo *info)
{
	if (info->file)
		fclose(info->file);
	free(info->line);
	free(info->copy);
	*info = (struct mountinfo){ 0 };
}

/* `ID PARENT DEVICE ROOT POINT options optional... - TYPE SOURCE OPTIONS` */
static bool take_apart(struct mountinfo *info)
{
	char *before[5] = { 0 };
	char *rest = info->copy;
	char *after = strstr(info->copy, " - ");

	if (!after)
		return false;
	*after = '\0';
	after += strlen(" - ");
	for (int i = 0; i < 5; i++)
		before[i] = strsep(&rest, " ");
	info->device = before[2];
	info->root = before[3];
	info->point = before[4];
	info->type = strsep(&after, " ");
	info->source = strsep(&after, " ");
	info->options = strsep(&after, " ");
	return info->point && info->options &&
	       !number_whole(before[0], strlen(before[0]), &info->id) &&
	       !number_whole(before[1], strlen(before[1]), &info->parent) &&
	       unescape_in_place(info->root, ESCAPE_OCTAL) &&
	       unescape_in_place(info->point, ESCAPE_OCTAL) &&
	       unescape_in_place(info->source, ESCAPE_OCTAL);
}

int mountinfo_next(struct mountinfo *info)
{
	ssize_t length;

	do {
		errno = 0;
		length = getline(&info->line, &info->line_room, info->file);
		if (length < 0)
			return ferror(info->file) || errno ? -(errno ? errno : EIO) : 0;
		info->line[strcspn(info->line, "\n")] = '\0';
		if (grow(info->copy, info->copy_room, 0, (size_t)length + 1))
			return -ENOMEM;
		strcpy(info->copy, info->line);
	} while (!take_apart(info));
	return 1;
}

int mountinfo_find(struct mountinfo *info, const char *point)
{
	struct mountinfo found = { 0 };
	int rc = mountinfo_open(info);

	while (!rc && (rc = mountinfo_next(info)) > 0) {
		rc = 0;
		if (strcmp(info->point, point))
			continue;
		/* The last one in the list is on top: keep it, and let `info` read on. */
		mountinfo_close(&found);
		found = *info;
		found.file = NULL;
		*info = (struct mountinfo){ .file = info->file };
	}
	mountinfo_close(info);
	if (rc)
		mountinfo_close(&found);
	*info = found;
	return rc ? rc : found.line != NULL;
}

/* The kernel lists names without symbolic links, so that one on the way is somebody's trap. */
static int open_path(int from, const char *name, uint64_t more)
{
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
				.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | more };
	long fd = syscall(SYS_openat2, from, name, &how, sizeof(how));

	return fd < 0 ? -errno : (int)fd;
}

/* A descriptor if it is of that mount; otherwise it is closed. Nothing here asks the file system
 * itself, which may hang. */
static int check_mount(int fd, uint64_t id)
{
	struct statx stat;

	if (!statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, &stat) &&
	    stat.stx_mnt_id == id)
		return fd;
	close(fd);
	return -EAGAIN;
}

int mountinfo_reach_in(uint64_t id, int above, const char *name)
{
	/* The kernel has the names of mount points in memory. */
	int fd = open_path(above, name, RESOLVE_CACHED);

	return fd < 0 ? -EAGAIN : check_mount(fd, id);
}

/* In pieces, since somebody may have moved it where its path is longer than the kernel takes. */
static int open_mount(uint64_t id, char *point)
{
	int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	char *piece = point + 1;

	while (fd >= 0 && *piece) {
		char *end = piece + strnlen(piece, PIECE_MAX);
		bool is_last = !*end;
		int next;

		while (!is_last && *end != '/')
			end--;
		*end = '\0';
		next = open_path(fd, piece, 0);
		close(fd);
		fd = next;
		piece = is_last ? end : end + 1;
	}
	return fd < 0 ? fd : check_mount(fd, id);
}

/* Where the mount is, to be freed. 0 or a negative errno. */
static int find_point(uint64_t id, char **point)
{
	struct mountinfo info;
	int rc = mountinfo_open(&info);

	*point = NULL;
	while (!rc && (rc = mountinfo_next(&info)) > 0) {
		rc = 0;
		if (info.id == id && !*point) {
			*point = strdup(info.point);
			rc = *point ? 0 : -ENOMEM;
		} else if (*point && info.parent == id && !strcmp(info.point, *point)) {
			rc = -EBUSY;
		}
	}
	mountinfo_close(&info);
	if (!rc && !*point)
		return -ENOENT;
	if (rc) {
		free(*point);
		*point = NULL;
	}
	return rc;
}

int mountinfo_reach(uint64_t id)
{
	int fd = -EAGAIN;

	for (unsigned i = 0; fd < 0 && i < REACH_TRIES; i++) {
		char *point;
		int rc = find_point(id, &point);

		if (rc)
			return rc;
		fd = open_mount(id, point);
		free(point);
	}
	return fd;
}
