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

int batch_flush(struct batch *batch, const char *what)
{
	char answer[MOUNT_ANSWER_MAX];
	char where[PATH_MAX + 64];
	int rc;

	if (!batch->used)
		return EXIT_OK;
	rc = mount_send(batch->mount, batch->text, batch->used, answer);
	batch->used = 0;
	batch->accepted += !rc;
	if (!rc)
		return EXIT_OK;
	if (batch->list) {
		snprintf(where, sizeof(where), "%s, from line %lu on", batch->list->name,
			 batch->first_line);
		what = where;
	}
	return call_say_refused(what, rc, answer);
}

int batch_add(struct batch *batch, const char *what, const char *verb, const char *argument)
{
	size_t length = strlen(verb) + strlen(argument) + 2;
	int code = EXIT_OK;

	if (length > MOUNT_WRITE_MAX)
		return say(EXIT_USAGE, "%s: the line is too long", what);
	if (batch->used + length > MOUNT_WRITE_MAX)
		code = batch_flush(batch, what);
	if (code)
		return code;
	if (!batch->used && batch->list)
		batch->first_line = batch->list->line;
	stpcpy(stpcpy(stpcpy(stpcpy(batch->text + batch->used, verb), " "), argument), "\n");
	batch->used += length;
	return batch->list ? EXIT_OK : batch_flush(batch, what);
}

static int add_path(struct batch *batch, const char *verb, const char *given)
{
	char found[PATH_MAX];
	char escaped[PATH_WORD_MAX + 1];
	int rc = path_resolve(mount_path(batch->mount), given, found);

	if (rc == -EXDEV)
		return say(EXIT_USAGE, "'%s' is not below %s", given, mount_path(batch->mount));
	if (rc)
		return say(EXIT_USAGE, "'%s': %s", given, strerror(-rc));
	escape_text(escaped, found, strlen(found), PATH_WORD);
	return batch_add(batch, given, verb, escaped);
}

static int add_lists_paths(struct batch *batch, struct list *list, const char *verb)
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
		code = add_path(batch, verb, line);
	}
	if (!code)
		code = batch_flush(batch, list->name);
	if (!code && !batch->accepted)
		code = say(EXIT_USAGE, "there are no paths in %s", list->name);
	return code;
}

int batch_paths(struct call *call, bool *sent)
{
	struct list list;
	struct batch *batch;
	int code = EXIT_OK;

	if (sent)
		*sent = false;
	if (!call->options.file == !call->count)
		return say(EXIT_USAGE, "%s takes paths, or -f and a list of them", call->verb);
	if (call->options.null && !call->options.file)
		return say(EXIT_USAGE, "-0 is about the list of -f");
	batch = must(calloc(1, sizeof(*batch)));
	batch->mount = call->mount;
	for (int i = 0; i < call->count; i++) {
		int failed = add_path(batch, call->verb, call->words[i]);

		code = failed > code ? failed : code;
	}
	if (call->options.file) {
		code = list_open(&list, call->options.file, call->options.null);
		batch->list = &list;
		if (!code)
			code = add_lists_paths(batch, &list, call->verb);
		list_close(&list);
	}
	if (sent)
		*sent = batch->accepted;
	free(batch);
	return code;
}
