/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which values are worth putting. A full engine evicts what is worth least, so a value that is
 * worth less than most is gone before anybody asks for it, and was sent for nothing, by each node,
 * every time. Here is remembered what was put, by hash, and with which worth; whether it is still
 * there when it is asked for next tells how that class of worth fares. Of a class that hardly ever
 * survives only one in SURVIVAL_TRIALS is put, so that a change shows.
 *
 * Only a sample of all keys is remembered, so that the table spans more of them. Pure.
 */
#ifndef SHADE_SURVIVAL_H
#define SHADE_SURVIVAL_H

#include <stdbool.h>
#include <stdint.h>

#define SURVIVAL_CLASSES 24
#define SURVIVAL_TABLE 16384
#define SURVIVAL_SAMPLE 4 /* one key of so many is remembered */
#define SURVIVAL_TRIALS 8

struct survival {
	/* By class: the share that was still there, and how often that was seen, up to a bound. */
	double rate[SURVIVAL_CLASSES];
	unsigned seen[SURVIVAL_CLASSES];
	unsigned turn;
	struct {
		uint32_t tag; /* 0: none */
		uint8_t class;
	} table[SURVIVAL_TABLE];
};

/* Whether a value of this worth, from 0 to 1, is to be put. Counts turns. */
bool survival_wants(struct survival *survival, float worth);
/* It has been. `hash` is of its key. */
void survival_put(struct survival *survival, uint64_t hash, float worth);
/* The engine was asked for a key, and has it or not. */
void survival_asked(struct survival *survival, uint64_t hash, bool present);

#endif
