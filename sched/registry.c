/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The table of policies. A new one gets a row here; the first is the default. */
#include <string.h>

#include "policy.h"
#include "shade/sched.h"

static const struct policy *const policies[] = {
	&policy_shade, &policy_app, &policy_icache, &policy_minio,
	&policy_lru,   &policy_lfu, &policy_fifo,   &policy_naive,
};

#define POLICY_COUNT (sizeof(policies) / sizeof(policies[0]))

const struct policy *policy_find(const char *name)
{
	for (size_t i = 0; i < POLICY_COUNT; i++)
		if (!strcmp(policies[i]->name, name))
			return policies[i];
	return NULL;
}

const struct policy *policy_default(void)
{
	return policies[0];
}

static const struct policy *mountable(unsigned index)
{
	for (size_t i = 0; i < POLICY_COUNT; i++)
		if (!policies[i]->reference && index-- == 0)
			return policies[i];
	return NULL;
}

const char *sched_policy_name(unsigned index)
{
	const struct policy *policy = mountable(index);

	return policy ? policy->name : NULL;
}

const char *sched_policy_summary(unsigned index)
{
	const struct policy *policy = mountable(index);

	return policy ? policy->summary : NULL;
}
