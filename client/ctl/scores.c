/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "scores.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "say.h"

#define LINE_MAX_BYTES 256

/* `id<TAB>score<TAB>frequency<TAB>resident`; what has no number for a score is unscored. */
static void take_line(struct histogram *scores, const char *line)
{
	const char *score = strchr(line, '\t');
	const char *resident = strrchr(line, '\t');
	char *end;
	double value;

	if (!score || resident == score)
		return;
	value = strtod(score + 1, &end);
	histogram_add(scores, end == score + 1 ? NAN : value, resident[1] == '1');
}

void scores_take(const struct mount *mount, struct histogram *scores, double patience)
{
	double end = say_now() + patience;
	char line[LINE_MAX_BYTES];
	int fd = mount_file(mount, "scores");
	FILE *file = fd < 0 ? NULL : fdopen(fd, "r");

	histogram_clear(scores);
	while (file && say_now() < end && fgets(line, sizeof(line), file))
		take_line(scores, line);
	if (file)
		fclose(file);
	else if (fd >= 0)
		close(fd);
}
