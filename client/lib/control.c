/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is sent to .shade/control, in writes that fit into one FUSE request. The kernel would cut a
 * larger one into several; if the daemon refused a later one, write() would return how much was
 * written before, and the daemon's sentence would be lost with the next write.
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "lib.h"
#include "path.h"
#include "shade/control.h"

#define WRITE_MAX 65536

/* Bytes that are not written yet. */
struct stream {
	struct shade *shade;
	size_t used;
	int rc; /* the first failure; nothing is written after it */
	unsigned char bytes[WRITE_MAX];
};

ssize_t lib_read(int fd, void *to, size_t size)
{
	ssize_t got;

	do
		got = read(fd, to, size);
	while (got < 0 && errno == EINTR);
	return got < 0 ? -errno : got;
}

static int write_all(int fd, const void *data, size_t length)
{
	const char *from = data;

	while (length) {
		ssize_t wrote = write(fd, from, length);

		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote <= 0)
			return wrote ? -errno : -EIO;
		from += wrote;
		length -= (size_t)wrote;
	}
	return 0;
}

/* Reads what the daemon says about the last write, without the newline. */
static int read_answer(struct shade *shade, char *answer, size_t size)
{
	ssize_t got = lib_read(shade->control, answer, size - 1);
	size_t length = got < 0 ? 0 : (size_t)got;

	while (length && answer[length - 1] == '\n')
		length--;
	answer[length] = '\0';
	return got < 0 ? (int)got : 0;
}

/* The daemon has a sentence for what it refuses. */
static bool is_answered(int rc)
{
	return rc == -EINVAL || rc == -EEXIST || rc == -ENOENT || rc == -ENXIO || rc == -ERANGE ||
	       rc == -ENOEXEC || rc == -EPERM;
}

/* Notes why a write failed, in the daemon's words if it has some. Returns RC. */
static int fail_answered(struct shade *shade, int rc)
{
	char answer[LIB_ANSWER_MAX];

	if (is_answered(rc) && !read_answer(shade, answer, sizeof(answer)) && *answer)
		return lib_fail(rc, "%s", answer);
	return lib_fail_file(shade, "control", rc);
}

/* Takes the lock, which stream_close() releases. */
static struct stream *stream_new(struct shade *shade)
{
	struct stream *stream = malloc(sizeof(*stream));

	if (!stream) {
		lib_say("%s", strerror(ENOMEM));
		return NULL;
	}
	stream->shade = shade;
	stream->used = 0;
	stream->rc = 0;
	pthread_mutex_lock(&shade->lock);
	return stream;
}

static void stream_flush(struct stream *stream)
{
	if (!stream->rc)
		stream->rc = write_all(stream->shade->control, stream->bytes, stream->used);
	stream->used = 0;
}

static void stream_put(struct stream *stream, const void *data, size_t size)
{
	const unsigned char *from = data;

	while (size && !stream->rc) {
		size_t part = WRITE_MAX - stream->used;

		if (part > size)
			part = size;
		memcpy(stream->bytes + stream->used, from, part);
		stream->used += part;
		from += part;
		size -= part;
		if (stream->used == WRITE_MAX)
			stream_flush(stream);
	}
}

/* Words of four bytes, numbers or floats. */
static void stream_put_words(struct stream *stream, const void *words, uint32_t count)
{
#if __BYTE_ORDER == __LITTLE_ENDIAN
	stream_put(stream, words, 4 * (size_t)count);
#else
	for (uint32_t i = 0; i < count; i++) {
		uint32_t word;

		memcpy(&word, (const char *)words + 4 * (size_t)i, 4);
		word = htole32(word);
		stream_put(stream, &word, 4);
	}
#endif
}

/* Sends the rest; the lock is still held. */
static int stream_finish_locked(struct stream *stream)
{
	stream_flush(stream);
	return stream->rc ? fail_answered(stream->shade, stream->rc) : 0;
}

static void stream_close(struct stream *stream)
{
	pthread_mutex_unlock(&stream->shade->lock);
	free(stream);
}

static int stream_end(struct stream *stream)
{
	int rc = stream_finish_locked(stream);

	stream_close(stream);
	return rc;
}

static struct shade_record head_of(enum shade_record_type type, uint64_t record_bytes,
				   uint64_t array_bytes)
{
	return (struct shade_record){
		.magic = htole32(SHADE_RECORD_MAGIC),
		.version = htole16(SHADE_RECORD_VERSION),
		.type = htole16((uint16_t)type),
		.payload_bytes = htole64(record_bytes - sizeof(struct shade_record) + array_bytes),
	};
}

int shade_scores(struct shade *shade, const uint32_t *ids, const float *scores, uint32_t count)
{
	struct shade_record_scores record = {
		.head = head_of(SHADE_RECORD_SCORES, sizeof(record), 8 * (uint64_t)count),
		.count = htole64(count),
	};
	struct stream *stream = stream_new(shade);

	if (!stream)
		return -ENOMEM;
	stream_put(stream, &record, sizeof(record));
	stream_put_words(stream, ids, count);
	stream_put_words(stream, scores, count);
	return stream_end(stream);
}

/* `weights` may be NULL. */
static int send_order(struct shade *shade, enum shade_record_type type, uint64_t epoch,
		      const uint32_t *ids, const float *weights, uint32_t count)
{
	struct shade_record_order record = {
		.head = head_of(type, sizeof(record), (weights ? 8 : 4) * (uint64_t)count),
		.epoch = htole64(epoch),
		.count = htole64(count),
	};
	struct stream *stream = stream_new(shade);

	if (!stream)
		return -ENOMEM;
	stream_put(stream, &record, sizeof(record));
	stream_put_words(stream, ids, count);
	if (weights)
		stream_put_words(stream, weights, count);
	return stream_end(stream);
}

int shade_group_put(struct shade *shade, uint64_t epoch, const uint32_t *ids, const float *weights,
		    uint32_t count)
{
	return send_order(shade, SHADE_RECORD_SHARED, epoch, ids, weights, count);
}

int shade_order(struct shade *shade, uint64_t epoch, const uint32_t *ids, uint32_t count)
{
	int rc = send_order(shade, SHADE_RECORD_ORDER, epoch, ids, NULL, count);

	if (rc == -ENOSPC)
		return lib_fail(rc,
				"the order of epoch %llu is one too many: the shadefs at '%s' has "
				"orders of other epochs that nobody has read yet",
				(unsigned long long)epoch, shade->path);
	return rc;
}

int shade_epoch(struct shade *shade, uint64_t epoch)
{
	struct shade_record_epoch record = {
		.head = head_of(SHADE_RECORD_EPOCH, sizeof(record), 0),
		.epoch = htole64(epoch),
	};
	struct stream *stream = stream_new(shade);

	if (!stream)
		return -ENOMEM;
	stream_put(stream, &record, sizeof(record));
	return stream_end(stream);
}

int lib_send_table(struct shade *shade, const char *paths, size_t bytes, struct lib_table *table)
{
	struct shade_record_table record = {
		.head = head_of(SHADE_RECORD_TABLE, sizeof(record), bytes),
		.count = htole64(table->count),
	};
	struct stream *stream = stream_new(shade);
	int rc;

	if (!stream)
		return -ENOMEM;
	stream_put(stream, &record, sizeof(record));
	stream_put(stream, paths, bytes);
	rc = stream_finish_locked(stream);
	if (!rc) {
		struct lib_table old = shade->table;

		shade->table = *table;
		*table = old;
	}
	stream_close(stream);
	return rc;
}

int shade_query(struct shade *shade, uint32_t id, struct shade_sample *sample)
{
	struct shade_ioctl_query query = { .id = id };
	int rc;

	pthread_mutex_lock(&shade->lock);
	rc = ioctl(shade->control, SHADE_IOCTL_QUERY, &query) < 0 ? -errno : 0;
	pthread_mutex_unlock(&shade->lock);
	if (rc == -EINVAL)
		return lib_fail(rc, "there is no sample %lu", (unsigned long)id);
	if (rc)
		return lib_fail_file(shade, "control", rc);
	sample->size = query.size;
	sample->score = query.score;
	sample->frequency = query.frequency;
	sample->resident = query.resident;
	return 0;
}

int shade_command(struct shade *shade, const char *lines, size_t length, char *answer, size_t size)
{
	char own[LIB_ANSWER_MAX];
	int rc;
	int answered;

	pthread_mutex_lock(&shade->lock);
	rc = write_all(shade->control, lines, length);
	answered = read_answer(shade, own, sizeof(own));
	pthread_mutex_unlock(&shade->lock);
	if (answer && size)
		snprintf(answer, size, "%s", own);
	if (!rc)
		rc = answered;
	if (!rc && strncmp(own, "ok", 2))
		rc = -EPROTO;
	if (!rc)
		return 0;
	return *own ? lib_fail(rc, "%s", own) : lib_fail_file(shade, "control", rc);
}

int lib_ask(struct shade *shade, const char *line, char **data, size_t *size)
{
	int rc;

	pthread_mutex_lock(&shade->lock);
	rc = write_all(shade->control, line, strlen(line));
	rc = rc ? fail_answered(shade, rc)
		: lib_read_all(shade->control, LIB_RECORD_MAX, data, size);
	pthread_mutex_unlock(&shade->lock);
	return rc;
}

/* `VERB PATH`. */
static int tell_path(struct shade *shade, const char *verb, const char *path)
{
	char line[PATH_WORD_MAX + 16];
	char found[PATH_MAX];
	size_t length = (size_t)sprintf(line, "%s ", verb);
	int rc = path_resolve(shade->path, shade->prefix, path, found);

	if (rc == -EXDEV)
		return lib_fail(rc, "'%s' is not below %s", path, shade->path);
	if (rc)
		return lib_fail(rc, "'%s': %s", path, strerror(-rc));
	strcpy(escape_text(line + length, found, strlen(found), PATH_WORD), "\n");
	return shade_command(shade, line, strlen(line), NULL, 0);
}

int shade_warm(struct shade *shade, const char *path)
{
	return tell_path(shade, "warm", path);
}

int shade_evict(struct shade *shade, const char *path)
{
	return tell_path(shade, "evict", path);
}

int shade_pin(struct shade *shade, const char *path)
{
	return tell_path(shade, "pin", path);
}

int shade_unpin(struct shade *shade, const char *path)
{
	return tell_path(shade, "unpin", path);
}
