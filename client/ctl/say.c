/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Text for people and for JSON. */
#include "say.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

static const struct figure missing = { "-" };

/* A name may contain newlines and terminal escapes: the sentence stays one line, and does nothing
 * to the terminal. */
static void print_line(FILE *out, const char *before, const char *format, va_list args)
{
	char sentence[8192];

	vsnprintf(sentence, sizeof(sentence), format, args);
	say_clean(sentence);
	for (char *at = sentence; *at; at++)
		if (iscntrl((unsigned char)*at))
			*at = *at == '\n' ? ' ' : '?';
	fflush(stdout);
	fprintf(out, "%s%s\n", before, sentence);
}

int say(int code, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	print_line(stderr, "shadectl: ", format, args);
	va_end(args);
	return code;
}

void say_line(FILE *out, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	print_line(out, "", format, args);
	va_end(args);
}

struct figure say_bytes(double bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
	struct figure shown = missing;
	unsigned unit = 0;

	if (!isfinite(bytes))
		return shown;
	for (; fabs(bytes) >= 1024 && unit < 5; unit++)
		bytes /= 1024;
	snprintf(shown.text, sizeof(shown.text), "%.*f %s", unit ? 1 : 0, bytes, units[unit]);
	return shown;
}

struct figure say_count(double count)
{
	struct figure shown = missing;
	char digits[24];
	size_t length;
	char *to = shown.text;

	if (!(fabs(count) < 1e18))
		return shown;
	length = (size_t)snprintf(digits, sizeof(digits), "%.0f", fabs(count));
	if (count <= -0.5)
		*to++ = '-';
	for (size_t i = 0; i < length; i++) {
		if (i && (length - i) % 3 == 0)
			*to++ = ',';
		*to++ = digits[i];
	}
	*to = '\0';
	return shown;
}

struct figure say_percent(double fraction)
{
	struct figure shown = missing;

	if (isfinite(fraction))
		snprintf(shown.text, sizeof(shown.text), "%.1f %%", 100 * fraction);
	return shown;
}

struct figure say_duration(double seconds)
{
	struct figure shown = missing;
	unsigned long whole;

	if (!(seconds >= 0 && seconds < 1e8))
		return shown;
	whole = (unsigned long)(seconds + 0.5);
	if (whole >= 3600)
		snprintf(shown.text, sizeof(shown.text), "%lu:%02lu:%02lu", whole / 3600,
			 whole / 60 % 60, whole % 60);
	else
		snprintf(shown.text, sizeof(shown.text), "%lu:%02lu", whole / 60, whole % 60);
	return shown;
}

size_t say_utf8_length(const unsigned char *text, size_t left)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t length = *text >= 0xf0 ? 4 : *text >= 0xe0 ? 3 : 2;
	uint32_t point = *text & (0x7fu >> length);

	if (*text < 0x80)
		return 1;
	if (*text < 0xc2 || *text > 0xf4 || length > left)
		return 0;
	for (size_t i = 1; i < length; i++) {
		if ((text[i] & 0xc0) != 0x80)
			return 0;
		point = point << 6 | (text[i] & 0x3f);
	}
	if (point < least[length] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000))
		return 0;
	return length;
}

/* Terminals take the controls of ASCII for commands, and those from 128 to 159, as bytes of their
 * own or in UTF-8. */
void say_clean(char *text)
{
	unsigned char *end = (unsigned char *)text + strlen(text);
	size_t step;

	for (unsigned char *at = (unsigned char *)text; at < end; at += step ? step : 1) {
		step = say_utf8_length(at, (size_t)(end - at));
		if (step == 2 && *at == 0xc2 && at[1] < 0xa0)
			at[0] = at[1] = '?';
		else if (step < 2 && ((iscntrl(*at) && *at != '\n' && *at != '\t') ||
				      (*at >= 0x80 && *at < 0xa0)))
			*at = '?';
	}
}

void say_json_string(FILE *out, const char *text, size_t length)
{
	const unsigned char *at = (const unsigned char *)text;
	const unsigned char *end = at + length;
	size_t step;

	fputc('"', out);
	for (; at < end; at += step ? step : 1) {
		step = say_utf8_length(at, (size_t)(end - at));
		if (!step)
			fputs("\\ufffd", out);
		else if (*at == '"' || *at == '\\')
			fprintf(out, "\\%c", *at);
		else if (*at < 0x20 || *at == '<')
			fprintf(out, "\\u%04x", *at);
		else
			fwrite(at, 1, step, out);
	}
	fputc('"', out);
}

static size_t skip_digits(const char *text, size_t at, size_t length)
{
	while (at < length && isdigit((unsigned char)text[at]))
		at++;
	return at;
}

bool say_is_json_number(const char *text, size_t length)
{
	size_t at = length && *text == '-';
	size_t from = at;

	at = skip_digits(text, at, length);
	if (at == from || (text[from] == '0' && at > from + 1))
		return false;
	if (at < length && text[at] == '.') {
		from = at + 1;
		at = skip_digits(text, from, length);
		if (at == from)
			return false;
	}
	if (at < length && tolower((unsigned char)text[at]) == 'e') {
		at++;
		at += at < length && (text[at] == '-' || text[at] == '+');
		from = at;
		at = skip_digits(text, from, length);
		if (at == from)
			return false;
	}
	return at == length;
}

double say_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}
