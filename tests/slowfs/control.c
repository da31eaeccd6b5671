/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The control language, one command a line:
 *
 *	set NAME VALUE			a setting, named as after -o
 *	fault KIND[,OPTION...] PATH	see rule.h for the kinds; options: count=N strikes N
 *					times, after=BYTES leaves the first BYTES of an open
 *					alone; once-KIND is KIND,count=1
 *	watch PATH			count the requests of one path
 *	clear PATH | clear all		take faults away, release what hangs
 *	reset				all counters to 0
 *
 * PATH is the rest of the line, relative to the mount, with or without a slash in front
 * (so `clear /all` is about a file). `\ooo` stands for a byte, as in /proc/mounts.
 *
 * A message is first understood as a whole and then carried out, so a bad line in it
 * leaves everything as it was.
 */
#include "control.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "counter.h"
#include "escape.h"
#include "number.h"
#include "pace.h"
#include "rule.h"
#include "setting.h"

#define MESSAGE_MAX 65536

enum verb { VERB_SET, VERB_FAULT, VERB_WATCH, VERB_CLEAR, VERB_CLEAR_ALL, VERB_RESET };

struct command {
	enum verb verb;
	enum setting setting;
	uint64_t value;
	struct rule_fault fault;
	char *path; /* inside the message */
};

/* Brings a path into the form of node_path(), in place. False: not a path inside. */
static bool parse_path(char *text)
{
	char *out = text, *rest = text, *part;

	if (!*text || !unescape_in_place(text, ESCAPE_OCTAL) || strlen(text) >= PATH_MAX)
		return false;
	while ((part = strsep(&rest, "/"))) {
		size_t length = strlen(part);

		if (!length || !strcmp(part, "."))
			continue;
		if (!strcmp(part, "..") || length > NAME_MAX)
			return false;
		if (out != text)
			*out++ = '/';
		memmove(out, part, length);
		out += length;
	}
	if (out == text)
		*out++ = '.';
	*out = '\0';
	return true;
}

static bool parse_number(const char *text, uint64_t *value)
{
	/* UINT64_MAX has a meaning of its own in a fault. */
	return !number_whole(text, strlen(text), value) && *value != UINT64_MAX;
}

static bool parse_fault(char *text, struct rule_fault *fault)
{
	char *option;
	bool good;

	good = rule_kind_parse(strsep(&text, ","), fault);
	while (good && (option = strsep(&text, ","))) {
		if (!strncmp(option, "count=", 6))
			good = parse_number(option + 6, &fault->count) && fault->count;
		else if (!strncmp(option, "after=", 6))
			good = rule_kind_reads(fault->kind) &&
			       parse_number(option + 6, &fault->after);
		else
			good = false;
	}
	return good;
}

static bool parse_line(char *line, struct command *command)
{
	char *verb = strsep(&line, " ");

	if (!strcmp(verb, "reset")) {
		command->verb = VERB_RESET;
		return !line;
	}
	if (!line)
		return false;
	if (!strcmp(verb, "set")) {
		char *name = strsep(&line, " ");

		command->verb = VERB_SET;
		return line && !setting_parse(name, line, &command->setting, &command->value);
	}
	if (!strcmp(verb, "fault")) {
		command->verb = VERB_FAULT;
		if (!parse_fault(strsep(&line, " "), &command->fault) || !line)
			return false;
	} else if (!strcmp(verb, "watch")) {
		command->verb = VERB_WATCH;
	} else if (!strcmp(verb, "clear")) {
		command->verb = strcmp(line, "all") ? VERB_CLEAR : VERB_CLEAR_ALL;
	} else {
		return false;
	}
	command->path = line;
	return parse_path(line);
}

static int carry_out(const struct command *command)
{
	switch (command->verb) {
	case VERB_SET:
		setting_store(command->setting, command->value);
		pace_reset();
		return 0;
	case VERB_FAULT:
		return rule_set(command->path, &command->fault);
	case VERB_WATCH:
		return rule_watch(command->path);
	case VERB_CLEAR:
		rule_clear(command->path);
		return 0;
	case VERB_CLEAR_ALL:
		rule_clear(NULL);
		return 0;
	case VERB_RESET:
		counter_reset();
		rule_reset_counters();
		return 0;
	}
	assert(!"a verb that nobody carries out");
	return -EINVAL;
}

/* Fills `commands`, which has room for one a line. Returns how many, or -EINVAL. */
static int parse_message(char *message, struct command *commands)
{
	char *line;
	int count = 0;

	while ((line = strsep(&message, "\n"))) {
		if (!*line)
			continue;
		if (!parse_line(line, &commands[count]))
			return -EINVAL;
		count++;
	}
	return count;
}

static size_t count_lines(const char *text)
{
	size_t lines = 1;

	while ((text = strchr(text, '\n'))) {
		text++;
		lines++;
	}
	return lines;
}

int control_apply(const char *text, size_t size)
{
	struct command *commands = NULL;
	char *message;
	int count, ret = -ENOMEM;

	if (size > MESSAGE_MAX)
		return -E2BIG;
	if (memchr(text, '\0', size))
		return -EINVAL;
	message = strndup(text, size);
	if (!message)
		return -ENOMEM;
	commands = calloc(count_lines(message), sizeof(*commands));
	if (!commands)
		goto out;
	count = parse_message(message, commands);
	ret = count < 0 ? count : 0;
	for (int i = 0; !ret && i < count; i++)
		ret = carry_out(&commands[i]);
out:
	free(commands);
	free(message);
	return ret;
}

char *control_status(size_t *size)
{
	char *text = NULL;
	FILE *out = open_memstream(&text, size);

	if (!out)
		return NULL;
	fprintf(out, "pid %d\n", (int)getpid());
	counter_print(out);
	setting_print(out);
	rule_print(out);
	if (fclose(out)) {
		free(text);
		return NULL;
	}
	return text;
}
