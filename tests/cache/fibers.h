/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Fibers: "threads" that take turns on one real thread under virtual time, so that a run depends on
 * its seed alone. fibers.c implements fs/base/threads.h with them; what is here is for the test.
 *
 * A fiber gives its turn away wherever a real thread might lose the processor: before it acquires a
 * lock, after it released one, where it waits. Who goes on is drawn. Time passes by a microsecond a
 * turn, and jumps to the next sleeper when nobody can go on.
 */
#ifndef SHADE_TEST_FIBERS_H
#define SHADE_TEST_FIBERS_H

#include <stdbool.h>
#include <stdint.h>

/* Called after every turn. */
typedef void fibers_check(void);

/* Runs `first` as the first fiber until all have ended. */
void fibers_run(uint64_t seed, void (*first)(void *argument), void *argument, fibers_check *check);
/* Turns so far, of all runs. */
uint64_t fibers_turns(void);

/* A number below `below`, drawn. */
uint32_t draw(uint32_t below);
/* True once in so many times. */
bool one_in(uint32_t times);

/* Starts a fiber that nobody joins. */
void fiber_start(const char *name, void (*run)(void *argument), void *argument);
/* Lets others go on. */
void fiber_yield(void);
void fiber_sleep_ms(uint64_t ms);
/* Waits until fiber_wake() is called for the same key. `what` is for the report of a deadlock. */
void fiber_wait(const void *key, const char *what);
void fiber_wake(const void *key);
/* Prints who waits for what, the seed, and aborts. */
__attribute__((noreturn, format(printf, 1, 2))) void fail_run(const char *format, ...);
/* What fail_run() tells besides: how to replay. */
extern const char *fibers_replay;

#endif
