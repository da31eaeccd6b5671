/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lines.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "number.h"

void lines_open(struct lines *lines, const char *path)
{
	bool standard_input = !strcmp(path, "-");

	*lines = (struct lines){ .name = standard_input ? "standard input" : path };
	lines->file = standard_input ? stdin : fopen(path, "r");
	if (!lines->file)
		fail("cannot open %s: %s", path, strerror(errno));
}

void lines_open_text(struct lines *lines, const char *name, const char *text, size_t size)
{
	*lines = (struct lines){ .name = name };
	/* It is only read. */
	lines->file = must(fmemopen((void *)(uintptr_t)text, size, "r"));
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
	fail_at(lines->name, lines->number, "%s", sentence);
}

static void skip_blanks(struct lines *lines)
{
	while (isspace((unsigned char)*lines->at))
		lines->at++;
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
		skip_blanks(lines);
	} while (*lines->at == '#');
	return true;
}

bool lines_has_word(struct lines *lines)
{
	skip_blanks(lines);
	return *lines->at && *lines->at != '#';
}

static size_t word_length(const struct lines *lines)
{
	return strcspn(lines->at, " \t\r\n\v\f");
}

/* How much of the word an error shows. */
static int shown_length(const struct lines *lines)
{
	size_t length = word_length(lines);

	return length > 40 ? 40 : (int)length;
}

static void need_word(struct lines *lines, const char *what)
{
	if (!lines_has_word(lines))
		lines_fail(lines, "%s is missing", what);
}

bool lines_take_word(struct lines *lines, const char *word)
{
	if (!lines_has_word(lines) || word_length(lines) != strlen(word) ||
	    strncmp(lines->at, word, strlen(word)))
		return false;
	lines->at += strlen(word);
	return true;
}

char lines_take_letter(struct lines *lines, const char *what)
{
	need_word(lines, what);
	if (word_length(lines) != 1)
		lines_fail(lines, "%s is one letter, not '%.*s'", what, shown_length(lines),
			   lines->at);
	return *lines->at++;
}

uint64_t lines_take_number(struct lines *lines, const char *what, uint64_t most)
{
	uint64_t value = 0;
	int rc;

	need_word(lines, what);
	rc = number_whole(lines->at, word_length(lines), &value);
	if (rc == -EINVAL)
		lines_fail(lines, "%s is a whole number, not '%.*s'", what, shown_length(lines),
			   lines->at);
	if (rc || value > most)
		lines_fail(lines, "%s is at most %" PRIu64 ", not %.*s", what, most,
			   shown_length(lines), lines->at);
	lines->at += word_length(lines);
	return value;
}

double lines_take_real(struct lines *lines, const char *what)
{
	double value;
	char *end;

	need_word(lines, what);
	value = strtod(lines->at, &end);
	if (end != lines->at + word_length(lines) || isnan(value))
		lines_fail(lines, "%s is not a number: '%.*s'", what, shown_length(lines),
			   lines->at);
	lines->at = end;
	return value;
}

double lines_take_amount(struct lines *lines, const char *what)
{
	double value = lines_take_real(lines, what);

	if (isinf(value) || value < 0)
		lines_fail(lines, "%s is %s: %g", what, value < 0 ? "negative" : "too large",
			   value);
	return value;
}

void lines_end(struct lines *lines)
{
	if (lines_has_word(lines))
		lines_fail(lines, "'%.*s' is too much", shown_length(lines), lines->at);
}
