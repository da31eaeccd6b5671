/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How loaders number the files below a folder.
 *
 * torchvision's ImageFolder goes through its classes, which are the folder's subdirectories,
 * sorted; in each through all directories, sorted by their paths as strings; in each through the
 * names, sorted. Python compares strings by code points. timm sorts all paths by a natural key:
 * text in lower case and numbers by turns.
 *
 * Files come as a scan lists them, directory by directory and sorted by name, so most of the work
 * is done already: the sort merges runs, and leaves alone what is in sequence.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shade/shuffle.h"

/* --- text ---------------------------------------------------------------------------------------
 */

static const unsigned char *bytes(const char *text)
{
	return (const unsigned char *)text;
}

/* How many bytes the sequence has that begins with `first`, and what it adds to the code. */
static unsigned sequence(unsigned char first, uint32_t *code)
{
	if (first < 0x80 || first < 0xc2 || first > 0xf4)
		return 1;
	if (first < 0xe0) {
		*code = first & 0x1f;
		return 2;
	}
	if (first < 0xf0) {
		*code = first & 0x0f;
		return 3;
	}
	*code = first & 0x07;
	return 4;
}

/* The next code point of a name. What is no UTF-8 becomes what Python makes of it: a lone
 * surrogate for each byte. */
static uint32_t next_code(const unsigned char **at, const unsigned char *end)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	unsigned char first = **at;
	uint32_t code = first;
	unsigned length = sequence(first, &code);
	const unsigned char *next = *at + 1;

	for (unsigned i = 1; i < length; i++, next++) {
		if (next >= end || (*next & 0xc0) != 0x80)
			length = 1; /* and the loop ends */
		else
			code = code << 6 | (*next & 0x3f);
	}
	if (first < 0x80) {
		++*at;
		return first;
	}
	if (length == 1 || code < least[length] || code > 0x10ffff ||
	    (code >= 0xd800 && code < 0xe000)) {
		++*at;
		return 0xdc00 + first;
	}
	*at += length;
	return code;
}

/* As Python compares strings. */
static int compare_codes(const char *a, size_t a_length, const char *b, size_t b_length)
{
	const unsigned char *x = bytes(a), *x_end = x + a_length;
	const unsigned char *y = bytes(b), *y_end = y + b_length;

	while (x < x_end && y < y_end) {
		uint32_t p, q;

		if (*x < 0x80 && *x == *y) {
			x++;
			y++;
			continue;
		}
		p = next_code(&x, x_end);
		q = next_code(&y, y_end);
		if (p != q)
			return p < q ? -1 : 1;
	}
	return (x < x_end) - (y < y_end);
}

static unsigned char lower(unsigned char c)
{
	return c >= 'A' && c <= 'Z' ? (unsigned char)(c + 'a' - 'A') : c;
}

static bool ends_with(const char *name, size_t length, const char *suffix)
{
	size_t wanted = strlen(suffix);

	if (length < wanted)
		return false;
	for (size_t i = 0; i < wanted; i++)
		if (lower(bytes(name)[length - wanted + i]) != bytes(suffix)[i])
			return false;
	return true;
}

static bool is_in(const char *name, const char *const *suffixes, size_t count)
{
	size_t length = strlen(name);

	for (size_t i = 0; i < count; i++)
		if (ends_with(name, length, suffixes[i]))
			return true;
	return false;
}

/* --- the natural key -----------------------------------------------------------------------------
 */

/* A path in two parts. */
struct path {
	const unsigned char *at, *rest;
};

static unsigned char path_peek(struct path *path)
{
	if (!*path->at && path->rest) {
		path->at = path->rest;
		path->rest = NULL;
	}
	return *path->at;
}

static bool is_digit(unsigned char c)
{
	return c >= '0' && c <= '9';
}

/* Both are at a digit: compares the numbers, and passes them. */
static int compare_numbers(struct path *a, struct path *b)
{
	int longer = 0, differs = 0;

	while (path_peek(a) == '0')
		a->at++;
	while (path_peek(b) == '0')
		b->at++;
	for (;;) {
		unsigned char x = path_peek(a), y = path_peek(b);

		if (!is_digit(x) || !is_digit(y)) {
			longer = is_digit(x) - is_digit(y);
			return longer ? longer : differs;
		}
		if (!differs && x != y)
			differs = x < y ? -1 : 1;
		a->at++;
		b->at++;
	}
}

/* An end comes before a digit, and that before other text: in Python's lists the text before it is
 * a shorter string. */
static int class_of(unsigned char c)
{
	return !c ? 0 : is_digit(c) ? 1 : 2;
}

/* The next letter, in lower case as far as it is one of ASCII; and passes it. */
static uint32_t path_letter(struct path *path)
{
	if (*path->at < 0x80)
		return lower(*path->at++);
	/* The NUL at the end ends a sequence of bytes, too. */
	return next_code(&path->at, path->at + 4);
}

static int compare_letters(struct path *a, struct path *b)
{
	uint32_t x = path_letter(a), y = path_letter(b);

	return (x > y) - (x < y);
}

static int compare_natural(struct path a, struct path b)
{
	for (;;) {
		unsigned char x = path_peek(&a), y = path_peek(&b);
		int order = class_of(x) - class_of(y);

		if (order || !x)
			return order;
		order = is_digit(x) ? compare_numbers(&a, &b) : compare_letters(&a, &b);
		if (order)
			return order;
	}
}

/* --- sorting
 * -------------------------------------------------------------------------------------- */

typedef int comparison(const void *context, uint32_t a, uint32_t b);

/* Merges sorted runs of `width`; two that are in sequence already are only copied. */
static void merge(const uint32_t *from, uint32_t *to, uint32_t count, uint32_t width,
		  comparison *compare, const void *context)
{
	for (uint64_t begin = 0; begin < count; begin += 2 * (uint64_t)width) {
		uint64_t middle = begin + width < count ? begin + width : count;
		uint64_t end = middle + width < count ? middle + width : count;
		uint64_t left = begin, right = middle, at = begin;

		if (middle == end || compare(context, from[middle - 1], from[middle]) <= 0) {
			memcpy(to + begin, from + begin, (end - begin) * sizeof(*to));
			continue;
		}
		while (left < middle && right < end)
			to[at++] = compare(context, from[right], from[left]) < 0 ? from[right++]
										 : from[left++];
		memcpy(to + at, from + left, (middle - left) * sizeof(*to));
		at += middle - left;
		memcpy(to + at, from + right, (end - right) * sizeof(*to));
	}
}

/* Stable. 0 or -ENOMEM. */
static int sort(uint32_t *items, uint32_t count, comparison *compare, const void *context)
{
	uint32_t *other = malloc(((size_t)count + 1) * sizeof(*other));
	uint32_t *from = items, *to = other;

	if (!other)
		return -ENOMEM;
	for (uint32_t width = 1; width < count && width; width *= 2) {
		uint32_t *sorted = to;

		merge(from, to, count, width, compare, context);
		to = from;
		from = sorted;
	}
	if (from != items)
		memcpy(items, from, count * sizeof(*items));
	free(other);
	return 0;
}

/* --- ImageFolder
 * ---------------------------------------------------------------------------------- */

struct lister {
	const struct shuffle_files *files;
	uint32_t *rank; /* of directories */
};

static size_t class_length(const char *dir)
{
	return strcspn(dir, "/");
}

/* By class, then by path as one string, without the slash at its end. */
static int compare_dirs(const void *context, uint32_t a, uint32_t b)
{
	const struct lister *lister = context;
	const char *x = lister->files->dirs[a], *y = lister->files->dirs[b];
	size_t x_length = strlen(x), y_length = strlen(y);
	int order = compare_codes(x, class_length(x), y, class_length(y));

	return order ? order
		     : compare_codes(x, x_length - (x_length > 0), y, y_length - (y_length > 0));
}

static int compare_folder(const void *context, uint32_t a, uint32_t b)
{
	const struct lister *lister = context;
	const struct shuffle_files *files = lister->files;
	uint32_t x = lister->rank[files->dir_of[a]], y = lister->rank[files->dir_of[b]];
	const char *p, *q;

	if (x != y)
		return x < y ? -1 : 1;
	p = files->name(files->context, a);
	q = files->name(files->context, b);
	return compare_codes(p, strlen(p), q, strlen(q));
}

/* Ranks directories by a comparison. */
static int rank_dirs(struct lister *lister, comparison *compare)
{
	uint32_t count = lister->files->dir_count;
	uint32_t *sorted = malloc(((size_t)count + 1) * sizeof(*sorted));
	int rc = sorted ? 0 : -ENOMEM;

	for (uint32_t i = 0; !rc && i < count; i++)
		sorted[i] = i;
	if (!rc)
		rc = sort(sorted, count, compare, lister);
	/* A directory may come twice, and is still one. */
	for (uint32_t i = 0, rank = 0; !rc && i < count; i++) {
		rank += i && compare(lister, sorted[i - 1], sorted[i]) != 0;
		lister->rank[sorted[i]] = rank;
	}
	free(sorted);
	return rc;
}

static bool folder_takes(const struct shuffle_files *files, uint32_t file)
{
	static const char *const suffixes[] = { ".jpg", ".jpeg", ".png",  ".ppm", ".bmp",
						".pgm", ".tif",	 ".tiff", ".webp" };

	return *files->dirs[files->dir_of[file]] &&
	       is_in(files->name(files->context, file), suffixes,
		     sizeof(suffixes) / sizeof(suffixes[0]));
}

/* --- timm
 * ----------------------------------------------------------------------------------------- */

static int compare_timm(const void *context, uint32_t a, uint32_t b)
{
	const struct shuffle_files *files = ((const struct lister *)context)->files;
	uint32_t x = files->dir_of[a], y = files->dir_of[b];
	const unsigned char *p = bytes(files->name(files->context, a));
	const unsigned char *q = bytes(files->name(files->context, b));

	if (x == y)
		return compare_natural((struct path){ p, NULL }, (struct path){ q, NULL });
	return compare_natural((struct path){ bytes(files->dirs[x]), p },
			       (struct path){ bytes(files->dirs[y]), q });
}

/* splitext() takes leading dots for a part of the name. */
static bool timm_takes(const struct shuffle_files *files, uint32_t file)
{
	static const char *const suffixes[] = { ".png", ".jpg", ".jpeg" };
	const char *name = files->name(files->context, file);

	return is_in(name + strspn(name, "."), suffixes, sizeof(suffixes) / sizeof(suffixes[0]));
}

/* --- both
 * ----------------------------------------------------------------------------------------- */

int64_t shuffle_list(const struct shuffle_files *files, enum shuffle_listing listing, uint32_t *out)
{
	bool folder = listing == SHUFFLE_IMAGE_FOLDER;
	struct lister lister = { .files = files };
	uint32_t count = 0;
	int rc = 0;

	for (uint32_t i = 0; i < files->count; i++)
		if (folder ? folder_takes(files, i) : timm_takes(files, i))
			out[count++] = i;
	if (folder) {
		lister.rank = malloc(((size_t)files->dir_count + 1) * sizeof(*lister.rank));
		rc = lister.rank ? rank_dirs(&lister, compare_dirs) : -ENOMEM;
	}
	if (!rc)
		rc = sort(out, count, folder ? compare_folder : compare_timm, &lister);
	free(lister.rank);
	return rc ? rc : (int64_t)count;
}

const char *shuffle_listing_name(enum shuffle_listing listing)
{
	return listing == SHUFFLE_TIMM ? "timm" : "ImageFolder";
}
