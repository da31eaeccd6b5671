/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A mount as shadectl uses it: libshade, opened by the mount point only; and the lines of its
 * files. */
#include "mount.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "say.h"
#include "shade/client.h"

int mount_open(const char *path, struct mount **opened)
{
	struct shade *shade = NULL;
	char *real = realpath(path, NULL);
	int fd;
	int rc;

	if (!real)
		return -errno;
	fd = open(real, O_PATH | O_DIRECTORY | O_CLOEXEC);
	rc = fd < 0 ? -errno : shade_open(real, NULL, &shade);
	if (fd >= 0)
		close(fd);
	/* libshade also finds the mount above a directory, but a user who names a directory inside
	 * means that directory alone. */
	if (!rc && strcmp(shade_path(shade), real)) {
		shade_close(shade);
		rc = -ENODEV;
	}
	free(real);
	if (!rc)
		*opened = (struct mount *)shade;
	return rc;
}

static struct shade *shade_of(const struct mount *mount)
{
	return (struct shade *)mount;
}

void mount_close(struct mount *mount)
{
	shade_close(shade_of(mount));
}

const char *mount_path(const struct mount *mount)
{
	return shade_path(shade_of(mount));
}

const char *mount_prefix(const struct mount *mount)
{
	return shade_prefix(shade_of(mount));
}

const char *mount_why(void)
{
	return shade_error();
}

int mount_file(const struct mount *mount, const char *name)
{
	return shade_open_file(shade_of(mount), name);
}

int mount_read(const struct mount *mount, const char *name, char **text)
{
	int rc = shade_read(shade_of(mount), name, MOUNT_TEXT_MAX, text, NULL);

	if (!rc)
		say_clean(*text);
	return rc;
}

int mount_send(struct mount *mount, const char *commands, size_t length, char *answer)
{
	return shade_command(shade_of(mount), commands, length, answer, MOUNT_ANSWER_MAX);
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
