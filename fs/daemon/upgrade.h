/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * An upgrade: the supervisor becomes another version of the program by exec, as the same process
 * and with all that it holds, and that version's daemon takes over from the last one.
 *
 * First the new file is run as a process of its own, which changes nothing: it reads what would be
 * handed over, maps the estate for reading, and answers the kernel's first requests again, into a
 * buffer. Only if it then says that it can go on does the daemon end. The file stays open from the
 * check to the exec, so that what is run is what was checked.
 */
#ifndef SHADE_UPGRADE_H
#define SHADE_UPGRADE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct handover;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UPGRADE_CHECK_MS 30000 /* these make everything several times slower */
#else
#define UPGRADE_CHECK_MS 5000 /* that a check may take */
#endif
#define UPGRADE_BEGIN_S (UPGRADE_CHECK_MS / 1000) /* and the new program, until it supervises */
#define UPGRADE_WHY 400				  /* bytes of a reason */

/* --- the supervisor's side */

struct check {
	pid_t pid;	   /* 0: none runs */
	int program;	   /* the file; -1: none */
	int output;	   /* what it prints; -1: none */
	uint64_t until_ms; /* 0: it was refused, and only has to be reaped */
	size_t length;
	char text[1024]; /* the end of what it has printed */
};

enum check_result { CHECK_RUNS, CHECK_PASSED, CHECK_REFUSED };

void check_init(struct check *check);
/* Starts the file that the program was started from, which none runs of. 0, or a negative errno
 * with a reason. */
int check_start(struct check *check, const struct handover *handover, char why[UPGRADE_WHY]);
/* To be called when there is output, when a child has died, and at `until_ms`. A result other than
 * CHECK_RUNS comes once; CHECK_PASSED with the version, CHECK_REFUSED with a reason. */
enum check_result check_look(struct check *check, const char *program, char why[UPGRADE_WHY]);
/* Nobody wants the result any more. */
void check_end(struct check *check);
/* Becomes the file that was checked. Returns only if that fails, with a negative errno. `shown` is
 * the command line. */
int upgrade_become(const struct check *check, const struct handover *handover, char **shown);

/* --- the new program's side */

/* Whether it was started for a check, and the exit status of that. */
bool upgrade_is_check(int argc, char **argv);
int upgrade_check(char **argv);
/* What the process had when it was another program; NULL: it was none. */
const struct handover *upgrade_inherited(void);
/* Something is in the way of the estate. Each start has its libraries elsewhere: starts again, and
 * returns if that has been tried often enough. */
void upgrade_try_again(char **shown);
/* The supervisor is at work: until then it dies if it takes too long. */
void upgrade_has_begun(void);

#endif
