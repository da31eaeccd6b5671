/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "mountinfo.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "escape.h"
#include "grow.h"
#include "number.h"

int mountinfo_open(struct mountinfo *info)
{
	*info = (struct mountinfo){ .file = fopen("/proc/self/mountinfo", "re") };
	return info->file ? 0 : -errno;
}

void mountinfo_close(struct mountinfo *info)
{
	if (info->file)
		fclose(info->file);
	free(info->line);
	free(info->copy);
	*info = (struct mountinfo){ 0 };
}

/* `ID PARENT DEVICE ROOT POINT options optional... - TYPE SOURCE OPTIONS` */
static bool take_apart(struct mountinfo *info)
{
	char *before[5] = { 0 };
	char *rest = info->copy;
	char *after = strstr(info->copy, " - ");

	if (!after)
		return false;
	*after = '\0';
	after += strlen(" - ");
	for (int i = 0; i < 5; i++)
		before[i] = strsep(&rest, " ");
	info->device = before[2];
	info->point = before[4];
	info->type = strsep(&after, " ");
	info->source = strsep(&after, " ");
	info->options = strsep(&after, " ");
	return info->point && info->options &&
	       !number_whole(before[0], strlen(before[0]), &info->id) &&
	       unescape_in_place(info->point, ESCAPE_OCTAL) &&
	       unescape_in_place(info->source, ESCAPE_OCTAL);
}

int mountinfo_next(struct mountinfo *info)
{
	ssize_t length;

	do {
		errno = 0;
		length = getline(&info->line, &info->line_room, info->file);
		if (length < 0)
			return ferror(info->file) || errno ? -(errno ? errno : EIO) : 0;
		info->line[strcspn(info->line, "\n")] = '\0';
		if (grow(info->copy, info->copy_room, 0, (size_t)length + 1))
			return -ENOMEM;
		strcpy(info->copy, info->line);
	} while (!take_apart(info));
	return 1;
}

int mountinfo_find(struct mountinfo *info, const char *point)
{
	struct mountinfo found = { 0 };
	int rc = mountinfo_open(info);

	while (!rc && (rc = mountinfo_next(info)) > 0) {
		rc = 0;
		if (strcmp(info->point, point))
			continue;
		/* The last one in the list is on top: keep it, and let `info` read on. */
		mountinfo_close(&found);
		found = *info;
		found.file = NULL;
		*info = (struct mountinfo){ .file = info->file };
	}
	mountinfo_close(info);
	if (rc)
		mountinfo_close(&found);
	*info = found;
	return rc ? rc : found.line != NULL;
}
