/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reads /proc/self/mountinfo; proc(5) has the format. */
#include "mountinfo.h"

#include <stdlib.h>
#include <string.h>

#include "path.h"
#include "say.h"

bool mountinfo_open(struct mountinfo *info)
{
	*info = (struct mountinfo){ .file = fopen("/proc/self/mountinfo", "re") };
	return info->file;
}

void mountinfo_close(struct mountinfo *info)
{
	if (info->file)
		fclose(info->file);
	free(info->line);
	free(info->copy);
	*info = (struct mountinfo){ 0 };
}

/* `id parent major:minor root POINT options optional... - TYPE SOURCE OPTIONS` */
static bool take_apart(struct mountinfo *info)
{
	char *rest = info->copy;
	char *after = strstr(info->copy, " - ");

	if (!after)
		return false;
	*after = '\0';
	after += 3;
	for (int i = 0; i < 4 && rest; i++)
		strsep(&rest, " ");
	info->point = strsep(&rest, " ");
	info->type = strsep(&after, " ");
	info->source = strsep(&after, " ");
	info->options = strsep(&after, " ");
	if (!info->point || !info->options)
		return false;
	path_unescape(info->point);
	path_unescape(info->source);
	return true;
}

bool mountinfo_next(struct mountinfo *info)
{
	size_t size = 0;

	do {
		free(info->line);
		free(info->copy);
		info->line = NULL;
		info->copy = NULL;
		if (getline(&info->line, &size, info->file) < 0)
			return false;
		info->line[strcspn(info->line, "\n")] = '\0';
		info->copy = must(strdup(info->line));
		size = 0;
	} while (!take_apart(info));
	return true;
}

bool mountinfo_find(struct mountinfo *info, const char *point)
{
	struct mountinfo found = { 0 };

	if (!mountinfo_open(info))
		return false;
	while (mountinfo_next(info)) {
		if (strcmp(info->point, point))
			continue;
		/* The last one in the list is on top: keep it, and let INFO read on. */
		mountinfo_close(&found);
		found = *info;
		found.file = NULL;
		info->line = NULL;
		info->copy = NULL;
	}
	mountinfo_close(info);
	*info = found;
	return found.line;
}
