/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Any bytes as the files below .shade. Whoever may mount FUSE can make up a mount that calls itself
 * shadefs, and root may point shadectl at it. An input is all files in turn: `samples`, `stats` and
 * `resident`.
 *
 * Samples come with the ids and paths of their lines, as far as the first line that is wrong;
 * figures are numbers; residency has no bit beyond what was asked for.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "escape.h"
#include "fuzz.h"
#include "lib.h"
#include "mount.h"

#define COUNT 100 /* bits of residency that are asked for */

const char fuzz_name[] = "client";

/* --- a mount that somebody made up -------------------------------------------------------------
 */

static char folder[] = "/dev/shm/shade-fuzz-XXXXXX"; /* ext4 takes twenty times as long */
static const char *const files[] = { "samples", "stats", "resident" };
#define FILES (sizeof(files) / sizeof(files[0]))
static int file_fds[FILES];
static struct shade shade = { .path = (char *)"/mnt", .lock = PTHREAD_MUTEX_INITIALIZER };

static void remove_folder(void)
{
	for (size_t i = 0; i < FILES; i++)
		(void)unlinkat(shade.root, files[i], 0);
	(void)rmdir(folder);
}

static void make_folder(void)
{
	if (shade.root)
		return;
	fuzz_require(mkdtemp(folder), "there is a folder");
	shade.root = shade.job = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	fuzz_require(shade.root > 0, "it can be opened");
	(void)atexit(remove_folder);
	for (size_t i = 0; i < FILES; i++) {
		file_fds[i] = openat(shade.root, files[i], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		fuzz_require(file_fds[i] >= 0, "it has files");
	}
}

static void write_file(size_t which, const void *data, size_t size)
{
	fuzz_require(!ftruncate(file_fds[which], 0), "it is emptied");
	fuzz_require(pwrite(file_fds[which], data, size, 0) == (ssize_t)size, "it is written");
}

/* --- samples -----------------------------------------------------------------------------------
 */

struct seen {
	uint64_t samples;
	uint64_t refuse_at;
};

static int see_sample(void *context, uint32_t id, const char *path)
{
	struct seen *seen = context;
	char escaped[ESCAPE_MAX * FUZZ_INPUT_MAX + 1];

	fuzz_require(id < UINT32_MAX, "an id is one");
	if (strlen(path) < FUZZ_INPUT_MAX) {
		escape_text(escaped, path, strlen(path), ESCAPE_LINE);
		fuzz_require(!strchr(escaped, '\n'), "an escaped path is one line");
		fuzz_require(unescape_in_place(escaped, ESCAPE_LINE) && !strcmp(escaped, path),
			     "an escaped path comes back");
	}
	return ++seen->samples == seen->refuse_at ? -ECANCELED : 0;
}

static void try_samples(const uint8_t *data, size_t size)
{
	struct seen all = { 0 }, some = { .refuse_at = 2 };
	uint64_t lines = 1;
	int rc, some_rc;

	for (size_t i = 0; i < size; i++)
		lines += data[i] == '\n';
	write_file(0, data, size);
	rc = shade_samples(&shade, see_sample, &all);
	fuzz_require(!rc || rc == -EPROTO || rc == -EFBIG, "samples are read, or are none");
	fuzz_require(all.samples <= lines, "a line is a sample at most");
	fuzz_require(!rc || *shade_error(), "a refusal says why");
	some_rc = shade_samples(&shade, see_sample, &some);
	fuzz_require(some_rc == (all.samples >= 2 ? -ECANCELED : rc),
		     "who has enough gets no more");
}

/* --- figures -----------------------------------------------------------------------------------
 */

static void try_pairs(const char *text, size_t size)
{
	const char *cursor = text, *end = text + strlen(text);
	struct pair pair, found;
	char key[100];

	while (pair_next(&cursor, &pair)) {
		fuzz_require(pair.key >= text && pair.key + pair.key_length <= pair.value &&
				     pair.value + pair.value_length <= end && cursor <= end,
			     "a pair is within the text");
		fuzz_require(!memchr(pair.key, '\n', (size_t)(cursor - pair.key)),
			     "a pair is within a line");
		if (!pair.key_length || pair.key_length >= sizeof(key))
			continue;
		memcpy(key, pair.key, pair.key_length);
		key[pair.key_length] = '\0';
		fuzz_require(pair_find(text, key, &found) && found.key <= pair.key,
			     "the first pair of a key is found");
		(void)pair_number(text, key);
	}
	fuzz_require(size < 2 || *cursor != '\n', "all lines were looked at");
	fuzz_require(isnan(pair_number(text, "no\nkey")), "a missing figure is not a number");
}

static void try_stats(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	double value = 1;
	int rc;

	fuzz_require(text, "there is memory");
	memcpy(text, data, size);
	text[size] = '\0';
	try_pairs(text, size);
	free(text);
	write_file(1, data, size);
	rc = shade_stat(&shade, "samples", &value);
	fuzz_require(!rc || rc == -ENOENT || rc == -ERANGE || rc == -EFBIG,
		     "a figure is there or not");
	fuzz_require(!rc || *shade_error(), "a refusal says why");
}

static void try_resident(const uint8_t *data, size_t size)
{
	uint64_t bitmap[(COUNT + 63) / 64];
	int rc;

	memset(bitmap, 0xff, sizeof(bitmap));
	write_file(2, data, size);
	rc = shade_resident(&shade, bitmap, COUNT);
	fuzz_require(!rc || rc == -EFBIG, "residency is read, whatever it is");
	for (size_t i = 0; !rc && i < sizeof(bitmap) * 8; i++)
		fuzz_require(!(bitmap[i / 64] >> i % 64 & 1) ||
				     (i < COUNT && i / 8 < size && data[i / 8] >> i % 8 & 1),
			     "a bit is one of the file");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	make_folder();
	try_samples(data, size);
	try_stats(data, size);
	try_resident(data, size);
	return 0;
}

size_t fuzz_make(struct fuzz_random *random, uint8_t *data)
{
	static const struct fuzz_part samples[] = {
		FUZZ_PART("0\tclass0/a.jpg\n"),
		FUZZ_PART("1\tclass0/a\\012b\\\\c\n"),
		FUZZ_PART("4294967294\t\303\244\n"),
		FUZZ_PART("7\t\n"),
		FUZZ_PART("2\tx\n"),
	};
	static const struct fuzz_part stats[] = {
		FUZZ_PART("samples 1000\n"),
		FUZZ_PART("mode native\n"),
		FUZZ_PART("coverage 0.25\n"),
		FUZZ_PART("hits\n"),
		FUZZ_PART("\n\n"),
		FUZZ_PART("samples nan\n"),
		FUZZ_PART(" key value\n"),
		FUZZ_PART("policy \t lru \n"),
		FUZZ_PART("samples 1e400\n"),
	};

	if (fuzz_roll(random, 2))
		return fuzz_join(random, samples, sizeof(samples) / sizeof(samples[0]), 8, data);
	return fuzz_join(random, stats, sizeof(stats) / sizeof(stats[0]), 8, data);
}
