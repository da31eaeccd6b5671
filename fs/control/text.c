/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Text commands. A line that is complete in the bytes of a write is read where it is. What is
 * cut, or longer than SHADE_LINE_MAX, goes through `partial`, which never holds more than
 * that; an `order EPOCH ID ...` line may be longer, so its ids are taken out of `partial`
 * whenever that is full.
 */
#include "control/parse_internal.h"

#include <assert.h>
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <string.h>

#include "control/group.h"
#include "escape.h"
#include "number.h"
#include "size.h"

struct span {
	const char *at;
	const char *end;
};

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static size_t span_size(struct span span)
{
	return (size_t)(span.end - span.at);
}

static bool span_is(struct span span, const char *word)
{
	size_t size = strlen(word);

	return span_size(span) == size && !memcmp(span.at, word, size);
}

static void skip_blanks(struct span *rest)
{
	while (rest->at < rest->end && is_blank(*rest->at))
		rest->at++;
}

/* The next word, empty at the end of the line; `rest` then begins at what follows. */
static struct span take_word(struct span *rest)
{
	struct span word;

	skip_blanks(rest);
	word.at = rest->at;
	while (rest->at < rest->end && !is_blank(*rest->at))
		rest->at++;
	word.end = rest->at;
	skip_blanks(rest);
	return word;
}

static bool is_digits(struct span word)
{
	const char *at = word.at;

	while (at < word.end && is_digit(*at))
		at++;
	return at == word.end && at > word.at;
}

static bool read_number(struct span word, uint64_t *number)
{
	return !number_whole(word.at, span_size(word), number);
}

static int fail_word(struct control_parser *p, const char *command, struct span word,
		     const char *wanted)
{
	char quoted[CONTROL_QUOTE_SIZE];

	return control_fail(p, "%s: '%s' is not %s", command,
			    control_quote(quoted, word.at, span_size(word)), wanted);
}

/* There must be nothing more on the line. */
static int expect_end(struct control_parser *p, const char *command, struct span rest)
{
	char quoted[CONTROL_QUOTE_SIZE];

	if (rest.at == rest.end)
		return 0;
	return control_fail(p, "%s: '%s' is too much", command,
			    control_quote(quoted, rest.at, span_size(rest)));
}

static int fail_id(struct control_parser *p, const char *command, struct span word)
{
	char quoted[CONTROL_QUOTE_SIZE];

	if (!is_digits(word))
		return fail_word(p, command, word, "a sample id");
	return control_fail(p, "%s: id %s is out of range, there are %" PRIu32, command,
			    control_quote(quoted, word.at, span_size(word)), control_id_count(p));
}

/* Adds the path to `texts`, where it stays valid until the next addition. */
static int take_path(struct control_parser *p, const char *command, struct span raw,
		     const char **path)
{
	size_t room = span_size(raw) + 1;
	const char *relative;
	ssize_t size;
	char *text;

	if (control_pool_reserve(&p->texts, room))
		return -ENOMEM;
	text = (char *)p->texts.data + p->texts.used;
	size = unescape_text(text, room, raw.at, span_size(raw), ESCAPE_LINE);
	if (size == -EINVAL)
		return control_fail(p,
				    "%s: a backslash is followed by three octal digits or a "
				    "backslash",
				    command);
	if (size < 0)
		return control_fail(p, "%s: a path has no byte of 0 or above 255", command);
	if (size > SHADE_PATH_MAX)
		return control_fail(p, "%s: the path has more than %u bytes", command,
				    SHADE_PATH_MAX);
	relative = control_relative(text);
	if (!relative)
		return fail_word(p, command, raw, "a path relative to the mount");
	room = strlen(relative) + 1;
	*path = memmove(text, relative, room);
	p->texts.used += room;
	return 0;
}

static int take_sample(struct control_parser *p, struct span word, uint32_t *id)
{
	size_t texts = p->texts.used;
	const char *path = NULL;
	uint64_t number;
	int error;

	if (read_number(word, &number) && number < control_id_count(p)) {
		*id = control_map_id(p, (uint32_t)number);
		return 0;
	}
	if (is_digits(word))
		return fail_id(p, "score", word);
	error = take_path(p, "score", word, &path);
	if (!error)
		error = control_find_sample(p, path, id);
	p->texts.used = texts;
	return error;
}

static struct control_command *last_command(const struct control_parser *p)
{
	if (!p->commands.used)
		return NULL;
	return (struct control_command *)(p->commands.data + p->commands.used) - 1;
}

/* `score` lines that follow each other are one command: adds to that, or begins one. */
static int add_score(struct control_parser *p, uint32_t id, float score)
{
	struct control_command *last = last_command(p);

	if (control_pool_add(&p->ids, &id, sizeof(id)) ||
	    control_pool_add(&p->scores, &score, sizeof(score)))
		return -ENOMEM;
	if (!last || last->kind != CONTROL_SCORES || last->position.is_record ||
	    last->count == SHADE_SCORES_MAX) {
		last = control_add_command(p, CONTROL_SCORES);
		if (!last)
			return -ENOMEM;
		last->ids_at = p->ids.used - sizeof(id);
		last->scores_at = p->scores.used - sizeof(score);
	}
	last->count++;
	last->position.last = p->line;
	return 0;
}

/* score SAMPLE VALUE: the value is the last word, so that the path may have blanks. */
static int line_score(struct control_parser *p, struct span rest)
{
	struct span value = { rest.end, rest.end };
	double real;
	uint32_t id;
	int error;

	while (value.end > rest.at && is_blank(value.end[-1]))
		value.end--;
	value.at = value.end;
	while (value.at > rest.at && !is_blank(value.at[-1]))
		value.at--;
	rest.end = value.at;
	while (rest.end > rest.at && is_blank(rest.end[-1]))
		rest.end--;
	if (rest.at == rest.end)
		return control_fail(p, "score: write score SAMPLE VALUE");
	if (number_real(value.at, span_size(value), &real) || !(real >= 0 && real <= FLT_MAX))
		return fail_word(p, "score", value, "a finite number of 0 or more");
	error = take_sample(p, rest, &id);
	return error ? error : add_score(p, id, (float)real);
}

static int check_open_order(struct control_parser *p, uint64_t epoch)
{
	if (!p->order.open)
		return control_fail(p, "order: write order %" PRIu64 " begin first", epoch);
	if (p->order.epoch != epoch)
		return control_fail(p, "order: %" PRIu64 " is open, not %" PRIu64, p->order.epoch,
				    epoch);
	return 0;
}

/* order EPOCH begin [group] */
static int order_begin(struct control_parser *p, uint64_t epoch, struct span rest)
{
	struct span word = take_word(&rest);
	bool is_shared = span_is(word, "group");

	if (!is_shared && word.at < word.end)
		return fail_word(p, "order", word, "group");
	p->order = (struct control_order){ true, is_shared, epoch, p->order_ids.used };
	return expect_end(p, "order", rest);
}

/* order EPOCH read */
static int order_read(struct control_parser *p, uint64_t epoch, struct span rest)
{
	struct control_command *command = control_add_command(p, CONTROL_READ_SHARED);

	if (!command)
		return -ENOMEM;
	command->number = epoch;
	return expect_end(p, "order", rest);
}

static int order_end(struct control_parser *p, uint64_t epoch)
{
	int error = check_open_order(p, epoch);
	struct control_command *command;

	if (error)
		return error;
	command = control_add_command(p, p->order.is_shared ? CONTROL_SHARED : CONTROL_ORDER);
	if (!command)
		return -ENOMEM;
	command->number = epoch;
	command->ids_at = p->order.ids_at;
	command->count = (uint32_t)((p->order_ids.used - p->order.ids_at) / sizeof(uint32_t));
	p->order.open = false;
	return 0;
}

/* Adds ids to the open order, all of `rest`. */
static int order_add(struct control_parser *p, struct span rest)
{
	uint32_t limit = control_id_count(p);
	size_t count = (p->order_ids.used - p->order.ids_at) / sizeof(uint32_t);
	uint32_t *to;

	/* An id takes two bytes of text at least, but for the last. */
	if (control_pool_reserve(&p->order_ids, (span_size(rest) / 2 + 1) * sizeof(*to)))
		return -ENOMEM;
	to = (uint32_t *)(p->order_ids.data + p->order_ids.used);
	for (;;) {
		const char *start;
		uint64_t id = 0;

		skip_blanks(&rest);
		start = rest.at;
		/* `limit` has 32 bits: this cannot overflow before it is noticed. */
		while (rest.at < rest.end && is_digit(*rest.at) && id <= UINT32_MAX)
			id = id * 10 + (uint64_t)(*rest.at++ - '0');
		if (start == rest.end)
			break;
		if (rest.at == start || id >= limit || (rest.at < rest.end && !is_blank(*rest.at)))
			return fail_id(p, "order", take_word(&(struct span){ start, rest.end }));
		if (count++ == SHADE_ORDER_MAX)
			return control_fail(p, "order: more than %u ids", SHADE_ORDER_MAX);
		*to++ = control_map_id(p, (uint32_t)id);
	}
	p->order_ids.used = (size_t)((unsigned char *)to - p->order_ids.data);
	return 0;
}

/* The end of a line of ids. */
static int order_added(struct control_parser *p)
{
	if (p->order_ids.used == p->line_ids_at)
		return control_fail(p, "order: begin, end or sample ids are missing");
	return 0;
}

static int line_order(struct control_parser *p, struct span rest)
{
	struct span word = take_word(&rest);
	uint64_t epoch;
	int error;

	if (!read_number(word, &epoch))
		return fail_word(p, "order", word, "an epoch");
	/* Verbs are short: no second look at all ids of a long line. */
	if (rest.at < rest.end && !is_digit(*rest.at)) {
		struct span verb = take_word(&rest);

		if (span_is(verb, "begin"))
			return order_begin(p, epoch, rest);
		if (span_is(verb, "read"))
			return order_read(p, epoch, rest);
		if (span_is(verb, "end")) {
			error = order_end(p, epoch);
			return error ? error : expect_end(p, "order", rest);
		}
		return fail_word(p, "order", verb, "begin, end, read or a sample id");
	}
	error = check_open_order(p, epoch);
	p->line_ids_at = p->order_ids.used;
	if (!error)
		error = order_add(p, rest);
	return error ? error : order_added(p);
}

static int line_epoch(struct control_parser *p, struct span rest)
{
	struct span word = take_word(&rest);
	struct control_command *command;
	uint64_t epoch;

	if (!read_number(word, &epoch))
		return fail_word(p, "epoch", word, "a number");
	command = control_add_command(p, CONTROL_EPOCH);
	if (!command)
		return -ENOMEM;
	command->number = epoch;
	return expect_end(p, "epoch", rest);
}

static int line_uses(struct control_parser *p, struct span rest)
{
	struct span word = take_word(&rest);
	struct control_command *command;
	double uses;

	if (number_real(word.at, span_size(word), &uses) || !(uses >= 1 && uses <= SHADE_USES_MAX))
		return fail_word(p, "uses", word, "a number from 1 to 1000");
	command = control_add_command(p, CONTROL_USES);
	if (!command)
		return -ENOMEM;
	command->share = uses;
	return expect_end(p, "uses", rest);
}

static int line_path(struct control_parser *p, struct span rest, const char *name,
		     enum control_kind kind)
{
	struct control_command *command;
	char quoted[CONTROL_QUOTE_SIZE];
	const char *path = NULL;
	int error = take_path(p, name, rest, &path);

	if (error)
		return error;
	assert(path);
	error = p->ops->check_path(p->ctx, path);
	if (error == -ENOMEM)
		return error;
	if (error)
		return control_fail(p, "%s: there is no '%s'", name,
				    control_quote(quoted, path, strlen(path)));
	command = control_add_command(p, kind);
	if (!command)
		return -ENOMEM;
	command->text_at = (size_t)((const unsigned char *)path - p->texts.data);
	return 0;
}

static int line_warm(struct control_parser *p, struct span rest)
{
	return line_path(p, rest, "warm", CONTROL_WARM);
}

static int line_evict(struct control_parser *p, struct span rest)
{
	return line_path(p, rest, "evict", CONTROL_EVICT);
}

static int line_pin(struct control_parser *p, struct span rest)
{
	return line_path(p, rest, "pin", CONTROL_PIN);
}

static int line_unpin(struct control_parser *p, struct span rest)
{
	return line_path(p, rest, "unpin", CONTROL_UNPIN);
}

static int line_capacity(struct control_parser *p, struct span rest)
{
	struct span word = take_word(&rest);
	struct control_command *command;
	struct size size;

	if (size_parse(word.at, span_size(word), &size))
		return fail_word(p, "capacity", word, "a size like 512M, 8G or 40%");
	if (p->ops->check_capacity(p->ctx, size.bytes, size.share))
		return fail_word(p, "capacity", word,
				 "between the mount's inflight and the memory that there is");
	command = control_add_command(p, CONTROL_CAPACITY);
	if (!command)
		return -ENOMEM;
	command->number = size.bytes;
	command->share = size.share;
	return expect_end(p, "capacity", rest);
}

static int line_policy(struct control_parser *p, struct span rest)
{
	struct span word = take_word(&rest);
	struct control_command *command;
	size_t text_at = p->texts.used;
	int error;

	if (word.at == word.end || memchr(word.at, 0, span_size(word)))
		return fail_word(p, "policy", word, "a policy");
	if (control_pool_add(&p->texts, word.at, span_size(word)) ||
	    control_pool_add(&p->texts, "", 1))
		return -ENOMEM;
	error = p->ops->check_policy(p->ctx, (const char *)p->texts.data + text_at);
	if (error == -ENOMEM)
		return error;
	if (error)
		return fail_word(p, "policy", word, "a policy");
	command = control_add_command(p, CONTROL_POLICY);
	if (!command)
		return -ENOMEM;
	command->text_at = text_at;
	return expect_end(p, "policy", rest);
}

/* group NAME: the job is in it from now on; without a name: in none. */
static int line_group(struct control_parser *p, struct span rest)
{
	struct span word = take_word(&rest);
	struct control_command *command;
	size_t text_at = p->texts.used;
	const char *name;

	if (control_pool_add(&p->texts, word.at, span_size(word)) ||
	    control_pool_add(&p->texts, "", 1))
		return -ENOMEM;
	name = (const char *)p->texts.data + text_at;
	if (word.at < word.end && (strlen(name) != span_size(word) || !group_is_name(name)))
		return fail_word(p, "group", word,
				 "the name of a group: up to 63 letters, digits and . _ -");
	command = control_add_command(p, CONTROL_GROUP);
	if (!command)
		return -ENOMEM;
	command->text_at = text_at;
	return expect_end(p, "group", rest);
}

static int line_importance(struct control_parser *p, struct span rest)
{
	if (!control_add_command(p, CONTROL_READ_IMPORTANCE))
		return -ENOMEM;
	return expect_end(p, "importance", rest);
}

/* forget JOB: the name is the rest of the line, for it may have blanks. */
static int line_forget(struct control_parser *p, struct span rest)
{
	struct control_command *command;
	size_t text_at = p->texts.used;

	while (rest.at < rest.end && (*rest.at == ' ' || *rest.at == '\t'))
		rest.at++;
	if (memchr(rest.at, 0, span_size(rest)))
		return fail_word(p, "forget", rest, "the name of a job");
	if (control_pool_add(&p->texts, rest.at, span_size(rest)) ||
	    control_pool_add(&p->texts, "", 1))
		return -ENOMEM;
	command = control_add_command(p, CONTROL_FORGET);
	if (!command)
		return -ENOMEM;
	command->text_at = text_at;
	return 0;
}

static int line_rescan(struct control_parser *p, struct span rest)
{
	if (!control_add_command(p, CONTROL_RESCAN))
		return -ENOMEM;
	return expect_end(p, "rescan", rest);
}

static int line_upgrade(struct control_parser *p, struct span rest)
{
	if (!control_add_command(p, CONTROL_UPGRADE))
		return -ENOMEM;
	return expect_end(p, "upgrade", rest);
}

/* The most frequent ones first. */
static const struct {
	const char *name;
	int (*read)(struct control_parser *p, struct span rest);
} commands[] = {
	{ "score", line_score },	   { "order", line_order },   { "warm", line_warm },
	{ "evict", line_evict },	   { "pin", line_pin },	      { "unpin", line_unpin },
	{ "epoch", line_epoch },	   { "policy", line_policy }, { "rescan", line_rescan },
	{ "capacity", line_capacity },	   { "uses", line_uses },     { "group", line_group },
	{ "importance", line_importance }, { "forget", line_forget }, { "upgrade", line_upgrade },
};

/* A whole line without its newline. */
static int take_line(struct control_parser *p, struct span line)
{
	struct span rest = line;
	struct span word = take_word(&rest);
	char quoted[CONTROL_QUOTE_SIZE];

	if (word.at == word.end || *word.at == '#')
		return 0;
	p->message_count++;
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (span_is(word, commands[i].name))
			return commands[i].read(p, rest);
	return control_fail(p, "there is no command '%s'",
			    control_quote(quoted, word.at, span_size(word)));
}

static struct span partial_span(const struct control_parser *p)
{
	const char *text = (const char *)p->partial.data;

	return (struct span){ text, text + p->partial.used };
}

/* `partial` is the full beginning of a longer line, which only ids of an order may be: `rest` then
 * begins after `order EPOCH`. */
static int begin_ids(struct control_parser *p, struct span *rest)
{
	struct span command = take_word(rest);
	struct span word = take_word(rest);
	uint64_t epoch;
	int error;

	if (!span_is(command, "order") || !read_number(word, &epoch) || word.end == rest->end)
		return control_fail(p, "the line is longer than %u bytes", SHADE_LINE_MAX);
	error = check_open_order(p, epoch);
	if (error)
		return error;
	p->in_ids = true;
	p->line_ids_at = p->order_ids.used;
	return 0;
}

/* Takes the whole ids out of a `partial` that is full; what may be half an id stays. */
static int drain_ids(struct control_parser *p)
{
	struct span rest = partial_span(p);
	struct span tail = { rest.end, rest.end };
	int error = p->in_ids ? 0 : begin_ids(p, &rest);

	if (error)
		return error;
	while (tail.at > rest.at && !is_blank(tail.at[-1]))
		tail.at--;
	if (tail.at == partial_span(p).at)
		return fail_id(p, "order", tail);
	rest.end = tail.at;
	error = order_add(p, rest);
	if (error)
		return error;
	p->partial.used = span_size(tail);
	memmove(p->partial.data, tail.at, p->partial.used);
	return 0;
}

static int add_partial(struct control_parser *p, struct span text)
{
	int error = 0;

	while (!error && text.at < text.end) {
		size_t room = SHADE_LINE_MAX - p->partial.used;
		size_t piece = span_size(text) < room ? span_size(text) : room;

		if (!piece) {
			error = drain_ids(p);
			continue;
		}
		error = control_pool_add(&p->partial, text.at, piece);
		text.at += piece;
	}
	return error;
}

int control_text_end(struct control_parser *p)
{
	struct span line = partial_span(p);
	int error;

	if (p->in_ids) {
		p->message_count++;
		error = order_add(p, line);
		if (!error)
			error = order_added(p);
	} else {
		error = take_line(p, line);
	}
	p->partial.used = 0;
	p->in_ids = false;
	return error;
}

int control_text_take(struct control_parser *p, struct control_input *in)
{
	const char *newline = memchr(in->at, '\n', (size_t)(in->end - in->at));
	struct span text = { in->at, newline ? newline : in->end };
	int error;

	if (newline && !p->partial.used && !p->in_ids && span_size(text) <= SHADE_LINE_MAX) {
		error = take_line(p, text);
	} else {
		error = add_partial(p, text);
		if (!error && newline)
			error = control_text_end(p);
	}
	in->at = newline ? newline + 1 : in->end;
	if (!error && newline)
		p->line++;
	return error;
}
