/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/threads.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>

/* The lock that this thread acquired last, and by `below` those before. Its address tells threads
 * apart. */
static _Thread_local struct lock *last_held;

static void push(struct lock *lock)
{
	lock->below = last_held;
	lock->holder = &last_held;
	last_held = lock;
}

static void pop(struct lock *lock)
{
	struct lock **at = &last_held;

	while (*at != lock)
		at = &(*at)->below;
	*at = lock->below;
	lock->holder = NULL;
}

void lock_init(struct lock *lock, enum lock_rank rank)
{
	pthread_mutex_init(&lock->mutex, NULL);
	lock->rank = rank;
	lock->holder = NULL;
}

void lock_destroy(struct lock *lock)
{
	pthread_mutex_destroy(&lock->mutex);
}

void lock_acquire(struct lock *lock)
{
	assert(!last_held || last_held->rank < lock->rank);
	pthread_mutex_lock(&lock->mutex);
	push(lock);
}

void lock_release(struct lock *lock)
{
	lock_assert_held(lock);
	pop(lock);
	pthread_mutex_unlock(&lock->mutex);
}

/* Another thread may set `holder` at this moment, but never to us. */
void lock_assert_held(const struct lock *lock)
{
	assert(__atomic_load_n(&lock->holder, __ATOMIC_RELAXED) == &last_held);
}

void cond_init(struct cond *cond)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&cond->cond, &attributes);
	pthread_condattr_destroy(&attributes);
}

void cond_destroy(struct cond *cond)
{
	pthread_cond_destroy(&cond->cond);
}

void cond_wake_one(struct cond *cond)
{
	pthread_cond_signal(&cond->cond);
}

void cond_wake_all(struct cond *cond)
{
	pthread_cond_broadcast(&cond->cond);
}

void cond_wait(struct cond *cond, struct lock *lock)
{
	lock_assert_held(lock);
	pop(lock);
	pthread_cond_wait(&cond->cond, &lock->mutex);
	push(lock);
}

bool cond_wait_until(struct cond *cond, struct lock *lock, uint64_t until_ms)
{
	struct timespec until = { .tv_sec = (time_t)(until_ms / 1000),
				  .tv_nsec = (long)(until_ms % 1000) * 1000000 };
	int rc;

	lock_assert_held(lock);
	pop(lock);
	rc = pthread_cond_timedwait(&cond->cond, &lock->mutex, &until);
	push(lock);
	return rc != ETIMEDOUT;
}

static void *run(void *argument)
{
	struct thread *thread = argument;

	pthread_setname_np(pthread_self(), thread->name);
	thread->run(thread->argument);
	return NULL;
}

int thread_start(struct thread *thread, const char *name, void (*function)(void *argument),
		 void *argument)
{
	*thread = (struct thread){ .name = name, .run = function, .argument = argument };
	return -pthread_create(&thread->id, NULL, run, thread);
}

void thread_join(struct thread *thread)
{
	pthread_join(thread->id, NULL);
}

void thread_interrupt(struct thread *thread, int signal)
{
	pthread_kill(thread->id, signal);
}

void thread_be_polite(void)
{
	/* Of Linux, the number 0 means the calling thread, not its process. Not 19: on a busy
	 * machine such a thread waits for a fifth of a second before each turn. */
	(void)setpriority(PRIO_PROCESS, 0, 10);
}

uint64_t clock_thread_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t clock_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t clock_now_ms(void)
{
	return clock_now_ns() / 1000000;
}

int64_t clock_date_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void clock_sleep_us(uint64_t us)
{
	struct timespec time = { .tv_sec = (time_t)(us / 1000000),
				 .tv_nsec = (long)(us % 1000000) * 1000 };

	nanosleep(&time, NULL);
}
