/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The file `samples`: a line `ID<TAB>PATH` for each sample, as they are numbered when the file is
 * opened.
 *
 * No text is kept. A list holds the nodes of all samples, whose names and parents never change, and
 * a line is made when it is read. All who open the file while the samples and their names are the
 * same share one list; whoever has an older one goes on reading that.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "control/internal.h"
#include "escape.h"

#define STRIDE 256 /* lines between two whose position is kept */

/* What a sample counts: its place in the list, and a part of the old version that the list may
 * keep in memory when the source has a new one. */
#define BYTES_A_SAMPLE 32

struct names {
	struct cache_names *samples;
	unsigned users;	  /* report_lock */
	uint64_t *starts; /* where line 0, STRIDE, 2 * STRIDE... begin; constant */
};

/* --- lines --------------------------------------------------------------------------------------
 */

/* To be freed; NULL: no memory. A name that was gone at the open is empty. */
static char *make_line(const struct names *names, uint32_t id, size_t *length)
{
	const struct node *node = names->samples->nodes[id];
	char *path = node ? node_path(node) : strdup("");
	char *line = path ? malloc(sizeof("4294967295\t\n") + ESCAPE_MAX * strlen(path)) : NULL;
	char *at;

	if (line) {
		at = line + sprintf(line, "%" PRIu32 "\t", id);
		at = escape_text(at, path, strlen(path), ESCAPE_LINE);
		*at++ = '\n';
		*length = (size_t)(at - line);
	}
	free(path);
	return line;
}

static int find_starts(struct names *names)
{
	uint32_t count = names->samples->count;
	uint64_t at = 0;

	names->starts = malloc((count / STRIDE + 1) * sizeof(*names->starts));
	if (!names->starts)
		return -ENOMEM;
	*names->starts = 0;
	for (uint32_t id = 0; id < count; id++) {
		size_t length;
		char *line = make_line(names, id, &length);

		if (!line)
			return -ENOMEM;
		free(line);
		if (id % STRIDE == 0)
			names->starts[id / STRIDE] = at;
		at += length;
	}
	return 0;
}

/* The last line whose position is kept and that begins at `offset` or before. */
static uint32_t line_before(const struct names *names, uint64_t offset)
{
	uint32_t from = 0, to = (names->samples->count + STRIDE - 1) / STRIDE;

	while (from + 1 < to) {
		uint32_t middle = from + (to - from) / 2;

		if (names->starts[middle] <= offset)
			from = middle;
		else
			to = middle;
	}
	return from * STRIDE;
}

char *names_copy(const struct names *names, uint64_t offset, size_t max, size_t *used)
{
	uint32_t id = line_before(names, offset);
	uint64_t at = names->starts[id / STRIDE];
	char *copy = malloc(max + 1);

	*used = 0;
	for (; copy && *used < max && id < names->samples->count; id++) {
		size_t length, skipped, part;
		char *line = make_line(names, id, &length);

		if (!line) {
			free(copy);
			return NULL;
		}
		skipped = offset > at ? (offset - at < length ? (size_t)(offset - at) : length) : 0;
		part = length - skipped < max - *used ? length - skipped : max - *used;
		memcpy(copy + *used, line + skipped, part);
		*used += part;
		at += length;
		free(line);
	}
	return copy;
}

uint64_t names_version(const struct names *names)
{
	return names->samples->version;
}

uint64_t names_bytes(const struct names *names)
{
	return (uint64_t)names->samples->count * BYTES_A_SAMPLE;
}

/* --- lists --------------------------------------------------------------------------------------
 */

static void names_free(struct control *control, struct names *names)
{
	cache_release_names(control->options.cache, names->samples);
	free(names->starts);
	free(names);
}

static int make_names(struct control *control, struct names **out)
{
	struct names *names = calloc(1, sizeof(*names));
	int rc;

	if (!names)
		return -ENOMEM;
	rc = cache_hold_names(control->options.cache, &names->samples);
	if (rc) {
		free(names);
		return rc;
	}
	rc = find_starts(names);
	if (rc)
		names_free(control, names);
	else
		*out = names;
	return rc;
}

int names_get(struct control *control, struct names **out)
{
	struct cache *cache = control->options.cache;
	int rc = 0;

	lock_acquire(&control->report_lock);
	if (!control->names || control->names->samples->version != cache_names_version(cache))
		rc = make_names(control, &control->names);
	if (!rc) {
		control->names->users++;
		*out = control->names;
	}
	lock_release(&control->report_lock);
	return rc;
}

void names_put(struct control *control, struct names *names)
{
	bool is_last;

	lock_acquire(&control->report_lock);
	is_last = --names->users == 0;
	if (is_last && control->names == names)
		control->names = NULL;
	lock_release(&control->report_lock);
	if (is_last)
		names_free(control, names);
}
