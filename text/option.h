/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The command line. Every call exits with a sentence that names the option if it does not find what
 * it should. */
#ifndef SHADE_OPTION_H
#define SHADE_OPTION_H

#include <getopt.h>
#include <stdint.h>

/* The next option: its `val` in the table, or its letter; -1 at the end. ARGV[0] is the command.
 * `letters` are as for getopt_long(), after a ':'. */
int option_next(int argc, char **argv, const char *letters, const struct option *table);
/* Exits for an option that the table has, but this command does not take. */
__attribute__((noreturn)) void option_refuse(char **argv, const struct option *table, int found);
/* There must be no words from `optind` on. */
void option_end(int argc, char **argv);

/* The value of an option; both bounds are allowed. */
uint64_t option_whole(const char *option, const char *text, uint64_t from, uint64_t to);
double option_real(const char *option, const char *text, double from, double to);

#endif
