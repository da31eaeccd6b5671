/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Text files of one record a line, with errors that name the line. */
#ifndef SHADE_SIM_LINES_H
#define SHADE_SIM_LINES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct lines {
	const char *name; /* for errors */
	FILE *file;
	unsigned long number;
	char *text;
	size_t room;
	char *at; /* what of the line was not taken yet */
};

/* "-" is standard input. Exits if it cannot be opened. */
void lines_open(struct lines *lines, const char *path);
void lines_close(struct lines *lines);
/* The next line that is neither empty nor a comment (#). False at the end. */
bool lines_next(struct lines *lines);

/* The next field of the line; each exits if it is not what is asked for. `what` names
 * it in the error. */
bool lines_has_field(struct lines *lines);
char lines_take_letter(struct lines *lines, const char *what);
uint64_t lines_take_number(struct lines *lines, const char *what);
/* Finite and not negative. */
double lines_take_real(struct lines *lines, const char *what);
/* Exits if anything is left. */
void lines_end(struct lines *lines);

#endif
