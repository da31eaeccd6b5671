/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One call of shadectl: what main.c found on the command line, handed to a verb. */
#ifndef SHADE_CTL_CALL_H
#define SHADE_CTL_CALL_H

#include <stdbool.h>
#include <stdio.h>

#include "mount.h"

struct options {
	const char *file;   /* -f */
	const char *output; /* -o; NULL: standard output */
	bool null;	    /* -0 */
	bool json;
	bool once;
	bool lazy;
	double interval; /* seconds */
	double timeout;	 /* seconds, 0 for none */
};

struct call {
	const char *verb;
	const char *given_mount; /* MNT as the user typed it */
	struct mount
		*mount;	 /* NULL: the verb needs none, or can do without the one it did not get */
	int mount_error; /* why mount is NULL, a negative errno */
	struct options options;
	char **words; /* what followed MNT */
	int count;
};

/* A verb returns the exit code of the program. */
int verb_status(struct call *call);
int verb_stats(struct call *call);
int verb_top(struct call *call);
int verb_score(struct call *call);
int verb_order(struct call *call);
int verb_epoch(struct call *call);
int verb_warm(struct call *call);
int verb_paths(struct call *call); /* evict, pin and unpin */
int verb_capacity(struct call *call);
int verb_policy(struct call *call);
int verb_rescan(struct call *call);
int verb_forget(struct call *call);
int verb_report(struct call *call);
int verb_umount(struct call *call);
int verb_upgrade(struct call *call);
int verb_debug(struct call *call);

/* Prints why the mount that the user typed as GIVEN could not be opened. Returns EXIT_FAILED. */
int call_say_no_mount(const char *given, int error);

/* mount_read(), which prints why it failed. Returns an exit code. */
int call_read(const struct call *call, const char *name, char **text);

/* Prints that .shade/NAME could not be read. Returns EXIT_FAILED. */
int call_say_no_file(const struct call *call, const char *name, int error);

/* Prints lines of key and value as one JSON object. */
void call_print_json(FILE *out, const char *pairs);

/* Sends one command, and prints what the answer has beyond "ok". Returns an exit code. */
int call_command(struct call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * Prints why the daemon refused a command, which WHAT names. Returns EXIT_USAGE for wrong input,
 * else EXIT_FAILED.
 */
int call_say_refused(const char *what, int error, const char *answer);

/* Whether TEXT is a whole number. */
bool call_is_number(const char *text);

#endif
