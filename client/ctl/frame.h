/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What `shadectl top` shows, and how: top.c fills it in, frame.c draws it. */
#ifndef SHADE_CTL_FRAME_H
#define SHADE_CTL_FRAME_H

#include <stdbool.h>
#include <stdio.h>

#include "histogram.h"

#define FRAME_HISTORY 512
#define FRAME_AHEAD_MAX 1024

/* All figures may be NaN, for what is not known. */
struct frame {
	const char *mount_point;
	char mode[32];
	char policy[32];
	double epoch;
	double ratio_now; /* since the last frame */
	double ratio_all; /* since the mount */
	double coverage;
	double hits_rate; /* a second */
	double misses_rate;
	double source_rate; /* bytes a second */
	double waiting;	    /* the share of the time in which a reader waited for the source */
	double uses;	    /* of a fetched sample, as the training says; 0: it does not */
	double resident_bytes;
	double capacity_bytes;
	double inflight_bytes;
	double resident_samples;
	double samples;
	double order_ahead;
	bool scanning;
	double history[FRAME_HISTORY]; /* ratio_now, oldest first */
	unsigned history_count;
	struct histogram scores;
	char *jobs;		     /* a line for each; NULL: there are none */
	char ahead[FRAME_AHEAD_MAX]; /* first ids of the order, with spaces */
};

/* Draws lines of at most COLUMNS cells, about ROWS of them. */
void frame_draw(const struct frame *frame, FILE *out, unsigned rows, unsigned columns, bool blocks);

#endif
