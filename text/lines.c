/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lines.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"

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

static void skip_blanks(struct lines *lines)
{
	while (*lines->at && isspace((unsigned char)*lines->at))
		lines->at++;
}

bool lines_next(struct lines *lines)
{
	for (;;) {
		ssize_t length = getline(&lines->text, &lines->room, lines->file);

		if (length < 0) {
			if (ferror(lines->file))
				fail("cannot read %s: %s", lines->name, strerror(errno));
			return false;
		}
		lines->number++;
		if (memchr(lines->text, 0, (size_t)length))
			fail_at(lines->name, lines->number, "the line has a NUL byte");
		lines->at = lines->text;
		if (lines_has_field(lines))
			return true;
	}
}

bool lines_has_field(struct lines *lines)
{
	skip_blanks(lines);
	return *lines->at && *lines->at != '#';
}

/* The text of the next field for an error message, cut to what a person reads. */
static const char *field_text(const struct lines *lines)
{
	static char text[41];
	size_t length = strcspn(lines->at, " \t\r\n");

	if (length >= sizeof(text))
		length = sizeof(text) - 1;
	memcpy(text, lines->at, length);
	text[length] = 0;
	return text;
}

static void need_field(struct lines *lines, const char *what)
{
	if (!lines_has_field(lines))
		fail_at(lines->name, lines->number, "%s is missing", what);
}

static bool is_end(char c)
{
	return !c || isspace((unsigned char)c);
}

char lines_take_letter(struct lines *lines, const char *what)
{
	need_field(lines, what);
	if (!is_end(lines->at[1]))
		fail_at(lines->name, lines->number, "%s is one letter, not '%s'", what,
			field_text(lines));
	return *lines->at++;
}

uint64_t lines_take_number(struct lines *lines, const char *what)
{
	char *end;
	uint64_t value;

	need_field(lines, what);
	errno = 0;
	value = strtoull(lines->at, &end, 10);
	if (!isdigit((unsigned char)*lines->at) || !is_end(*end))
		fail_at(lines->name, lines->number, "%s is not a whole number: '%s'", what,
			field_text(lines));
	if (errno)
		fail_at(lines->name, lines->number, "%s is too large: '%s'", what,
			field_text(lines));
	lines->at = end;
	return value;
}

double lines_take_real(struct lines *lines, const char *what)
{
	char *end;
	double value;

	need_field(lines, what);
	value = strtod(lines->at, &end);
	if (end == lines->at || !is_end(*end) || !isfinite(value))
		fail_at(lines->name, lines->number, "%s is not a finite number: '%s'", what,
			field_text(lines));
	if (value < 0)
		fail_at(lines->name, lines->number, "%s is negative: '%s'", what,
			field_text(lines));
	lines->at = end;
	return value;
}

void lines_end(struct lines *lines)
{
	if (lines_has_field(lines))
		fail_at(lines->name, lines->number, "'%s' is too much", field_text(lines));
}
