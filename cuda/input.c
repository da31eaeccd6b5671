/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reads and writes files, and exits with a sentence where they are not what they should be. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "grow.h"

#define READ_LEAST 65536 /* bytes that a read has room for */

void must_score(int64_t rc)
{
	if (rc == -ENOMEM || rc == -EIO || rc == -ENODEV)
		give_up("%s", shade_score_error());
	if (rc < 0)
		fail("%s", shade_score_error());
}

void scores_read(struct lines *lines, struct shade_scorer *s, uint32_t samples)
{
	while (lines_next(lines)) {
		uint32_t id;
		float score;

		if (!lines_has_word(lines))
			continue;
		id = (uint32_t)lines_take_number(lines, "an id", samples - 1);
		score = (float)lines_take_real(lines, "a score");
		if (lines_has_word(lines)) {
			(void)lines_take_number(lines, "a frequency", UINT64_MAX);
			(void)lines_take_number(lines, "residency", 1);
		}
		lines_end(lines);
		if (score >= 0 && shade_scorer_merge(s, &id, &score, 1))
			lines_fail(lines, "%s", shade_score_error());
	}
}

void losses_read(struct lines *lines, struct shade_scorer *s, uint32_t samples)
{
	while (lines_next(lines)) {
		uint32_t id;
		float loss;

		if (!lines_has_word(lines))
			continue;
		id = (uint32_t)lines_take_number(lines, "an id", samples - 1);
		loss = (float)lines_take_real(lines, "a loss");
		lines_end(lines);
		if (shade_scorer_merge_losses(s, &id, &loss, 1))
			lines_fail(lines, "%s", shade_score_error());
	}
}

void neighbours_read(const char *path, struct shade_scorer *s, uint32_t samples)
{
	uint32_t *ids = must(malloc(samples * sizeof(*ids))), count = 0;
	struct lines lines;

	lines_open(&lines, path);
	while (lines_next(&lines)) {
		if (!lines_has_word(&lines))
			continue;
		if (count == samples)
			lines_fail(&lines, "there are more ids than samples");
		ids[count++] = (uint32_t)lines_take_number(&lines, "an id", samples - 1);
		lines_end(&lines);
	}
	lines_close(&lines);
	if (count < samples)
		fail("%s has %" PRIu32 " ids, but there are %" PRIu32 " samples", path, count,
		     samples);
	if (shade_scorer_neighbours(s, ids))
		fail("%s: %s", path, shade_score_error());
	free(ids);
}

unsigned char *file_read(const char *path, uint64_t most, uint64_t *size)
{
	FILE *file = fopen(path, "rb");
	unsigned char *bytes = NULL;
	size_t room = 0;
	bool failed;

	if (!file)
		fail("cannot open %s: %s", path, strerror(errno));
	*size = 0;
	do {
		must_do(grow(bytes, room, *size, READ_LEAST), "reading a file");
		*size += fread(bytes + *size, 1, room - *size, file);
	} while (*size == room && *size <= most);
	failed = ferror(file);
	fclose(file);
	if (!failed && *size <= most)
		return bytes;
	free(bytes);
	if (failed)
		fail("cannot read %s: %s", path, strerror(EIO));
	fail("%s is too long: it should have at most %llu bytes", path, (unsigned long long)most);
}

void file_write(const char *path, const void *bytes, uint64_t size)
{
	char fresh[4096];
	FILE *file;
	bool failed;

	if (snprintf(fresh, sizeof(fresh), "%s.new", path) >= (int)sizeof(fresh))
		fail("the name %s is too long", path);
	file = fopen(fresh, "wb");
	if (!file)
		give_up("cannot write %s: %s", fresh, strerror(errno));
	failed = fwrite(bytes, 1, size, file) != size;
	if (fclose(file) || failed || rename(fresh, path)) {
		int error = errno;

		(void)unlink(fresh);
		give_up("cannot write %s: %s", path, strerror(error));
	}
}
