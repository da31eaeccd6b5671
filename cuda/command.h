/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the parts of shade-score share. */
#ifndef SHADE_COMMAND_H
#define SHADE_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

#include "fail.h"
#include "lines.h"
#include "shade/score.h"

struct command_options {
	struct shade_scorer_options scorer;
	const char *scores;	/* order: a file */
	const char *losses;	/* order: a file */
	const char *resident;	/* order: a file */
	const char *state;	/* order: a file */
	const char *orders;	/* follow: a directory */
	const char *mount;	/* follow */
	const char *job;	/* follow; NULL: the mount's own */
	const char *neighbours; /* a file */
	uint64_t epoch;
	uint32_t rank, world;
	uint32_t batch; /* follow: 0: only blank lines end one */
	bool binary;	/* follow */
};

/* Each returns the exit code of the program. */
int command_rank(const struct command_options *options);
int command_order(const struct command_options *options);
int command_follow(const struct command_options *options);

/* The answer of a shade_scorer call: exits with its sentence if it is negative. */
void must_score(int64_t rc);

/* Merges lines `ID SCORE`, or of four columns as in MNT/.shade/scores; a score below 0 is none. */
void scores_read(struct lines *lines, struct shade_scorer *s, uint32_t samples);

/* Merges lines `ID LOSS`. */
void losses_read(struct lines *lines, struct shade_scorer *s, uint32_t samples);
/* Tells all ids of a file, one a line, as neighbours. */
void neighbours_read(const char *path, struct shade_scorer *s, uint32_t samples);

/* All of a file; exits if it cannot be read or has more than `most` bytes. */
unsigned char *file_read(const char *path, uint64_t most, uint64_t *size);
/* Replaces a file by these bytes, whole or not at all. */
void file_write(const char *path, const void *bytes, uint64_t size);

#endif
