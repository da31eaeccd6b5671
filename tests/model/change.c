/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is done at the source. Whoever changes a path has its lock `writing`, so that a path has one
 * change at a time, and tells its history before and after. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model.h"

#define DIRS 4
#define NAME_ROOM 4096
#define LONG_NS (100 * MS) /* a `staleness` that writers cannot wait for after each change */
#define SMALL_PIECE 4096
#define LARGE_PIECE (1u << 20)

static void source_name(char name[NAME_ROOM], const struct path *path, const char *suffix)
{
	snprintf(name, NAME_ROOM, "%s/%s%s", options.source, path->name, suffix);
}

/* The source is in order: whatever fails there is a mistake of the test. */
static void must(bool done, const char *what, const char *name)
{
	if (!done)
		fail("the test itself: %s %s: %s", what, name, strerror(errno));
}

static uint64_t draw_size(struct chance *chance)
{
	uint64_t size = options.smallest + draw(chance, options.largest - options.smallest + 1);

	if (!options.smallest && one_in(chance, 12))
		return 0;
	return one_in(chance, 6) && size > 4096 ? size / 4096 * 4096 : size;
}

/* --- changes that happen at once -----------------------------------------------------------------
 */

/* Another file takes the name, or the first one. */
static void replace(struct path *path, struct chance *chance, char *buffer)
{
	uint64_t edition = new_edition(), size = draw_size(chance);
	char temporary[NAME_ROOM], name[NAME_ROOM];
	int fd;

	source_name(temporary, path, ".tmp");
	source_name(name, path, "");
	content_fill(buffer, edition, 0, size);
	fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	must(fd >= 0, "open", temporary);
	must(write(fd, buffer, size) == (ssize_t)size, "write", temporary);
	must(!close(fd), "close", temporary);
	history_begin(path, WHOLE, edition, size);
	must(!rename(temporary, name), "rename", name);
	history_end(path);
}

static void remove_file(struct path *path)
{
	char name[NAME_ROOM];

	source_name(name, path, "");
	history_begin(path, ABSENT, 0, 0);
	must(!unlink(name), "unlink", name);
	history_end(path);
}

/* Times and permissions are another version with the same contents. */
static void touch(struct path *path, struct chance *chance)
{
	char name[NAME_ROOM];

	source_name(name, path, "");
	if (one_in(chance, 2))
		must(!chmod(name, one_in(chance, 2) ? 0644 : 0444), "chmod", name);
	else
		must(!utimensat(AT_FDCWD, name, NULL, 0), "utimensat", name);
}

/* `from` is called `to`, and what that was before is gone or, if `swap`, is called `from`. */
static void move(struct path *from, struct path *to, bool swap)
{
	struct state moved = history_present(from), other = history_present(to);
	char from_name[NAME_ROOM], to_name[NAME_ROOM];

	source_name(from_name, from, "");
	source_name(to_name, to, "");
	history_begin(to, moved.kind, moved.edition, moved.size);
	if (swap)
		history_begin(from, other.kind, other.edition, other.size);
	else
		history_begin(from, ABSENT, 0, 0);
	must(!renameat2(AT_FDCWD, from_name, AT_FDCWD, to_name, swap ? RENAME_EXCHANGE : 0),
	     "rename", from_name);
	history_end(from);
	history_end(to);
}

/* A whole directory is away for a while. */
static void move_dir(unsigned dir, struct chance *chance)
{
	char name[NAME_ROOM], away[NAME_ROOM];
	struct state before;

	snprintf(name, sizeof(name), "%s/d%u", options.source, dir);
	snprintf(away, sizeof(away), "%s/away%u", options.source, dir);
	for (unsigned i = dir; i < options.files; i += DIRS) {
		pthread_mutex_lock(&paths[i].writing);
		before = history_present(&paths[i]);
		if (before.kind != ABSENT)
			history_begin(&paths[i], ABSENT, before.edition, before.size);
	}
	must(!rename(name, away), "rename", name);
	sleep_ns(draw(chance, 20 * MS));
	for (unsigned i = dir; i < options.files; i += DIRS) {
		before = history_present(&paths[i]);
		if (before.kind == ABSENT && before.edition)
			history_begin(&paths[i], WHOLE, before.edition, before.size);
	}
	must(!rename(away, name), "rename", away);
	for (unsigned i = dir; i < options.files; i += DIRS) {
		history_end(&paths[i]);
		pthread_mutex_unlock(&paths[i].writing);
	}
}

/* --- changes in place ----------------------------------------------------------------------------
 */

static void write_pieces(int fd, const char *data, uint64_t from, uint64_t size,
			 struct chance *chance)
{
	bool slow = one_in(chance, 4);

	while (from < size) {
		uint64_t piece = one_in(chance, 2) ? LARGE_PIECE : SMALL_PIECE;

		if (piece > size - from)
			piece = size - from;
		must(pwrite(fd, data + from, piece, (off_t)from) == (ssize_t)piece, "write", "");
		from += piece;
		if (slow && one_in(chance, 8))
			sleep_ns(draw(chance, 5 * MS));
	}
}

/* With one write() in most cases: the kernel sets the change time before it copies the bytes, so
 * nothing that a stat can see tells that the copying goes on. */
static void rewrite(struct path *path, struct chance *chance, char *buffer)
{
	struct state before = history_present(path);
	uint64_t edition = new_edition();
	uint64_t size = one_in(chance, 5) ? draw_size(chance) : before.size;
	bool truncates = one_in(chance, 8);
	char name[NAME_ROOM];
	int fd;

	source_name(name, path, "");
	content_fill(buffer, edition, 0, size);
	history_begin(path, WRITTEN, edition, size);
	atomic_store(&path_written, path->number);
	atomic_fetch_add(&writes_begun, 1);
	fd = open(name, O_WRONLY | O_CLOEXEC | (truncates ? O_TRUNC : 0));
	must(fd >= 0, "open", name);
	if (one_in(chance, 6))
		write_pieces(fd, buffer, 0, size, chance);
	else
		must(pwrite(fd, buffer, size, 0) == (ssize_t)size, "write", name);
	if (size < before.size && !truncates)
		must(!ftruncate(fd, (off_t)size), "ftruncate", name);
	must(!close(fd), "close", name);
	history_end(path);
	history_begin(path, WHOLE, edition, size);
	history_end(path);
}

/* The same edition, of another length. */
static void resize(struct path *path, struct chance *chance, char *buffer)
{
	struct state before = history_present(path);
	uint64_t size = draw_size(chance);
	char name[NAME_ROOM];
	int fd;

	source_name(name, path, "");
	history_begin(path, WRITTEN, before.edition, size);
	fd = open(name, O_WRONLY | O_CLOEXEC);
	must(fd >= 0, "open", name);
	if (size > before.size) {
		content_fill(buffer, before.edition, 0, size);
		write_pieces(fd, buffer, before.size, size, chance);
	} else {
		must(!ftruncate(fd, (off_t)size), "ftruncate", name);
	}
	must(!close(fd), "close", name);
	history_end(path);
	history_begin(path, WHOLE, before.edition, size);
	history_end(path);
}

/* Right after a change is when a mixture of before and after could have been kept. Others go on
 * meanwhile, with everything but this path. */
static void change_in_place(struct path *path, struct chance *chance, char *buffer)
{
	if (one_in(chance, 6))
		resize(path, chance, buffer);
	else
		rewrite(path, chance, buffer);
	if (options.staleness_ns < LONG_NS ? one_in(chance, 8) : draw(chance, 4))
		return;
	sleep_ns(2 * options.staleness_ns + 20 * MS);
	look_settled(path, buffer);
}

/* --- which --------------------------------------------------------------------------------------
 */

/* Another path of the same kind, or NULL. */
static struct path *draw_other(const struct path *path, struct chance *chance)
{
	struct path *other = &paths[draw(chance, options.files)];

	return other != path && other->in_place == path->in_place ? other : NULL;
}

static void move_something(struct path *path, struct chance *chance)
{
	struct path *other = draw_other(path, chance);
	struct path *low = other && other < path ? other : path;
	struct path *high = low == path ? other : path;
	bool swap = one_in(chance, 2);

	if (!other)
		return;
	pthread_mutex_lock(&low->writing);
	pthread_mutex_lock(&high->writing);
	if (history_present(path).kind == WHOLE && (!swap || history_present(other).kind == WHOLE))
		move(path, other, swap);
	pthread_mutex_unlock(&high->writing);
	pthread_mutex_unlock(&low->writing);
}

static void change_one(struct path *path, struct chance *chance, char *buffer)
{
	bool exists;

	pthread_mutex_lock(&path->writing);
	exists = history_present(path).kind == WHOLE;
	if (exists && path->in_place && draw(chance, 100) < options.in_place)
		change_in_place(path, chance, buffer);
	else if (exists && one_in(chance, 8))
		remove_file(path);
	else if (exists && one_in(chance, 8))
		touch(path, chance);
	else
		replace(path, chance, buffer);
	pthread_mutex_unlock(&path->writing);
}

void change_something(struct chance *chance, char *buffer)
{
	struct path *path = &paths[draw(chance, options.files)];

	count(CHANGES);
	if (one_in(chance, 200))
		move_dir((unsigned)draw(chance, DIRS), chance);
	else if (one_in(chance, 6))
		move_something(path, chance);
	else
		change_one(path, chance, buffer);
}

void change_make_all(struct chance *chance)
{
	char name[NAME_ROOM], *buffer = malloc(options.largest + 1);

	paths = calloc(options.files, sizeof(*paths));
	if (!paths || !buffer)
		fail("no memory");
	for (unsigned i = 0; i < DIRS; i++) {
		snprintf(name, sizeof(name), "%s/d%u", options.source, i);
		must(!mkdir(name, 0755), "mkdir", name);
	}
	for (unsigned i = 0; i < options.files; i++) {
		struct path *path = &paths[i];

		path->number = i;
		path->in_place = i / DIRS % 2 || options.files <= DIRS;
		snprintf(path->name, sizeof(path->name), "d%u/f%03u", i % DIRS, i);
		pthread_mutex_init(&path->writing, NULL);
		pthread_mutex_init(&path->lock, NULL);
		replace(path, chance, buffer);
	}
	free(buffer);
}
