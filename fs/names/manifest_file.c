/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The manifest's file: loaded when a mount begins, replaced after a scan that found something
 * else.
 *
 * A directory that changes twice within the granularity of the source's clock, with us reading it
 * in between, has one version and two contents. So a directory that had changed just before it was
 * read is left out, and the next mount reads it again.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/threads.h"
#include "names/manifest.h"
#include "names/tree.h"

#define SETTLED_MS 2000 /* the coarsest clock that is in use, FAT's */

#define TRIES 100 /* names for a file that is being written */

static const char *name_of(const struct manifest_keeper *keeper)
{
	return strrchr(keeper->path, '/') + 1;
}

/* --- loading -------------------------------------------------------------------------------------
 */

/* Modes and owners in a manifest decide who may read what, so nobody else may write it. */
static const char *distrust(const struct stat *stat)
{
	if (!S_ISREG(stat->st_mode))
		return "it is not a file";
	if (stat->st_uid != geteuid() && stat->st_uid != 0)
		return "it belongs to somebody else";
	if (stat->st_mode & (S_IWGRP | S_IWOTH))
		return "others may write to it";
	if ((uint64_t)stat->st_size > MANIFEST_SIZE_MAX)
		return "it is too large";
	return NULL;
}

/* 0 or a negative errno. */
static int read_whole(int fd, char *text, size_t size)
{
	for (size_t at = 0; at < size;) {
		ssize_t got = read(fd, text + at, size - at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got ? -errno : -EIO;
		at += (size_t)got;
	}
	return 0;
}

static int parse_file(struct manifest_keeper *keeper, struct manifest **out, int fd, size_t size)
{
	struct manifest_fault fault;
	char *text = malloc(size + 1);
	int rc = text ? read_whole(fd, text, size) : -ENOMEM;

	if (rc) {
		free(text);
		return rc;
	}
	rc = manifest_parse(out, text, size, &fault);
	if (rc != -EINVAL)
		return rc;
	log_say(LOG_WARNINGS, "manifest %s, line %lu: %s; the source is scanned instead",
		keeper->path, fault.line, fault.what);
	return 1;
}

void manifest_load(struct manifest_keeper *keeper, struct tree *tree)
{
	struct manifest *manifest = NULL;
	const char *wrong = NULL;
	struct stat stat;
	int rc = 0, fd;

	if (!keeper->path)
		return;
	fd = openat(keeper->dir, name_of(keeper), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
	if (fd < 0 && errno == ENOENT)
		return; /* the first time */
	if (fd < 0 || fstat(fd, &stat))
		rc = -errno;
	else if (!(wrong = distrust(&stat)))
		rc = parse_file(keeper, &manifest, fd, (size_t)stat.st_size);
	if (fd >= 0)
		close(fd);
	if (rc < 0)
		wrong = strerror(-rc);
	if (wrong)
		log_say(LOG_WARNINGS, "manifest %s: %s; the source is scanned instead",
			keeper->path, wrong);
	if (!manifest)
		return;
	keeper->known = true;
	keeper->mark = manifest_mark(manifest);
	tree_set_manifest(tree, manifest);
	manifest_put(manifest);
}

/* --- saving ------------------------------------------------------------------------------------
 */

struct saving {
	struct manifest_writer writer;
	int64_t clocks_ms; /* from the clock that nodes go by to that of files */
};

static bool save_dir(void *context, const char *path, const struct store_attr *attr,
		     uint64_t checked_ms)
{
	struct saving *saving = context;
	__int128 mtime = store_mtime(attr), ctime = store_ctime(attr);
	__int128 changed_ms = (mtime > ctime ? mtime : ctime) / 1000000;

	if ((int64_t)checked_ms + saving->clocks_ms - changed_ms <= SETTLED_MS ||
	    strlen(path) + 2 > MANIFEST_PATH_MAX)
		return false;
	manifest_add_dir(&saving->writer, path, attr);
	return true;
}

static void save_entry(void *context, const char *name, const struct store_attr *attr)
{
	struct saving *saving = context;

	manifest_add_entry(&saving->writer, name, attr);
}

/* The whole tree, to a file or, without one, for the mark alone. */
static int write_tree(struct tree *tree, FILE *file, uint64_t *mark, const _Atomic bool *stop)
{
	static const struct tree_visitor visitor = { save_dir, save_entry };
	struct saving saving = { .clocks_ms = clock_date_ms() - (int64_t)clock_now_ms() };
	int rc;

	manifest_begin(&saving.writer, file);
	rc = tree_visit(tree, &visitor, &saving, stop);
	manifest_end(&saving.writer);
	*mark = saving.writer.mark;
	return rc;
}

/* Makes a new file next to the manifest, for nobody else. A descriptor, or a negative errno. */
static int make_temporary(const struct manifest_keeper *keeper, char *name, size_t room)
{
	int fd = -1;

	for (unsigned i = 0; fd < 0 && i < TRIES; i++) {
		snprintf(name, room, "%.200s.%d.%u", name_of(keeper), getpid(), i);
		fd = openat(keeper->dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd < 0 && errno != EEXIST)
			break;
	}
	return fd < 0 ? -errno : fd;
}

/* Takes the descriptor over. */
static int write_file(int fd, struct tree *tree, uint64_t *mark, const _Atomic bool *stop)
{
	FILE *file = fdopen(fd, "w");
	int rc;

	if (!file) {
		rc = -errno;
		close(fd);
		return rc;
	}
	rc = write_tree(tree, file, mark, stop);
	if (!rc && (fflush(file) || ferror(file) || fsync(fd)))
		rc = errno ? -errno : -EIO;
	if (fclose(file) && !rc)
		rc = -errno;
	return rc;
}

/* Whoever reads the file finds the old one or the new one, whole. */
static int replace(const struct manifest_keeper *keeper, struct tree *tree, uint64_t *mark,
		   const _Atomic bool *stop)
{
	char temporary[256];
	int fd = make_temporary(keeper, temporary, sizeof(temporary));
	int rc;

	if (fd < 0)
		return fd;
	rc = write_file(fd, tree, mark, stop);
	if (!rc && renameat(keeper->dir, temporary, keeper->dir, name_of(keeper)))
		rc = -errno;
	if (rc)
		unlinkat(keeper->dir, temporary, 0);
	return rc;
}

void manifest_save(struct manifest_keeper *keeper, struct tree *tree, const _Atomic bool *stop)
{
	uint64_t mark = 0;
	int rc;

	if (!keeper->path)
		return;
	tree_set_manifest(tree, NULL);
	if (keeper->known)
		malloc_trim(0); /* it was large, and will not be needed again */
	rc = keeper->known ? write_tree(tree, NULL, &mark, stop) : 0;
	if (!rc && keeper->known && mark == keeper->mark)
		return;
	if (!rc)
		rc = replace(keeper, tree, &mark, stop);
	if (!rc) {
		keeper->known = true;
		keeper->mark = mark;
	} else if (rc != -ECANCELED) {
		log_say(LOG_WARNINGS, "manifest %s cannot be written: %s", keeper->path,
			strerror(-rc));
	}
}
