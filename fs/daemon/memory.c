/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* How much memory there is for this process, and what malloc() keeps of it. */
#include <limits.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/options.h"

/* The number in a file, or UINT64_MAX. */
static uint64_t read_limit(const char *path)
{
	unsigned long long value = UINT64_MAX;
	FILE *file = fopen(path, "r");

	if (!file)
		return UINT64_MAX;
	if (fscanf(file, "%llu", &value) != 1)
		value = UINT64_MAX; /* "max" */
	fclose(file);
	return value;
}

/* The least limit of the cgroup that this process is in, and of its parents. Version 2 has one
 * hierarchy, "0::/path"; version 1 names the controller. A container may see the path as it is
 * outside, but only its own part of the files: its limit is then at the root. */
static uint64_t cgroup_limit(void)
{
	FILE *file = fopen("/proc/self/cgroup", "r");
	uint64_t least = UINT64_MAX;
	char line[4096];

	while (file && fgets(line, sizeof(line), file)) {
		bool v2 = !strncmp(line, "0::", 3);
		char *path = strchr(line, ':'), *controllers = path ? path + 1 : NULL;

		path = controllers ? strchr(controllers, ':') : NULL;
		if (!path || (!v2 && !strstr(controllers, "memory")))
			continue;
		path[strcspn(path, "\n")] = 0;
		for (char *end = path++; end; end = strrchr(path, '/')) {
			char limit[8192];
			uint64_t value;

			*end = 0;
			snprintf(limit, sizeof(limit), "/sys/fs/cgroup%s%s/%s", v2 ? "" : "/memory",
				 path, v2 ? "memory.max" : "memory.limit_in_bytes");
			value = read_limit(limit);
			least = value < least ? value : least;
		}
	}
	if (file)
		fclose(file);
	return least;
}

uint64_t options_memory(const char **which)
{
	uint64_t ram = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t limit = cgroup_limit();

	*which = limit < ram ? "cgroup limit" : "RAM";
	return limit < ram ? limit : ram;
}

void options_keep_memory(const struct options *options)
{
	int bytes = options->inflight_bytes < INT_MAX ? (int)options->inflight_bytes : INT_MAX;

	mallopt(M_MMAP_THRESHOLD, 1 << 25);
	mallopt(M_TRIM_THRESHOLD, bytes);
}
