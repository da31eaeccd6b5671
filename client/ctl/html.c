/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "html.h"

#include <string.h>

#include "say.h"

/* Those that HTML does not allow, or that turn the direction of what follows. */
static bool is_control(const unsigned char *at, size_t length)
{
	if (length == 1)
		return (*at < 0x20 && *at != '\n' && *at != '\t') || *at == 0x7f;
	if (length == 2)
		return *at == 0xc2 && at[1] < 0xa0;
	if (length == 3 && at[0] == 0xe2)
		return (at[1] == 0x80 && at[2] >= 0xaa && at[2] <= 0xae) ||
		       (at[1] == 0x81 && at[2] >= 0xa6 && at[2] <= 0xa9);
	return false;
}

static void put(FILE *out, const unsigned char *at, size_t length)
{
	switch (*at) {
	case '&':
		fputs("&amp;", out);
		break;
	case '<':
		fputs("&lt;", out);
		break;
	case '>':
		fputs("&gt;", out);
		break;
	case '"':
		fputs("&quot;", out);
		break;
	case '\'':
		fputs("&#39;", out);
		break;
	default:
		fwrite(at, 1, length, out);
	}
}

void html_bytes(FILE *out, const char *text, size_t size)
{
	const unsigned char *at = (const unsigned char *)text, *end = at + size;
	size_t length;

	for (; at < end; at += length ? length : 1) {
		length = say_utf8_length(at, (size_t)(end - at));
		if (!length || is_control(at, length))
			fputs("\xef\xbf\xbd", out);
		else
			put(out, at, length);
	}
}

void html_text(FILE *out, const char *text)
{
	html_bytes(out, text, strlen(text));
}

size_t html_length(const char *text)
{
	size_t count = 0;

	for (; *text; text++)
		count += (*text & 0xc0) != 0x80;
	return count;
}
