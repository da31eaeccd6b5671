/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A client's own list of samples. The daemon translates the ids that are sent to it; its files have
 * the mount's ids, so that the library keeps the translation as well.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fnv.h"
#include "grow.h"
#include "lib.h"
#include "path.h"

#define NONE UINT32_MAX

/* The paths of a table, relative to the mount. */
struct paths {
	char *bytes; /* each with its NUL */
	size_t used, room;
	size_t *at; /* where each begins */
	uint32_t count;
};

/* The directory of the last path, as it was given and as it was found. Most paths share it with
 * the one before, so that it is resolved once. */
struct last {
	char given[PATH_MAX];
	char found[PATH_MAX];
};

/* Finds the entries of a table by path. */
struct finder {
	const struct paths *paths;
	uint32_t *buckets; /* the last entry of a path; NONE: free */
	uint32_t *next;	   /* the entry before it with the same path */
	uint64_t mask;
	uint32_t *ids; /* the answer */
};

static void paths_free(struct paths *paths)
{
	free(paths->bytes);
	free(paths->at);
}

static int paths_add(struct paths *paths, const char *path)
{
	size_t size = strlen(path) + 1;

	if (grow(paths->bytes, paths->room, paths->used, size))
		return -ENOMEM;
	paths->at[paths->count++] = paths->used;
	memcpy(paths->bytes + paths->used, path, size);
	paths->used += size;
	return 0;
}

static bool is_plain_name(const char *name)
{
	return *name && strcmp(name, ".") && strcmp(name, "..");
}

/* path_resolve() that remembers the directory. */
static int resolve(const struct shade *shade, const char *given, struct last *last, char *found)
{
	const char *slash = strrchr(given, '/');
	size_t length = slash ? (size_t)(slash - given) : 0;
	size_t found_length = strlen(last->found);
	const char *name = slash ? slash + 1 : given;
	int rc;

	if (length && is_plain_name(name) && !strncmp(last->given, given, length) &&
	    !last->given[length] && found_length + strlen(name) + 2 <= PATH_MAX) {
		memcpy(found, last->found, found_length);
		strcpy(found + found_length, name);
		return 0;
	}
	rc = path_resolve(shade->path, shade->prefix, given, found);
	if (rc || !length || !is_plain_name(name))
		return rc;
	memcpy(last->given, given, length);
	last->given[length] = '\0';
	slash = strrchr(found, '/');
	found_length = slash ? (size_t)(slash + 1 - found) : 0;
	memcpy(last->found, found, found_length);
	last->found[found_length] = '\0';
	return 0;
}

static int paths_fill(struct paths *paths, const struct shade *shade, const char *const *given,
		      uint32_t count)
{
	struct last last = { 0 };
	char found[PATH_MAX];
	int rc = 0;

	paths->at = malloc(((size_t)count + 1) * sizeof(*paths->at));
	if (!paths->at)
		return lib_fail(-ENOMEM, "%s", strerror(ENOMEM));
	for (uint32_t i = 0; !rc && i < count; i++) {
		rc = resolve(shade, given[i], &last, found);
		if (rc == -EXDEV)
			return lib_fail(rc, "'%s' is not below %s", given[i], shade->path);
		if (rc)
			return lib_fail(rc, "'%s': %s", given[i], strerror(-rc));
		rc = paths_add(paths, found);
	}
	return rc ? lib_fail(rc, "%s", strerror(-rc)) : 0;
}

/* The table takes the low bits; the high ones are mixed in. */
static uint64_t hash_of(const char *text)
{
	uint64_t hash = fnv64_add(FNV64_BEGIN, text, strlen(text));

	return hash ^ hash >> 32;
}

static const char *path_of(const struct finder *finder, uint32_t entry)
{
	return finder->paths->bytes + finder->paths->at[entry];
}

/* The bucket of PATH, or the free one where it belongs. */
static uint32_t *bucket_of(const struct finder *finder, const char *path)
{
	uint64_t at = hash_of(path) & finder->mask;

	while (finder->buckets[at] != NONE && strcmp(path_of(finder, finder->buckets[at]), path))
		at = (at + 1) & finder->mask;
	return &finder->buckets[at];
}

static int take_sample(void *context, uint32_t id, const char *path)
{
	struct finder *finder = context;

	for (uint32_t entry = *bucket_of(finder, path); entry != NONE; entry = finder->next[entry])
		finder->ids[entry] = id;
	return 0;
}

/* Fills in IDS, an entry for each path. */
static int find_ids(struct shade *shade, const struct paths *paths, uint32_t *ids)
{
	struct finder finder = { .paths = paths, .ids = ids, .mask = 1 };
	int rc = -ENOMEM;

	while (finder.mask < 2 * (uint64_t)paths->count)
		finder.mask *= 2;
	finder.buckets = malloc(finder.mask * sizeof(*finder.buckets));
	finder.next = malloc(((size_t)paths->count + 1) * sizeof(*finder.next));
	if (!finder.buckets || !finder.next) {
		free(finder.buckets);
		free(finder.next);
		return lib_fail(rc, "%s", strerror(ENOMEM));
	}
	memset(finder.buckets, 0xff, finder.mask * sizeof(*finder.buckets));
	finder.mask--;
	for (uint32_t i = 0; i < paths->count; i++) {
		/* The analyzer loses sight of `buckets`, which is freed below.
		 * NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
		uint32_t *bucket = bucket_of(&finder, path_of(&finder, i));

		ids[i] = NONE;
		finder.next[i] = *bucket;
		*bucket = i;
	}
	rc = shade_samples(shade, take_sample, &finder);
	free(finder.buckets);
	free(finder.next);
	return rc;
}

/* Resolves a path that goes through symbolic links of the mount; false: it leads out of it. */
static bool follow_links(const struct shade *shade, const char *path, char *found)
{
	size_t prefix = strlen(shade->prefix);
	char full[PATH_MAX];
	char real[PATH_MAX];

	/* What is bound here does not have the folder's own path. */
	if (prefix && strncmp(path, shade->prefix, prefix) == 0)
		path += prefix;
	if (snprintf(full, sizeof(full), "%s/%s", shade->path, path) >= (int)sizeof(full) ||
	    !realpath(full, real))
		return false;
	return !path_resolve(shade->path, shade->prefix, real, found);
}

/*
 * Follows the symbolic links of paths that are no samples: a data set may consist of links, which
 * its loader follows. A path that leads nowhere stays, so that the daemon's answer names it.
 */
static int find_linked_ids(struct shade *shade, struct paths *paths, uint32_t *ids)
{
	struct paths led = { 0 };
	char found[PATH_MAX];
	bool any = false;
	int rc = 0;

	led.at = malloc(((size_t)paths->count + 1) * sizeof(*led.at));
	if (!led.at)
		rc = -ENOMEM;
	for (uint32_t i = 0; !rc && i < paths->count; i++) {
		const char *path = paths->bytes + paths->at[i];
		bool leads = ids[i] == NONE && follow_links(shade, path, found);

		any |= leads;
		rc = paths_add(&led, leads ? found : path);
	}
	if (rc) {
		paths_free(&led);
		return lib_fail(rc, "%s", strerror(-rc));
	}
	paths_free(paths);
	*paths = led;
	return any ? find_ids(shade, paths, ids) : 0;
}

static bool all_found(const uint32_t *ids, uint32_t count)
{
	while (count && ids[count - 1] != NONE)
		count--;
	return !count;
}

int shade_register(struct shade *shade, const char *const *given, uint32_t count)
{
	struct lib_table table = { .count = count };
	struct paths paths = { 0 };
	int rc;

	if (count) {
		table.ids = malloc(count * sizeof(*table.ids));
		if (!table.ids)
			return lib_fail(-ENOMEM, "%s", strerror(ENOMEM));
		rc = paths_fill(&paths, shade, given, count);
		if (!rc)
			rc = find_ids(shade, &paths, table.ids);
		if (!rc && !all_found(table.ids, count))
			rc = find_linked_ids(shade, &paths, table.ids);
		if (rc)
			goto out;
	}
	/* This comes last, because only this changes something in the daemon. */
	rc = lib_send_table(shade, paths.bytes, paths.used, &table);
out:
	free(table.ids);
	paths_free(&paths);
	return rc;
}
