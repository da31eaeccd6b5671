/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A directory as the source: names and attributes.
 *
 * A listing asks about every name. Where the answers come from far away, many are asked about at
 * the same time: one after the other, a million files at a millisecond each would take 20 minutes.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "base/threads.h"
#include "source/devices.h"
#include "source/dir.h"

static int open_beneath(const struct store *store, const char *path, int flags)
{
	struct open_how how = dir_how_beneath(flags);
	long fd = syscall(SYS_openat2, dir_root(store), *path ? path : ".", &how, sizeof(how));

	return fd < 0 ? dir_doubt(store, -errno) : (int)fd;
}

static __int128 time_of(const struct statx_timestamp *time)
{
	return (__int128)time->tv_sec * 1000000000 + time->tv_nsec;
}

void dir_convert(struct store *store, const struct statx *from, struct store_attr *to)
{
	unsigned dev = devices_number(dir_devices(store), from->stx_dev_major, from->stx_dev_minor);

	*to = (struct store_attr){
		.ino = from->stx_ino,
		.dev = dev & (STORE_DEVICES - 1),
		.size = from->stx_size,
		.mode = from->stx_mode,
		.uid = from->stx_uid,
		.gid = from->stx_gid,
		.nlink = (from->stx_nlink < STORE_LINKS_MAX ? from->stx_nlink : STORE_LINKS_MAX) &
			 STORE_LINKS_MAX,
	};
	if (store_is_device(to))
		to->size = makedev(from->stx_rdev_major, from->stx_rdev_minor);
	store_set_mtime(to, time_of(&from->stx_mtime));
	store_set_ctime(to, time_of(&from->stx_ctime));
}

static int stat_fd(struct store *store, int fd, const char *name, struct store_attr *attr)
{
	struct statx stat;

	if (statx(fd, name, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, DIR_WANTED, &stat))
		return dir_doubt(store, -errno);
	dir_convert(store, &stat, attr);
	return 0;
}

/* --- one at a time ------------------------------------------------------------------------------
 */

int dir_stat(struct store *store, const char *path, struct store_attr *attr)
{
	int fd = open_beneath(store, path, O_PATH);
	int rc;

	if (fd < 0)
		return fd;
	rc = stat_fd(store, fd, "", attr);
	close(fd);
	return rc;
}

static bool is_expected(const struct store_attr *found, const struct store_attr *expected)
{
	return S_ISDIR(expected->mode) ? S_ISDIR(found->mode) && store_same_file(found, expected)
				       : store_same_version(found, expected);
}

/* Whether an open file is what the caller means. */
static int check_fd(struct store *store, int fd, const struct store_attr *expected)
{
	struct store_attr found = { 0 };
	int rc = stat_fd(store, fd, "", &found);

	if (rc)
		return rc;
	return is_expected(&found, expected) ? 0 : -ESTALE;
}

/* Through its descriptor's name, since it is not open for reading: it may be for others alone. */
static int get_acl(int fd, void *value, size_t size)
{
	char name[64];
	ssize_t length;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	length = getxattr(name, STORE_ACL, value, size);
	if (length >= 0)
		return (int)length;
	return errno == EOPNOTSUPP || errno == ENOSYS ? -ENODATA : -errno;
}

/* A source may span file systems with lists and without, and one FUSE file system may do so on its
 * own, so each file is asked for its own. The version is compared after that, since a change of the
 * list is a change of ctime. */
int dir_acl(struct store *store, const char *path, const struct store_attr *expected, void *value,
	    size_t size)
{
	int fd = open_beneath(store, path, O_PATH);
	int length, rc;

	if (fd < 0)
		return fd;
	length = get_acl(fd, value, size);
	rc = expected ? check_fd(store, fd, expected) : 0;
	close(fd);
	return rc ? rc : length;
}

int dir_readlink(struct store *store, const char *path, const struct store_attr *expected,
		 char **target)
{
	char text[4096];
	int fd = open_beneath(store, path, O_PATH), rc;
	ssize_t length;

	if (fd < 0)
		return fd;
	length = readlinkat(fd, "", text, sizeof(text) - 1);
	rc = length < 0 ? -errno : 0;
	/* Another file than a link may be there by now: that is more than an error. */
	if (check_fd(store, fd, expected))
		rc = -ESTALE;
	close(fd);
	if (rc)
		return rc;
	text[length] = 0;
	*target = strdup(text);
	return *target ? 0 : -ENOMEM;
}

int dir_statfs(struct store *store, struct statvfs *out)
{
	return fstatvfs(dir_root(store), out) ? dir_doubt(store, -errno) : 0;
}

/* --- listings -----------------------------------------------------------------------------------
 */

#define TOGETHER 1024  /* names that are asked about together */
#define HELPERS 15     /* that ask, beside the one who lists */
#define SLOW_NS 100000 /* for an answer: then they are worth their while */
#define SLOW_SURE 8    /* answers, to be sure of that */

struct question {
	char *name; /* on some file systems longer than NAME_MAX */
	struct store_attr attr;
	int rc;
};

struct questions {
	struct store *store;
	int dir;
	unsigned count;
	_Atomic unsigned next; /* to be asked about */
	struct question list[TOGETHER];
};

static bool is_dots(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..");
}

/* Reads on only as far as is asked about next: from that an NFS client learns that attributes
 * are wanted, and brings them along with the names. */
static int fill(struct questions *questions, DIR *dir)
{
	struct dirent *dirent;

	atomic_store(&questions->next, 0);
	while (questions->count < TOGETHER) {
		errno = 0;
		dirent = readdir(dir);
		if (!dirent)
			return -errno;
		if (is_dots(dirent->d_name))
			continue;
		questions->list[questions->count].name = strdup(dirent->d_name);
		if (!questions->list[questions->count].name)
			return -ENOMEM;
		questions->count++;
	}
	return 0;
}

static void empty(struct questions *questions)
{
	while (questions->count)
		free(questions->list[--questions->count].name);
}

/* False: nothing is left to ask about. */
static bool ask_next(struct questions *questions)
{
	unsigned at = atomic_fetch_add(&questions->next, 1);
	struct question *question = &questions->list[at];

	if (at >= questions->count)
		return false;
	question->rc = stat_fd(questions->store, questions->dir, question->name, &question->attr);
	return true;
}

static void help(void *argument)
{
	while (ask_next(argument))
		;
}

/* Helpers come only if the source turns out to be slow, and if they can be had. */
static void ask_all(struct questions *questions)
{
	struct thread helpers[HELPERS];
	unsigned count = 0, asked = 0;
	uint64_t began_ns = clock_now_ns();

	while (ask_next(questions)) {
		if (++asked != SLOW_SURE ||
		    clock_now_ns() - began_ns < (uint64_t)SLOW_SURE * SLOW_NS)
			continue;
		while (count < HELPERS && asked + count < questions->count &&
		       !thread_start(&helpers[count], "shade-names", help, questions))
			count++;
	}
	for (unsigned i = 0; i < count; i++)
		thread_join(&helpers[i]);
}

static bool has_vanished(const struct question *question)
{
	return question->rc == -ENOENT || question->rc == -ESTALE;
}

/* A name may fail alone, for example because a dead file system is mounted there. Or the source
 * fails as a whole: then nothing is known of any name, and none may be left out. The name "." tells
 * the two apart, since it needs the source, and the right to search the directory. After it has
 * answered, names that failed are asked about once more, for the source may have failed for a
 * moment. */
static int ask_again(struct questions *questions)
{
	bool answers = false;
	struct statx stat;

	for (unsigned i = 0; i < questions->count; i++) {
		struct question *question = &questions->list[i];

		if (!question->rc || has_vanished(question))
			continue;
		if (!answers && statx(questions->dir, ".", AT_STATX_FORCE_SYNC, DIR_WANTED, &stat))
			return -errno;
		answers = true;
		question->rc =
			stat_fd(questions->store, questions->dir, question->name, &question->attr);
		if (question->rc == -ENOMEM)
			return -ENOMEM;
	}
	return 0;
}

static int tell(const struct questions *questions, store_entry *entry, void *context)
{
	int rc = 0;

	for (unsigned i = 0; !rc && i < questions->count; i++) {
		const struct question *question = &questions->list[i];

		if (!has_vanished(question))
			rc = entry(context, question->name, question->rc ? NULL : &question->attr,
				   question->rc);
	}
	return rc;
}

static int list(struct store *store, DIR *dir, store_entry *entry, void *context)
{
	struct questions *questions = malloc(sizeof(*questions));
	bool is_last = false;
	int rc = 0;

	if (!questions)
		return -ENOMEM;
	questions->store = store;
	questions->dir = dirfd(dir);
	questions->count = 0;
	while (!rc && !is_last) {
		rc = fill(questions, dir);
		is_last = questions->count < TOGETHER;
		if (!rc) {
			ask_all(questions);
			rc = ask_again(questions);
		}
		if (!rc)
			rc = tell(questions, entry, context);
		empty(questions);
	}
	free(questions);
	return rc;
}

/* Its attributes need no right to read it. O_DIRECTORY has an automounter mount what belongs here.
 */
int dir_open_dir(struct store_dir *dir, const char *path, const struct store_attr *expected,
		 struct store_attr *attr)
{
	int fd = open_beneath(dir->store, path, O_PATH | O_DIRECTORY);
	int rc = fd < 0 ? fd : stat_fd(dir->store, fd, "", attr);

	/* The top is what its descriptor means, and may have been mounted again. */
	if (!rc && *path && !store_same_file(attr, expected))
		rc = -ESTALE;
	if (!rc)
		dir->fd = fd;
	else if (fd >= 0)
		close(fd);
	return rc;
}

void dir_close_dir(struct store_dir *dir)
{
	if (dir->fd >= 0)
		close(dir->fd);
	dir->fd = -1;
}

int dir_stat_in(const struct store_dir *dir, const char *name, struct store_attr *attr)
{
	return stat_fd(dir->store, dir->fd, name, attr);
}

int dir_list(struct store_dir *dir, store_entry *entry, void *context)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
	int fd = openat(dir->fd, ".", flags | O_NOATIME), rc;
	DIR *stream;

	if (fd < 0 && errno == EPERM) /* only its owner and root may ask for that */
		fd = openat(dir->fd, ".", flags);
	if (fd < 0)
		return -errno;
	dir_close_dir(dir); /* a listing may take long, and has one descriptor */
	stream = fdopendir(fd);
	if (!stream) {
		rc = -errno;
		close(fd);
		return rc;
	}
	rc = list(dir->store, stream, entry, context);
	closedir(stream);
	return rc;
}
