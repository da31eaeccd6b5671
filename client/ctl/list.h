/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The list of -f, line by line, and commands that are collected and sent in one write. */
#ifndef SHADE_CTL_LIST_H
#define SHADE_CTL_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "call.h"
#include "mount.h"

struct list {
	const char *name; /* for messages */
	FILE *file;
	char *text;
	size_t size;
	int delimiter;
	unsigned long line;
};

/* Opens FILE, or standard input if that is "-". Returns an exit code and prints what was wrong. */
int list_open(struct list *list, const char *file, bool null);
void list_close(struct list *list);

/* The next line that is not empty, without its end. 1 if there is one, 0 at the end, else -1. */
int list_next(struct list *list, char **line);

/* Prints a sentence about the current line. Returns EXIT_USAGE. */
int list_say(const struct list *list, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * Commands that are not sent yet. Those of a list are sent 64 KiB at a time; those of words are
 * sent one by one, so that a refusal is about one word.
 */
struct commands {
	struct mount *mount;
	const struct list *list;  /* NULL for words */
	unsigned long first_line; /* of what is collected */
	unsigned long accepted;	  /* writes */
	size_t used;
	char text[MOUNT_WRITE_MAX + 1];
};

/*
 * Adds the command `VERB ARGUMENT`; WHAT is what the user called it. Both functions return an exit
 * code and print what was wrong.
 */
int commands_add(struct commands *commands, const char *what, const char *verb,
		 const char *argument);
int commands_flush(struct commands *commands, const char *what);

/*
 * Sends `verb PATH` for all paths of the call, from words or -f. After a word that was refused
 * the others are still sent. Returns the worst exit code; SENT, if not NULL, tells whether
 * anything was accepted.
 */
int commands_send_paths(struct call *call, bool *sent);

#endif
