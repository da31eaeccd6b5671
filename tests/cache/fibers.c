/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "fibers.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "base/threads.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#define STACK_BYTES ((size_t)256 * 1024)
#define FIBERS_MAX 64
#define TURN_NS 1000

enum state { RUNNABLE, SLEEPING, WAITING, ENDED };

struct fiber {
	ucontext_t context;
	void *stack;
	const char *name;
	void (*run)(void *argument);
	void *argument;
	uint64_t until_ns; /* SLEEPING, or WAITING with an end; UINT64_MAX: without */
	const void *key;   /* WAITING */
	const char *what;  /* WAITING: for reports */
	struct lock *held; /* the last lock that it acquired; see struct lock */
	enum state state;
	bool timed_out;
};

static struct fiber fibers[FIBERS_MAX];
static unsigned fiber_count;
static struct fiber *self;
static ucontext_t scheduler;
static uint64_t now_ns, random_state, turns;
static uint64_t seed_of_run;
static fibers_check *check_step;
const char *fibers_replay = "";

/* --- drawing ------------------------------------------------------------------------------------
 */

static uint64_t draw_64(void)
{
	uint64_t z = random_state += 0x9e3779b97f4a7c15u; /* splitmix64 */

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

uint32_t draw(uint32_t below)
{
	assert(below);
	return (uint32_t)(draw_64() >> 32) % below;
}

bool one_in(uint32_t times)
{
	return draw(times) == 0;
}

/* --- reports ------------------------------------------------------------------------------------
 */

void fail_run(const char *format, ...)
{
	va_list args;

	fflush(stdout);
	fprintf(stderr, "FAILED: ");
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\nat %.3f ms, in %s\n", (double)now_ns / 1e6, self ? self->name : "check");
	for (unsigned i = 0; i < fiber_count; i++)
		if (fibers[i].state == WAITING)
			fprintf(stderr, "  %s waits for %s\n", fibers[i].name, fibers[i].what);
		else if (fibers[i].state != ENDED)
			fprintf(stderr, "  %s %s\n", fibers[i].name,
				fibers[i].state == SLEEPING ? "sleeps" : "can go on");
	fprintf(stderr, "replay: %s %llu\n", fibers_replay, (unsigned long long)seed_of_run);
	abort();
}

/* --- switching ----------------------------------------------------------------------------------
 */

#ifdef __SANITIZE_ADDRESS__
static const void *scheduler_stack;
static size_t scheduler_stack_bytes;
#endif

static void switch_to_scheduler(void)
{
#ifdef __SANITIZE_ADDRESS__
	void *fake = NULL;

	__sanitizer_start_switch_fiber(self->state == ENDED ? NULL : &fake, scheduler_stack,
				       scheduler_stack_bytes);
#endif
	swapcontext(&self->context, &scheduler);
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_finish_switch_fiber(fake, &scheduler_stack, &scheduler_stack_bytes);
#endif
}

static void begin_fiber(void)
{
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_finish_switch_fiber(NULL, &scheduler_stack, &scheduler_stack_bytes);
#endif
	self->run(self->argument);
	assert(!self->held);
	self->state = ENDED;
	fiber_wake(self);
	switch_to_scheduler();
	abort();
}

static void switch_to(struct fiber *fiber)
{
#ifdef __SANITIZE_ADDRESS__
	void *fake = NULL;

	__sanitizer_start_switch_fiber(&fake, fiber->stack, STACK_BYTES);
#endif
	self = fiber;
	swapcontext(&scheduler, &fiber->context);
	self = NULL;
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_finish_switch_fiber(fake, NULL, NULL);
#endif
}

/* Those whose time has come can go on. Returns how many can, and when the next will. */
static unsigned wake_sleepers(struct fiber **ready, uint64_t *next_ns)
{
	unsigned count = 0;

	*next_ns = UINT64_MAX;
	for (unsigned i = 0; i < fiber_count; i++) {
		struct fiber *fiber = &fibers[i];

		if ((fiber->state == SLEEPING || fiber->state == WAITING) &&
		    fiber->until_ns <= now_ns) {
			fiber->timed_out = fiber->state == WAITING;
			fiber->state = RUNNABLE;
		}
		if (fiber->state == RUNNABLE)
			ready[count++] = fiber;
		else if (fiber->state != ENDED && fiber->until_ns < *next_ns)
			*next_ns = fiber->until_ns;
	}
	return count;
}

static bool all_ended(void)
{
	for (unsigned i = 0; i < fiber_count; i++)
		if (fibers[i].state != ENDED)
			return false;
	return true;
}

static struct fiber *choose(void)
{
	struct fiber *ready[FIBERS_MAX];
	uint64_t next_ns;
	unsigned count = wake_sleepers(ready, &next_ns);

	if (!count) {
		if (next_ns == UINT64_MAX)
			fail_run("everybody waits, and nobody will end it");
		now_ns = next_ns;
		count = wake_sleepers(ready, &next_ns);
	}
	return ready[draw(count)];
}

static void make_context(ucontext_t *context, void *stack)
{
	getcontext(context);
	context->uc_stack.ss_sp = stack;
	context->uc_stack.ss_size = STACK_BYTES;
	makecontext(context, begin_fiber, 0);
}

static struct fiber *new_fiber(const char *name, void (*run)(void *argument), void *argument)
{
	struct fiber *fiber = NULL;
	void *stack;

	for (unsigned i = 0; i < fiber_count && !fiber; i++)
		if (fibers[i].state == ENDED && !fibers[i].name)
			fiber = &fibers[i];
	if (!fiber) {
		if (fiber_count == FIBERS_MAX)
			fail_run("more than %d fibers", FIBERS_MAX);
		fiber = &fibers[fiber_count++];
	}
	stack = fiber->stack ? fiber->stack : malloc(STACK_BYTES);
	*fiber = (struct fiber){ .stack = stack, .name = name, .run = run, .argument = argument };
	make_context(&fiber->context, stack);
	return fiber;
}

void fibers_run(uint64_t seed, void (*first)(void *argument), void *argument, fibers_check *check)
{
	seed_of_run = seed;
	random_state = seed;
	random_state = draw_64(); /* seeds that follow each other share nothing */
	now_ns = 1000000000;
	check_step = check;
	for (unsigned i = 0; i < fiber_count; i++) {
		fibers[i].state = ENDED;
		fibers[i].name = NULL;
	}
	(void)new_fiber("main", first, argument);
	while (!all_ended()) {
		switch_to(choose());
		now_ns += TURN_NS;
		turns++;
		if (check_step)
			check_step();
	}
}

uint64_t fibers_turns(void)
{
	return turns;
}

/* --- for the test -------------------------------------------------------------------------------
 */

void fiber_yield(void)
{
	switch_to_scheduler();
}

static void sleep_until(uint64_t until_ns)
{
	self->state = SLEEPING;
	self->until_ns = until_ns;
	switch_to_scheduler();
}

void fiber_sleep_ms(uint64_t ms)
{
	sleep_until(now_ns + ms * 1000000);
}

static bool wait_for(const void *key, const char *what, uint64_t until_ns)
{
	self->state = WAITING;
	self->key = key;
	self->what = what;
	self->until_ns = until_ns;
	self->timed_out = false;
	switch_to_scheduler();
	return !self->timed_out;
}

void fiber_wait(const void *key, const char *what)
{
	(void)wait_for(key, what, UINT64_MAX);
}

static void wake(struct fiber *fiber)
{
	fiber->state = RUNNABLE;
	fiber->until_ns = UINT64_MAX;
}

void fiber_wake(const void *key)
{
	for (unsigned i = 0; i < fiber_count; i++)
		if (fibers[i].state == WAITING && fibers[i].key == key)
			wake(&fibers[i]);
}

void fiber_start(const char *name, void (*run)(void *argument), void *argument)
{
	(void)new_fiber(name, run, argument);
}

/* --- fs/base/threads.h: locks -------------------------------------------------------------------
 */

void lock_init(struct lock *lock, enum lock_rank rank)
{
	*lock = (struct lock){ .rank = rank };
}

void lock_destroy(struct lock *lock)
{
	if (lock->holder)
		fail_run("a lock that is held is destroyed");
}

static void take(struct lock *lock)
{
	while (lock->holder)
		fiber_wait(lock, "a lock");
	lock->holder = self;
	lock->below = self->held;
	self->held = lock;
}

static void give(struct lock *lock)
{
	struct lock **at = &self->held;

	lock_assert_held(lock);
	while (*at != lock)
		at = &(*at)->below;
	*at = lock->below;
	lock->holder = NULL;
	fiber_wake(lock);
}

void lock_acquire(struct lock *lock)
{
	if (self->held && self->held->rank >= lock->rank)
		fail_run("a lock of rank %d is acquired after one of rank %d", lock->rank,
			 self->held->rank);
	fiber_yield();
	take(lock);
}

void lock_release(struct lock *lock)
{
	give(lock);
	if (!self->held)
		fiber_yield();
}

void lock_assert_held(const struct lock *lock)
{
	if (lock->holder != self)
		fail_run("a lock of rank %d is not held", lock->rank);
}

/* --- conditions ---------------------------------------------------------------------------------
 */

void cond_init(struct cond *cond)
{
	(void)cond;
}

void cond_destroy(struct cond *cond)
{
	(void)cond;
}

/* As with pthreads, somebody may be woken who need not be. */
void cond_wake_one(struct cond *cond)
{
	struct fiber *waiting[FIBERS_MAX];
	unsigned count = 0;

	for (unsigned i = 0; i < fiber_count; i++)
		if (fibers[i].state == WAITING && fibers[i].key == cond)
			waiting[count++] = &fibers[i];
	if (count)
		wake(waiting[draw(count)]);
	if (one_in(50))
		fiber_wake(cond);
}

void cond_wake_all(struct cond *cond)
{
	fiber_wake(cond);
}

static bool wait_on(struct cond *cond, struct lock *lock, uint64_t until_ns)
{
	bool on_time;

	give(lock);
	on_time = wait_for(cond, "a condition", until_ns);
	take(lock);
	return on_time;
}

void cond_wait(struct cond *cond, struct lock *lock)
{
	(void)wait_on(cond, lock, UINT64_MAX);
}

bool cond_wait_until(struct cond *cond, struct lock *lock, uint64_t until_ms)
{
	return wait_on(cond, lock, until_ms * 1000000);
}

/* --- threads and the clock ----------------------------------------------------------------------
 */

static_assert(sizeof(pthread_t) >= sizeof(struct fiber *), "a thread's id has room for a fiber");

int thread_start(struct thread *thread, const char *name, void (*run)(void *argument),
		 void *argument)
{
	struct fiber *fiber = new_fiber(name, run, argument);

	*thread = (struct thread){ .name = name, .run = run, .argument = argument };
	memcpy(&thread->id, &fiber, sizeof(fiber));
	return 0;
}

void thread_join(struct thread *thread)
{
	struct fiber *fiber;

	memcpy(&fiber, &thread->id, sizeof(fiber));
	while (fiber->state != ENDED)
		fiber_wait(fiber, "the end of a thread");
}

void thread_interrupt(struct thread *thread, int signal)
{
	(void)thread, (void)signal;
}

uint64_t clock_now_ns(void)
{
	return now_ns;
}

uint64_t clock_now_ms(void)
{
	return now_ns / 1000000;
}

int64_t clock_date_ms(void)
{
	return (int64_t)clock_now_ms();
}

void clock_sleep_us(uint64_t us)
{
	sleep_until(now_ns + us * 1000);
}
