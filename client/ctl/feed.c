/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a training tells the mount: scores, orders, epochs. Both scores and orders may have
 * millions of entries, so they are sent in large writes while they are read.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "call.h"
#include "fail.h"
#include "list.h"
#include "number.h"
#include "path.h"
#include "say.h"

#define LINE_MAX_IDS 4000 /* bytes of ids in a line */

/* Any finite number: the mount decides which of them make sense. */
static bool is_score(const char *text)
{
	double value;

	return !number_real(text, strlen(text), &value);
}

/*
 * Writes SAMPLE as a word of a command. An id stays as it is; the mount would take a path of digits
 * for one, so the first digit of such a path is escaped.
 */
static int sample_word(const struct mount *mount, const char *sample, char *word)
{
	char found[PATH_MAX];
	size_t first;
	int rc;

	if (call_is_number(sample)) {
		if (strlen(sample) >= PATH_MAX)
			return -ENAMETOOLONG;
		strcpy(word, sample);
		return 0;
	}
	rc = path_resolve(mount_path(mount), mount_prefix(mount), sample, found);
	if (rc)
		return rc;
	first = call_is_number(found);
	word = escape_text(word, found, first, ESCAPE_ALL);
	escape_text(word, found + first, strlen(found) - first, PATH_WORD);
	return 0;
}

static int add_score(struct commands *commands, const char *sample, const char *value)
{
	char argument[PATH_WORD_MAX + 64];
	int rc;

	if (!is_score(value) || strlen(value) > 60)
		return say(EXIT_USAGE, "%s: a score is a number, not '%s'", sample, value);
	rc = sample_word(commands->mount, sample, argument);
	if (rc == -EXDEV)
		return say(EXIT_USAGE, "'%s' is not below %s", sample, mount_path(commands->mount));
	if (rc)
		return say(EXIT_USAGE, "'%s': %s", sample, strerror(-rc));
	stpcpy(stpcpy(argument + strlen(argument), " "), value);
	return commands_add(commands, sample, "score", argument);
}

/* Splits `SAMPLE VALUE` at the last white space. */
static int add_score_line(struct commands *commands, struct list *list, char *line)
{
	size_t length = strlen(line);
	char *value;

	while (length && isspace((unsigned char)line[length - 1]))
		line[--length] = '\0';
	line += strspn(line, " \t");
	if (!*line || *line == '#')
		return EXIT_OK;
	value = line + strlen(line);
	while (value > line && !isspace((unsigned char)value[-1]))
		value--;
	if (value == line)
		return list_say(list, "there is no score beside '%s'", line);
	if (!is_score(value))
		return list_say(list, "a score is a number, not '%s'", value);
	for (char *end = value; end > line && isspace((unsigned char)end[-1]);)
		*--end = '\0';
	if (!call_is_number(line) && !unescape_in_place(line, ESCAPE_LINE))
		return list_say(list, "a \\ must be \\\\ or begin three octal digits");
	return add_score(commands, line, value);
}

static int score_list(struct commands *commands, const char *file)
{
	struct list list;
	char *line;
	int got;
	int code = list_open(&list, file, false);

	commands->list = &list;
	while (!code && (got = list_next(&list, &line)))
		code = got < 0 ? EXIT_FAILED : add_score_line(commands, &list, line);
	if (!code)
		code = commands_flush(commands, list.name);
	list_close(&list);
	return code;
}

int verb_score(struct call *call)
{
	struct commands *commands;
	int code;

	if (call->count != (call->options.file ? 0 : 2))
		return say(EXIT_USAGE, "score takes a sample and its value, or -f and a file");
	commands = must(calloc(1, sizeof(*commands)));
	commands->mount = call->mount;
	if (call->options.file)
		code = score_list(commands, call->options.file);
	else
		code = add_score(commands, call->words[0], call->words[1]);
	free(commands);
	return code;
}

/* A line of ids that is not a command yet. */
struct ids {
	size_t used;
	size_t count; /* in all lines */
	char text[LINE_MAX_IDS + 64];
};

static int ids_flush(struct ids *ids, struct commands *commands)
{
	size_t used = ids->used;

	ids->used = 0;
	return used ? commands_add(commands, commands->list->name, "order", ids->text) : EXIT_OK;
}

static int ids_add(struct ids *ids, struct commands *commands, const char *epoch, const char *id)
{
	if (!call_is_number(id) || strlen(id) > 19)
		return list_say(commands->list, "an order has whole numbers, not '%.40s'", id);
	if (!ids->used)
		ids->used = (size_t)sprintf(ids->text, "%s", epoch);
	ids->used += (size_t)sprintf(ids->text + ids->used, " %s", id);
	ids->count++;
	return ids->used < LINE_MAX_IDS ? EXIT_OK : ids_flush(ids, commands);
}

static int order_send(struct call *call, struct commands *commands, struct list *list)
{
	const char *epoch = call->words[0];
	struct ids ids = { 0 };
	char *line;
	char *id;
	int got;
	int code = call_command(call, "order %s begin", epoch);

	while (!code && (got = list_next(list, &line))) {
		if (got < 0)
			return EXIT_FAILED;
		while (!code && (id = strsep(&line, " \t\r\v\f")))
			code = *id ? ids_add(&ids, commands, epoch, id) : EXIT_OK;
	}
	if (!code)
		code = ids_flush(&ids, commands);
	if (!code)
		code = commands_flush(commands, list->name);
	if (!code && !ids.count)
		return say(EXIT_USAGE, "there are no ids in %s", list->name);
	return code ? code : call_command(call, "order %s end", epoch);
}

static int order_print(struct call *call)
{
	char *ids;
	int code = call_read(call, "order", &ids);

	if (code)
		return code;
	fputs(ids, stdout);
	free(ids);
	return EXIT_OK;
}

int verb_order(struct call *call)
{
	struct list list;
	struct commands *commands;
	int code;

	if (!call->count && !call->options.file)
		return order_print(call);
	if (!call->count || !call->options.file)
		return say(EXIT_USAGE,
			   "order takes an epoch and -f with a file of ids, or nothing");
	if (!call_is_number(call->words[0]))
		return say(EXIT_USAGE, "an epoch is a whole number, not '%s'", call->words[0]);
	if (strlen(call->words[0]) > 19)
		return say(EXIT_USAGE, "the epoch %s is too large", call->words[0]);
	code = list_open(&list, call->options.file, false);
	if (code)
		return code;
	commands = must(calloc(1, sizeof(*commands)));
	commands->mount = call->mount;
	commands->list = &list;
	code = order_send(call, commands, &list);
	free(commands);
	list_close(&list);
	return code;
}
