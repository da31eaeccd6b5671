/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Files whose names, sizes and bytes follow from their numbers. Each word of eight bytes depends on
 * the file and on its place, so a page of another file, or of another place, is never right. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "readers.h"

static uint64_t mix(uint64_t z) /* splitmix64 */
{
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

void content_path(char *path, const char *top, uint64_t file)
{
	snprintf(path, PATH_ROOM, "%s/d%u/f%05llu", top, (unsigned)(file % DIRS),
		 (unsigned long long)file);
}

/* From a half to one and a half of what was asked for, and seldom a whole page. */
uint64_t content_size(uint64_t file)
{
	return options.bytes / 2 + mix(file ^ 0x517e) % (options.bytes + 1);
}

static uint64_t word_at(uint64_t file, uint64_t index)
{
	return mix((file + 1) * 0x9e3779b97f4a7c15u + index * 0xd1342543de82ef95u);
}

void content_fill(void *to, uint64_t file, uint64_t offset, size_t size)
{
	char *at = to;

	while (size) {
		uint64_t word = word_at(file, offset / sizeof(word));
		size_t skipped = offset % sizeof(word);
		size_t piece = sizeof(word) - skipped < size ? sizeof(word) - skipped : size;

		memcpy(at, (const char *)&word + skipped, piece);
		at += piece;
		offset += piece;
		size -= piece;
	}
}

static int write_all(int fd, const char *data, size_t size)
{
	while (size) {
		ssize_t done = write(fd, data, size);

		if (done < 0)
			return -errno;
		data += done;
		size -= (size_t)done;
	}
	return 0;
}

static int make_file(const char *top, uint64_t file, char *buffer)
{
	size_t size = content_size(file);
	char path[PATH_ROOM];
	int fd, ret;

	content_path(path, top, file);
	content_fill(buffer, file, 0, size);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	ret = write_all(fd, buffer, size);
	if (close(fd) && !ret)
		ret = -errno;
	return ret;
}

int content_make(const char *top)
{
	char *buffer = malloc(options.bytes * 2 + 1);
	char path[PATH_ROOM];
	int ret = buffer ? 0 : -ENOMEM;

	for (unsigned dir = 0; !ret && dir < DIRS; dir++) {
		snprintf(path, sizeof(path), "%s/d%u", top, dir);
		if (mkdir(path, 0755))
			ret = -errno;
	}
	for (uint64_t file = 0; !ret && file < options.files; file++)
		ret = make_file(top, file, buffer);
	free(buffer);
	return ret;
}
