/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/handover.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/format.h"

/* The memory file: the format, the struct, and the strings, which the struct has as offsets in the
 * file. */
#define STRUCT_AT ((size_t)FORMAT_MAX)
#define STRINGS_AT (STRUCT_AT + sizeof(struct handover))

/* The strings of it, one after the other; NULL ends the words. */
static const char **string_of(struct handover *handover, unsigned i)
{
	const char **const named[] = { &handover->program, &handover->directory, &handover->source,
				       &handover->mount_point, &handover->password };
	const unsigned count = sizeof(named) / sizeof(*named);

	return i < count ? named[i] : &handover->words[i - count];
}

static unsigned count_strings(const struct handover *handover)
{
	return 5 + handover->word_count;
}

static int write_all(int fd, const void *data, size_t size, size_t at)
{
	while (size) {
		ssize_t written = pwrite(fd, data, size, (off_t)at);

		if (written <= 0)
			return written ? -errno : -EIO;
		data = (const char *)data + written;
		size -= (size_t)written;
		at += (size_t)written;
	}
	return 0;
}

static int fill(int fd, const struct handover *handover)
{
	struct handover copy = *handover;
	char format[FORMAT_MAX];
	size_t at = STRINGS_AT;
	int rc;

	format_write(format);
	rc = write_all(fd, format, sizeof(format), 0);
	for (unsigned i = 0; !rc && i < count_strings(handover); i++) {
		const char **string = string_of(&copy, i);
		size_t size = *string ? strlen(*string) + 1 : 0;

		rc = write_all(fd, *string, size, at);
		*string = size ? (const char *)(uintptr_t)at : NULL;
		at += size;
	}
	return rc ? rc : write_all(fd, &copy, sizeof(copy), STRUCT_AT);
}

int handover_write(const struct handover *handover)
{
	int fd = memfd_create("shadefs-handover", MFD_CLOEXEC), rc;

	assert(handover->word_count <= HANDOVER_WORDS && !handover->words[handover->word_count]);
	if (fd < 0)
		return -errno;
	rc = fill(fd, handover);
	if (!rc)
		return fd;
	close(fd);
	return rc;
}

static int read_all(int fd, void *data, size_t size)
{
	for (size_t at = 0; at < size;) {
		ssize_t got = pread(fd, (char *)data + at, size - at, (off_t)at);

		if (got <= 0)
			return got ? -errno : -EIO;
		at += (size_t)got;
	}
	return 0;
}

int handover_read_format(int fd, char *text)
{
	int rc = read_all(fd, text, FORMAT_MAX);

	text[FORMAT_MAX - 1] = 0;
	return rc;
}

int handover_read(int fd, const struct handover **out)
{
	off_t size = lseek(fd, 0, SEEK_END);
	struct handover *handover;
	char *file;
	int rc;

	if (size < (off_t)STRINGS_AT)
		return -EIO;
	file = malloc((size_t)size);
	if (!file)
		return -ENOMEM;
	rc = read_all(fd, file, (size_t)size);
	if (rc) {
		free(file);
		return rc;
	}
	handover = (struct handover *)(void *)(file + STRUCT_AT);
	for (unsigned i = 0; i < count_strings(handover); i++) {
		const char **string = string_of(handover, i);

		if (*string)
			*string = file + (uintptr_t)*string;
	}
	*out = handover;
	return 0;
}

static void keep_open(int fd, bool open)
{
	if (fd >= 0)
		(void)fcntl(fd, F_SETFD, open ? 0 : FD_CLOEXEC);
}

void handover_keep_open(const struct handover *handover, bool open)
{
	for (enum overlay_part part = 0; part < OVERLAY_PARTS; part++)
		keep_open(handover->parts[part], open);
	keep_open(handover->estate.fd, open);
	keep_open(handover->watchdog.channel, open);
	keep_open(handover->source_fd, open);
	keep_open(handover->above_fd, open);
	keep_open(handover->manifest_fd, open);
}

const struct format_line handover_format[] = { FORMAT_SIZE(struct handover),
					       FORMAT_FIELD(struct handover, estate),
					       FORMAT_FIELD(struct handover, watchdog),
					       FORMAT_FIELD(struct handover, parts),
					       FORMAT_FIELD(struct handover, deaths_ms),
					       FORMAT_FIELD(struct handover, stuck),
					       FORMAT_FIELD(struct handover, stuck_count),
					       FORMAT_FIELD(struct handover, repeat_due),
					       FORMAT_FIELD(struct handover, ready_ms),
					       FORMAT_FIELD(struct handover, end_ms),
					       FORMAT_FIELD(struct handover, source_fd),
					       FORMAT_FIELD(struct handover, above_fd),
					       FORMAT_FIELD(struct handover, manifest_fd),
					       FORMAT_FIELD(struct handover, word_count),
					       FORMAT_FIELD(struct handover, program),
					       FORMAT_FIELD(struct handover, directory),
					       FORMAT_FIELD(struct handover, source),
					       FORMAT_FIELD(struct handover, mount_point),
					       FORMAT_FIELD(struct handover, password),
					       FORMAT_FIELD(struct handover, words),
					       FORMAT_END };
