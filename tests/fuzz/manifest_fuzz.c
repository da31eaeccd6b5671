/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Any text for the parser of manifests. An input is tried as it is, and again as the part before
 * the last line, with a last line that is right: its mark would keep all others from being parsed
 * to their end.
 *
 * What is accepted comes out byte for byte when it is written again, but for escapes that a name
 * does not need. No manifest is accepted any more when one of its bits is another. What is refused
 * names a line that the text has.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "fuzz.h"

/* What is in a manifest is asked for by path, and only manifest.c knows all paths.
 * NOLINTNEXTLINE(bugprone-suspicious-include) */
#include "names/manifest.c"

const char fuzz_name[] = "manifest";

/* --- what must hold ----------------------------------------------------------------------------
 */

static unsigned long count_lines(const char *text, size_t size)
{
	unsigned long lines = 1;

	for (size_t i = 0; i < size; i++)
		lines += text[i] == '\n';
	return lines;
}

static int parse(const char *text, size_t size, struct manifest **out)
{
	struct manifest_fault fault;
	int rc = manifest_parse(out, fuzz_copy(text, size), size, &fault);

	fuzz_require(!rc || rc == -EINVAL, "a manifest is accepted or refused");
	fuzz_require(!rc || (fault.what && *fault.what), "a refusal says why");
	fuzz_require(!rc || (fault.line && fault.line <= count_lines(text, size)),
		     "a refusal names a line of the text");
	return rc;
}

struct listing {
	struct manifest_writer *writer;
	uint32_t count;
	char before[MANIFEST_PATH_MAX];
};

static int write_entry(void *context, const char *name, const struct store_attr *attr)
{
	struct listing *listing = context;

	fuzz_require(*name && !strchr(name, '/') && strcmp(name, ".") && strcmp(name, ".."),
		     "an entry has a name that a directory can have");
	fuzz_require(!listing->count || strcmp(listing->before, name) < 0,
		     "the names of a directory are sorted");
	strcpy(listing->before, name);
	listing->count++;
	manifest_add_entry(listing->writer, name, attr);
	return 0;
}

static int refuse_entry(void *context, const char *name, const struct store_attr *attr)
{
	(void)context;
	(void)name;
	(void)attr;
	return -EIO;
}

static void write_dir(struct manifest_writer *writer, const struct manifest *manifest,
		      const struct dir *dir)
{
	struct listing listing = { .writer = writer };
	struct store_attr other = dir->attr;
	int rc;

	fuzz_require(*dir->path != '/' && !strstr(dir->path, "//"), "a path is one of the store");
	manifest_add_dir(writer, dir->path, &dir->attr);
	rc = manifest_list(manifest, dir->path, &dir->attr, write_entry, &listing);
	fuzz_require(rc == 1 && listing.count == dir->count, "a directory is found by its path");
	other.ino++;
	rc = manifest_list(manifest, dir->path, &other, refuse_entry, NULL);
	fuzz_require(rc == 0, "another version of a directory is not known");
}

/* The text of a manifest, from malloc(). */
static char *write_text(const struct manifest *manifest, size_t *size, uint64_t *mark)
{
	static char *text; /* gcc thinks that the stream outlives us */
	FILE *file = open_memstream(&text, size);
	struct manifest_writer writer;

	fuzz_require(file, "there is memory");
	manifest_begin(&writer, file);
	for (size_t i = 0; i < manifest->dir_count; i++)
		write_dir(&writer, manifest, &manifest->dirs[i]);
	manifest_end(&writer);
	fuzz_require(!fclose(file), "there is memory");
	*mark = writer.mark;
	return text;
}

static bool is_text(const struct manifest *manifest, const char *text, size_t size)
{
	size_t written_size;
	uint64_t mark;
	char *written = write_text(manifest, &written_size, &mark);
	bool same = written_size == size && !memcmp(written, text, size);

	fuzz_require(!same || mark == manifest_mark(manifest), "the mark is that of the text");
	free(written);
	return same;
}

/* Whether two lines differ at most in the escapes of the name at their end. */
static bool is_same_line(const char *one, size_t one_size, const char *other, size_t other_size)
{
	const char *one_name = memrchr(one, ' ', one_size);
	const char *other_name = memrchr(other, ' ', other_size);
	char one_plain[MANIFEST_PATH_MAX], other_plain[MANIFEST_PATH_MAX];
	ssize_t one_length, other_length;

	if (!one_name || !other_name || one_name - one != other_name - other ||
	    memcmp(one, other, (size_t)(one_name - one)))
		return false;
	one_length = unescape_text(one_plain, sizeof(one_plain), one_name + 1,
				   (size_t)(one + one_size - one_name - 1), NAME_FORM);
	other_length = unescape_text(other_plain, sizeof(other_plain), other_name + 1,
				     (size_t)(other + other_size - other_name - 1), NAME_FORM);
	return one_length > 0 && one_length == other_length && !strcmp(one_plain, other_plain);
}

/* The same of texts, but for their ends, which have the mark. */
static bool is_same_text(const char *one, const char *one_end, const char *other,
			 const char *other_end)
{
	while (one < one_end && strncmp(one, "end ", 4)) {
		const char *one_line = memchr(one, '\n', (size_t)(one_end - one));
		const char *other_line = memchr(other, '\n', (size_t)(other_end - other));

		if (!one_line || !other_line ||
		    !is_same_line(one, (size_t)(one_line - one), other,
				  (size_t)(other_line - other)))
			return false;
		one = one_line + 1;
		other = other_line + 1;
	}
	return !strncmp(other, "end ", 4);
}

/* A name may have been written with more escapes than it needs. */
static void write_again(const struct manifest *manifest, const char *text, size_t size)
{
	struct manifest *again;
	size_t written_size;
	uint64_t mark;
	char *written;

	if (is_text(manifest, text, size))
		return;
	written = write_text(manifest, &written_size, &mark);
	fuzz_require(is_same_text(text, text + size, written, written + written_size),
		     "what is accepted is written as it was");
	fuzz_require(!parse(written, written_size, &again), "what is written is accepted");
	fuzz_require(is_text(again, written, written_size), "and is written as it was");
	manifest_put(again);
	free(written);
}

static void damage(const char *text, size_t size)
{
	struct fuzz_random random = { FNV64_BEGIN + size };
	struct manifest *manifest;
	uint8_t *bad = fuzz_copy(text, size);

	bad[fuzz_roll(&random, (uint32_t)size)] ^= (uint8_t)(1u << fuzz_roll(&random, 8));
	fuzz_require(parse((char *)bad, size, &manifest) == -EINVAL,
		     "a damaged manifest is refused");
	free(bad);
}

static void try_text(const char *text, size_t size)
{
	struct manifest *manifest;

	if (parse(text, size, &manifest))
		return;
	write_again(manifest, text, size);
	manifest_put(manifest);
	damage(text, size);
}

/* The text with a right end instead of its last line. */
static void try_sealed(const char *text, size_t size)
{
	unsigned long long dirs = 0, entries = 0;
	char *sealed, end[100];
	int length;

	while (size && text[size - 1] != '\n')
		size--;
	for (size_t i = 1; i < size; i++)
		if (text[i - 1] == '\n') {
			dirs += text[i] == 'd';
			entries += text[i] != 'd';
		}
	length = snprintf(end, sizeof(end), "end %llu %llu %016" PRIx64 "\n", dirs, entries,
			  fnv64_add(FNV64_BEGIN, text, size));
	sealed = malloc(size + sizeof(end));
	fuzz_require(sealed, "there is memory");
	memcpy(sealed, text, size);
	memcpy(sealed + size, end, (size_t)length);
	try_text(sealed, size + (size_t)length);
	free(sealed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	try_text((const char *)data, size);
	try_sealed((const char *)data, size);
	return 0;
}

/* --- manifests by chance -----------------------------------------------------------------------
 */

static struct store_attr make_attr(struct fuzz_random *random, uint32_t type)
{
	static const uint32_t wide[] = { 0, 1, 1000, 65534, 4294967295u };
	struct store_attr attr = { .ino = fuzz_roll(random, 1 << 20),
				   .size = (uint64_t)fuzz_roll(random, 1 << 30) << 20,
				   .uid = wide[fuzz_roll(random, 5)],
				   .gid = wide[fuzz_roll(random, 5)],
				   .nlink = fuzz_roll(random, 3) };
	__int128 year_ns = (__int128)31556952 * 1000000000;

	attr.mode = (uint16_t)(type | fuzz_roll(random, 010000));
	store_set_mtime(&attr, year_ns * fuzz_roll(random, 900) - 5);
	store_set_ctime(&attr, year_ns * fuzz_roll(random, 90) + fuzz_roll(random, 1 << 30));
	return attr;
}

size_t fuzz_make(struct fuzz_random *random, uint8_t *data)
{
	static const char *const dirs[] = { "", "a", "a/\002", "a/b", "a\002", "a b", "\303\244" };
	static const char *const names[] = { "\001\n", " ",   "-",   "...",
					     "\\101",  "a b", "x=y", "\377" };
	FILE *file = fmemopen(data, FUZZ_INPUT_MAX, "w");
	struct manifest_writer writer;
	long size;

	fuzz_require(file, "there is memory");
	manifest_begin(&writer, file);
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		struct store_attr dir = make_attr(random, 0040000);

		if (!fuzz_roll(random, 4))
			continue;
		manifest_add_dir(&writer, dirs[i], &dir);
		for (size_t j = 0; j < sizeof(names) / sizeof(names[0]); j++) {
			struct store_attr attr = make_attr(random, 0100000);

			attr.dev = fuzz_roll(random, 5) ? 0 : STORE_DEV_ELSEWHERE;
			if (fuzz_roll(random, 2) && writer.entries < 40)
				manifest_add_entry(&writer, names[j], &attr);
		}
	}
	manifest_end(&writer);
	size = ftell(file);
	fclose(file);
	return (size_t)size;
}
