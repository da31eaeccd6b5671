/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A request waits on a condition variable until its moment has come: all wait at once,
 * none holds the lock, and a change of settings or the end of the mount wakes them.
 *
 * Bandwidth is one bucket for all: a request books its bytes behind those booked before
 * and waits for the end of its booking, so that the sum keeps to the rate however many
 * requests share it. A link that was idle may catch up on BURST_NS, no more.
 *
 * Delays do not end when the reader is interrupted: a remote would not answer sooner
 * either, and a stray signal must not turn a slow read into a failed one.
 */
#include "pace.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#include "setting.h"

#define SECOND_NS UINT64_C(1000000000)
#define BURST_NS UINT64_C(5000000)

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint64_t resets;    /* lock */
	uint64_t booked_ns; /* lock; the link is taken until then */
	bool closed;	    /* lock */
} pace = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
};

int pace_init(void)
{
	pthread_condattr_t attr;
	int ret;

	ret = pthread_condattr_init(&attr);
	if (ret)
		return -ret;
	ret = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	if (!ret)
		ret = pthread_cond_init(&pace.changed, &attr);
	pthread_condattr_destroy(&attr);
	return -ret;
}

void pace_destroy(void)
{
	pthread_cond_destroy(&pace.changed);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

static void wait_until_locked(uint64_t deadline_ns)
{
	struct timespec deadline = {
		.tv_sec = (time_t)(deadline_ns / SECOND_NS),
		.tv_nsec = (long)(deadline_ns % SECOND_NS),
	};
	uint64_t resets = pace.resets;
	int ret = 0;

	while (!ret && !pace.closed && pace.resets == resets)
		ret = pthread_cond_timedwait(&pace.changed, &pace.lock, &deadline);
}

void pace_delay(uint64_t delay_us)
{
	if (!delay_us)
		return;
	pthread_mutex_lock(&pace.lock);
	wait_until_locked(now_ns() + delay_us * 1000);
	pthread_mutex_unlock(&pace.lock);
}

void pace_transfer(size_t bytes)
{
	uint64_t rate = setting_load(SETTING_BANDWIDTH);
	uint64_t now;

	if (!rate || !bytes)
		return;
	pthread_mutex_lock(&pace.lock);
	now = now_ns();
	if (pace.booked_ns + BURST_NS < now)
		pace.booked_ns = now - BURST_NS;
	pace.booked_ns += bytes * SECOND_NS / rate;
	wait_until_locked(pace.booked_ns);
	pthread_mutex_unlock(&pace.lock);
}

void pace_reset(void)
{
	pthread_mutex_lock(&pace.lock);
	pace.resets++;
	pace.booked_ns = 0;
	pthread_cond_broadcast(&pace.changed);
	pthread_mutex_unlock(&pace.lock);
}

void pace_close(void)
{
	pthread_mutex_lock(&pace.lock);
	pace.closed = true;
	pthread_cond_broadcast(&pace.changed);
	pthread_mutex_unlock(&pace.lock);
}
