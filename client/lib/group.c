/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The orders of a group of trainings: what the daemon answers with records. */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "lib.h"
#include "shade/control.h"

/* A record of ids and floats, as it was read; in the machine's byte order. */
struct arrays {
	uint64_t epoch;
	uint32_t *ids;
	float *floats; /* NULL: it has none */
	uint32_t count;
};

int shade_group_join(struct shade *shade, const char *name)
{
	char line[256];
	int length = snprintf(line, sizeof(line), "group %s\n", name ? name : "");

	if (length >= (int)sizeof(line) || (name && strchr(name, '\n')))
		return lib_fail(-EINVAL, "'%.64s' cannot be the name of a group", name);
	return shade_command(shade, line, (size_t)length, NULL, 0);
}

int shade_group_begin(struct shade *shade, uint64_t epoch, struct shade_group_turn *turn)
{
	struct shade_ioctl_group ask = { .epoch = epoch, .first = turn->first };
	int rc;

	pthread_mutex_lock(&shade->lock);
	rc = ioctl(shade->control, SHADE_IOCTL_GROUP, &ask) < 0 ? -errno : 0;
	pthread_mutex_unlock(&shade->lock);
	if (rc == -ENXIO)
		return lib_fail(rc, "the job is in no group of the shadefs at '%s'", shade->path);
	if (rc)
		return lib_fail_file(shade, "control", rc);
	turn->first = ask.first;
	turn->offset = ask.offset;
	return 0;
}

static void words_to_host(void *words, size_t count)
{
	uint32_t *at = words;

	for (size_t i = 0; i < count; i++)
		at[i] = le32toh(at[i]);
}

/* The arrays are copied out: callers free them one by one. */
static int split(const char *words, uint32_t count, bool floats, struct arrays *arrays)
{
	size_t bytes = (size_t)count * sizeof(uint32_t);

	arrays->count = count;
	arrays->ids = malloc(bytes + 1);
	arrays->floats = floats ? malloc(bytes + 1) : NULL;
	if (!arrays->ids || (floats && !arrays->floats)) {
		free(arrays->ids);
		free(arrays->floats);
		return lib_fail(-ENOMEM, "%s", strerror(ENOMEM));
	}
	memcpy(arrays->ids, words, bytes);
	words_to_host(arrays->ids, count);
	if (floats) {
		memcpy(arrays->floats, words + bytes, bytes);
		words_to_host(arrays->floats, count);
	}
	return 0;
}

/* Whoever answered may be no shadefs: everything is checked. */
static int parse(const char *data, size_t size, uint16_t type, struct arrays *arrays)
{
	struct shade_record_order order = { 0 };
	size_t head =
		type == SHADE_RECORD_SHARED ? sizeof(order) : sizeof(struct shade_record_scores);
	uint64_t count, words;

	if (size < head)
		return -EPROTO;
	memcpy(&order, data, head);
	words = (size - head) / sizeof(uint32_t);
	count = le64toh(type == SHADE_RECORD_SHARED ? order.count : order.epoch);
	if (le32toh(order.head.magic) != SHADE_RECORD_MAGIC || le16toh(order.head.type) != type ||
	    le64toh(order.head.payload_bytes) != size - sizeof(order.head) ||
	    (size - head) % sizeof(uint32_t) || count > UINT32_MAX ||
	    (words != count && words != 2 * count) ||
	    (type == SHADE_RECORD_SCORES && words != 2 * count))
		return -EPROTO;
	arrays->epoch = le64toh(order.epoch);
	return split(data + head, (uint32_t)count, words != count, arrays);
}

static int ask(struct shade *shade, const char *line, uint16_t type, struct arrays *arrays)
{
	char *data = NULL;
	size_t size = 0;
	int rc = lib_ask(shade, line, &data, &size);

	if (rc)
		return rc;
	rc = parse(data, size, type, arrays);
	free(data);
	return rc == -EPROTO ? lib_fail(rc, "the shadefs at '%s' has answered something else",
					shade->path)
			     : rc;
}

int shade_group_order(struct shade *shade, uint64_t epoch, uint32_t **ids, float **weights,
		      uint32_t *count)
{
	struct arrays arrays = { 0 };
	char line[64];
	int rc;

	snprintf(line, sizeof(line), "order %llu read\n", (unsigned long long)epoch);
	rc = ask(shade, line, SHADE_RECORD_SHARED, &arrays);
	if (rc)
		return rc;
	*ids = arrays.ids;
	*weights = arrays.floats;
	*count = arrays.count;
	return 0;
}

int shade_group_importance(struct shade *shade, uint32_t **ids, float **importance, uint32_t *count)
{
	struct arrays arrays = { 0 };
	int rc = ask(shade, "importance\n", SHADE_RECORD_SCORES, &arrays);

	if (rc)
		return rc;
	*ids = arrays.ids;
	*importance = arrays.floats;
	*count = arrays.count;
	return 0;
}
