/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The text stays as it is and is read twice: once to see that all of it is right, and where each
 * directory begins; and again, a directory at a time, when that is asked for. So a manifest takes
 * little more memory than its file. */
#include "names/manifest.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "escape.h"
#include "fnv.h"
#include "grow.h"

static const char header[] = "shadefs manifest 2\n";

struct dir {
	char *path;
	struct store_attr attr;
	size_t entries_at; /* in the text */
	uint32_t count;
};

struct manifest {
	_Atomic unsigned holders;
	char *text;
	size_t size;
	struct dir *dirs; /* sorted by path */
	size_t dir_count, dir_room;
	uint64_t mark;
};

/* How names are written: one way for each, so that equal trees have equal marks. */
#define NAME_FORM (ESCAPE_SPACE | ESCAPE_HIGH | ESCAPE_OCTAL)

/* --- reading what is in a line ---------------------------------------------------------------- */

/* Where reading has got to. Every function below moves it past what it has read, and is false
 * if that is something else. */
struct cursor {
	const char *at, *end;
};

static bool take(struct cursor *c, const char *text)
{
	size_t length = strlen(text);

	if ((size_t)(c->end - c->at) < length || memcmp(c->at, text, length))
		return false;
	c->at += length;
	return true;
}

/* One way to write each number: no signs, no zeros in front. */
static bool take_number(struct cursor *c, unsigned base, uint64_t max, uint64_t *value)
{
	const char *begin = c->at;

	*value = 0;
	for (; c->at < c->end && *c->at >= '0' && *c->at < '0' + (char)base; c->at++) {
		unsigned digit = (unsigned)(*c->at - '0');

		if (*value > (max - digit) / base)
			return false;
		*value = *value * base + digit;
	}
	return c->at > begin && (*begin != '0' || c->at == begin + 1);
}

static bool take_u64(struct cursor *c, uint64_t max, uint64_t *value)
{
	return take_number(c, 10, max, value) && take(c, " ");
}

static bool take_u32(struct cursor *c, uint32_t *value)
{
	uint64_t wide;

	if (!take_u64(c, UINT32_MAX, &wide))
		return false;
	*value = (uint32_t)wide;
	return true;
}

/* Files from before 1970 exist, and some from years that 64 bits do not reach. */
static bool take_time(struct cursor *c, __int128 *ns)
{
	bool minus = take(c, "-");
	const char *begin = c->at;

	*ns = 0;
	for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++) {
		*ns = *ns * 10 + (*c->at - '0');
		if (*ns > STORE_TIME_MAX)
			return false;
	}
	if (c->at == begin || (*begin == '0' && (minus || c->at != begin + 1)))
		return false;
	if (minus)
		*ns = -*ns;
	return take(c, " ");
}

static bool take_mode(struct cursor *c, uint32_t *mode)
{
	uint64_t wide;

	if (!take_number(c, 8, 0177777, &wide) || !take(c, " "))
		return false;
	*mode = (uint32_t)wide;
	return true;
}

static bool take_attr(struct cursor *c, struct store_attr *attr)
{
	__int128 mtime, ctime;
	uint64_t nlink;
	uint32_t mode;

	*attr = (struct store_attr){ 0 };
	if (!take_u64(c, UINT64_MAX, &attr->ino) || !take_u64(c, INT64_MAX, &attr->size) ||
	    !take_time(c, &mtime) || !take_time(c, &ctime) || !take_mode(c, &mode) ||
	    !take_u32(c, &attr->uid) || !take_u32(c, &attr->gid) ||
	    !take_u64(c, STORE_LINKS_MAX, &nlink))
		return false;
	attr->mode = (uint16_t)mode;
	attr->nlink = (uint32_t)nlink & STORE_LINKS_MAX;
	store_set_mtime(attr, mtime);
	store_set_ctime(attr, ctime);
	return true;
}

static bool is_visible(char c)
{
	return c > ' ' && c < 0x7f;
}

/* The rest of a line, up to and with its end. */
static bool take_name(struct cursor *c, char *name)
{
	const char *begin = c->at;

	while (c->at < c->end && is_visible(*c->at))
		c->at++;
	return unescape_text(name, MANIFEST_PATH_MAX, begin, (size_t)(c->at - begin), NAME_FORM) >=
		       0 &&
	       take(c, "\n");
}

static bool is_name(const char *name, size_t length)
{
	return length && !memchr(name, '/', length) && (length != 1 || name[0] != '.') &&
	       (length != 2 || name[0] != '.' || name[1] != '.');
}

/* "/" or "/a/b". */
static bool is_path(const char *path)
{
	if (*path++ != '/')
		return false;
	if (!*path)
		return true;
	for (;;) {
		size_t length = strcspn(path, "/");

		if (!is_name(path, length))
			return false;
		path += length;
		if (!*path++)
			return true;
	}
}

static bool take_entry(struct cursor *c, char *name, struct store_attr *attr)
{
	bool elsewhere = take(c, "x ");

	if ((!elsewhere && !take(c, "e ")) || !take_attr(c, attr) || !take_name(c, name))
		return false;
	attr->dev = elsewhere ? STORE_DEV_ELSEWHERE : 0;
	return true;
}

/* --- the sequence of paths ---------------------------------------------------------------------
 */

/* A path comes before what is below it, and that before what only begins like it. */
static int path_rank(char c)
{
	return c == '/' ? 1 : c ? (unsigned char)c + 1 : 0;
}

static int path_compare(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return path_rank(*a) - path_rank(*b);
}

/* --- reading all of it -------------------------------------------------------------------------
 */

struct reading {
	struct manifest *manifest;
	struct cursor at;
	struct manifest_fault *fault;
	uint64_t entries;
	char name[MANIFEST_PATH_MAX], before[MANIFEST_PATH_MAX]; /* entries */
};

static int refuse(struct reading *r, const char *what)
{
	r->fault->what = what;
	return -EINVAL;
}

static struct dir *last_dir(struct manifest *manifest)
{
	return manifest->dir_count ? &manifest->dirs[manifest->dir_count - 1] : NULL;
}

static struct dir *new_dir(struct manifest *m)
{
	if (grow(m->dirs, m->dir_room, m->dir_count, 1))
		return NULL;
	return &m->dirs[m->dir_count];
}

static int read_dir_line(struct reading *r)
{
	struct manifest *m = r->manifest;
	const struct dir *before = last_dir(m);
	struct store_attr attr;
	struct dir *dir;

	if (!take(&r->at, "d ") || !take_attr(&r->at, &attr) || !take_name(&r->at, r->name) ||
	    !is_path(r->name))
		return refuse(r, "this is not a directory's line");
	if ((attr.mode & 0170000) != 0040000)
		return refuse(r, "the mode is not that of a directory");
	if (before && path_compare(before->path, r->name + 1) >= 0)
		return refuse(r, "the directories are not sorted");
	dir = new_dir(m);
	if (!dir)
		return -ENOMEM;
	*dir = (struct dir){ .path = strdup(r->name + 1), .attr = attr };
	if (!dir->path)
		return -ENOMEM;
	dir->entries_at = (size_t)(r->at.at - m->text);
	m->dir_count++;
	return 0;
}

static int read_entry_line(struct reading *r)
{
	struct dir *dir = last_dir(r->manifest);
	struct store_attr attr;

	if (!dir)
		return refuse(r, "there is no directory before it");
	if (!take_entry(&r->at, r->name, &attr) || !is_name(r->name, strlen(r->name)))
		return refuse(r, "this is not an entry's line");
	if (dir->count && strcmp(r->before, r->name) >= 0)
		return refuse(r, "the names are not sorted");
	if (dir->count == UINT32_MAX - 1)
		return refuse(r, "there are too many entries");
	strcpy(r->before, r->name);
	dir->count++;
	r->entries++;
	return 0;
}

static int read_end_line(struct reading *r)
{
	struct manifest *m = r->manifest;
	uint64_t dirs, entries;
	char mark[32];

	m->mark = fnv64_add(FNV64_BEGIN, m->text, (size_t)(r->at.at - m->text));
	snprintf(mark, sizeof(mark), "%016" PRIx64 "\n", m->mark);
	if (!take(&r->at, "end ") || !take_u64(&r->at, UINT64_MAX, &dirs) ||
	    !take_u64(&r->at, UINT64_MAX, &entries))
		return refuse(r, "this is not the end's line");
	if (dirs != m->dir_count || entries != r->entries)
		return refuse(r, "the counts at the end are wrong");
	if (!take(&r->at, mark))
		return refuse(r, "the mark at the end is wrong: it was damaged");
	return r->at.at == r->at.end ? 0 : refuse(r, "something follows the end");
}

static int read_all(struct reading *r)
{
	int rc = 0;

	r->fault->line = 1;
	if (!take(&r->at, header))
		return refuse(r, "this is not a manifest of this version");
	while (!rc) {
		r->fault->line++;
		if (r->at.at == r->at.end)
			return refuse(r, "the end is missing");
		if (r->at.end - r->at.at >= 3 && !memcmp(r->at.at, "end", 3))
			return read_end_line(r);
		rc = *r->at.at == 'd' ? read_dir_line(r) : read_entry_line(r);
	}
	return rc;
}

int manifest_parse(struct manifest **out, char *text, size_t size, struct manifest_fault *fault)
{
	struct manifest *manifest = calloc(1, sizeof(*manifest));
	struct reading *reading = calloc(1, sizeof(*reading));
	int rc = -ENOMEM;

	*fault = (struct manifest_fault){ 0 };
	if (manifest && reading) {
		*manifest = (struct manifest){ .holders = 1, .text = text, .size = size };
		reading->manifest = manifest;
		reading->at = (struct cursor){ text, text + size };
		reading->fault = fault;
		rc = read_all(reading);
		if (rc)
			manifest_put(manifest);
		else
			*out = manifest;
	} else {
		free(manifest);
		free(text);
	}
	free(reading);
	return rc;
}

void manifest_hold(struct manifest *manifest)
{
	atomic_fetch_add(&manifest->holders, 1);
}

void manifest_put(struct manifest *manifest)
{
	if (!manifest || atomic_fetch_sub(&manifest->holders, 1) > 1)
		return;
	for (size_t i = 0; i < manifest->dir_count; i++)
		free(manifest->dirs[i].path);
	free(manifest->dirs);
	free(manifest->text);
	free(manifest);
}

uint64_t manifest_mark(const struct manifest *manifest)
{
	return manifest->mark;
}

static const struct dir *find_dir(const struct manifest *manifest, const char *path)
{
	size_t from = 0, to = manifest->dir_count;

	while (from < to) {
		size_t middle = from + (to - from) / 2;
		int order = path_compare(path, manifest->dirs[middle].path);

		if (!order)
			return &manifest->dirs[middle];
		if (order < 0)
			to = middle;
		else
			from = middle + 1;
	}
	return NULL;
}

int manifest_list(const struct manifest *manifest, const char *path,
		  const struct store_attr *version,
		  int (*entry)(void *context, const char *name, const struct store_attr *attr),
		  void *context)
{
	const struct dir *dir = find_dir(manifest, path);
	struct store_attr known = dir ? dir->attr : (struct store_attr){ 0 };
	char name[MANIFEST_PATH_MAX];
	struct cursor at;
	int rc = 0;

	known.dev = version->dev; /* the numbers were another daemon's */
	if (!dir || !store_same_attr(&known, version))
		return 0;
	at = (struct cursor){ manifest->text + dir->entries_at, manifest->text + manifest->size };
	for (uint32_t i = 0; !rc && i < dir->count; i++) {
		struct store_attr attr;
		bool good = take_entry(&at, name, &attr);

		assert(good); /* it was when it was loaded */
		if (attr.dev != STORE_DEV_ELSEWHERE)
			attr.dev = version->dev;
		rc = entry(context, name, &attr);
	}
	return rc ? rc : 1;
}

/* --- writing ------------------------------------------------------------------------------------
 */

/* Eight numbers, and a name all of whose bytes are escaped. */
#define LINE_MAX_BYTES (4 * MANIFEST_PATH_MAX + 256)

static void put(struct manifest_writer *writer, const char *text, size_t size)
{
	writer->mark = fnv64_add(writer->mark, text, size);
	if (writer->file)
		(void)fwrite(text, 1, size, writer->file);
}

void manifest_begin(struct manifest_writer *writer, FILE *file)
{
	*writer = (struct manifest_writer){ .file = file, .mark = FNV64_BEGIN };
	put(writer, header, sizeof(header) - 1);
}

/* A space and a number. printf() takes three times as long, which shows with millions. */
static char *put_number(char *at, uint64_t value, unsigned base)
{
	char digits[32];
	size_t count = 0;

	do
		digits[count++] = (char)('0' + value % base);
	while (value /= base);
	*at++ = ' ';
	while (count)
		*at++ = digits[--count];
	return at;
}

static char *put_time(char *at, __int128 ns)
{
	unsigned __int128 value = ns < 0 ? -(unsigned __int128)ns : (unsigned __int128)ns;
	char *begin = at;

	at += ns < 0;
	if (value <= UINT64_MAX) {
		at = put_number(at, (uint64_t)value, 10);
	} else {
		at = put_number(at, (uint64_t)(value / 1000000000), 10);
		at += sprintf(at, "%09u", (unsigned)(value % 1000000000));
	}
	begin[0] = ' ';
	if (ns < 0)
		begin[1] = '-';
	return at;
}

static char *put_attr(char *at, const struct store_attr *attr)
{
	at = put_number(at, attr->ino, 10);
	at = put_number(at, attr->size, 10);
	at = put_time(at, store_mtime(attr));
	at = put_time(at, store_ctime(attr));
	at = put_number(at, attr->mode, 8);
	at = put_number(at, attr->uid, 10);
	at = put_number(at, attr->gid, 10);
	return put_number(at, attr->nlink, 10);
}

static void put_line(struct manifest_writer *writer, char kind, const struct store_attr *attr,
		     const char *before_name, const char *name)
{
	char line[LINE_MAX_BYTES], *at = line;

	assert(strlen(name) < MANIFEST_PATH_MAX - 1);
	*at++ = kind;
	at = put_attr(at, attr);
	*at++ = ' ';
	at = escape_text(at, before_name, strlen(before_name), NAME_FORM);
	at = escape_text(at, name, strlen(name), NAME_FORM);
	*at++ = '\n';
	put(writer, line, (size_t)(at - line));
}

void manifest_add_dir(struct manifest_writer *writer, const char *path,
		      const struct store_attr *attr)
{
	put_line(writer, 'd', attr, "/", path);
	writer->dev = attr->dev;
	writer->dirs++;
}

void manifest_add_entry(struct manifest_writer *writer, const char *name,
			const struct store_attr *attr)
{
	put_line(writer, attr->dev == writer->dev ? 'e' : 'x', attr, "", name);
	writer->entries++;
}

void manifest_end(struct manifest_writer *writer)
{
	if (writer->file)
		fprintf(writer->file, "end %llu %llu %016" PRIx64 "\n", writer->dirs,
			writer->entries, writer->mark);
}
