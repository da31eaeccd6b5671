/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/mount.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mountinfo.h"

#define VALUE_MAX 255 /* bytes of a value that fsconfig() takes */

/* The value of a setting that nothing depends on, such as what mount(8) shows as the source, is
 * shortened: its end tells more than its beginning. */
static int set_string(int file_system, const struct mount_setting *setting)
{
	size_t length = strlen(setting->value);
	char text[VALUE_MAX + 1];

	if (length <= VALUE_MAX)
		strcpy(text, setting->value);
	else if (strcmp(setting->name, "source"))
		return -EINVAL;
	else
		snprintf(text, sizeof(text), "...%s", setting->value + length - VALUE_MAX + 3);
	return fsconfig(file_system, FSCONFIG_SET_STRING, setting->name, text, 0) ? -errno : 0;
}

static int set(int file_system, const struct mount_setting *setting)
{
	if (setting->value)
		return set_string(file_system, setting);
	return fsconfig(file_system, FSCONFIG_SET_FLAG, setting->name, NULL, 0) ? -errno : 0;
}

int mount_create(const char *type, const struct mount_setting *settings)
{
	int file_system = fsopen(type, FSOPEN_CLOEXEC);
	int rc = file_system < 0 ? -errno : 0;

	for (; !rc && settings->name; settings++)
		rc = set(file_system, settings);
	if (!rc && fsconfig(file_system, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		rc = -errno;
	if (rc && file_system >= 0)
		close(file_system);
	return rc ? rc : file_system;
}

int mount_identify(struct mount *mount, int fd)
{
	struct statx stat;

	/* Does not ask the file system, which nobody may serve yet. */
	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, &stat))
		return -errno;
	*mount = (struct mount){ .id = stat.stx_mnt_id,
				 .major = stat.stx_dev_major,
				 .minor = stat.stx_dev_minor,
				 .above = -1 };
	return 0;
}

static int unmount(int root, int flags)
{
	char name[64];

	snprintf(name, sizeof(name), "/proc/self/fd/%d", root);
	return umount2(name, flags) ? -errno : 0;
}

int mount_detach(int root)
{
	return unmount(root, MNT_DETACH);
}

int mount_attach(struct mount *mount, int file_system, unsigned attributes, int directory)
{
	int root = fsmount(file_system, FSMOUNT_CLOEXEC, attributes);
	int rc = root < 0 ? -errno : 0;

	if (!rc &&
	    move_mount(root, "", directory, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH))
		rc = -errno;
	if (!rc) {
		rc = mount_identify(mount, root);
		if (rc)
			(void)mount_detach(root);
	}
	if (rc && root >= 0)
		close(root);
	return rc ? rc : root;
}

void mount_set_above(struct mount *mount, int above, const char *path)
{
	mount->above = above;
	snprintf(mount->name, sizeof(mount->name), "%s", strrchr(path, '/') + 1);
}

int mount_reach(const struct mount *mount)
{
	int fd = mount->id ? -EAGAIN : -ENOENT;
	struct mount found = { 0 };

	if (fd == -EAGAIN && mount->above >= 0)
		fd = mountinfo_reach_in(mount->id, mount->above, mount->name);
	/* In another mount namespace it is no mount point, and may have been renamed there. */
	if (fd == -EAGAIN)
		fd = mountinfo_reach(mount->id);
	if (fd < 0)
		return fd;
	if (!mount_identify(&found, fd) && found.major == mount->major &&
	    found.minor == mount->minor)
		return fd;
	close(fd); /* the number means another mount by now */
	return -ENOENT;
}

int mount_exists(const struct mount *mount)
{
	struct mountinfo info;
	char device[32];
	bool found = false;
	int rc = mount->id ? mountinfo_open(&info) : 0;

	if (!mount->id || rc)
		return rc;
	snprintf(device, sizeof(device), "%u:%u", mount->major, mount->minor);
	while (!found && (rc = mountinfo_next(&info)) == 1)
		found = info.id == mount->id && !strcmp(info.device, device);
	mountinfo_close(&info);
	return rc < 0 ? rc : found;
}

int mount_abort(int root)
{
	int rc = unmount(root, MNT_FORCE);

	return rc == -EBUSY ? 0 : rc; /* the descriptor keeps it mounted */
}

int mount_refresh(int file_system)
{
	/* A remount sets the flag anew, and an overlay without a writable layer refuses to lose it.
	 */
	if (fsconfig(file_system, FSCONFIG_SET_FLAG, "ro", NULL, 0) ||
	    fsconfig(file_system, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0))
		return -errno;
	return 0;
}
