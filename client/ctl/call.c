/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What verbs share: reading files of the mount, commands, and sentences about failures. */
#include "call.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "say.h"

int call_say_no_mount(const char *given, int error)
{
	switch (-error) {
	case ENOENT:
		return say(EXIT_FAILED, "there is no '%s'", given);
	case ENOTDIR:
		return say(EXIT_FAILED, "'%s' is no directory, so no shadefs is mounted there",
			   given);
	case ENODEV:
		return say(EXIT_FAILED, "no shadefs is mounted at '%s'", given);
	case ENXIO:
		return say(EXIT_FAILED, "%s", mount_why());
	case EACCES:
		return say(EXIT_FAILED,
			   "you may not control the shadefs at '%s': that is for the user who "
			   "mounted it",
			   given);
	case ENOTCONN:
	case ECONNABORTED:
		return say(EXIT_FAILED,
			   "the daemon of '%s' is gone; 'shadectl umount %s' takes the mount away",
			   given, given);
	default:
		return say(EXIT_FAILED, "could not open '%s': %s", given, strerror(-error));
	}
}

int call_say_no_file(const struct call *call, const char *name, int error)
{
	if (error == -ENOTCONN || error == -ECONNABORTED || error == -EACCES)
		return call_say_no_mount(call->given_mount, error);
	return say(EXIT_FAILED, "could not read %s/.shade/%s: %s", mount_path(call->mount), name,
		   strerror(-error));
}

int call_read(const struct call *call, const char *name, char **text)
{
	int rc = mount_read(call->mount, name, text);

	return rc ? call_say_no_file(call, name, rc) : EXIT_OK;
}

void call_print_json(FILE *out, const char *pairs)
{
	const char *comma = "";
	struct pair pair;

	fputc('{', out);
	for (; pair_next(&pairs, &pair); comma = ", ") {
		fputs(comma, out);
		say_json_string(out, pair.key, pair.key_length);
		fputs(": ", out);
		if (say_is_json_number(pair.value, pair.value_length))
			fwrite(pair.value, 1, pair.value_length, out);
		else
			say_json_string(out, pair.value, pair.value_length);
	}
	fputc('}', out);
}

int call_say_refused(const char *what, int error, const char *answer)
{
	int code = error == -EINVAL ? EXIT_USAGE : EXIT_FAILED;

	if (!*answer)
		answer = strerror(-error);
	return say(code, "%s: %s", what, answer);
}

int call_command(struct call *call, const char *format, ...)
{
	char command[1024];
	char answer[MOUNT_ANSWER_MAX];
	va_list args;
	int length;
	int rc;

	va_start(args, format);
	length = vsnprintf(command, sizeof(command) - 1, format, args);
	va_end(args);
	if (length < 0 || length >= (int)sizeof(command) - 1)
		return say(EXIT_USAGE, "%s: a word is too long", call->verb);
	for (const char *at = command; *at; at++)
		if (iscntrl((unsigned char)*at))
			return say(EXIT_USAGE, "%s: a word has a control character", call->verb);
	command[length] = '\n';
	rc = mount_send(call->mount, command, (size_t)length + 1, answer);
	return rc ? call_say_refused(call->verb, rc, answer) : EXIT_OK;
}

bool call_is_number(const char *text)
{
	return *text && strspn(text, "0123456789") == strlen(text);
}
