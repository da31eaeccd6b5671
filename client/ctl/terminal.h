/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Uses the terminal as a full screen, and restores it however the program ends. */
#ifndef SHADE_CTL_TERMINAL_H
#define SHADE_CTL_TERMINAL_H

#include <stddef.h>

struct terminal_size {
	unsigned rows;
	unsigned columns;
};

/* The size of the terminal at standard output, 24 by 80 if there is none. */
struct terminal_size terminal_size(void);

/* Takes the screen. Exits, signals and crashes give it back by themselves. */
void terminal_enter(void);
void terminal_leave(void);

/* Shows TEXT, lines that end with a newline; what does not fit is cut off. */
void terminal_show(const char *text, size_t length);

/*
 * Waits for a key, at most SECONDS. Returns it; 0 if none came or the window changed its size;
 * -1 if there is no keyboard any more.
 */
int terminal_key(double seconds);

#endif
