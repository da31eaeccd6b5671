/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Octal escapes: \nnn stands for one byte. A path may have any bytes but NUL; escaped, it is a line
 * or a word of text. Control characters and the backslash are always escaped.
 */
#ifndef SHADE_ESCAPE_H
#define SHADE_ESCAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

/* libshade contains these functions; a program that links it statically may have the same names. */
#define escape_text shade_escape_text
#define escape_print shade_escape_print
#define unescape_text shade_unescape_text
#define unescape_in_place shade_unescape_in_place

#define ESCAPE_MAX 4 /* bytes that one byte becomes, at most */

enum escape_form {
	ESCAPE_LINE = 0,  /* nothing else is escaped, and the backslash is written as \\ */
	ESCAPE_SPACE = 1, /* spaces are escaped, so that a name is one word */
	ESCAPE_HIGH = 2,  /* bytes of 128 and more are escaped, so that the text is ASCII */
	ESCAPE_OCTAL = 4, /* the backslash is written as \134; \\ is an error to the reader */
	ESCAPE_ALL = 8,	  /* every byte is escaped, so that a name is not taken for a number */
};

/*
 * Writes `text` to `to`, which has room for ESCAPE_MAX times `size` bytes and a NUL. Returns the
 * end, where the NUL is. `form` is a sum of escape_form.
 */
char *escape_text(char *to, const char *text, size_t size, unsigned form);

/* The same to a file. */
void escape_print(FILE *out, const char *text, unsigned form);

/*
 * Undoes it: writes the bytes that `text` stands for, and a NUL, to `to`, which has `room` bytes
 * and may be `text` itself. Of `form` only ESCAPE_OCTAL matters. Returns how many bytes there are;
 * -EINVAL: a backslash begins no escape; -ERANGE: a byte of 0 or above 255; -ENAMETOOLONG: they do
 * not fit. After an error `to` has an unspecified beginning of them.
 */
ssize_t unescape_text(char *to, size_t room, const char *text, size_t size, unsigned form);

/* The same in place. False: a backslash begins no escape, or one of a byte that no path has. */
bool unescape_in_place(char *text, unsigned form);

#endif
