/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The manifest's text: what is written comes back, and whatever is wrong is refused whole, with
 * its line. Texts here are sealed with a right end, so that it is not the mark that finds what the
 * test is about; damage by chance has tests of its own.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "names/manifest.h"

#define HEADER "shadefs manifest 2\n"
#define DIR_OF "7 4096 100 200 40755 0 0 2 "
#define FILE_OF "8 10 -5 6 100644 1000 100 1 "
#define ROOT "d " DIR_OF "/\n"

static const struct store_attr dir_attr = {
	.ino = 7, .size = 4096, .mtime_ns = 100, .ctime_ns = 200, .mode = 040755, .nlink = 2
};
static const struct store_attr file_attr = { .ino = 8,
					     .size = 10,
					     .mtime_ns = -5,
					     .ctime_ns = 6,
					     .mode = 0100644,
					     .uid = 1000,
					     .gid = 100,
					     .nlink = 1 };

/* Written anew, so that a change of the format does not go unnoticed. */
static uint64_t mark_of(const char *text, size_t size)
{
	uint64_t mark = 0xcbf29ce484222325u;

	for (size_t i = 0; i < size; i++)
		mark = (mark ^ (unsigned char)text[i]) * 0x100000001b3u;
	return mark;
}

/* A copy of exactly the size, so that a sanitizer sees every byte too much. */
static int parse_bytes(const char *text, size_t size, struct manifest **out,
		       struct manifest_fault *fault)
{
	char *copy = malloc(size ? size : 1);

	memcpy(copy, text, size);
	return manifest_parse(out, copy, size, fault);
}

static int parse_sealed(const char *body, int dirs, int entries, struct manifest **out,
			struct manifest_fault *fault)
{
	char *text;
	int length, rc;

	length = asprintf(&text, "%send %d %d %016" PRIx64 "\n", body, dirs, entries,
			  mark_of(body, strlen(body)));
	cr_assert(length > 0);
	rc = parse_bytes(text, (size_t)length, out, fault);
	free(text);
	return rc;
}

static void accept(const char *body, int dirs, int entries)
{
	struct manifest_fault fault;
	struct manifest *manifest;
	int rc = parse_sealed(body, dirs, entries, &manifest, &fault);

	cr_assert_eq(rc, 0, "%s, line %lu: %s", body, fault.line, rc ? fault.what : "");
	manifest_put(manifest);
}

static void refuse(const char *body, int dirs, int entries, unsigned long line, const char *words)
{
	struct manifest_fault fault;
	struct manifest *manifest;

	cr_assert_eq(parse_sealed(body, dirs, entries, &manifest, &fault), -EINVAL, "%s", body);
	cr_assert_eq(fault.line, line, "%s: line %lu, not %lu", body, fault.line, line);
	cr_assert(strstr(fault.what, words), "%s: %s", body, fault.what);
}

/* --- what is listed -------------------------------------------------------------------------- */

struct found {
	unsigned count;
	char names[16][MANIFEST_PATH_MAX];
	struct store_attr attrs[16];
	unsigned stop_after;
};

static int note(void *context, const char *name, const struct store_attr *attr)
{
	struct found *found = context;

	cr_assert_lt(found->count, 16u);
	strcpy(found->names[found->count], name);
	found->attrs[found->count++] = *attr;
	return found->stop_after && found->count == found->stop_after ? -EIO : 0;
}

static char *write_text(void (*fill)(struct manifest_writer *writer), size_t *size, uint64_t *mark)
{
	struct manifest_writer writer, dry;
	static char *text; /* gcc thinks that the stream outlives us */
	FILE *file = open_memstream(&text, size);

	manifest_begin(&writer, file);
	fill(&writer);
	manifest_end(&writer);
	fclose(file); /* sets `text` */
	manifest_begin(&dry, NULL);
	fill(&dry);
	manifest_end(&dry);
	cr_assert_eq(writer.mark, dry.mark);
	*mark = writer.mark;
	return text;
}

static const char *const odd_names[] = { "\001",
					 "\n",
					 " ",
					 "-",
					 "...",
					 "\\",
					 "\\101",
					 "a b\tc\r\n",
					 "plain",
					 "x=y,z",
					 "\177\200\376\377" };
#define ODD_NAMES (sizeof(odd_names) / sizeof(odd_names[0]))

static void fill_odd(struct manifest_writer *writer)
{
	manifest_add_dir(writer, "", &dir_attr);
	for (size_t i = 0; i < ODD_NAMES; i++)
		manifest_add_entry(writer, odd_names[i], &file_attr);
	manifest_add_dir(writer, "a", &dir_attr);
	manifest_add_dir(writer, "a/\002", &dir_attr);
	manifest_add_dir(writer, "a/b", &dir_attr);
	manifest_add_entry(writer, "deep", &dir_attr);
	manifest_add_dir(writer, "a\002", &dir_attr); /* after all that is below a */
	manifest_add_dir(writer, "a b", &dir_attr);
	manifest_add_dir(writer, "a.b", &dir_attr);
}

Test(manifest, what_is_written_comes_back)
{
	struct found *found = calloc(1, sizeof(*found));
	struct manifest_fault fault;
	struct manifest *manifest;
	uint64_t mark;
	size_t size;
	char *text = write_text(fill_odd, &size, &mark);

	cr_assert_eq(manifest_parse(&manifest, text, size, &fault), 0);
	cr_assert_eq(manifest_mark(manifest), mark);
	cr_assert_eq(manifest_list(manifest, "", &dir_attr, note, found), 1);
	cr_assert_eq(found->count, ODD_NAMES);
	for (size_t i = 0; i < ODD_NAMES; i++) {
		cr_assert_str_eq(found->names[i], odd_names[i]);
		cr_assert(store_same_attr(&found->attrs[i], &file_attr));
	}
	found->count = 0;
	cr_assert_eq(manifest_list(manifest, "a/b", &dir_attr, note, found), 1);
	cr_assert_eq(found->count, 1u);
	cr_assert_str_eq(found->names[0], "deep");
	for (size_t i = 0; i < 5; i++) {
		static const char *const empty[] = { "a", "a/\002", "a\002", "a b", "a.b" };

		cr_assert_eq(manifest_list(manifest, empty[i], &dir_attr, note, found), 1);
	}
	cr_assert_eq(found->count, 1u);
	manifest_put(manifest);
	free(found);
}

Test(manifest, only_the_same_version_counts)
{
	struct found *found = calloc(1, sizeof(*found));
	struct manifest_fault fault;
	struct manifest *manifest;
	uint64_t mark;
	size_t size;
	char *text = write_text(fill_odd, &size, &mark);

	cr_assert_eq(manifest_parse(&manifest, text, size, &fault), 0);
	cr_assert_eq(manifest_list(manifest, "unknown", &dir_attr, note, found), 0);
	cr_assert_eq(manifest_list(manifest, "a/", &dir_attr, note, found), 0);
	for (int field = 0; field < 8; field++) {
		struct store_attr other = dir_attr;

		other.ino += field == 0;
		other.size += field == 1;
		other.mtime_ns += field == 2;
		other.ctime_ns += field == 3;
		other.mode += field == 4;
		other.uid += field == 5;
		other.gid += field == 6;
		other.nlink += field == 7;
		cr_assert_eq(manifest_list(manifest, "", &other, note, found), 0);
	}
	cr_assert_eq(found->count, 0u);
	found->stop_after = 3;
	cr_assert_eq(manifest_list(manifest, "", &dir_attr, note, found), -EIO);
	cr_assert_eq(found->count, 3u);
	manifest_hold(manifest);
	manifest_put(manifest);
	cr_assert_eq(manifest_mark(manifest), mark);
	manifest_put(manifest);
	manifest_put(NULL);
	free(found);
}

static void fill_extremes(struct manifest_writer *writer)
{
	struct store_attr most = { .ino = UINT64_MAX,
				   .size = INT64_MAX,
				   .mode = 0177777,
				   .uid = UINT32_MAX,
				   .gid = UINT32_MAX,
				   .nlink = STORE_LINKS_MAX };
	struct store_attr least = { .ctime_ns = -1, .ctime_era = 0 };
	char name[MANIFEST_PATH_MAX];

	store_set_mtime(&most, STORE_TIME_MAX);
	store_set_ctime(&most, STORE_TIME_MAX + 1);
	store_set_mtime(&least, -STORE_TIME_MAX);
	memset(name, 0xff, sizeof(name));
	name[sizeof(name) - 2] = 0;
	manifest_add_dir(writer, "", &dir_attr);
	manifest_add_entry(writer, "least", &least);
	manifest_add_entry(writer, "most", &most);
	manifest_add_entry(writer, name, &most);
	manifest_add_dir(writer, name, &dir_attr);
}

Test(manifest, extremes_come_back)
{
	struct found *found = calloc(1, sizeof(*found));
	struct manifest_fault fault;
	struct manifest *manifest;
	uint64_t mark;
	size_t size;
	char *text = write_text(fill_extremes, &size, &mark);

	cr_assert_eq(manifest_parse(&manifest, text, size, &fault), 0, "line %lu: %s", fault.line,
		     fault.what);
	cr_assert_eq(manifest_list(manifest, "", &dir_attr, note, found), 1);
	cr_assert_eq(found->count, 3u);
	cr_assert(store_mtime(&found->attrs[0]) == -STORE_TIME_MAX);
	cr_assert(store_ctime(&found->attrs[0]) == -1);
	cr_assert(store_mtime(&found->attrs[1]) == STORE_TIME_MAX);
	cr_assert(store_ctime(&found->attrs[1]) == STORE_TIME_MAX);
	cr_assert_eq(found->attrs[1].ino, UINT64_MAX);
	cr_assert_eq(found->attrs[1].mode, 0177777u);
	cr_assert_eq(found->attrs[1].nlink, STORE_LINKS_MAX);
	cr_assert_eq(strlen(found->names[2]), MANIFEST_PATH_MAX - 2u);
	manifest_put(manifest);
	free(found);
}

static void fill_spanning(struct manifest_writer *writer)
{
	struct store_attr dir = dir_attr, inside = file_attr, elsewhere = file_attr;

	dir.dev = inside.dev = 3;
	elsewhere.dev = 4;
	manifest_add_dir(writer, "", &dir_attr);
	manifest_add_entry(writer, "elsewhere", &elsewhere);
	manifest_add_entry(writer, "inside", &file_attr);
	manifest_add_dir(writer, "nested", &dir);
	manifest_add_entry(writer, "elsewhere", &elsewhere);
	manifest_add_entry(writer, "inside", &inside);
}

/* File systems may have other numbers by now: what was in the directory's own still is. */
Test(manifest, file_systems)
{
	static const char *const paths[] = { "", "nested" };
	struct found *found = calloc(1, sizeof(*found));
	struct manifest_fault fault;
	struct manifest *manifest;
	uint64_t mark;
	size_t size;
	char *text = write_text(fill_spanning, &size, &mark);

	cr_assert_eq(manifest_parse(&manifest, text, size, &fault), 0);
	for (unsigned i = 0; i < 2; i++) {
		struct store_attr now = dir_attr;

		now.dev = 7;
		found->count = 0;
		cr_assert_eq(manifest_list(manifest, paths[i], &now, note, found), 1);
		cr_assert_eq(found->count, 2u);
		cr_assert_eq(found->attrs[0].dev, (unsigned)STORE_DEV_ELSEWHERE);
		cr_assert_eq(found->attrs[1].dev, 7u);
	}
	manifest_put(manifest);
	free(found);
}

/* Every era, and where one ends and the next begins. */
Test(manifest, times_come_back)
{
	const __int128 era = (__int128)1 << 64, half = era / 2;

	for (int i = -15; i <= 15; i++)
		for (int near = -2; near <= 2; near++) {
			const __int128 times[] = { i * era + near, i * era + half + near };

			for (unsigned t = 0; t < 2; t++) {
				struct store_attr attr = { 0 }, other = { 0 };

				if (times[t] > STORE_TIME_MAX)
					continue;
				store_set_mtime(&attr, times[t]);
				store_set_ctime(&other, times[t]);
				cr_assert(store_mtime(&attr) == times[t], "era %d, %d", i, near);
				cr_assert(store_ctime(&other) == times[t], "era %d, %d", i, near);
				store_set_mtime(&other, times[t] + era);
				other.ctime_ns = other.ctime_era = 0;
				cr_assert(i == 15 || !store_same_version(&attr, &other));
			}
		}
}

/* --- what is refused -------------------------------------------------------------------------- */

Test(manifest, good_texts)
{
	accept(HEADER, 0, 0);
	accept(HEADER ROOT, 1, 0);
	accept(HEADER ROOT "e " FILE_OF "a\n", 1, 1);
}

Test(manifest, other_files)
{
	refuse("", 0, 0, 1, "not a manifest");
	refuse("shadefs manifest 1\n", 0, 0, 1, "not a manifest");
	refuse("shadefs manifest 2", 0, 0, 1, "not a manifest");
	refuse("\n" HEADER, 0, 0, 1, "not a manifest");
	refuse("root:x:0:0:root:/root:/bin/bash\n", 0, 0, 1, "not a manifest");
}

Test(manifest, numbers)
{
	static const char *const bad[] = {
		"18446744073709551616 1 1 1 40755 0 0 1",
		"99999999999999999999999999999999 1 1 1 40755 0 0 1",
		"7 9223372036854775808 1 1 40755 0 0 1",
		"7 1 285924533142498050048 1 40755 0 0 1",
		"7 1 -285924533142498050048 1 40755 0 0 1",
		"7 1 999999999999999999999999999999999999999999 1 40755 0 0 1",
		"7 1 -0 1 40755 0 0 1",
		"7 1 1 1 200000 0 0 1",
		"7 1 1 1 40758 0 0 1",
		"7 1 1 1 40755 4294967296 0 1",
		"7 1 1 1 40755 0 4294967296 1",
		"7 1 1 1 40755 0 0 134217728",
		"-7 1 1 1 40755 0 0 1",
		"07 1 1 1 40755 0 0 1",
		"+7 1 1 1 40755 0 0 1",
		"0x7 1 1 1 40755 0 0 1",
		"7  1 1 1 40755 0 0 1",
		"7\t1 1 1 40755 0 0 1",
		"7 1 1 1 40755 0 0",
		"7 1 1 1 40755 0 0 1 1",
		"7 1 - 1 40755 0 0 1",
		"7 1 1.5 1 40755 0 0 1",
		" 1 1 1 40755 0 0 1",
		"nan 1 1 1 40755 0 0 1",
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char *body;

		cr_assert(asprintf(&body, HEADER "d %s /\n", bad[i]) > 0);
		refuse(body, 1, 0, 2, "not a directory's line");
		free(body);
		cr_assert(asprintf(&body, HEADER ROOT "e %s a\n", bad[i]) > 0);
		/* One number more is a name, which may not have a blank. */
		refuse(body, 1, 1, 3, "not an entry's line");
		free(body);
	}
}

Test(manifest, names)
{
	static const char *const bad[] = { "",	      ".",	    "..",     "a/b",	  "/",
					   "a\\057b", "\\056\\056", "a b",    "a\\",	  "a\\9",
					   "a\\400",  "a\\77",	    "a\\000", "a\\0000b", "\\000",
					   "a\tb",    "a\rb",	    "\x7f",   "\xc3\xa4", "\\x41" };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char *body;

		cr_assert(asprintf(&body, HEADER ROOT "e " FILE_OF "%s\n", bad[i]) > 0);
		refuse(body, 1, 1, 3, "not an entry's line");
		free(body);
	}
	refuse(HEADER ROOT "e " FILE_OF "a", 1, 1, 3, "not an entry's line"); /* "aend 1 1 ..." */
}

Test(manifest, paths)
{
	static const char *const bad[] = { "",	   "a",	     "//",    "/a/",	 "/a//b",
					   "/.",   "/..",    "/a/..", "/../etc", "/a/./b",
					   "/a b", "/\\056", "/a\\",  "/a\\000" };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char *body;

		cr_assert(asprintf(&body, HEADER "d " DIR_OF "%s\n", bad[i]) > 0);
		refuse(body, 1, 0, 2, "not a directory's line");
		free(body);
	}
	refuse(HEADER "d " FILE_OF "/\n", 1, 0, 2, "mode");
}

Test(manifest, names_that_are_too_long)
{
	char *body = malloc((size_t)8 * MANIFEST_PATH_MAX), *at;

	for (size_t length = MANIFEST_PATH_MAX - 1; length <= MANIFEST_PATH_MAX; length++) {
		at = stpcpy(body, HEADER ROOT "e " FILE_OF);
		memset(at, 'x', length);
		strcpy(at + length, "\n");
		if (length < MANIFEST_PATH_MAX)
			accept(body, 1, 1);
		else
			refuse(body, 1, 1, 3, "not an entry's line");
	}
	at = stpcpy(body, HEADER ROOT "e " FILE_OF);
	for (size_t i = 0; i < MANIFEST_PATH_MAX; i++)
		at = stpcpy(at, "\\377");
	strcpy(at, "\n");
	refuse(body, 1, 1, 3, "not an entry's line");
	free(body);
}

Test(manifest, sequence)
{
	refuse(HEADER "e " FILE_OF "a\n", 0, 1, 2, "no directory");
	refuse(HEADER ROOT ROOT, 2, 0, 3, "not sorted");
	refuse(HEADER ROOT "e " FILE_OF "b\ne " FILE_OF "a\n", 1, 2, 4, "not sorted");
	refuse(HEADER ROOT "e " FILE_OF "a\ne " FILE_OF "a\n", 1, 2, 4, "not sorted");
	refuse(HEADER ROOT "e " FILE_OF "a\ne " FILE_OF "\\141\n", 1, 2, 4, "not sorted");
	refuse(HEADER "d " DIR_OF "/b\nd " DIR_OF "/a\n", 2, 0, 3, "not sorted");
	refuse(HEADER "d " DIR_OF "/a\nd " DIR_OF "/a\n", 2, 0, 3, "not sorted");
	refuse(HEADER "d " DIR_OF "/a/b\nd " DIR_OF "/a\n", 2, 0, 3, "not sorted");
	refuse(HEADER "d " DIR_OF "/a\\040b\nd " DIR_OF "/a/b\n", 2, 0, 3, "not sorted");
	accept(HEADER "d " DIR_OF "/a/b\nd " DIR_OF "/a\\040b\n", 2, 0);
	refuse(HEADER ROOT "f " FILE_OF "a\n", 1, 1, 3, "not an entry's line");
	refuse(HEADER ROOT "\n", 1, 0, 3, "not an entry's line");
	refuse(HEADER ROOT "# a comment\n", 1, 0, 3, "not an entry's line");
}

Test(manifest, ends)
{
	static const char body[] = HEADER ROOT "e " FILE_OF "a\n";
	static const char *const bad[] = { "end\n",
					   "end 1 1\n",
					   "end 1 1 \n",
					   "end 1 1 0123456789abcdef\n",
					   "end 1 18446744073709551616 0\n",
					   "end -1 1 0\n",
					   "ending 1 1 0\n",
					   "" };
	struct manifest_fault fault;
	struct manifest *manifest;
	char text[1024];

	refuse(body, 1, 2, 4, "counts");
	refuse(body, 2, 1, 4, "counts");
	refuse(body, 1, 2000000000, 4, "counts");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(text, sizeof(text), "%s%s", body, bad[i]);
		cr_assert_eq(parse_bytes(text, strlen(text), &manifest, &fault), -EINVAL);
		cr_assert_eq(fault.line, 4u);
	}
	snprintf(text, sizeof(text), "%send 1 1 %016" PRIx64 "\nend", body,
		 mark_of(body, strlen(body)));
	cr_assert_eq(parse_bytes(text, strlen(text), &manifest, &fault), -EINVAL);
	cr_assert(strstr(fault.what, "follows"));
}

/* --- damage by chance ---------------------------------------------------------------------------
 */

Test(manifest, cut_anywhere)
{
	struct manifest_fault fault;
	struct manifest *manifest;
	uint64_t mark;
	size_t size;
	char *text = write_text(fill_odd, &size, &mark);

	for (size_t cut = 0; cut < size; cut++)
		cr_assert_eq(parse_bytes(text, cut, &manifest, &fault), -EINVAL, "at %zu", cut);
	free(text);
}

Test(manifest, any_byte_changed)
{
	struct manifest_fault fault;
	struct manifest *manifest;
	uint64_t mark;
	size_t size;
	char *text = write_text(fill_odd, &size, &mark);

	for (size_t at = 0; at < size; at++)
		for (int bit = 0; bit < 8; bit++) {
			text[at] = (char)(text[at] ^ 1 << bit);
			cr_assert_eq(parse_bytes(text, size, &manifest, &fault), -EINVAL,
				     "byte %zu, bit %d", at, bit);
			text[at] = (char)(text[at] ^ 1 << bit);
		}
	free(text);
}

/* Damage that has a right end: what is taken must be listed without harm. */
Test(manifest, damaged_on_purpose)
{
	static const char alphabet[] = "0123456789 \\/\n.-deand\xff";
	struct found *found = calloc(1, sizeof(*found));
	uint64_t mark, state = 1;
	unsigned taken = 0;
	size_t size;
	char *text = write_text(fill_odd, &size, &mark), *body = malloc(size + 1);
	size_t body_size;

	cr_assert_not_null(text);
	body_size = (size_t)(strstr(text, "\nend ") + 1 - text);
	for (int round = 0; round < 200000; round++) {
		struct manifest_fault fault;
		struct manifest *manifest;

		memcpy(body, text, body_size);
		body[body_size] = 0;
		for (int change = 0; change <= round % 3; change++) {
			state = state * 6364136223846793005u + 1442695040888963407u;
			body[(state >> 33) % body_size] =
				alphabet[(state >> 20) % (sizeof(alphabet) - 1)];
		}
		if (parse_sealed(body, 7, ODD_NAMES + 1, &manifest, &fault))
			continue;
		taken++;
		found->count = 0;
		(void)manifest_list(manifest, "", &dir_attr, note, found);
		manifest_put(manifest);
	}
	cr_assert_gt(taken, 100u); /* changed numbers, say */
	free(found);
	free(body);
	free(text);
}
