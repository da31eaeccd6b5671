/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What shadectl tells people: sentences on standard error, and figures as text. */
#ifndef SHADE_CTL_SAY_H
#define SHADE_CTL_SAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* Prints "shadectl: ..." and a newline to standard error; returns CODE. */
int say(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A line of names that others chose: nothing in them reaches the terminal as a command. */
void say_line(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Replaces what a terminal might take for a command, in text that others wrote; newlines and tabs
 * stay. */
void say_clean(char *text);

/* A figure as text, by value: say_bytes(x).text is good to the end of the statement. */
struct figure {
	char text[40];
};

/* All of them show NaN, which is what a missing key gives, as "-". */
struct figure say_bytes(double bytes);	    /* 3.2 GiB */
struct figure say_count(double count);	    /* 1,281,167 */
struct figure say_percent(double fraction); /* 83.1 % */
struct figure say_duration(double seconds); /* 1:02:03, or 2:03 */

/* Length of the UTF-8 character at TEXT, of which LEFT bytes are there; 0 if that is none. */
size_t say_utf8_length(const unsigned char *text, size_t left);

/* Prints LENGTH bytes as a JSON string. What is not UTF-8 becomes U+FFFD. It has no <, so that no
 * string ends a script of a page. */
void say_json_string(FILE *out, const char *text, size_t length);

/* Whether JSON would take this as a number. */
bool say_is_json_number(const char *text, size_t length);

/* Seconds on a clock that only goes forward. */
double say_now(void);

#endif
