/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The state of a control descriptor, and how a write becomes calls.
 *
 * Checked messages become a list of commands; what belongs to them is in pools, which are
 * arrays of bytes that only grow at their end. So going back after a failure is cutting the
 * pools to what they held before, and several orders and lists of scores in one write cost no
 * allocation each. After a write the pools keep only what belongs to the message that is
 * not complete and to the order that is open, moved to the front.
 */
#include "control/parse_internal.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "escape.h"
#include "grow.h"

/* An empty pool gives back what is more than this. */
#define POOL_KEEP ((size_t)1 << 17)

int control_pool_reserve(struct control_pool *pool, size_t size)
{
	return grow(pool->data, pool->room, pool->used, size);
}

int control_pool_add(struct control_pool *pool, const void *data, size_t size)
{
	int error = control_pool_reserve(pool, size);

	if (error || !size)
		return error;
	memcpy(pool->data + pool->used, data, size);
	pool->used += size;
	return 0;
}

void control_pool_free(struct control_pool *pool)
{
	free(pool->data);
	*pool = (struct control_pool){ 0 };
}

/* Forgets the first `size` bytes. */
static void pool_cut_front(struct control_pool *pool, size_t size)
{
	assert(size <= pool->used);
	pool->used -= size;
	if (pool->used && size)
		memmove(pool->data, pool->data + size, pool->used);
	if (!pool->used && pool->room > POOL_KEEP)
		control_pool_free(pool);
}

static void pool_clear(struct control_pool *pool)
{
	pool_cut_front(pool, pool->used);
}

const char *control_quote(char quoted[CONTROL_QUOTE_SIZE], const char *text, size_t size)
{
	char *to = quoted;
	size_t i;

	for (i = 0; i < size && to < quoted + CONTROL_QUOTE_SIZE - 9; i++) {
		/* A backslash stays: it is most likely an escape of the user's own. */
		if (text[i] == '\\')
			*to++ = '\\';
		else
			to = escape_text(to, &text[i], 1, ESCAPE_HIGH);
	}
	strcpy(to, i < size ? "..." : "");
	return quoted;
}

static struct control_position position_now(const struct control_parser *p)
{
	bool is_record = p->record.head_need != 0;
	uint32_t number = is_record ? p->record_number : p->line;

	return (struct control_position){ is_record, number, number };
}

/* Begins the answer; returns where it goes on. */
static char *answer_position(struct control_parser *p, const struct control_position *position)
{
	size_t size = sizeof(p->answer);
	int length;

	if (position->is_record)
		length = snprintf(p->answer, size, "record %" PRIu32, position->first);
	else if (position->first != position->last)
		length = snprintf(p->answer, size, "lines %" PRIu32 " to %" PRIu32, position->first,
				  position->last);
	else
		length = snprintf(p->answer, size, "line %" PRIu32, position->first);
	return p->answer + length;
}

int control_fail(struct control_parser *p, const char *format, ...)
{
	struct control_position position = position_now(p);
	char *at = answer_position(p, &position);
	char *end = p->answer + sizeof(p->answer) - 1; /* the newline needs one */
	va_list arguments;

	if (position.is_record)
		at += sprintf(at, ", byte %" PRIu64, p->record.head_used + p->record.body_taken);
	at = stpcpy(at, ": ");
	va_start(arguments, format);
	vsnprintf(at, (size_t)(end - at), format, arguments);
	va_end(arguments);
	strcat(at, "\n");
	return -EINVAL;
}

struct control_command *control_add_command(struct control_parser *p, enum control_kind kind)
{
	struct control_command command = { .kind = kind, .position = position_now(p) };

	if (control_pool_add(&p->commands, &command, sizeof(command)))
		return NULL;
	return (struct control_command *)(p->commands.data + p->commands.used) - 1;
}

const char *control_relative(const char *path)
{
	if (!*path || *path == '/')
		return NULL;
	while (path[0] == '.' && path[1] == '/')
		path += 1 + strspn(path + 1, "/");
	return *path ? path : ".";
}

int control_find_sample(struct control_parser *p, const char *path, uint32_t *id)
{
	char quoted[CONTROL_QUOTE_SIZE];
	int error = p->ops->find_sample(p->ctx, path, id);

	if (error == -ENOMEM || !error)
		return error;
	return control_fail(p, "there is no sample '%s'",
			    control_quote(quoted, path, strlen(path)));
}

/* Between writes: only what is unfinished stays. */
static void drop_applied(struct control_parser *p)
{
	size_t order_cut = p->order.open ? p->order.ids_at : p->order_ids.used;

	pool_cut_front(&p->order_ids, order_cut);
	p->order.ids_at = 0;
	p->line_ids_at -= p->in_ids ? order_cut : 0;
	if (p->record.head_need) {
		pool_cut_front(&p->ids, p->record.ids_at);
		pool_cut_front(&p->scores, p->record.scores_at);
		p->record.ids_at = 0;
		p->record.scores_at = 0;
	} else {
		pool_clear(&p->ids);
		pool_clear(&p->scores);
	}
	pool_clear(&p->texts);
	pool_clear(&p->commands);
}

static void forget_unfinished(struct control_parser *p)
{
	p->record = (struct control_record){ 0 };
	p->in_ids = false;
	pool_clear(&p->partial);
	pool_clear(&p->next_table);
}

static void write_begin(struct control_parser *p)
{
	p->id_limit = p->ops->sample_count(p->ctx);
	p->line = 1;
	p->record_number = 1;
	p->message_count = 0;
	p->old_order = p->order;
	/* Ids of a line that is not complete go with the line. */
	p->old_order_used = p->in_ids ? p->line_ids_at : p->order_ids.used;
	p->table_changed = false;
}

static void write_undo(struct control_parser *p)
{
	forget_unfinished(p);
	if (p->table_changed) {
		control_pool_free(&p->table);
		p->table = p->old_table;
	}
	p->order = p->old_order;
	p->order_ids.used = p->old_order_used;
	drop_applied(p);
}

static void write_keep(struct control_parser *p)
{
	if (p->table_changed)
		control_pool_free(&p->old_table);
	if (p->table_changed && p->table.used && !p->is_replaying)
		p->ops->table(p->ctx, (const uint32_t *)(const void *)p->table.data,
			      (uint32_t)(p->table.used / sizeof(uint32_t)));
	drop_applied(p);
}

static int apply_text(struct control_parser *p, const struct control_command *command)
{
	const struct control_ops *ops = p->ops;
	const char *text = (const char *)p->texts.data + command->text_at;

	switch (command->kind) {
	case CONTROL_WARM:
		return ops->warm(p->ctx, text);
	case CONTROL_EVICT:
		return ops->evict(p->ctx, text);
	case CONTROL_PIN:
		return ops->pin(p->ctx, text);
	case CONTROL_UNPIN:
		return ops->unpin(p->ctx, text);
	case CONTROL_FORGET:
		return ops->forget(p->ctx, text);
	default:
		assert(command->kind == CONTROL_POLICY);
		return ops->policy(p->ctx, text);
	}
}

static int apply_order(struct control_parser *p, const struct control_command *command)
{
	const struct control_pool *pool = command->position.is_record ? &p->ids : &p->order_ids;
	static const uint32_t none[1];
	const void *ids = command->count ? pool->data + command->ids_at : (const void *)none;
	const void *weights = command->is_weighted ? p->scores.data + command->scores_at : NULL;

	if (command->kind == CONTROL_SHARED)
		return p->ops->shared(p->ctx, command->number, ids, weights, command->count);
	return p->ops->order(p->ctx, command->number, ids, command->count);
}

/* What has to do with the group of the job. */
static int apply_group(struct control_parser *p, const struct control_command *command)
{
	switch (command->kind) {
	case CONTROL_GROUP:
		return p->ops->group(p->ctx, (const char *)p->texts.data + command->text_at);
	case CONTROL_READ_SHARED:
		return p->ops->read_shared(p->ctx, command->number);
	default:
		assert(command->kind == CONTROL_READ_IMPORTANCE);
		return p->ops->read_importance(p->ctx);
	}
}

/* The reason may have the name of a file. */
static int apply_upgrade(struct control_parser *p)
{
	int rc = p->ops->upgrade(p->ctx, p->why, sizeof(p->why));

	for (char *at = p->why; *at; at++)
		if (*at > 0 && iscntrl(*at))
			*at = '?';
	return rc;
}

static int apply_command(struct control_parser *p, const struct control_command *command)
{
	const void *ids, *scores;

	switch (command->kind) {
	case CONTROL_GROUP:
	case CONTROL_READ_SHARED:
	case CONTROL_READ_IMPORTANCE:
		return apply_group(p, command);
	case CONTROL_SCORES:
		ids = p->ids.data + command->ids_at;
		scores = p->scores.data + command->scores_at;
		return p->ops->scores(p->ctx, ids, scores, command->count);
	case CONTROL_ORDER:
	case CONTROL_SHARED:
		return apply_order(p, command);
	case CONTROL_EPOCH:
		return p->ops->epoch(p->ctx, command->number);
	case CONTROL_USES:
		return p->ops->uses(p->ctx, command->share);
	case CONTROL_CAPACITY:
		return p->ops->capacity(p->ctx, command->number, command->share);
	case CONTROL_RESCAN:
		return p->ops->rescan(p->ctx);
	case CONTROL_UPGRADE:
		return apply_upgrade(p);
	default:
		return apply_text(p, command);
	}
}

static const char *command_name(enum control_kind kind)
{
	static const char *const names[] = {
		[CONTROL_SCORES] = "score",	 [CONTROL_ORDER] = "order",
		[CONTROL_EPOCH] = "epoch",	 [CONTROL_WARM] = "warm",
		[CONTROL_EVICT] = "evict",	 [CONTROL_PIN] = "pin",
		[CONTROL_UNPIN] = "unpin",	 [CONTROL_CAPACITY] = "capacity",
		[CONTROL_POLICY] = "policy",	 [CONTROL_RESCAN] = "rescan",
		[CONTROL_FORGET] = "forget",	 [CONTROL_USES] = "uses",
		[CONTROL_GROUP] = "group",	 [CONTROL_SHARED] = "order",
		[CONTROL_READ_SHARED] = "order", [CONTROL_READ_IMPORTANCE] = "importance",
		[CONTROL_UPGRADE] = "upgrade",
	};

	return names[kind];
}

/* Where the errno alone would not tell what to do. */
static const char *reason_of(enum control_kind kind, int error)
{
	bool is_shared = kind == CONTROL_SHARED || kind == CONTROL_READ_SHARED;

	if (kind == CONTROL_CAPACITY && error == -EBUSY)
		return "the pinned samples need more, so unpin some first";
	if (kind == CONTROL_FORGET && error == -ENOENT)
		return "there is no such job";
	if (kind == CONTROL_GROUP && error == -EPERM)
		return "only a job of its own, in .shade/jobs, can be in a group";
	if ((is_shared || kind == CONTROL_READ_IMPORTANCE) && error == -ENXIO)
		return "the job is in no group, so write group NAME first";
	if (is_shared && error == -EEXIST)
		return "the group has an order of that epoch";
	if (is_shared && error == -ENOENT)
		return "the group has no order of that epoch";
	if (is_shared && error == -ERANGE)
		return "no member of the group reads that epoch now or next";
	return strerrordesc_np(-error);
}

static void answer_refused(struct control_parser *p, const struct control_command *command,
			   int error)
{
	bool is_upgrade = command->kind == CONTROL_UPGRADE;
	const char *reason = is_upgrade ? p->why : reason_of(command->kind, error);
	char *at;

	/* Mostly it is alone, and then the sentence is all that there is to say. */
	if (is_upgrade && p->message_count == 1) {
		snprintf(p->answer, sizeof(p->answer), "%s\n", reason);
		return;
	}
	at = answer_position(p, &command->position);
	snprintf(at, (size_t)(p->answer + sizeof(p->answer) - at),
		 ": %s: %s; what came before it was applied, what follows was not\n",
		 command_name(command->kind), reason ? reason : "failed");
}

static void answer_done(struct control_parser *p)
{
	char *at = p->answer;

	at += sprintf(at, "ok %" PRIu64 " command%s", p->message_count,
		      p->message_count == 1 ? "" : "s");
	if (p->order.open)
		at += sprintf(at, ", order %" PRIu64 " is open", p->order.epoch);
	if (p->record.head_need)
		at += sprintf(at, ", a record is not complete");
	else if (p->partial.used || p->in_ids)
		at += sprintf(at, ", a line is not complete");
	strcpy(at, "\n");
}

/* Everything was read, or reading ended with `error`. */
static int write_end(struct control_parser *p, int error)
{
	const struct control_command *commands = (const void *)p->commands.data;
	size_t count = p->commands.used / sizeof(*commands);

	if (error == -ENOMEM)
		strcpy(p->answer, "out of memory: nothing of this write was applied\n");
	for (size_t i = 0; i < count && !error && !p->is_replaying; i++) {
		error = apply_command(p, &commands[i]);
		if (error)
			answer_refused(p, &commands[i], error);
	}
	assert(error <= 0);
	if (error) {
		write_undo(p);
		return error;
	}
	write_keep(p);
	answer_done(p);
	return 0;
}

static bool record_follows(const struct control_parser *p, const struct control_input *in)
{
	if (p->record.head_need)
		return true;
	return !p->partial.used && !p->in_ids &&
	       (unsigned char)*in->at == (SHADE_RECORD_MAGIC & 0xff);
}

struct control_parser *control_parser_new(const struct control_ops *ops, void *ctx)
{
	struct control_parser *p = calloc(1, sizeof(*p));

	assert(ops && ops->sample_count && ops->find_sample && ops->check_path &&
	       ops->check_policy && ops->scores && ops->order && ops->epoch && ops->warm &&
	       ops->evict && ops->pin && ops->unpin && ops->capacity && ops->policy &&
	       ops->rescan && ops->group && ops->shared && ops->read_shared &&
	       ops->read_importance && ops->forget && ops->upgrade && ops->table);
	if (!p)
		return NULL;
	p->ops = ops;
	p->ctx = ctx;
	answer_done(p);
	return p;
}

void control_parser_free(struct control_parser *p)
{
	if (!p)
		return;
	control_pool_free(&p->partial);
	control_pool_free(&p->order_ids);
	control_pool_free(&p->table);
	control_pool_free(&p->ids);
	control_pool_free(&p->scores);
	control_pool_free(&p->texts);
	control_pool_free(&p->next_table);
	control_pool_free(&p->commands);
	free(p);
}

int control_parser_write(struct control_parser *p, const void *data, size_t size)
{
	struct control_input in = { data, (const char *)data + size };
	int error = 0;

	write_begin(p);
	if (size > CONTROL_WRITE_MAX)
		error = control_fail(p, "%zu bytes in one write, more than %zu", size,
				     CONTROL_WRITE_MAX);
	while (!error && in.at < in.end)
		error = record_follows(p, &in) ? control_binary_take(p, &in)
					       : control_text_take(p, &in);
	return write_end(p, error);
}

int control_parser_finish(struct control_parser *p)
{
	int error;

	if (!p->record.head_need && !p->partial.used && !p->in_ids)
		return 0;
	write_begin(p);
	if (p->record.head_need)
		error = control_fail(p, "the record is not complete");
	else
		error = control_text_end(p);
	return write_end(p, error);
}

uint64_t control_parser_bytes(const struct control_parser *p)
{
	return sizeof(*p) + p->partial.room + p->order_ids.room + p->table.room + p->ids.room +
	       p->scores.room + p->texts.room + p->next_table.room + p->commands.room;
}

int control_parser_refuse(struct control_parser *p)
{
	write_begin(p);
	write_undo(p);
	strcpy(p->answer, "this user has as much memory in .shade as one may have, for texts, "
			  "tables and unfinished orders: nothing of this write was applied\n");
	return -ENOMEM;
}

const uint32_t *control_parser_table(const struct control_parser *p, uint32_t *count)
{
	*count = control_id_count(p);
	return p->table.used ? (const uint32_t *)p->table.data : NULL;
}

const char *control_parser_answer(const struct control_parser *p)
{
	return p->answer;
}

/* --- what another parser was told --------------------------------------------------------------*/

bool control_parser_is_unfinished(const struct control_parser *p)
{
	return p->order.open || p->record.head_need || p->partial.used || p->in_ids;
}

bool control_parser_has_new_table(const struct control_parser *p)
{
	return p->table_changed;
}

int control_parser_set_table(struct control_parser *p, const uint32_t *ids, uint32_t count)
{
	return control_pool_add(&p->table, ids, count * sizeof(*ids));
}

int control_parser_replay(struct control_parser *p, const void *data, size_t size)
{
	int error = 0;

	p->is_replaying = true;
	if (size) {
		error = control_parser_write(p, data, size);
	} else {
		write_begin(p);
		write_undo(p);
	}
	p->is_replaying = false;
	return error;
}

void control_parser_set_answer(struct control_parser *p, const char *answer)
{
	assert(strlen(answer) < sizeof(p->answer));
	strcpy(p->answer, answer);
}

static int ioctl_fail(struct control_parser *p, uint32_t entry, const char *what)
{
	snprintf(p->answer, sizeof(p->answer), "ioctl, entry %" PRIu32 ": %s\n", entry, what);
	return -EINVAL;
}

int control_parser_id(struct control_parser *p, uint32_t id, uint32_t *mount_id)
{
	p->id_limit = p->ops->sample_count(p->ctx);
	if (id >= control_id_count(p))
		return ioctl_fail(p, 0, "the id is out of range");
	*mount_id = control_map_id(p, id);
	return 0;
}

int control_parser_scores(struct control_parser *p, const struct shade_ioctl_scores *scores)
{
	uint32_t ids[SHADE_IOCTL_SCORES_MAX];
	uint32_t bad;
	int error;

	if (!scores->count || scores->count > SHADE_IOCTL_SCORES_MAX || scores->zero)
		return ioctl_fail(p, 0, "the count is out of range, or `zero` is not");
	bad = control_bad_score(scores->scores, scores->count);
	if (bad < scores->count)
		return ioctl_fail(p, bad, "a score is a finite number of 0 or more");
	p->id_limit = p->ops->sample_count(p->ctx);
	for (uint32_t i = 0; i < scores->count; i++) {
		if (scores->ids[i] >= control_id_count(p))
			return ioctl_fail(p, i, "the id is out of range");
		ids[i] = control_map_id(p, scores->ids[i]);
	}
	error = p->ops->scores(p->ctx, ids, scores->scores, scores->count);
	snprintf(p->answer, sizeof(p->answer), error ? "ioctl: not applied\n" : "ok 1 command\n");
	return error;
}
