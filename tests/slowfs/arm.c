/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "arm.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "counter.h"
#include "grow.h"
#include "pace.h"
#include "source.h"

/* A directory as it was at `listed`. */
struct directory {
	UT_hash_handle hh;
	uint64_t number;
	struct timespec listed;
	uint64_t *inodes; /* of its regular files, ascending */
	size_t count, room;
	char path[];
};

/* A read that wants the arm; on its thread's stack. */
struct waiter {
	struct place place;
	bool has_arm;
	struct waiter *next;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t given;
	struct directory *directories; /* lock; by path */
	struct place last;	       /* lock */
	bool busy;		       /* lock */
	struct waiter *first, **end;   /* lock */
} arm = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.given = PTHREAD_COND_INITIALIZER,
	.end = &arm.first,
};

/* --- places ------------------------------------------------------------------------------ */

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static int list_locked(struct directory *directory, DIR *dir)
{
	struct dirent *entry;

	directory->count = 0;
	while ((entry = readdir(dir))) {
		if (entry->d_type != DT_REG)
			continue;
		if (grow(directory->inodes, directory->room, directory->count, 1))
			return -ENOMEM;
		directory->inodes[directory->count++] = entry->d_ino;
	}
	qsort(directory->inodes, directory->count, sizeof(*directory->inodes), by_number);
	return 0;
}

static struct directory *get_locked(const char *path)
{
	struct directory *directory;

	HASH_FIND_STR(arm.directories, path, directory);
	if (directory)
		return directory;
	directory = calloc(1, sizeof(*directory) + strlen(path) + 1);
	if (!directory)
		return NULL;
	strcpy(directory->path, path);
	directory->number = HASH_COUNT(arm.directories) + 1;
	HASH_ADD_STR(arm.directories, path, directory);
	if (directory->hh.tbl)
		return directory;
	free(directory);
	return NULL;
}

/* Lists it anew if it has changed since. */
static int refresh_locked(struct directory *directory)
{
	DIR *dir = fdopendir(source_open_directory(directory->path));
	struct stat st;
	int ret = 0;

	if (!dir)
		return -errno;
	if (fstat(dirfd(dir), &st))
		ret = -errno;
	else if (memcmp(&st.st_mtim, &directory->listed, sizeof(st.st_mtim)))
		ret = list_locked(directory, dir);
	if (!ret)
		directory->listed = st.st_mtim;
	closedir(dir);
	return ret;
}

int arm_find(const char *path, uint64_t inode, struct place *place)
{
	const char *slash = strrchr(path, '/');
	struct directory *directory;
	char parent[PATH_MAX] = ".";
	uint64_t *found;
	int ret;

	if (slash) {
		memcpy(parent, path, (size_t)(slash - path));
		parent[slash - path] = '\0';
	}
	*place = (struct place){ 0 };
	pthread_mutex_lock(&arm.lock);
	directory = get_locked(parent);
	ret = directory ? refresh_locked(directory) : -ENOMEM;
	if (!ret) {
		found = bsearch(&inode, directory->inodes, directory->count, sizeof(inode),
				by_number);
		if (found)
			*place = (struct place){ directory->number,
						 (uint64_t)(found - directory->inodes) };
	}
	pthread_mutex_unlock(&arm.lock);
	return ret;
}

/* --- the arm ------------------------------------------------------------------------------ */

/* How long the way to a place takes. There is none to more of the file that was read last. */
static uint64_t way_us_locked(struct place place, struct arm_pace pace)
{
	uint64_t between;

	if (!place.directory || place.directory != arm.last.directory || place.rank < arm.last.rank)
		return pace.seek_us;
	between = place.rank > arm.last.rank ? place.rank - arm.last.rank - 1 : 0;
	if (!between)
		return 0;
	return pace.pass_us && between < pace.seek_us / pace.pass_us ? between * pace.pass_us
								     : pace.seek_us;
}

static struct waiter **nearest_locked(struct arm_pace pace)
{
	struct waiter **nearest = &arm.first;

	for (struct waiter **at = &arm.first; *at; at = &(*at)->next)
		if (way_us_locked((*at)->place, pace) < way_us_locked((*nearest)->place, pace))
			nearest = at;
	return nearest;
}

static void give_locked(struct arm_pace pace)
{
	struct waiter **at, *next;

	if (arm.busy || !arm.first)
		return;
	at = nearest_locked(pace);
	next = *at;
	*at = next->next;
	if (arm.end == &next->next)
		arm.end = at;
	arm.busy = true;
	next->has_arm = true;
	pthread_cond_broadcast(&arm.given);
}

void arm_move(struct place place, struct arm_pace pace)
{
	struct waiter self = { .place = place };
	uint64_t way_us;

	pthread_mutex_lock(&arm.lock);
	*arm.end = &self;
	arm.end = &self.next;
	give_locked(pace);
	while (!self.has_arm)
		pthread_cond_wait(&arm.given, &arm.lock);
	way_us = way_us_locked(place, pace);
	pthread_mutex_unlock(&arm.lock);
	counter_add(COUNTER_SEEKS, way_us == pace.seek_us);
	pace_delay(way_us);
	pthread_mutex_lock(&arm.lock);
	arm.last = place;
	arm.busy = false;
	give_locked(pace);
	pthread_mutex_unlock(&arm.lock);
}

void arm_destroy(void)
{
	struct directory *directory, *next;

	HASH_ITER (hh, arm.directories, directory, next) {
		/* The analyzer does not see that the list of the others is without those freed. */
		HASH_DEL(arm.directories, directory); /* NOLINT(clang-analyzer-unix.Malloc) */
		free(directory->inodes);
		free(directory);
	}
}
