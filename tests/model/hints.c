/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the mount is told while its files are read and changed: hints without sense or end, which
 * may cost speed and nothing else. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model.h"

#define ORDER_MAX 64

static const char *const policies[] = { "shade", "app", "icache", "minio", "lru", "lfu", "fifo" };

/* What a hint names may be gone, or there are too many orders. */
static void tell(const char *text)
{
	char name[4096];
	int fd;

	snprintf(name, sizeof(name), "%s/.shade/control", options.mount);
	fd = open(name, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		fail("%s: %s", name, strerror(errno));
	if (write(fd, text, strlen(text)) < 0 && errno != EINVAL && errno != ENOSPC &&
	    errno != ENOENT && errno != EBUSY && errno != ESTALE && errno != EAGAIN)
		fail("%s to '%s'", strerror(errno), text);
	close(fd);
	count(HINTS);
}

static void announce_order(struct chance *chance)
{
	static _Atomic unsigned epoch;
	unsigned number = atomic_load(&epoch), ids = 1 + (unsigned)draw(chance, ORDER_MAX);
	char text[ORDER_MAX * 8 + 100];
	int at = snprintf(text, sizeof(text), "order %u begin\norder %u", number, number);

	while (ids--)
		at += snprintf(text + at, sizeof(text) - (size_t)at, " %llu",
			       (unsigned long long)draw(chance, options.files));
	snprintf(text + at, sizeof(text) - (size_t)at, "\norder %u end\nepoch %u\n", number,
		 number);
	tell(text);
	atomic_fetch_add(&epoch, 1);
}

static void name_something(struct chance *chance)
{
	static const char *const verbs[] = { "warm", "evict", "pin", "unpin" };
	const struct path *path = &paths[draw(chance, options.files)];
	char text[100];

	snprintf(text, sizeof(text), "%s %s\n", verbs[draw(chance, 4)],
		 one_in(chance, 10) ? "." : path->name);
	tell(text);
}

static void change_settings(struct chance *chance)
{
	uint64_t capacity = options.capacity / 2 + draw(chance, options.capacity);
	char text[100];

	if (options.resizes && one_in(chance, 2))
		snprintf(text, sizeof(text), "unpin .\ncapacity %llu\n",
			 (unsigned long long)capacity);
	else if (one_in(chance, 8))
		snprintf(text, sizeof(text), "rescan\n");
	else
		snprintf(text, sizeof(text), "policy %s\n", policies[draw(chance, 7)]);
	tell(text);
}

static void score_something(struct chance *chance)
{
	char text[100];

	snprintf(text, sizeof(text), "score %llu %llu\n",
		 (unsigned long long)draw(chance, options.files),
		 (unsigned long long)draw(chance, 100));
	tell(text);
}

/* The kernel's own way to take pages, and with 2 also inodes, from everybody. */
static void drop_caches(struct chance *chance)
{
	int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return; /* not for everybody */
	if (write(fd, one_in(chance, 2) ? "1" : "3", 1) < 0)
		fail("drop_caches: %s", strerror(errno));
	close(fd);
}

void hint_something(struct chance *chance)
{
	switch (draw(chance, 10)) {
	case 0:
	case 1:
	case 2:
		announce_order(chance);
		break;
	case 3:
	case 4:
	case 5:
		name_something(chance);
		break;
	case 6:
		change_settings(chance);
		break;
	default:
		score_something(chance);
	}
	if (one_in(chance, 100))
		drop_caches(chance);
}

void hint_rest(void)
{
	tell("unpin .\n");
}

/* --- memory --------------------------------------------------------------------------------------
 */

static uint64_t find_figure(const char *stats, const char *key)
{
	const char *at = strstr(stats, key);

	if (!at)
		fail(".shade/stats has no %s", key);
	return strtoull(at + strlen(key), NULL, 10);
}

void sample_memory(void)
{
	char text[8192], name[4096];
	uint64_t memory, capacity;
	ssize_t size;
	int fd;

	snprintf(name, sizeof(name), "%s/.shade/stats", options.mount);
	fd = open(name, O_RDONLY | O_CLOEXEC);
	size = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (size < 0)
		fail("%s: %s", name, strerror(errno));
	close(fd);
	text[size] = '\0';
	memory = find_figure(text, "\nmemory_bytes ");
	capacity = find_figure(text, "\ncapacity_bytes ");
	if (memory > capacity)
		fail("memory is above the capacity:\n%s", text);
	count(SAMPLES_MEMORY);
}
