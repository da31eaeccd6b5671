/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "args.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "shade/sched.h"

#define NAIVE "shade-naive"

int args_next(int argc, char **argv, const struct option *table)
{
	int found;

	opterr = 0;
	found = getopt_long(argc, argv, ":", table, NULL);
	if (found == ':')
		fail("%s needs a value", argv[optind - 1]);
	if (found == '?')
		fail("%s takes no option '%s'; shade-sim --help lists them", argv[0],
		     optopt ? argv[optind] : argv[optind - 1]);
	if (found == -1 && optind < argc)
		fail("%s takes no word '%s'; shade-sim --help tells more", argv[0], argv[optind]);
	return found;
}

uint64_t args_number(const char *option, const char *text, uint64_t from, uint64_t to)
{
	char *end;
	unsigned long long value;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (!isdigit((unsigned char)*text) || *end || errno)
		fail("%s takes a whole number, not '%s'", option, text);
	if (value < from || value > to)
		fail("%s takes a number from %llu to %llu, not %s", option,
		     (unsigned long long)from, (unsigned long long)to, text);
	return value;
}

double args_real(const char *option, const char *text, double from, double to)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end || !(value >= from && value <= to))
		fail("%s takes a number from %g to %g, not '%s'", option, from, to, text);
	return value;
}

static unsigned suffix_shift(char suffix)
{
	static const char suffixes[] = "KMGT";
	const char *found = suffix ? strchr(suffixes, toupper((unsigned char)suffix)) : NULL;

	return found ? 10 * (unsigned)(found - suffixes + 1) : 0;
}

struct args_capacity args_capacity(const char *option, const char *text)
{
	char *end;
	double value = strtod(text, &end);
	unsigned shift = suffix_shift(*end);

	if (!isdigit((unsigned char)*text) || !isfinite(value))
		fail("%s takes a size (8G, 4096) or a share of the data (20%%), not '%s'", option,
		     text);
	if (value <= 0)
		fail("%s must be above 0", option);
	if (!strcmp(end, "%")) {
		if (value > 100)
			fail("%s is above 100%%: '%s'", option, text);
		return (struct args_capacity){ .share = value / 100 };
	}
	if (end[shift ? 1 : 0])
		fail("%s takes a size (8G, 4096) or a share of the data (20%%), not '%s'", option,
		     text);
	value = ldexp(value, (int)shift);
	if (value >= 0x1p62)
		fail("%s is too large: '%s'", option, text);
	return (struct args_capacity){ .bytes = value < 1 ? 1 : (uint64_t)value };
}

uint64_t args_capacity_bytes(struct args_capacity capacity, uint64_t data_bytes)
{
	uint64_t bytes = capacity.bytes;

	if (capacity.share > 0)
		bytes = capacity.share >= 1 ? data_bytes
					    : (uint64_t)((double)data_bytes * capacity.share + 0.5);
	return bytes ? bytes : 1;
}

static bool policy_exists(const char *name)
{
	if (!strcmp(name, POLICY_MIN) || !strcmp(name, NAIVE))
		return true;
	for (unsigned i = 0; sched_policy_name(i); i++)
		if (!strcmp(name, sched_policy_name(i)))
			return true;
	return false;
}

static void add_policy(struct args_policies *policies, const char *option, const char *name)
{
	if (policies->count == ARGS_POLICIES_MAX)
		fail("%s names more than %d policies", option, ARGS_POLICIES_MAX);
	policies->names[policies->count++] = name;
}

void args_policies(struct args_policies *policies, const char *option, char *text)
{
	char *name;

	policies->count = 0;
	while ((name = strsep(&text, ","))) {
		if (!strcmp(name, "all")) {
			for (unsigned i = 0; sched_policy_name(i); i++)
				add_policy(policies, option, sched_policy_name(i));
			continue;
		}
		if (!policy_exists(name))
			fail("%s: there is no policy '%s'; shade-sim --help lists them", option,
			     name);
		add_policy(policies, option, name);
	}
}

void args_print_policies(void)
{
	for (unsigned i = 0; sched_policy_name(i); i++)
		printf("  %-12s %s\n", sched_policy_name(i), sched_policy_summary(i));
	printf("  %-12s %s\n", POLICY_MIN,
	       "Belady with bypass, told the whole future (replay only)");
	printf("  %-12s %s\n", NAIVE, "the slow reference of shade");
}
