/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Locks, conditions, threads and the clock: all that the daemon's rooms know of them. Two
 * implementations have this interface: threads.c stands on pthreads, and the cache test links
 * tests/cache/fibers.c instead, which runs all "threads" as fibers of one thread under virtual
 * time.
 *
 * Every lock has a rank, and a thread that holds a lock may acquire only locks of a higher rank.
 * Both that and lock_assert_held() are checked at run time, in release builds, too: they cost a
 * comparison each. docs/design.md says why the order is what it is.
 */
#ifndef SHADE_THREADS_H
#define SHADE_THREADS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* --- locks -------------------------------------------------------------------------------------*/

/* In the order in which they may be acquired. */
enum lock_rank {
	LOCK_FLUSH,	 /* native: the overlay is flushed, or ends */
	LOCK_FANOTIFY,	 /* native: events are read and told */
	LOCK_HANDLE,	 /* an open file of .shade: one command at a time */
	LOCK_JOBS,	 /* the trainings below .shade/jobs, and all open files of .shade */
	LOCK_CLAIMS,	 /* which processes read for which training */
	LOCK_REPORT,	 /* one text on all samples is made at a time */
	LOCK_GROUPS,	 /* the groups of trainings below .shade/groups */
	LOCK_TRACE,	 /* who waits for accesses in .shade/trace */
	LOCK_SESSION,	 /* requests that wait for a worker */
	LOCK_NOTIFY,	 /* who tells the kernel something, and through which connection */
	LOCK_SIGNALS,	 /* requests that wait and whose callers have got a signal */
	LOCK_REPLIES,	 /* one thread at a time waits for answers about names */
	LOCK_TREE,	 /* names, and the life of nodes */
	LOCK_CACHE,	 /* what is resident, fetched, passing through; the policy core */
	LOCK_PAGE_CACHE, /* stores and drops that wait for their thread */
	LOCK_TIER,	 /* the tier: its reads, and what it has measured */
	LOCK_ENGINE,	 /* requests to the tier's servers */
	LOCK_STORE,	 /* the source: reads under way */
	LOCK_RELEASED,	 /* nodes that wait to be freed */
	LOCK_ESTATE,	 /* free blocks of the memory that outlives the daemon */
	LOCK_PREDICT,	 /* what is known of trainings that were recognised */
	LOCK_SCAN,	 /* whether the samples are to be numbered again */
	LOCK_END,	 /* whether the daemon is to end */
};

struct lock {
	pthread_mutex_t mutex;
	enum lock_rank rank;
	const void *holder; /* whoever holds it; others only compare */
	struct lock *below; /* the holder's: what it had acquired before */
};

void lock_init(struct lock *lock, enum lock_rank rank);
void lock_destroy(struct lock *lock);
void lock_acquire(struct lock *lock);
void lock_release(struct lock *lock);
/* The first line of every function whose name ends in _locked. */
void lock_assert_held(const struct lock *lock);

/* --- conditions: the lock is given up while one waits -----------------------------------------*/

struct cond {
	pthread_cond_t cond;
};

void cond_init(struct cond *cond);
void cond_destroy(struct cond *cond);
void cond_wake_one(struct cond *cond);
void cond_wake_all(struct cond *cond);
/* Both may return without having been woken. */
void cond_wait(struct cond *cond, struct lock *lock);
/* False: it is `until_ms` by clock_now_ms(). */
bool cond_wait_until(struct cond *cond, struct lock *lock, uint64_t until_ms);

/* --- threads ------------------------------------------------------------------------------------
 */

/* Stays where it is until it is joined. */
struct thread {
	pthread_t id;
	const char *name; /* what top(1) shows; at most 15 characters */
	void (*run)(void *argument);
	void *argument;
};

/* 0 or a negative errno. */
int thread_start(struct thread *thread, const char *name, void (*run)(void *argument),
		 void *argument);
void thread_join(struct thread *thread);
/* Ends a system call of the thread, if it is in one that signals end. */
void thread_interrupt(struct thread *thread, int signal);

/* From now on the calling thread gets a tenth of what others get of a busy processor. */
void thread_be_polite(void);

/* --- the clock: monotonic, so that setting the time of day delays nothing ----------------------*/

uint64_t clock_now_ms(void);
uint64_t clock_now_ns(void);
void clock_sleep_us(uint64_t us);
/* The processor time of the calling thread. */
uint64_t clock_thread_ns(void);
/* The time of day, by which file systems date their files: to compare with those, not to wait. */
int64_t clock_date_ms(void);

#endif
