/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Lists from files, and commands in writes of bounded size. */
#include "list.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "path.h"
#include "say.h"

int list_open(struct list *list, const char *file, bool null)
{
	bool standard = !strcmp(file, "-");

	*list = (struct list){ .name = standard ? "standard input" : file,
			       .delimiter = null ? '\0' : '\n' };
	list->file = standard ? stdin : fopen(file, "re");
	if (!list->file)
		return say(EXIT_FAILED, "could not open '%s': %s", file, strerror(errno));
	return EXIT_OK;
}

void list_close(struct list *list)
{
	free(list->text);
	if (list->file && list->file != stdin)
		fclose(list->file);
}

int list_next(struct list *list, char **line)
{
	ssize_t length;

	do {
		errno = 0;
		length = getdelim(&list->text, &list->size, list->delimiter, list->file);
		if (length < 0 && (ferror(list->file) || errno == ENOMEM)) {
			say(EXIT_FAILED, "could not read %s: %s", list->name, strerror(errno));
			return -1;
		}
		if (length < 0)
			return 0;
		list->line++;
		if (list->text[length - 1] == list->delimiter)
			list->text[--length] = '\0';
		if (strlen(list->text) != (size_t)length) {
			list_say(list, "there is a NUL in the line");
			return -1;
		}
	} while (!length);
	*line = list->text;
	return 1;
}

int list_say(const struct list *list, const char *format, ...)
{
	char sentence[512];
	va_list args;

	va_start(args, format);
	vsnprintf(sentence, sizeof(sentence), format, args);
	va_end(args);
	return say(EXIT_USAGE, "%s:%lu: %s", list->name, list->line, sentence);
}

int commands_flush(struct commands *commands, const char *what)
{
	char answer[MOUNT_ANSWER_MAX];
	char where[PATH_MAX + 64];
	int rc;

	if (!commands->used)
		return EXIT_OK;
	rc = mount_send(commands->mount, commands->text, commands->used, answer);
	commands->used = 0;
	commands->accepted += !rc;
	if (!rc)
		return EXIT_OK;
	if (commands->list) {
		snprintf(where, sizeof(where), "%s, from line %lu on", commands->list->name,
			 commands->first_line);
		what = where;
	}
	return call_say_refused(what, rc, answer);
}

int commands_add(struct commands *commands, const char *what, const char *verb,
		 const char *argument)
{
	size_t length = strlen(verb) + strlen(argument) + 2;
	int code = EXIT_OK;

	if (length > MOUNT_WRITE_MAX)
		return say(EXIT_USAGE, "%s: the line is too long", what);
	if (commands->used + length > MOUNT_WRITE_MAX)
		code = commands_flush(commands, what);
	if (code)
		return code;
	if (!commands->used && commands->list)
		commands->first_line = commands->list->line;
	stpcpy(stpcpy(stpcpy(stpcpy(commands->text + commands->used, verb), " "), argument), "\n");
	commands->used += length;
	return commands->list ? EXIT_OK : commands_flush(commands, what);
}

static int add_path(struct commands *commands, const char *verb, const char *given)
{
	char found[PATH_MAX];
	char escaped[PATH_WORD_MAX + 1];
	int rc = path_resolve(mount_path(commands->mount), mount_prefix(commands->mount), given,
			      found);

	if (rc == -EXDEV)
		return say(EXIT_USAGE, "'%s' is not below %s", given, mount_path(commands->mount));
	if (rc)
		return say(EXIT_USAGE, "'%s': %s", given, strerror(-rc));
	escape_text(escaped, found, strlen(found), PATH_WORD);
	return commands_add(commands, given, verb, escaped);
}

static int add_lists_paths(struct commands *commands, struct list *list, const char *verb)
{
	int got;
	int code = EXIT_OK;
	char *line;

	while (!code && (got = list_next(list, &line))) {
		if (got < 0)
			return EXIT_FAILED;
		if (list->delimiter && !unescape_in_place(line, ESCAPE_LINE))
			return list_say(list, "a \\ must be \\\\ or begin three octal digits; "
					      "-0 takes names as they are");
		code = add_path(commands, verb, line);
	}
	if (!code)
		code = commands_flush(commands, list->name);
	if (!code && !commands->accepted)
		code = say(EXIT_USAGE, "there are no paths in %s", list->name);
	return code;
}

int commands_send_paths(struct call *call, bool *sent)
{
	struct list list;
	struct commands *commands;
	int code = EXIT_OK;

	if (sent)
		*sent = false;
	if (!call->options.file == !call->count)
		return say(EXIT_USAGE, "%s takes paths, or -f and a list of them", call->verb);
	if (call->options.null && !call->options.file)
		return say(EXIT_USAGE, "-0 is about the list of -f");
	commands = must(calloc(1, sizeof(*commands)));
	commands->mount = call->mount;
	for (int i = 0; i < call->count; i++) {
		int failed = add_path(commands, call->verb, call->words[i]);

		code = failed > code ? failed : code;
	}
	if (call->options.file) {
		code = list_open(&list, call->options.file, call->options.null);
		commands->list = &list;
		if (!code)
			code = add_lists_paths(commands, &list, call->verb);
		list_close(&list);
	}
	if (sent)
		*sent = commands->accepted;
	free(commands);
	return code;
}
