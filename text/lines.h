/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Text of one record a line. Every call exits with a sentence that names the line if it does not
 * find what it is asked for. */
#ifndef SHADE_LINES_H
#define SHADE_LINES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct lines {
	const char *name; /* for errors */
	FILE *file;
	unsigned long number;
	char *text;
	size_t room;
	char *at; /* the part of the line that was not taken yet */
};

/* "-" is standard input. */
void lines_open(struct lines *lines, const char *path);
/* Of a text in memory, which errors call `name`. */
void lines_open_text(struct lines *lines, const char *name, const char *text, size_t size);
void lines_close(struct lines *lines);
/* Reads the next line that is not a comment (#); it may be empty. False at the end. */
bool lines_next(struct lines *lines);
__attribute__((noreturn, format(printf, 2, 3))) void lines_fail(const struct lines *lines,
								const char *format, ...);

/* Words are separated by blanks; a comment may follow the last one. `what` names the word in
 * errors. */
bool lines_has_word(struct lines *lines);
/* Whether the next word is this; takes it if so. */
bool lines_take_word(struct lines *lines, const char *word);
char lines_take_letter(struct lines *lines, const char *what);
uint64_t lines_take_number(struct lines *lines, const char *what, uint64_t most);
/* Not a NaN; may be infinite. */
double lines_take_real(struct lines *lines, const char *what);
/* Finite and not negative. */
double lines_take_amount(struct lines *lines, const char *what);
/* There must be no more words. */
void lines_end(struct lines *lines);

#endif
