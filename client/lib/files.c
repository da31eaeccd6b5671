/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is read from .shade. Files that a job does not have are those of the mount. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "escape.h"
#include "grow.h"
#include "lib.h"

#define READ_LEAST 4096 /* bytes that a read() has room for */

int shade_open_file(struct shade *shade, const char *name)
{
	int fd = openat(shade->job, name, O_RDONLY | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT)
		fd = openat(shade->root, name, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? lib_fail_file(shade, name, -errno) : fd;
}

void shade_free(void *memory)
{
	free(memory);
}

int lib_read_all(int fd, size_t max, char **text, size_t *length)
{
	size_t room = 0;
	size_t used = 0;
	ssize_t got;
	char *buffer = NULL;

	do {
		got = grow(buffer, room, used, READ_LEAST);
		if (!got)
			got = lib_read(fd, buffer + used, room - used - 1);
		if (got > 0)
			used += (size_t)got;
		if (max && used > max)
			got = -EFBIG;
	} while (got > 0);
	if (got < 0) {
		free(buffer);
		return (int)got;
	}
	buffer[used] = '\0';
	*text = buffer;
	if (length)
		*length = used;
	return 0;
}

static int read_file(struct shade *shade, int fd, const char *name, size_t max, char **text,
		     size_t *length)
{
	int rc;

	if (fd < 0)
		return fd;
	rc = lib_read_all(fd, max, text, length);
	close(fd);
	return rc ? lib_fail_file(shade, name, rc) : 0;
}

int shade_read(struct shade *shade, const char *name, size_t max, char **text, size_t *length)
{
	return read_file(shade, shade_open_file(shade, name), name, max, text, length);
}

/* The same of a file of the mount, even if the job has one of that name. */
static int open_root(struct shade *shade, const char *name)
{
	int fd = openat(shade->root, name, O_RDONLY | O_CLOEXEC);

	return fd < 0 ? lib_fail_file(shade, name, -errno) : fd;
}

static int read_root(struct shade *shade, const char *name, size_t max, char **text, size_t *length)
{
	return read_file(shade, open_root(shade, name), name, max, text, length);
}

/* -ENOENT: there is no such key; -ERANGE: it is no number. Notes no message. */
static int find_number(const char *text, const char *key, double *value)
{
	size_t length = strlen(key);

	for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		char *end;

		if (strncmp(line, key, length) || line[length] != ' ')
			continue;
		*value = strtod(line + length + 1, &end);
		return end == line + length + 1 || (*end && *end != '\n') ? -ERANGE : 0;
	}
	return -ENOENT;
}

int shade_stat(struct shade *shade, const char *key, double *value)
{
	char *text = NULL, *root_text = NULL;
	int rc = shade_read(shade, "stats", LIB_STATS_MAX, &text, NULL);

	*value = 0;
	if (rc)
		return rc;
	assert(text);
	rc = find_number(text, key, value);
	free(text);
	if (rc == -ENOENT) {
		rc = read_root(shade, "stats", LIB_STATS_MAX, &root_text, NULL);
		if (rc)
			return rc;
		assert(root_text);
		rc = find_number(root_text, key, value);
		free(root_text);
	}
	if (rc == -ERANGE)
		return lib_fail(rc, "'%s' is no number in the statistics of the mount", key);
	return rc ? lib_fail(rc, "there is no '%s' in the statistics of the mount", key) : 0;
}

int shade_wait(struct shade *shade, uint32_t timeout_ms)
{
	const struct timespec pause = { .tv_nsec = 10000000 };
	double complete = 0;
	int rc;

	for (uint32_t waited = 0;; waited += 10) {
		rc = shade_stat(shade, "scan_complete", &complete);
		if (rc || complete > 0)
			return rc;
		if (waited >= timeout_ms)
			return lib_fail(-ETIMEDOUT, "the shadefs at '%s' is still scanning",
					shade->path);
		nanosleep(&pause, NULL);
	}
}

int shade_sample_count(struct shade *shade, uint32_t *count)
{
	double samples = 0;
	int rc;

	pthread_mutex_lock(&shade->lock);
	*count = shade->table.count;
	pthread_mutex_unlock(&shade->lock);
	if (*count)
		return 0;
	rc = shade_stat(shade, "samples", &samples);
	if (!rc)
		*count = (uint32_t)samples;
	return rc;
}

/* `ID<TAB>PATH`, ended by a NUL. */
static bool take_sample(char *line, uint32_t *id, char **path)
{
	char *end;
	unsigned long value = strtoul(line, &end, 10);

	*path = end + 1;
	*id = (uint32_t)value;
	return end != line && *end == '\t' && value < UINT32_MAX &&
	       unescape_in_place(*path, ESCAPE_LINE);
}

/* Lines as they are read: the whole list may be large. */
struct lines {
	struct shade *shade;
	int (*each)(void *context, uint32_t id, const char *path);
	void *context;
	size_t count;
	size_t used;
	char text[2 * LIB_LINE_MAX];
};

static int take_line(struct lines *lines, char *line)
{
	char *path;
	uint32_t id;

	if (++lines->count > LIB_SAMPLES_MAX)
		return lib_fail_file(lines->shade, "samples", -EFBIG);
	if (!take_sample(line, &id, &path))
		return lib_fail(-EPROTO, "%s/.shade/samples has a line '%.200s'",
				lines->shade->path, line);
	return lines->each(lines->context, id, path);
}

/* Takes the lines that are complete; at the end, the last one may have no newline. */
static int take_lines(struct lines *lines, bool is_end)
{
	char *line = lines->text, *next;
	int rc = 0;

	lines->text[lines->used] = '\0';
	while (!rc && (next = memchr(line, '\n', lines->used - (size_t)(line - lines->text)))) {
		*next++ = '\0';
		rc = take_line(lines, line);
		line = next;
	}
	lines->used -= (size_t)(line - lines->text);
	memmove(lines->text, line, lines->used + 1);
	if (!rc && lines->used >= LIB_LINE_MAX)
		return lib_fail(-EPROTO, "%s/.shade/samples has a line of more than %zu bytes",
				lines->shade->path, LIB_LINE_MAX);
	return !rc && is_end && lines->used ? take_line(lines, lines->text) : rc;
}

static int read_lines(struct lines *lines, int fd)
{
	ssize_t got;
	int rc = 0;

	do {
		got = lib_read(fd, lines->text + lines->used,
			       sizeof(lines->text) - 1 - lines->used);
		if (got < 0)
			return lib_fail_file(lines->shade, "samples", (int)got);
		lines->used += (size_t)got;
		rc = take_lines(lines, !got);
	} while (!rc && got);
	return rc;
}

int shade_samples(struct shade *shade, int (*each)(void *context, uint32_t id, const char *path),
		  void *context)
{
	struct lines *lines;
	int fd = open_root(shade, "samples");
	int rc;

	if (fd < 0)
		return fd;
	lines = malloc(sizeof(*lines));
	if (!lines) {
		close(fd);
		return lib_fail(-ENOMEM, "%s", strerror(ENOMEM));
	}
	lines->shade = shade;
	lines->each = each;
	lines->context = context;
	lines->count = lines->used = 0;
	rc = read_lines(lines, fd);
	free(lines);
	close(fd);
	return rc;
}

int shade_resident(struct shade *shade, uint64_t *bitmap, uint32_t count)
{
	size_t length = 0;
	char *bytes = NULL;
	int rc = read_root(shade, "resident", LIB_SAMPLES_MAX / 8, &bytes, &length);

	if (rc)
		return rc;
	memset(bitmap, 0, ((size_t)count + 63) / 64 * sizeof(*bitmap));
	pthread_mutex_lock(&shade->lock);
	for (uint32_t i = 0; i < count; i++) {
		bool mapped = shade->table.count != 0;
		uint32_t id = mapped && i < shade->table.count ? shade->table.ids[i] : i;

		if ((mapped && i >= shade->table.count) || id / 8 >= length)
			continue;
		if ((unsigned char)bytes[id / 8] >> id % 8 & 1)
			bitmap[i / 64] |= (uint64_t)1 << i % 64;
	}
	pthread_mutex_unlock(&shade->lock);
	free(bytes);
	return 0;
}
