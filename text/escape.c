/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Without printf(), which takes three times as long: a manifest has millions of names. */
#include "escape.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static bool is_plain(unsigned char byte, unsigned form)
{
	if (form & ESCAPE_ALL)
		return false;
	if (byte == ' ')
		return !(form & ESCAPE_SPACE);
	if (byte >= 0x80)
		return !(form & ESCAPE_HIGH);
	return byte > ' ' && byte < 0x7f && byte != '\\';
}

char *escape_text(char *to, const char *text, size_t size, unsigned form)
{
	for (size_t i = 0; i < size; i++) {
		unsigned char byte = (unsigned char)text[i];

		if (is_plain(byte, form)) {
			*to++ = text[i];
			continue;
		}
		*to++ = '\\';
		if (byte == '\\' && !(form & ESCAPE_OCTAL)) {
			*to++ = '\\';
			continue;
		}
		*to++ = (char)('0' + (byte >> 6));
		*to++ = (char)('0' + (byte >> 3 & 7));
		*to++ = (char)('0' + (byte & 7));
	}
	*to = '\0';
	return to;
}

void escape_print(FILE *out, const char *text, unsigned form)
{
	char piece[ESCAPE_MAX * 256 + 1];

	for (size_t left = strlen(text); left;) {
		size_t size = left < 256 ? left : 256;

		(void)fwrite(piece, 1, (size_t)(escape_text(piece, text, size, form) - piece), out);
		text += size;
		left -= size;
	}
}

static bool is_octal(char digit)
{
	return digit >= '0' && digit <= '7';
}

/* What follows a backslash: the byte, which may be too large, or -EINVAL. */
static int take_escape(const char **at, const char *end, unsigned form)
{
	const char *digits = *at;

	if (digits < end && *digits == '\\' && !(form & ESCAPE_OCTAL)) {
		*at += 1;
		return '\\';
	}
	if (end - digits < 3 || !is_octal(digits[0]) || !is_octal(digits[1]) ||
	    !is_octal(digits[2]))
		return -EINVAL;
	*at += 3;
	return (digits[0] - '0') << 6 | (digits[1] - '0') << 3 | (digits[2] - '0');
}

ssize_t unescape_text(char *to, size_t room, const char *text, size_t size, unsigned form)
{
	const char *at = text, *end = text + size;
	size_t used = 0;

	assert(room);
	while (at < end) {
		int byte = (unsigned char)*at++;

		if (byte == '\\')
			byte = take_escape(&at, end, form);
		if (byte < 0)
			return byte;
		if (!byte || byte > 255)
			return -ERANGE;
		if (used == room - 1)
			return -ENAMETOOLONG;
		to[used++] = (char)byte;
	}
	to[used] = '\0';
	return (ssize_t)used;
}

bool unescape_in_place(char *text, unsigned form)
{
	size_t length = strlen(text);

	return unescape_text(text, length + 1, text, length, form) >= 0;
}
