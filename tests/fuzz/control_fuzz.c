/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Any bytes at all for the parser of .shade/control.
 *
 * Each input is sent twice: whole, and cut at places that its own bytes choose. What is handed
 * over must be sane; a write that fails must hand over nothing; and if the whole is good, the
 * pieces must be, with the same effect.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/group.h"
#include "control/parse.h"
#include "fuzz.h"

#define SAMPLES 1000

const char fuzz_name[] = "control";

struct world {
	uint64_t digest; /* of all effects in their sequence */
	uint64_t calls;
	uint64_t refuse_at; /* the call that is refused; 0: none */
};

static void digest_add(struct world *world, uint64_t value)
{
	world->digest = (world->digest ^ value) * 0x100000001b3u;
	world->digest ^= world->digest >> 29;
}

static int digest_text(struct world *world, char kind, const char *text)
{
	fuzz_require(*text && *text != '/' && strncmp(text, "./", 2),
		     "a path is relative and not empty");
	fuzz_require(strlen(text) <= SHADE_LINE_MAX, "a text is bounded");
	digest_add(world, (uint64_t)kind);
	for (; *text; text++)
		digest_add(world, (unsigned char)*text);
	return ++world->calls == world->refuse_at ? -EBUSY : 0;
}

static uint32_t on_sample_count(void *ctx)
{
	(void)ctx;
	return SAMPLES;
}

static int on_find_sample(void *ctx, const char *path, uint32_t *id)
{
	(void)ctx;
	fuzz_require(strlen(path) <= SHADE_PATH_MAX, "a path is bounded");
	*id = (uint32_t)(strlen(path) * 7 + (unsigned char)*path) % SAMPLES;
	return *path == 'x' ? -ENOENT : 0;
}

static int on_check_path(void *ctx, const char *path)
{
	uint32_t id;

	return on_find_sample(ctx, path, &id);
}

static int on_check_policy(void *ctx, const char *name)
{
	(void)ctx;
	return *name == 'l' ? 0 : -EINVAL;
}

static int on_check_capacity(void *ctx, uint64_t bytes, double share)
{
	(void)ctx;
	return bytes != 7 && !(share < 0) ? 0 : -EINVAL;
}

static int on_scores(void *ctx, const uint32_t *ids, const float *scores, uint32_t count)
{
	struct world *world = ctx;
	uint32_t bits;

	fuzz_require(count && count <= SHADE_SCORES_MAX, "a batch has scores, and not too many");
	for (uint32_t i = 0; i < count; i++) {
		fuzz_require(ids[i] < SAMPLES, "the id of a score is in range");
		fuzz_require(isfinite(scores[i]) && scores[i] >= 0,
			     "a score is finite and not negative");
		memcpy(&bits, &scores[i], sizeof(bits));
		digest_add(world, (uint64_t)ids[i] << 32 | bits);
	}
	return ++world->calls == world->refuse_at ? -EBUSY : 0;
}

static int on_order(void *ctx, uint64_t epoch, const uint32_t *ids, uint32_t count)
{
	struct world *world = ctx;

	fuzz_require(count <= SHADE_ORDER_MAX, "an order is bounded");
	digest_add(world, epoch);
	digest_add(world, count);
	for (uint32_t i = 0; i < count; i++) {
		fuzz_require(ids[i] < SAMPLES, "the id of an order is in range");
		digest_add(world, ids[i]);
	}
	return ++world->calls == world->refuse_at ? -EBUSY : 0;
}

static int on_epoch(void *ctx, uint64_t epoch)
{
	struct world *world = ctx;

	digest_add(world, epoch + 1);
	return ++world->calls == world->refuse_at ? -EBUSY : 0;
}

static int on_group(void *ctx, const char *name)
{
	struct world *world = ctx;

	fuzz_require(!*name || group_is_name(name), "a group has a proper name, or none");
	digest_add(world, 'g');
	for (; *name; name++)
		digest_add(world, (unsigned char)*name);
	return ++world->calls == world->refuse_at ? -EBUSY : 0;
}

static int on_shared(void *ctx, uint64_t epoch, const uint32_t *ids, const float *weights,
		     uint32_t count)
{
	struct world *world = ctx;
	uint32_t bits;

	for (uint32_t i = 0; weights && i < count; i++) {
		fuzz_require(isfinite(weights[i]) && weights[i] >= 0,
			     "a weight is finite and not negative");
		memcpy(&bits, &weights[i], sizeof(bits));
		digest_add(world, bits);
	}
	digest_add(world, 's');
	return on_order(ctx, epoch, ids, count);
}

static int on_read_shared(void *ctx, uint64_t epoch)
{
	return on_epoch(ctx, epoch + 7);
}

static int on_read_importance(void *ctx)
{
	return digest_text(ctx, 'i', "importance");
}

static int on_warm(void *ctx, const char *path)
{
	return digest_text(ctx, 'w', path);
}

static int on_evict(void *ctx, const char *path)
{
	return digest_text(ctx, 'e', path);
}

static int on_pin(void *ctx, const char *path)
{
	return digest_text(ctx, 'p', path);
}

static int on_unpin(void *ctx, const char *path)
{
	return digest_text(ctx, 'u', path);
}

static int on_policy(void *ctx, const char *name)
{
	return digest_text(ctx, 'n', name);
}

static int on_capacity(void *ctx, uint64_t bytes, double share)
{
	fuzz_require(share >= 0 && share <= 1, "a share is part of the whole");
	fuzz_require(!share || !bytes, "a capacity is bytes or a share");
	return on_epoch(ctx, bytes + (uint64_t)(share * 1e9));
}

static int on_uses(void *ctx, double uses)
{
	fuzz_require(uses >= 1 && uses <= SHADE_USES_MAX, "uses are within their bounds");
	return on_epoch(ctx, (uint64_t)(uses * 1e9));
}

static int on_forget(void *ctx, const char *job)
{
	struct world *world = ctx;

	fuzz_require(strlen(job) <= SHADE_LINE_MAX, "a text is bounded");
	digest_add(world, 'f');
	for (; *job; job++)
		digest_add(world, (unsigned char)*job);
	return ++world->calls == world->refuse_at ? -EBUSY : 0;
}

static void on_table(void *ctx, const uint32_t *ids, uint32_t count)
{
	(void)ctx;
	(void)ids;
	(void)count;
}

static int on_rescan(void *ctx)
{
	return digest_text(ctx, 'r', "rescan");
}

static int on_upgrade(void *ctx, char *why, size_t room)
{
	snprintf(why, room, "it is refused");
	return digest_text(ctx, 'a', "upgrade");
}

static const struct control_ops ops = {
	.sample_count = on_sample_count,
	.find_sample = on_find_sample,
	.check_path = on_check_path,
	.check_policy = on_check_policy,
	.check_capacity = on_check_capacity,
	.scores = on_scores,
	.order = on_order,
	.epoch = on_epoch,
	.uses = on_uses,
	.group = on_group,
	.shared = on_shared,
	.read_shared = on_read_shared,
	.read_importance = on_read_importance,
	.warm = on_warm,
	.evict = on_evict,
	.pin = on_pin,
	.unpin = on_unpin,
	.capacity = on_capacity,
	.policy = on_policy,
	.rescan = on_rescan,
	.upgrade = on_upgrade,
	.forget = on_forget,
	.table = on_table,
};

/* A call to the parser has returned `error`. */
static void check_answer(struct control_parser *p, const struct world *world, int error,
			 uint64_t calls_before)
{
	const char *answer = control_parser_answer(p);
	size_t length = strlen(answer);

	fuzz_require(length && length < 512 && answer[length - 1] == '\n', "an answer is a line");
	fuzz_require(!strncmp(answer, "ok ", 3) == !error,
		     "the answer agrees with the return value");
	for (size_t i = 0; i + 1 < length; i++)
		fuzz_require(answer[i] >= ' ' && answer[i] <= '~', "an answer can be printed");
	if (error == -EINVAL || error == -ENOMEM)
		fuzz_require(world->calls == calls_before, "a bad write has no effect");
	else
		fuzz_require(!error || error == -EBUSY, "errors are those that are documented");
}

static int feed(struct control_parser *p, struct world *world, const uint8_t *data, size_t size)
{
	uint64_t calls = world->calls;
	/* Bytes beyond the end of what was written are noticed if they are not ours. */
	uint8_t *copy = fuzz_copy(data, size);
	int error = control_parser_write(p, copy, size);

	free(copy);
	check_answer(p, world, error, calls);
	return error;
}

static int finish(struct control_parser *p, struct world *world)
{
	uint64_t calls = world->calls;
	int error = control_parser_finish(p);

	if (error)
		check_answer(p, world, error, calls);
	fuzz_require(feed(p, world, (const uint8_t *)"epoch 1\n", 8) == 0 || world->refuse_at,
		     "after the end a write begins afresh");
	return error;
}

static int run(struct world *world, const uint8_t *data, size_t size, uint32_t cuts)
{
	struct control_parser *p = control_parser_new(&ops, world);
	int worst = 0, error;

	fuzz_require(p, "there is memory");
	while (size) {
		size_t piece = size;

		if (cuts) {
			cuts = cuts * 1664525 + 1013904223;
			/* Mostly short ones, now and then a long one. */
			piece = 1 + (cuts >> 16) % (cuts >> 30 ? 12 : 3000);
			piece = piece < size ? piece : size;
		}
		error = feed(p, world, data, piece);
		worst = error ? error : worst;
		data += piece;
		size -= piece;
	}
	error = finish(p, world);
	control_parser_free(p);
	return error ? error : worst;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct world whole = { 0 }, cut = { 0 }, refused = { 0 };
	uint32_t seed = 1;

	for (size_t i = 0; i < size; i++)
		seed = seed * 31 + data[i];
	seed |= 1;
	if (run(&whole, data, size, 0) == 0) {
		fuzz_require(run(&cut, data, size, seed) == 0, "pieces are as good as the whole");
		fuzz_require(cut.digest == whole.digest, "pieces have the effect of the whole");
	} else {
		run(&cut, data, size, seed);
	}
	refused.refuse_at = 1 + seed % 5;
	run(&refused, data, size, seed);
	return 0;
}

size_t fuzz_make(struct fuzz_random *random, uint8_t *data)
{
	static const struct fuzz_part parts[] = {
		FUZZ_PART("score 5 0.25\n"),
		FUZZ_PART("score my/cat 1e3\n"),
		FUZZ_PART("order 3 begin\n"),
		FUZZ_PART("order 3 1 2 3 999\n"),
		FUZZ_PART("order 3 "),
		FUZZ_PART("12 13 14 "),
		FUZZ_PART("order 3 end\n"),
		FUZZ_PART("epoch 4\n"),
		FUZZ_PART("warm a\\040b\n"),
		FUZZ_PART("pin ./x\npin ./\n"),
		FUZZ_PART("evict ./y\nunpin z\n"),
		FUZZ_PART("capacity 40%\ncapacity 8G\n"),
		FUZZ_PART("policy lru\nuses 2.5\nrescan\nupgrade\nforget\nforget a b\n# note\n\n"),
		FUZZ_PART("\365SHD\1\0\1\0\30\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\1\0\0\0\2\0\0\0\0\0\200"
			  "?\0\0\0@"),
		FUZZ_PART("\365SHD\1\0\2\0\30\0\0\0\0\0\0\0\7\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\5\0\0\0"
			  "\6\0\0\0"),
		FUZZ_PART("\365SHD\1\0\3\0\10\0\0\0\0\0\0\0\7\0\0\0\0\0\0\0"),
		FUZZ_PART("\365SHD\1\0\4\0\16\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0aa\0bb\0"),
		FUZZ_PART("group sweep-1.2_a\ngroup\ngroup .x\nimportance\n"),
		FUZZ_PART("order 3 begin group\norder 3 read\n"),
		FUZZ_PART("\365SHD\1\0\5\0\30\0\0\0\0\0\0\0\7\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\5\0\0\0"
			  "\6\0\0\0"),
		FUZZ_PART("\365SHD\1\0\5\0\30\0\0\0\0\0\0\0\7\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\5\0\0\0"
			  "\0\0\200?"),
		FUZZ_PART("\365SHD\1\0\4\0\10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
	};

	return fuzz_join(random, parts, sizeof(parts) / sizeof(parts[0]), 12, data);
}
