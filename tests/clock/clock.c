/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A time of day that a test can set back for one process, preloaded into it. Setting the machine's
 * would be felt by all, and a time namespace has no time of day of its own.
 *
 * It is an hour earlier as long as the file exists that SHADE_TEST_CLOCK names. Waits for a
 * condition whose clock is CLOCK_REALTIME, which is what a condition has if nobody says otherwise,
 * go by that, as in the kernel: one that has begun lasts an hour longer if the time is set back
 * meanwhile. Nothing else is touched.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define BACK_S 3600
#define SLICE_NS 5000000 /* between looks at the clock */
#define CONDS_MAX 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const pthread_cond_t *monotonic[CONDS_MAX]; /* lock */
static size_t count;				   /* lock */

static long offset_s(void)
{
	const char *file = getenv("SHADE_TEST_CLOCK");

	return file && !access(file, F_OK) ? BACK_S : 0;
}

/* The functions that are replaced here have these addresses in the C library. */
static void *real(const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);

	if (!found)
		abort();
	return found;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
	int (*function)(clockid_t, struct timespec *) = real("clock_gettime");
	int rc = function(clock, time);

	if (!rc && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		time->tv_sec -= offset_s();
	return rc;
}

int gettimeofday(struct timeval *time, void *zone)
{
	int (*function)(struct timeval *, void *) = real("gettimeofday");
	int rc = function(time, zone);

	time->tv_sec -= offset_s();
	return rc;
}

time_t time(time_t *out)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (out)
		*out = now.tv_sec;
	return now.tv_sec;
}

int pthread_cond_init(pthread_cond_t *cond, const pthread_condattr_t *attributes)
{
	int (*function)(pthread_cond_t *, const pthread_condattr_t *) = real("pthread_cond_init");
	clockid_t clock = CLOCK_REALTIME;

	if (attributes)
		pthread_condattr_getclock(attributes, &clock);
	pthread_mutex_lock(&lock);
	if (clock == CLOCK_MONOTONIC && count < CONDS_MAX)
		monotonic[count++] = cond;
	pthread_mutex_unlock(&lock);
	return function(cond, attributes);
}

static bool is_monotonic(const pthread_cond_t *cond)
{
	bool found = false;

	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < count && !found; i++)
		found = monotonic[i] == cond;
	pthread_mutex_unlock(&lock);
	return found;
}

static bool is_past(const struct timespec *until)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec > until->tv_sec ||
	       (now.tv_sec == until->tv_sec && now.tv_nsec >= until->tv_nsec);
}

int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
			   const struct timespec *until)
{
	int (*function)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *) =
		real("pthread_cond_timedwait");
	struct timespec slice;
	int rc;

	if (is_monotonic(cond))
		return function(cond, mutex, until);
	do {
		if (is_past(until))
			return ETIMEDOUT;
		clock_gettime(CLOCK_MONOTONIC, &slice);
		slice.tv_nsec += SLICE_NS;
		slice.tv_sec += slice.tv_nsec / 1000000000;
		slice.tv_nsec %= 1000000000;
		rc = pthread_cond_clockwait(cond, mutex, CLOCK_MONOTONIC, &slice);
	} while (rc == ETIMEDOUT);
	return rc;
}
