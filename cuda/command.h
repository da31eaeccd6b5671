/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the parts of shade-score share. */
#ifndef SHADE_COMMAND_H
#define SHADE_COMMAND_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "shade/score.h"

struct command_options {
	struct shade_scorer_options scorer;
	const char *scores;   /* order: a file */
	const char *resident; /* order: a file */
	const char *state;    /* order: a file */
	const char *orders;   /* follow: a directory */
	const char *mount;    /* follow */
	uint64_t epoch;
	uint32_t rank, world;
	uint32_t batch; /* follow: 0: only blank lines end one */
	bool binary;	/* follow */
};

/* Each returns the exit code of the program. */
int command_rank(const struct command_options *options);
int command_order(const struct command_options *options);
int command_follow(const struct command_options *options);

/* One sentence on standard error, then exit: with 2 if the user's input is wrong, with 1 if
 * something else is. */
__attribute__((noreturn, format(printf, 1, 2))) void fail(const char *format, ...);
__attribute__((noreturn, format(printf, 1, 2))) void give_up(const char *format, ...);
/* For memory: what was allocated, or exit. */
void *must(void *allocated);
/* The answer of a shade_scorer call: exits with its sentence if it is negative. */
void must_score(int64_t rc);

/* --- lines of words, with errors that name the line ------------------------------------- */

struct lines {
	const char *name; /* for errors */
	FILE *file;
	unsigned long number;
	char *text;
	size_t room;
	char *at; /* what of the line was not taken yet */
};

/* "-" is standard input. */
void lines_open(struct lines *lines, const char *path);
void lines_close(struct lines *lines);
/* The next line that is no comment (#), the empty ones too. False at the end. */
bool lines_next(struct lines *lines);
bool lines_has_word(struct lines *lines);
/* Whether the next word is this; takes it if so. */
bool lines_take_word(struct lines *lines, const char *word);
uint64_t lines_take_number(struct lines *lines, const char *what, uint64_t most);
/* Not a NaN; may be infinite. */
float lines_take_real(struct lines *lines, const char *what);
/* Exits if anything is left. */
void lines_end(struct lines *lines);
__attribute__((noreturn, format(printf, 2, 3))) void lines_fail(const struct lines *lines,
								const char *format, ...);

/* All of a file; exits if it cannot be read or has more than `most` bytes. */
unsigned char *file_read(const char *path, uint64_t most, uint64_t *size);
/* Replaces a file by these bytes, whole or not at all. */
void file_write(const char *path, const void *bytes, uint64_t size);

#endif
