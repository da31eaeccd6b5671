/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The files below MNT/.shade. The directory is held open by descriptor, so that a long-lived
 * client keeps talking to the mount it opened even if another one appears at the same place.
 */
#include "mount.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

struct mount {
	char *path;
	int shade;   /* MNT/.shade */
	int control; /* MNT/.shade/control, or -1 before the first command */
};

/* The descriptor of PATH/.shade, if that is what it seems. */
static int open_shade(const char *path)
{
	struct statfs fs;
	int rc;
	int shade;
	int top = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (top < 0)
		return -errno;
	shade = openat(top, ".shade", O_PATH | O_DIRECTORY | O_CLOEXEC);
	rc = shade < 0 ? -errno : 0;
	close(top);
	if (rc)
		return rc == -ENOENT || rc == -ENOTDIR ? -ENODEV : rc;

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

int mount_open(const char *path, struct mount **opened)
{
	int rc;
	struct mount *mount = calloc(1, sizeof(*mount));

	if (!mount)
		return -ENOMEM;
	mount->control = -1;
	mount->path = realpath(path, NULL);
	if (!mount->path) {
		rc = -errno;
		goto out_mount;
	}
	mount->shade = open_shade(mount->path);
	if (mount->shade < 0) {
		rc = mount->shade;
		goto out_path;
	}
	*opened = mount;
	return 0;

out_path:
	free(mount->path);
out_mount:
	free(mount);
	return rc;
}

void mount_close(struct mount *mount)
{
	if (!mount)
		return;
	if (mount->control >= 0)
		close(mount->control);
	close(mount->shade);
	free(mount->path);
	free(mount);
}

const char *mount_path(const struct mount *mount)
{
	return mount->path;
}

int mount_file(const struct mount *mount, const char *name)
{
	int fd = openat(mount->shade, name, O_RDONLY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* read() that a signal does not end, such as that of a window that changed its size. */
static ssize_t read_some(int fd, char *to, size_t size)
{
	ssize_t got;

	do
		got = read(fd, to, size);
	while (got < 0 && errno == EINTR);
	return got < 0 ? -errno : got;
}

int mount_read(const struct mount *mount, const char *name, char **text)
{
	size_t size = 4096;
	size_t used = 0;
	ssize_t got = -ENOMEM;
	char *buffer = NULL;
	char *larger;
	int fd = mount_file(mount, name);

	if (fd < 0)
		return fd;
	while ((larger = realloc(buffer, size))) {
		buffer = larger;
		got = read_some(fd, buffer + used, size - used - 1);
		if (got <= 0)
			break;
		used += (size_t)got;
		if (used > MOUNT_TEXT_MAX) {
			got = -EFBIG;
			break;
		}
		if (size - used < 2)
			size *= 2;
		got = -ENOMEM; /* should realloc() fail now */
	}
	close(fd);
	if (got < 0) {
		free(buffer);
		return (int)got;
	}
	buffer[used] = '\0';
	*text = buffer;
	return 0;
}

static int write_all(int fd, const char *from, size_t length)
{
	while (length) {
		ssize_t wrote = write(fd, from, length);

		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote < 0)
			return -errno;
		if (!wrote)
			return -EIO;
		from += wrote;
		length -= (size_t)wrote;
	}
	return 0;
}

int mount_send(struct mount *mount, const char *commands, size_t length, char *answer)
{
	ssize_t got;
	int rc;

	*answer = '\0';
	if (mount->control < 0)
		mount->control = openat(mount->shade, "control", O_RDWR | O_CLOEXEC);
	if (mount->control < 0)
		return -errno;
	rc = write_all(mount->control, commands, length);
	got = read_some(mount->control, answer, MOUNT_ANSWER_MAX - 1);
	if (got < 0)
		return rc ? rc : (int)got;
	while (got && answer[got - 1] == '\n')
		got--;
	answer[got] = '\0';
	if (!rc && strncmp(answer, "ok", 2))
		return -EPROTO;
	return rc;
}

bool pair_next(const char **cursor, struct pair *pair)
{
	const char *line = *cursor + strspn(*cursor, "\n");
	size_t length = strcspn(line, "\n");

	*cursor = line + length;
	if (!length)
		return false;
	pair->key = line;
	pair->key_length = strcspn(line, " \t\n");
	pair->value = line + pair->key_length;
	pair->value += strspn(pair->value, " \t");
	pair->value_length = (size_t)(line + length - pair->value);
	return true;
}

bool pair_find(const char *text, const char *key, struct pair *pair)
{
	size_t length = strlen(key);

	while (pair_next(&text, pair))
		if (pair->key_length == length && !memcmp(pair->key, key, length))
			return true;
	return false;
}

double pair_number(const char *text, const char *key)
{
	struct pair pair;
	double value;
	char *end;

	if (!pair_find(text, key, &pair) || !pair.value_length)
		return NAN;
	value = strtod(pair.value, &end);
	return end == pair.value + pair.value_length ? value : NAN;
}
