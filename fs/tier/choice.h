/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Whom to ask first for a file that somebody waits for: the tier or the source? Whoever is expected
 * to be sooner. What the tier costs is a hit's time, or, if it has not got the file, a miss's time
 * and the source's after it.
 *
 * Times are running means of what was measured, by size: files of one class are at most twice as
 * large as others. One of CHOICE_PROBE goes the other way, and so does one if nobody has been that
 * way for CHOICE_PROBE_MS, or what was measured once would hold for ever. But that takes about
 * one part in CHOICE_PROBE of a reader's time: one read of 0.3 s outweighs hundreds of 1 ms. Pure:
 * times are arguments.
 */
#ifndef SHADE_CHOICE_H
#define SHADE_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

#define CHOICE_CLASSES 25 /* from 1 byte to 16 MB */
#define CHOICE_PROBE 32	  /* one of so many goes the other way, and so small a share of the time */
#define CHOICE_PROBE_MS 100

struct choice_class {
	double hit_us, source_us;    /* 0: never measured */
	uint64_t tier_ms, source_ms; /* when they were last asked */
};

struct choice {
	struct choice_class classes[CHOICE_CLASSES];
	double miss_us;	 /* to learn that the tier has not got it */
	double hit_rate; /* of those asked for, 0 to 1 */
	bool asked;	 /* hit_rate means something */
	unsigned turn;
	uint64_t now_ms;	   /* of the last decision */
	struct choice_class *last; /* what it was about; NULL: there was none */
};

/* What has been measured of a file of this many bytes. */
void choice_hit(struct choice *choice, uint64_t size, double us);
void choice_miss(struct choice *choice, double us);
void choice_source(struct choice *choice, uint64_t size, double us);
/* Whether the tier has a file, learnt in passing. */
void choice_presence(struct choice *choice, bool present);

/* What to expect, for those who want to know. */
double choice_expect_tier(const struct choice *choice, uint64_t size);
/* Whether the tier is to be asked first. Counts turns. */
bool choice_prefers_tier(struct choice *choice, uint64_t size, uint64_t now_ms);

#endif
