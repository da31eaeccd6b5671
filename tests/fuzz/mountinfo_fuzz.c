/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Any text in place of /proc/self/mountinfo. Users write parts of that: whoever may mount FUSE
 * chooses the names of mount points, sources and subtypes.
 *
 * A line is split into words here once more, in the simplest way, and mountinfo_next() must find
 * the same mounts with the same fields and leave out the same lines.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "escape.h"
#include "fuzz.h"
#include "mountinfo.h"
#include "number.h"

#define WORDS_MAX 64

const char fuzz_name[] = "mountinfo";

/* The words of a line; `count` may be more than there is room for. */
struct words {
	char *word[WORDS_MAX];
	size_t count;
};

static void split(char *line, struct words *words)
{
	words->count = 0;
	while (line) {
		char *word = strsep(&line, " ");

		if (words->count < WORDS_MAX)
			words->word[words->count] = word;
		words->count++;
	}
}

/* Where the word "-" is, with a word before and one after it; 0: nowhere. */
static size_t find_dash(const struct words *words)
{
	for (size_t i = 1; i + 1 < words->count && i < WORDS_MAX; i++)
		if (!strcmp(words->word[i], "-"))
			return i;
	return 0;
}

static bool is_word(const char *found, char *word, bool escaped)
{
	fuzz_require(word, "there is a word");
	if (escaped && !unescape_in_place(word, ESCAPE_OCTAL))
		return false;
	return !strcmp(found, word);
}

/* Whether this is the line of a mount. */
static bool is_mount(const char *line)
{
	char *copy = fuzz_copy(line, strlen(line) + 1);
	struct words words = { 0 };
	size_t dash;
	uint64_t id;
	bool is;

	split(copy, &words);
	dash = find_dash(&words);
	is = dash >= 5 && dash + 3 < words.count && dash + 3 < WORDS_MAX &&
	     !number_whole(words.word[0], strlen(words.word[0]), &id) &&
	     !number_whole(words.word[1], strlen(words.word[1]), &id) &&
	     unescape_in_place(words.word[3], ESCAPE_OCTAL) &&
	     unescape_in_place(words.word[4], ESCAPE_OCTAL) &&
	     unescape_in_place(words.word[dash + 2], ESCAPE_OCTAL);
	free(copy);
	return is;
}

static void check_fields(const struct mountinfo *info)
{
	char *copy = fuzz_copy(info->line, strlen(info->line) + 1);
	struct words words = { 0 };
	size_t dash;
	uint64_t id;

	split(copy, &words);
	dash = find_dash(&words);
	fuzz_require(dash >= 5 && dash + 3 < words.count && dash + 3 < WORDS_MAX,
		     "there are as many words");
	fuzz_require(!number_whole(words.word[0], strlen(words.word[0]), &id) && id == info->id,
		     "the id is the first word");
	fuzz_require(!number_whole(words.word[1], strlen(words.word[1]), &id) && id == info->parent,
		     "the parent's is the second");
	fuzz_require(is_word(info->device, words.word[2], false), "the device is the third");
	fuzz_require(is_word(info->root, words.word[3], true), "the root is the fourth");
	fuzz_require(is_word(info->point, words.word[4], true), "the mount point is the fifth");
	fuzz_require(is_word(info->type, words.word[dash + 1], false), "the type follows the dash");
	fuzz_require(is_word(info->source, words.word[dash + 2], true), "then comes the source");
	fuzz_require(is_word(info->options, words.word[dash + 3], false), "then the options");
	free(copy);
}

/* Lines with more words than there is room for here are left to mountinfo_next() alone. */
static bool is_short(const char *line)
{
	size_t spaces = 0;

	for (; *line; line++)
		spaces += *line == ' ';
	return spaces < WORDS_MAX;
}

/* How many mounts there should be. */
static size_t count_mounts(const uint8_t *data, size_t size, bool *counted)
{
	char *text = malloc(size + 1), *rest = text;
	size_t mounts = 0;

	fuzz_require(text, "there is memory");
	memcpy(text, data, size);
	text[size] = '\0';
	*counted = true;
	while (rest < text + size) {
		char *line = rest;
		char *end = memchr(line, '\n', (size_t)(text + size - line));

		rest = end ? end + 1 : text + size;
		if (end)
			*end = '\0';
		*counted &= is_short(line);
		mounts += is_mount(line);
	}
	free(text);
	return mounts;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mountinfo info = { 0 };
	size_t mounts = 0, wanted;
	bool counted;
	int rc;

	if (!size)
		return 0; /* fmemopen() may refuse it */
	wanted = count_mounts(data, size, &counted);
	info.file = fmemopen((void *)data, size, "r");
	fuzz_require(info.file, "there is memory");
	while ((rc = mountinfo_next(&info)) > 0) {
		mounts++;
		if (is_short(info.line))
			check_fields(&info);
	}
	fuzz_require(!rc, "any text can be read to its end");
	fuzz_require(!counted || mounts == wanted, "the mounts are those of the lines");
	mountinfo_close(&info);
	fuzz_require(!info.file && !info.line && !info.copy, "nothing is left");
	return 0;
}

size_t fuzz_make(struct fuzz_random *random, uint8_t *data)
{
	static const struct fuzz_part parts[] = {
		FUZZ_PART("22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"),
		FUZZ_PART("40 22 0:37 / /mnt/a\\040b ro,nosuid,nodev - fuse.shadefs /nfs/a\\012b "
			  "ro,user_id=0,group_id=0,default_permissions,allow_other\n"),
		FUZZ_PART("41 22 0:38 / /mnt/imagenet ro,nosuid,nodev shared:7 master:8 - overlay "
			  "/nfs/imagenet ro,lowerdir=/run/shadefs/7/top:/run/shadefs/7/files\n"),
		FUZZ_PART(
			"42 41 0:39 / /mnt/imagenet/.shade rw - fuse.shadefs.control shadefs rw\n"),
		FUZZ_PART("43 22 0:4 mnt:[4026531840] /run/ns/x rw - nsfs nsfs rw\n"),
		FUZZ_PART("44 22 0:40 / /tmp/\\134\\011\\043 rw - fuse.sh\\040adefs  rw\n"),
		FUZZ_PART("45 22 0:41 / /tmp/- rw - - - -\n"),
		FUZZ_PART("46 22 0:42 / /tmp/x rw  -  fuse a b\n"),
		FUZZ_PART("\n"),
		FUZZ_PART("47 22 0:43 / /tmp/cut rw - fuse"),
	};

	return fuzz_join(random, parts, sizeof(parts) / sizeof(parts[0]), 8, data);
}
