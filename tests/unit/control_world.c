/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "control_world.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);

long until_failure = -1;

void *__wrap_realloc(void *old, size_t size)
{
	if (until_failure >= 0 && until_failure-- == 0)
		return NULL;
	return __real_realloc(old, size);
}

static void note(struct world *w, const char *format, ...)
{
	size_t room = sizeof(w->log) - w->used;
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vsnprintf(w->log + w->used, room, format, arguments);
	va_end(arguments);
	if ((size_t)length < room)
		w->used += (size_t)length;
}

static uint32_t world_sample_count(void *ctx)
{
	(void)ctx;
	return SAMPLES;
}

/* s/0 to s/63, and names that are not simple. */
static int world_find_sample(void *ctx, const char *path, uint32_t *id)
{
	static const char *const names[] = { "my cat.jpg", "7", "new\nline", "back\\slash" };
	char after;

	(void)ctx;
	for (uint32_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		*id = 40 + i;
		if (!strcmp(path, names[i]))
			return 0;
	}
	if (sscanf(path, "s/%" SCNu32 "%c", id, &after) == 1 && *id < SAMPLES)
		return 0;
	return -ENOENT;
}

static int world_check_path(void *ctx, const char *path)
{
	(void)ctx;
	return strstr(path, "missing") ? -ENOENT : 0;
}

static int world_check_policy(void *ctx, const char *name)
{
	(void)ctx;
	return strcmp(name, "shade") && strcmp(name, "lru") ? -EINVAL : 0;
}

static int world_check_capacity(void *ctx, uint64_t bytes, double share)
{
	(void)ctx;
	return bytes > 4096 || share > 0 ? 0 : -EINVAL;
}

static int world_scores(void *ctx, const uint32_t *ids, const float *scores, uint32_t count)
{
	struct world *w = ctx;

	cr_assert(count > 0);
	w->score_calls++;
	for (uint32_t i = 0; i < count; i++) {
		cr_assert(ids[i] < SAMPLES && scores[i] >= 0 && isfinite(scores[i]));
		note(w, "score %" PRIu32 " %g\n", ids[i], (double)scores[i]);
	}
	return 0;
}

static int world_order(void *ctx, uint64_t epoch, const uint32_t *ids, uint32_t count)
{
	struct world *w = ctx;

	note(w, "order %" PRIu64 ":", epoch);
	for (uint32_t i = 0; i < count; i++) {
		cr_assert(ids[i] < SAMPLES);
		w->order_sum += ids[i];
		if (i < 100)
			note(w, " %" PRIu32, ids[i]);
	}
	note(w, "\n");
	w->order_ids += count;
	return 0;
}

static int world_epoch(void *ctx, uint64_t epoch)
{
	note(ctx, "epoch %" PRIu64 "\n", epoch);
	return 0;
}

static int world_uses(void *ctx, double uses)
{
	note(ctx, "uses %g\n", uses);
	return 0;
}

static int world_group(void *ctx, const char *name)
{
	note(ctx, "group '%s'\n", name);
	return 0;
}

static int world_shared(void *ctx, uint64_t epoch, const uint32_t *ids, const float *weights,
			uint32_t count)
{
	note(ctx, "shared ");
	world_order(ctx, epoch, ids, count);
	for (uint32_t i = 0; weights && i < count; i++) {
		cr_assert(weights[i] >= 0 && isfinite(weights[i]));
		note(ctx, "weight %g\n", (double)weights[i]);
	}
	return ((struct world *)ctx)->refuse;
}

static int world_read_shared(void *ctx, uint64_t epoch)
{
	note(ctx, "read %" PRIu64 "\n", epoch);
	return ((struct world *)ctx)->refuse;
}

static int world_read_importance(void *ctx)
{
	note(ctx, "importance\n");
	return ((struct world *)ctx)->refuse;
}

static int world_evict(void *ctx, const char *path)
{
	struct world *w = ctx;

	if (w->refuse)
		return w->refuse;
	note(ctx, "evict %s\n", path);
	return 0;
}

static int world_capacity(void *ctx, uint64_t bytes, double share)
{
	note(ctx, "capacity %" PRIu64 " %g\n", bytes, share);
	return 0;
}

#define NOTES_TEXT(command)                                                                        \
	static int world_##command(void *ctx, const char *text)                                    \
	{                                                                                          \
		note(ctx, #command " %s\n", text);                                                 \
		return 0;                                                                          \
	}

NOTES_TEXT(warm)
NOTES_TEXT(pin)
NOTES_TEXT(unpin)
NOTES_TEXT(policy)
NOTES_TEXT(forget)

static int world_rescan(void *ctx)
{
	note(ctx, "rescan\n");
	return 0;
}

static int world_upgrade(void *ctx, char *why, size_t room)
{
	struct world *w = ctx;

	snprintf(why, room, "it is refused");
	note(ctx, "upgrade\n");
	return w->refuse;
}

static void world_table(void *ctx, const uint32_t *ids, uint32_t count)
{
	struct world *w = ctx;

	w->table_calls++;
	for (uint32_t i = 0; i < count; i++)
		cr_assert(ids[i] < SAMPLES);
}

static const struct control_ops world_ops = {
	.sample_count = world_sample_count,
	.find_sample = world_find_sample,
	.check_path = world_check_path,
	.check_policy = world_check_policy,
	.check_capacity = world_check_capacity,
	.scores = world_scores,
	.order = world_order,
	.epoch = world_epoch,
	.uses = world_uses,
	.group = world_group,
	.shared = world_shared,
	.read_shared = world_read_shared,
	.read_importance = world_read_importance,
	.warm = world_warm,
	.evict = world_evict,
	.pin = world_pin,
	.unpin = world_unpin,
	.capacity = world_capacity,
	.policy = world_policy,
	.rescan = world_rescan,
	.upgrade = world_upgrade,
	.forget = world_forget,
	.table = world_table,
};

struct world world;
struct control_parser *p;

struct control_parser *make_parser(struct world *w)
{
	struct control_parser *made = control_parser_new(&world_ops, w);

	*w = (struct world){ 0 };
	cr_assert_not_null(made);
	return made;
}

void teardown(void)
{
	control_parser_free(p);
	p = NULL;
}

/* Also within a test, for a parser that has seen nothing. */
void setup(void)
{
	teardown();
	p = make_parser(&world);
}

int say(const char *text)
{
	return control_parser_write(p, text, strlen(text));
}

void put(struct bytes *bytes, const void *data, size_t size)
{
	cr_assert(size <= sizeof(bytes->data) - bytes->size);
	if (size)
		memcpy(bytes->data + bytes->size, data, size);
	bytes->size += size;
}

void put_text(struct bytes *bytes, const char *text)
{
	put(bytes, text, strlen(text));
}

void put_u64(struct bytes *bytes, uint64_t value)
{
	unsigned char little[8];

	for (int i = 0; i < 8; i++)
		little[i] = (unsigned char)(value >> (8 * i));
	put(bytes, little, sizeof(little));
}

void put_head(struct bytes *bytes, unsigned version, unsigned type, uint64_t payload)
{
	const unsigned char head[8] = {
		0xf5, 'S', 'H', 'D', (unsigned char)version, 0, (unsigned char)type
	};

	put(bytes, head, sizeof(head));
	put_u64(bytes, payload);
}

void put_scores(struct bytes *bytes, const uint32_t *ids, const float *scores, uint32_t count)
{
	put_head(bytes, 1, SHADE_RECORD_SCORES, 8 + 8 * (uint64_t)count);
	put_u64(bytes, count);
	put(bytes, ids, count * sizeof(*ids)); /* the tests run on little endian machines */
	put(bytes, scores, count * sizeof(*scores));
}

void put_order(struct bytes *bytes, uint64_t epoch, const uint32_t *ids, uint32_t count)
{
	put_head(bytes, 1, SHADE_RECORD_ORDER, 16 + 4 * (uint64_t)count);
	put_u64(bytes, epoch);
	put_u64(bytes, count);
	put(bytes, ids, count * sizeof(*ids));
}

void put_epoch(struct bytes *bytes, uint64_t epoch)
{
	put_head(bytes, 1, SHADE_RECORD_EPOCH, 8);
	put_u64(bytes, epoch);
}

void put_table(struct bytes *bytes, uint64_t count, const void *paths, size_t size)
{
	put_head(bytes, 1, SHADE_RECORD_TABLE, 8 + size);
	put_u64(bytes, count);
	put(bytes, paths, size);
}

int send(const struct bytes *bytes)
{
	return control_parser_write(p, bytes->data, bytes->size);
}
