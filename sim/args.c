/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "args.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "fail.h"
#include "replay.h"
#include "shade/sched.h"

#define NAIVE "shade-naive"
#define CAPACITY_MAX ((uint64_t)1 << 62)

struct size args_capacity(const char *option, const char *text)
{
	struct size size;

	if (size_parse(text, strlen(text), &size))
		fail("%s takes a size (8G, 4096) or a share of the data (20%%), not '%s'", option,
		     text);
	if (!size.bytes && size.share <= 0)
		fail("%s must be above 0", option);
	if (size.bytes >= CAPACITY_MAX)
		fail("%s is too large: '%s'", option, text);
	return size;
}

uint64_t args_capacity_bytes(struct size capacity, uint64_t data_bytes)
{
	uint64_t bytes = capacity.bytes;

	if (capacity.share > 0)
		bytes = capacity.share >= 1 ? data_bytes
					    : (uint64_t)((double)data_bytes * capacity.share + 0.5);
	return bytes ? bytes : 1;
}

static bool policy_exists(const char *name)
{
	if (!strcmp(name, REPLAY_MIN) || !strcmp(name, NAIVE))
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
	printf("  %-12s %s\n", REPLAY_MIN,
	       "Belady with bypass, told the whole future (replay only)");
	printf("  %-12s %s\n", NAIVE, "the slow reference of shade");
}
