/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Files and lines, and the end of the program where they are not what they should be. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"

/* Names may have anything in them: one sentence stays one line, and no escape works. */
static void say(const char *format, va_list args)
{
	char sentence[8192];

	vsnprintf(sentence, sizeof(sentence), format, args);
	for (char *at = sentence; *at; at++)
		if (iscntrl((unsigned char)*at))
			*at = '?';
	fflush(stdout);
	fprintf(stderr, "shade-score: %s\n", sentence);
}

void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(format, args);
	va_end(args);
	exit(2);
}

void give_up(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(format, args);
	va_end(args);
	exit(1);
}

void *must(void *allocated)
{
	if (!allocated)
		give_up("out of memory");
	return allocated;
}

void must_score(int64_t rc)
{
	if (rc == -ENOMEM || rc == -EIO || rc == -ENODEV)
		give_up("%s", shade_score_error());
	if (rc < 0)
		fail("%s", shade_score_error());
}

/* --- lines ------------------------------------------------------------------------------ */

void lines_open(struct lines *lines, const char *path)
{
	bool standard_input = !strcmp(path, "-");

	*lines = (struct lines){ .name = standard_input ? "standard input" : path };
	lines->file = standard_input ? stdin : fopen(path, "r");
	if (!lines->file)
		fail("cannot open %s: %s", path, strerror(errno));
}

void lines_close(struct lines *lines)
{
	if (lines->file != stdin)
		fclose(lines->file);
	free(lines->text);
}

void lines_fail(const struct lines *lines, const char *format, ...)
{
	char sentence[512];
	va_list args;

	va_start(args, format);
	vsnprintf(sentence, sizeof(sentence), format, args);
	va_end(args);
	fail("%s:%lu: %s", lines->name, lines->number, sentence);
}

bool lines_next(struct lines *lines)
{
	do {
		ssize_t length = getline(&lines->text, &lines->room, lines->file);

		if (length < 0) {
			if (ferror(lines->file))
				fail("cannot read %s: %s", lines->name, strerror(errno));
			return false;
		}
		lines->number++;
		if (memchr(lines->text, 0, (size_t)length))
			lines_fail(lines, "the line has a NUL byte");
		lines->at = lines->text;
	} while (*lines->text == '#');
	return true;
}

bool lines_has_word(struct lines *lines)
{
	while (isspace((unsigned char)*lines->at))
		lines->at++;
	return *lines->at;
}

static size_t word_length(const struct lines *lines)
{
	return strcspn(lines->at, " \t\r\n\v\f");
}

/* For errors, cut to what a person reads. */
static int shown_length(const struct lines *lines)
{
	size_t length = word_length(lines);

	return length > 40 ? 40 : (int)length;
}

bool lines_take_word(struct lines *lines, const char *word)
{
	if (!lines_has_word(lines) || word_length(lines) != strlen(word) ||
	    strncmp(lines->at, word, strlen(word)))
		return false;
	lines->at += strlen(word);
	return true;
}

uint64_t lines_take_number(struct lines *lines, const char *what, uint64_t most)
{
	unsigned long long value;
	char *end;

	if (!lines_has_word(lines))
		lines_fail(lines, "%s is missing", what);
	errno = 0;
	value = strtoull(lines->at, &end, 10);
	if (!isdigit((unsigned char)*lines->at) || end != lines->at + word_length(lines))
		lines_fail(lines, "%s is a whole number, not '%.*s'", what, shown_length(lines),
			   lines->at);
	if (errno || value > most)
		lines_fail(lines, "%s is at most %llu, not %.*s", what, (unsigned long long)most,
			   shown_length(lines), lines->at);
	lines->at = end;
	return value;
}

float lines_take_real(struct lines *lines, const char *what)
{
	float value;
	char *end;

	if (!lines_has_word(lines))
		lines_fail(lines, "%s is missing", what);
	value = strtof(lines->at, &end);
	if (end != lines->at + word_length(lines) || isnan(value))
		lines_fail(lines, "%s is not a number: '%.*s'", what, shown_length(lines),
			   lines->at);
	lines->at = end;
	return value;
}

void lines_end(struct lines *lines)
{
	if (lines_has_word(lines))
		lines_fail(lines, "'%.*s' is too much", shown_length(lines), lines->at);
}

/* --- whole files -------------------------------------------------------------------------- */

unsigned char *file_read(const char *path, uint64_t most, uint64_t *size)
{
	FILE *file = fopen(path, "rb");
	unsigned char *bytes = NULL;
	size_t room = 0;
	bool failed;

	if (!file)
		fail("cannot open %s: %s", path, strerror(errno));
	*size = 0;
	do {
		room = 2 * room + 65536;
		bytes = must(realloc(bytes, room));
		*size += fread(bytes + *size, 1, room - *size, file);
	} while (*size == room && *size <= most);
	failed = ferror(file);
	fclose(file);
	if (!failed && *size <= most)
		return bytes;
	free(bytes);
	if (failed)
		fail("cannot read %s: %s", path, strerror(EIO));
	fail("%s is too long: it should have at most %llu bytes", path, (unsigned long long)most);
}

void file_write(const char *path, const void *bytes, uint64_t size)
{
	char fresh[4096];
	FILE *file;
	bool failed;

	if (snprintf(fresh, sizeof(fresh), "%s.new", path) >= (int)sizeof(fresh))
		fail("the name %s is too long", path);
	file = fopen(fresh, "wb");
	if (!file)
		give_up("cannot write %s: %s", fresh, strerror(errno));
	failed = fwrite(bytes, 1, size, file) != size;
	if (fclose(file) || failed || rename(fresh, path)) {
		int error = errno;

		(void)unlink(fresh);
		give_up("cannot write %s: %s", path, strerror(error));
	}
}
