/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Readers of a mount whose daemon is killed meanwhile.
 *
 *	takeover-readers make DIR FILES BYTES	makes FILES files of about BYTES bytes
 *	takeover-readers read MOUNT FILES BYTES [NAME=NUMBER ...]
 *
 * reads that data set through a mount until the time is over or SIGTERM comes. The names are those
 * of `struct options`: threads, seconds, seed, hints, patience. Of eight threads four open, read
 *and close, two keep files open and read ranges, one maps files, and one lists and stats
 *everything.
 *
 * What was counted comes on standard output, a name and a number a line; the first errors come on
 * standard error, in full. The exit status is 1 if there were errors or wrong bytes, or if a thread
 * hangs.
 */
#include "readers.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 256
#define EXIT_USAGE 2
#define REPORTS_MAX 30
#define STEP_NS (50 * MS) /* how soon a thread that rests sees the end */

struct options options = { .threads = 16, .seconds = 10, .seed = 1, .patience = 60 };

static _Atomic bool ending;
static _Atomic uint64_t counters[COUNTERS], longest_ns, reports;
static struct reader readers[THREADS_MAX + 1];
static pthread_t threads[THREADS_MAX + 1];
static uint64_t began_ns;

/* --- what threads need ---------------------------------------------------------------------------
 */

uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

void count(enum counter counter, uint64_t number)
{
	atomic_fetch_add(&counters[counter], number);
}

void count_time(uint64_t since_ns)
{
	uint64_t took = now_ns() - since_ns, longest = atomic_load(&longest_ns);

	while (took > longest && !atomic_compare_exchange_weak(&longest_ns, &longest, took))
		;
}

uint64_t draw(struct reader *reader, uint64_t below)
{
	uint64_t z = reader->chance += 0x9e3779b97f4a7c15u; /* splitmix64 */

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return (z ^ z >> 31) % below;
}

bool is_ending(void)
{
	return atomic_load(&ending);
}

void rest(uint64_t ns)
{
	uint64_t until = now_ns() + ns, now;

	while (!is_ending() && (now = now_ns()) < until) {
		uint64_t step = until - now < STEP_NS ? until - now : STEP_NS;

		nanosleep(&(struct timespec){ .tv_nsec = (long)step }, NULL);
	}
}

void set_doing(struct reader *reader, const char *what, uint64_t file)
{
	atomic_store(&reader->doing, what);
	atomic_store(&reader->file, file);
}

void report(struct reader *reader, enum counter counter, const char *format, ...)
{
	char text[1024];
	va_list args;

	count(counter, 1);
	if (atomic_fetch_add(&reports, 1) >= REPORTS_MAX)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fprintf(stderr, "after %.3f s, thread %u: %s file %llu: %s\n",
		(double)(now_ns() - began_ns) / 1e9, reader->number, atomic_load(&reader->doing),
		(unsigned long long)atomic_load(&reader->file), text);
}

/* --- threads -------------------------------------------------------------------------------------
 */

static void *(*kind_of(unsigned number))(void *)
{
	static void *(*const kinds[])(void *) = { read_plainly, hold_files,   read_plainly,
						  list_all,	read_plainly, read_mapped,
						  read_plainly, hold_files };

	return number == options.threads ? give_hints : kinds[number % 8];
}

static void *new_buffer(void)
{
	void *buffer = malloc(options.bytes * 2 + (256u << 10));

	assert(buffer);
	return buffer;
}

static void start_threads(unsigned number)
{
	for (unsigned i = 0; i < number; i++) {
		struct reader *reader = &readers[i];

		reader->number = i;
		reader->chance = options.seed * 1000003 + i;
		reader->got = new_buffer();
		reader->wanted = new_buffer();
		set_doing(reader, "begin with", 0);
		if (pthread_create(&threads[i], NULL, kind_of(i), reader)) {
			fprintf(stderr, "there is no thread %u\n", i);
			exit(1); /* the others hold nothing that matters */
		}
	}
}

/* Returns how many are still not back after `patience`. */
static unsigned join_threads(unsigned number)
{
	struct timespec until;
	unsigned hung = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += (time_t)options.patience;
	for (unsigned i = 0; i < number; i++) {
		struct reader *reader = &readers[i];

		if (!pthread_timedjoin_np(threads[i], NULL, &until)) {
			free(reader->got);
			free(reader->wanted);
			continue;
		}
		hung++;
		fprintf(stderr, "thread %u hangs: %s file %llu\n", i, atomic_load(&reader->doing),
			(unsigned long long)atomic_load(&reader->file));
	}
	return hung;
}

/* Until the time is over, or somebody wants the end. */
static void wait_for_end(const sigset_t *signals)
{
	uint64_t until = began_ns + options.seconds * SECOND, now;

	while ((now = now_ns()) < until) {
		struct timespec left = { .tv_sec = (time_t)((until - now) / SECOND),
					 .tv_nsec = (long)((until - now) % SECOND) };

		if (sigtimedwait(signals, NULL, &left) >= 0)
			break;
	}
	atomic_store(&ending, true);
}

static void print_counts(unsigned hung)
{
	static const char *const names[COUNTERS] = {
		[READS] = "reads", [LISTS] = "lists",	[HINTS] = "hints",
		[BYTES] = "bytes", [ERRORS] = "errors", [WRONG_BYTES] = "wrong_bytes",
	};

	for (enum counter i = 0; i < COUNTERS; i++)
		printf("%s %llu\n", names[i], (unsigned long long)atomic_load(&counters[i]));
	printf("hung %u\n", hung);
	printf("longest_ms %llu\n", (unsigned long long)(atomic_load(&longest_ns) / MS));
	fflush(stdout);
}

static int read_mount(void)
{
	unsigned number = (unsigned)options.threads + (options.hints != 0), hung;
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	catch_bus_errors();
	began_ns = now_ns();
	start_threads(number);
	wait_for_end(&signals);
	hung = join_threads(number);
	print_counts(hung);
	if (hung)
		_exit(1); /* exit() would end under the threads that hang */
	return atomic_load(&counters[ERRORS]) || atomic_load(&counters[WRONG_BYTES]);
}

/* --- the command line ----------------------------------------------------------------------------
 */

static bool parse_number(const char *text, uint64_t *number)
{
	char *end;

	errno = 0;
	*number = strtoull(text, &end, 10);
	return *text >= '0' && *text <= '9' && !*end && !errno;
}

static bool parse_option(const char *text)
{
	static const struct {
		const char *name;
		uint64_t *value;
	} names[] = { { "threads=", &options.threads },
		      { "seconds=", &options.seconds },
		      { "seed=", &options.seed },
		      { "hints=", &options.hints },
		      { "patience=", &options.patience } };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strncmp(text, names[i].name, strlen(names[i].name)))
			return parse_number(text + strlen(names[i].name), names[i].value);
	return false;
}

static bool parse(int argc, char **argv)
{
	if (argc < 5 || !parse_number(argv[3], &options.files) || !options.files ||
	    options.files > 99999 || !parse_number(argv[4], &options.bytes) || options.bytes < 2 ||
	    options.bytes > 1u << 30)
		return false;
	options.mount = argv[2];
	for (int i = 5; i < argc; i++)
		if (!parse_option(argv[i]))
			return false;
	return options.threads > 0 && options.threads <= THREADS_MAX;
}

int main(int argc, char **argv)
{
	bool valid = parse(argc, argv);
	int ret;

	if (valid && !strcmp(argv[1], "read"))
		return read_mount();
	if (!valid || argc != 5 || strcmp(argv[1], "make") != 0) {
		fputs("usage: takeover-readers make DIR FILES BYTES\n"
		      "       takeover-readers read MOUNT FILES BYTES [NAME=NUMBER ...]\n"
		      "NAME: threads, seconds, seed, hints, patience\n",
		      stderr);
		return EXIT_USAGE;
	}
	ret = content_make(options.mount);
	if (ret)
		fprintf(stderr, "%s: %s\n", options.mount, strerror(-ret));
	return ret ? 1 : 0;
}
