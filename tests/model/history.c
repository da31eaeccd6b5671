/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What each path has been at the source, and whether what was read can be right.
 *
 * A change is told before its first system call and after its last, so each state has a time from
 * which the source may have had it and one after which it did not. An open is right
 *
 * - if it gave all bytes of one state that the source had during the open or, at most, `staleness`
 *   (and a minute, for a busy machine) before it;
 * - or an error. ENOENT is right only if the path was absent within that time;
 * - if the file was written in place at that time, it may also have given something else: the
 * writer is not atomic, so the source had, and a plain read() of it gives, mixtures of the state
 * before and the one after. Even then every whole block must be one that the path had at that time.
 * Such an open proves nothing by itself; look_settled() sees what follows, once the writer is done.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

/* A mixture may be read for some seconds after the write: the mount cannot tell at once that the
 * writer is done, and machines are busy. look_settled() is strict about what comes then. */
#define BLUR_NS (15 * SECOND)

struct path *paths;
_Atomic unsigned path_written, writes_begun, suspicions;
static _Atomic uint64_t last_edition;

uint64_t new_edition(void)
{
	return atomic_fetch_add(&last_edition, 1) + 1;
}

/* Forgets what nobody may see any more. */
static void prune_locked(struct path *path)
{
	uint64_t old_ns = now_ns() - 2 * (options.staleness_ns + LATE_NS);
	size_t gone = 0;

	while (gone + 1 < path->count && path->states[gone].until_ns < old_ns)
		gone++;
	path->count -= gone;
	if (gone)
		memmove(path->states, path->states + gone, path->count * sizeof(*path->states));
}

void history_begin(struct path *path, enum kind kind, uint64_t edition, uint64_t size)
{
	pthread_mutex_lock(&path->lock);
	if (path->count == path->room)
		prune_locked(path);
	if (path->count == path->room) {
		path->room = path->room ? 2 * path->room : 64;
		path->states = realloc(path->states, path->room * sizeof(*path->states));
		if (!path->states)
			fail("no memory for the history of %s", path->name);
	}
	path->states[path->count++] = (struct state){ kind, edition, size, now_ns(), UINT64_MAX };
	pthread_mutex_unlock(&path->lock);
}

void history_end(struct path *path)
{
	uint64_t now = now_ns();

	pthread_mutex_lock(&path->lock);
	for (size_t i = 0; i + 1 < path->count; i++)
		if (path->states[i].until_ns == UINT64_MAX)
			path->states[i].until_ns = now;
	pthread_mutex_unlock(&path->lock);
}

struct state history_present(struct path *path)
{
	struct state state;

	pthread_mutex_lock(&path->lock);
	state = path->states[path->count - 1];
	pthread_mutex_unlock(&path->lock);
	return state;
}

/* --- reports -----------------------------------------------------------------------------------
 */

static void print_state(const struct state *state, uint64_t now)
{
	static const char *const names[] = { "absent", "whole", "being written" };

	fprintf(stderr, "  %s: edition %llu, %llu bytes, from %.3f s ago", names[state->kind],
		(unsigned long long)state->edition, (unsigned long long)state->size,
		(double)(now - state->from_ns) / 1e9);
	if (state->until_ns == UINT64_MAX)
		fprintf(stderr, " on\n");
	else
		fprintf(stderr, " to %.3f s ago\n", (double)(now - state->until_ns) / 1e9);
}

__attribute__((noreturn)) static void fail_locked(const struct path *path, const struct look *look,
						  const char *what)
{
	size_t first = path->count > 20 ? path->count - 20 : 0;
	char text[512];

	fprintf(stderr, "%s was, as far as it matters, and the open began %.3f s ago:\n",
		path->name, (double)(look->ended_ns - look->began_ns) / 1e9);
	for (size_t i = first; i < path->count; i++)
		print_state(&path->states[i], look->ended_ns);
	fail("%s: %s: %s", path->name, what,
	     look->error ? strerror(look->error) : content_describe(look->data, look->size, text));
}

/* --- the judgement -----------------------------------------------------------------------------
 */

static bool was_seen(const struct state *state, const struct look *look, uint64_t before_ns)
{
	uint64_t back = options.staleness_ns + before_ns;
	uint64_t from = look->began_ns > back ? look->began_ns - back : 0;

	return state->until_ns >= from && state->from_ns <= look->ended_ns;
}

static bool is_exact_locked(const struct path *path, const struct look *look)
{
	for (size_t i = path->count; i-- > 0;) {
		const struct state *state = &path->states[i];

		if (state->kind == WHOLE && state->size == look->size &&
		    was_seen(state, look, LATE_NS) &&
		    content_is(look->data, look->size, state->edition))
			return true;
	}
	return false;
}

/* Whether the path was ever of this kind at the time of the look. */
static bool was_locked(const struct path *path, const struct look *look, enum kind kind,
		       uint64_t before_ns)
{
	for (size_t i = 0; i < path->count; i++)
		if (path->states[i].kind == kind && was_seen(&path->states[i], look, before_ns))
			return true;
	return false;
}

static bool had_edition_locked(const struct path *path, const struct look *look, uint64_t edition)
{
	for (size_t i = path->count; i-- > 0;)
		if (path->states[i].kind != ABSENT && path->states[i].edition == edition &&
		    was_seen(&path->states[i], look, LATE_NS))
			return true;
	return false;
}

/* A torn block is right while it is being written, but one of another file, or of long ago, is
 * not. */
static void judge_mixture_locked(const struct path *path, const struct look *look)
{
	uint64_t known = 0;

	for (uint64_t i = 0; i < look->size / BLOCK; i++) {
		uint64_t edition = content_edition(look->data, i);

		if (!edition || edition == known)
			continue;
		if (!had_edition_locked(path, look, edition))
			fail_locked(path, look, "while it was written, a block that it never had");
		known = edition;
	}
}

static bool judge_data_locked(const struct path *path, const struct look *look)
{
	bool blurred = was_locked(path, look, WRITTEN, BLUR_NS);

	if (is_exact_locked(path, look)) {
		if (look->stat_size != look->size && !blurred)
			fail_locked(path, look, "fstat() said another size");
		count(OPENS_EXACT);
		return !blurred;
	}
	if (!blurred)
		fail_locked(path, look, "what was read never was at the source");
	judge_mixture_locked(path, look);
	count(OPENS_DURING);
	return false;
}

static void judge_error_locked(const struct path *path, const struct look *look)
{
	if (look->error == ENOENT && !was_locked(path, look, ABSENT, LATE_NS))
		fail_locked(path, look, "it was there all the time");
	if (look->error != ENOENT && look->error != ESTALE && look->error != EIO &&
	    look->error != ETIMEDOUT)
		fail_locked(path, look, "an error that nothing explains");
	count(look->error == ENOENT ? OPENS_ABSENT : OPENS_FAILED);
}

bool history_judge(struct path *path, const struct look *look)
{
	bool strict = false;

	pthread_mutex_lock(&path->lock);
	if (look->error)
		judge_error_locked(path, look);
	else
		strict = judge_data_locked(path, look);
	pthread_mutex_unlock(&path->lock);
	return strict;
}

void history_fail(struct path *path, const struct look *look, const char *what)
{
	pthread_mutex_lock(&path->lock);
	fail_locked(path, look, what);
}
