/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Readers against writers: what an open gives is what the source has, or had a moment ago.
 *
 *	model SOURCE MOUNT [NAME=NUMBER ...]
 *
 * SOURCE is an empty directory that the mount at MOUNT shows. The names are those of `struct
 *options` (staleness_ms instead of staleness_ns). What is checked:
 *
 * 1. Every open, while everything goes on: history.c says what is right.
 * 2. A path that was written in place, once `staleness` has passed since the writer was done: it
 *must have exactly the present contents, on and on. A mixture that is still read then is one that
 *was kept, and it would be kept for ever.
 * 3. From time to time everybody rests. Then each path, and each directory, must be as the source
 *    has it.
 * 4. memory_bytes is never above capacity_bytes, if no file is so large that it may be (`memory`).
 *
 * For 2 and 3 the mount has 20 seconds, since machines are busy, but 10 for a mixture, since
 *whatever makes the kernel drop its pages would mend it; what is right only after some of them
 *counts as late.
 *
 * What is done is drawn from the seed, but threads meet as they like: a failure does not happen
 *again for sure with the same seed. So it is told in full: what the path was when, and what was
 *read.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "model.h"

#define THREADS_MAX 32
#define REST_NS (3 * SECOND)

struct options options = { .seed = 1,
			   .seconds = 10,
			   .staleness_ns = 300 * MS,
			   .files = 40,
			   .smallest = 0,
			   .largest = 100000,
			   .readers = 4,
			   .writers = 2,
			   .hints = 1,
			   .capacity = 4 << 20,
			   .in_place = 50 };

static pthread_rwlock_t working; /* read: somebody works; write: all rest */
static _Atomic bool ending;
static _Atomic uint64_t counters[COUNTERS];

/* --- time, chance, counts, failures --------------------------------------------------------------
 */

uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

void sleep_ns(uint64_t ns)
{
	struct timespec time = { .tv_sec = (time_t)(ns / SECOND), .tv_nsec = (long)(ns % SECOND) };

	nanosleep(&time, NULL);
}

uint64_t draw(struct chance *chance, uint64_t below)
{
	uint64_t z = chance->state += 0x9e3779b97f4a7c15u; /* splitmix64 */

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return (z ^ z >> 31) % below;
}

bool one_in(struct chance *chance, uint64_t times)
{
	return !draw(chance, times);
}

void count(enum counter counter)
{
	atomic_fetch_add(&counters[counter], 1);
}

static void print_counts(FILE *to)
{
	static const char *const names[COUNTERS] = {
		[OPENS_EXACT] = "opens exact",
		[OPENS_DURING] = "in the middle of a write",
		[OPENS_FAILED] = "with an error",
		[OPENS_ABSENT] = "absent",
		[CHANGES] = "changes",
		[COMPARISONS] = "comparisons at rest",
		[LATE] = "of them late",
		[HINTS] = "hints",
		[SAMPLES_MEMORY] = "samples of memory",
	};

	for (enum counter i = 0; i < COUNTERS; i++)
		fprintf(to, "%s%llu %s", i ? ", " : "", (unsigned long long)counters[i], names[i]);
	fprintf(to, "\n");
}

/* One thread at a time; the others may still be in the mount, so nobody waits for them. */
void fail(const char *format, ...)
{
	static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
	va_list args;

	pthread_mutex_lock(&once);
	fprintf(stderr, "FAILED: ");
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\nseed=%llu after: ", (unsigned long long)options.seed);
	print_counts(stderr);
	_exit(1);
}

/* --- threads -------------------------------------------------------------------------------------
 */

bool begin_work(void)
{
	if (atomic_load(&ending))
		return false;
	pthread_rwlock_rdlock(&working);
	return true;
}

void end_work(void)
{
	pthread_rwlock_unlock(&working);
}

static struct chance chance_of(uint64_t number)
{
	struct chance chance = { options.seed * 1000 + number };

	(void)draw(&chance, 2);
	return chance;
}

/* Direct reads want pages. */
static char *new_buffer(void)
{
	size_t size = (options.largest / 4096 + 2) * 4096;
	char *buffer = aligned_alloc(4096, size);

	if (!buffer)
		fail("no memory for a buffer");
	memset(buffer, 0, size);
	return buffer;
}

static void *read_files(void *number)
{
	struct chance chance = chance_of(100 + (uintptr_t)number);
	char *buffer = new_buffer(), *second = new_buffer();

	while (begin_work()) {
		look_at_something(&chance, buffer, second);
		end_work();
	}
	free(buffer);
	free(second);
	return NULL;
}

static void *write_files(void *number)
{
	struct chance chance = chance_of(200 + (uintptr_t)number);
	char *buffer = new_buffer();

	while (begin_work()) {
		change_something(&chance, buffer);
		end_work();
		sleep_ns(draw(&chance, 10 * MS));
	}
	free(buffer);
	return NULL;
}

static void *give_hints(void *unused)
{
	struct chance chance = chance_of(300);

	(void)unused;
	while (begin_work()) {
		if (!atomic_load(&suspicions))
			hint_something(&chance);
		end_work();
		sleep_ns(draw(&chance, 20 * MS));
	}
	return NULL;
}

static void *watch_memory(void *unused)
{
	(void)unused;
	while (!atomic_load(&ending)) {
		sample_memory();
		sleep_ns(MS);
	}
	return NULL;
}

static unsigned start_threads(pthread_t threads[THREADS_MAX])
{
	unsigned started = 0;
	int rc = 0;

	for (uintptr_t i = 0; !rc && i < options.readers; i++)
		rc = pthread_create(&threads[started++], NULL, read_files, (void *)i);
	for (uintptr_t i = 0; !rc && i < options.writers; i++)
		rc = pthread_create(&threads[started++], NULL, write_files, (void *)i);
	if (!rc && options.hints)
		rc = pthread_create(&threads[started++], NULL, give_hints, NULL);
	if (!rc && options.memory)
		rc = pthread_create(&threads[started++], NULL, watch_memory, NULL);
	if (rc)
		fail("no thread: %s", strerror(rc));
	return started;
}

/* Everybody rests, and everything is compared. */
static void compare_all(char *buffer)
{
	pthread_rwlock_wrlock(&working);
	if (options.hints)
		hint_rest();
	sleep_ns(2 * options.staleness_ns + 20 * MS);
	for (uint64_t i = 0; i < options.files; i++)
		look_settled(&paths[i], buffer);
	look_at_names();
	pthread_rwlock_unlock(&working);
}

/* --- begin and end -------------------------------------------------------------------------------
 */

static void set_option(const char *text)
{
	const struct {
		const char *name;
		uint64_t *value;
	} known[] = {
		{ "seed", &options.seed },
		{ "seconds", &options.seconds },
		{ "files", &options.files },
		{ "smallest", &options.smallest },
		{ "largest", &options.largest },
		{ "readers", &options.readers },
		{ "writers", &options.writers },
		{ "hints", &options.hints },
		{ "resizes", &options.resizes },
		{ "capacity", &options.capacity },
		{ "in_place", &options.in_place },
		{ "memory", &options.memory },
		{ "staleness_ms", &options.staleness_ns },
	};
	const char *equals = strchr(text, '=');
	char *rest;

	for (size_t i = 0; equals && i < sizeof(known) / sizeof(known[0]); i++)
		if (strlen(known[i].name) == (size_t)(equals - text) &&
		    !strncmp(text, known[i].name, (size_t)(equals - text))) {
			*known[i].value = strtoull(equals + 1, &rest, 10);
			if (equals[1] && !*rest)
				return;
		}
	fprintf(stderr, "model: what is '%s'?\n", text);
	exit(2);
}

static void read_options(int argc, char **argv)
{
	if (argc < 3) {
		fprintf(stderr, "usage: model SOURCE MOUNT [NAME=NUMBER ...]\n");
		exit(2);
	}
	options.source = argv[1];
	options.mount = argv[2];
	options.staleness_ns /= MS;
	for (int i = 3; i < argc; i++)
		set_option(argv[i]);
	options.staleness_ns *= MS;
	if (!options.files || options.files > 1000 || options.largest < options.smallest ||
	    options.readers + options.writers + 2 > THREADS_MAX) {
		fprintf(stderr, "model: these options do not go together\n");
		exit(2);
	}
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS_MAX];
	pthread_rwlockattr_t attributes;
	struct chance chance;
	uint64_t until;
	unsigned started;
	char *buffer;

	read_options(argc, argv);
	/* Or whoever wants all to rest would never have its turn. */
	pthread_rwlockattr_init(&attributes);
	pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&working, &attributes);
	chance = chance_of(0);
	buffer = new_buffer();
	change_make_all(&chance);
	until = now_ns() + options.seconds * SECOND;
	compare_all(buffer);
	started = start_threads(threads);
	while (now_ns() < until) {
		sleep_ns(REST_NS);
		compare_all(buffer);
	}
	atomic_store(&ending, true);
	while (started)
		pthread_join(threads[--started], NULL);
	compare_all(buffer);
	print_counts(stdout);
	free(buffer);
	return 0;
}
