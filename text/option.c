/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "option.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "fail.h"
#include "number.h"

static const char *name_of(const struct option *table, int val)
{
	while (table->name && table->val != val)
		table++;
	return table->name;
}

/* The word that getopt_long() refused. It has moved past that word, unless more letters follow in
 * it. */
static const char *refused_word(char **argv)
{
	const char *last = argv[optind - 1], *next = argv[optind];
	size_t length = strlen(last);

	if (optopt && !(last[0] == '-' && last[length - 1] == optopt) && next && next[0] == '-' &&
	    next[1] != '-' && strchr(next, optopt))
		return next;
	return last;
}

int option_next(int argc, char **argv, const char *letters, const struct option *table)
{
	int found;

	opterr = 0;
	found = getopt_long(argc, argv, letters, table, NULL);
	if (found == ':')
		fail("--%s needs a value", name_of(table, optopt));
	if (found == '?')
		fail("%s takes no option '%s'; %s --help lists them", argv[0], refused_word(argv),
		     program_invocation_short_name);
	return found;
}

void option_refuse(char **argv, const struct option *table, int found)
{
	fail("%s takes no option --%s; %s --help lists them", argv[0], name_of(table, found),
	     program_invocation_short_name);
}

void option_end(int argc, char **argv)
{
	if (optind < argc)
		fail("%s takes no word '%s'; %s --help tells more", argv[0], argv[optind],
		     program_invocation_short_name);
}

uint64_t option_whole(const char *option, const char *text, uint64_t from, uint64_t to)
{
	uint64_t value = 0;
	int rc = number_whole(text, strlen(text), &value);

	if (rc == -EINVAL)
		fail("%s takes a whole number, not '%s'", option, text);
	if (rc || value < from || value > to)
		fail("%s takes a number from %" PRIu64 " to %" PRIu64 ", not %s", option, from, to,
		     text);
	return value;
}

double option_real(const char *option, const char *text, double from, double to)
{
	double value;

	if (number_real(text, strlen(text), &value) || !(value >= from && value <= to))
		fail("%s takes a number from %.9g to %.9g, not '%s'", option, from, to, text);
	return value;
}
