/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Callers that get a signal while their request waits.
 *
 * The kernel sends an INTERRUPT for any signal, and whatever error is the answer to it comes out of
 * the system call: SA_RESTART restarts nothing. So a request is given up only if its caller is
 * being killed and does not come back from the system call. Otherwise it waits on, as it would on a
 * disk.
 *
 * /proc tells which signals a thread has pending, and which of them will end it. The kernel sends
 * one INTERRUPT for a request, so a caller that has got one is looked at again now and then: it may
 * be killed later. A caller that cannot be seen in /proc, for example in a PID namespace that is
 * not below the daemon's, waits until it is answered; the deadline bounds that.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "fuse/internal.h"

#define POLLED_AT_A_TIME 512

/* A request whose caller has got a signal and is not being killed. */
struct signalled {
	struct signalled *next;
	fuse_req_t req;
	uint64_t serial;
	pid_t thread;
};

/* --- is it being killed? ------------------------------------------------------------------------
 */

static uint64_t bit(int signal)
{
	return (uint64_t)1 << (signal - 1);
}

/* Those that do not end a process which has no handler for them. */
static uint64_t harmless(void)
{
	return bit(SIGCHLD) | bit(SIGCONT) | bit(SIGURG) | bit(SIGWINCH) | bit(SIGSTOP) |
	       bit(SIGTSTP) | bit(SIGTTIN) | bit(SIGTTOU);
}

/* A line of /proc/PID/status; 0: there is none. */
static uint64_t get_set(const char *status, const char *name)
{
	const char *at = strstr(status, name);

	return at ? strtoull(at + strlen(name), NULL, 16) : 0;
}

/* A thread that gets a deadly signal, or whose process ends, has SIGKILL pending at once; signals
 * that dump core stay what they are. */
static bool is_deadly(const char *status)
{
	uint64_t pending = get_set(status, "\nSigPnd:") | get_set(status, "\nShdPnd:");
	uint64_t survived = get_set(status, "\nSigBlk:") | get_set(status, "\nSigIgn:") |
			    get_set(status, "\nSigCgt:") | harmless();

	return pending & ~survived;
}

static bool is_dying(pid_t thread)
{
	char status[PROCESS_TEXT];

	return !process_read(thread, "status", status) && is_deadly(status);
}

/* --- requests -----------------------------------------------------------------------------------
 */

static struct signalled *take_first(struct files *files)
{
	struct signalled *first;

	lock_acquire(&files->signals_lock);
	first = files->signalled;
	if (first) {
		files->signalled = first->next;
		files->signalled_count--;
	}
	if (!files->signalled)
		files->signalled_end = &files->signalled;
	lock_release(&files->signals_lock);
	return first;
}

static void put_last(struct files *files, struct signalled *entry)
{
	entry->next = NULL;
	lock_acquire(&files->signals_lock);
	*files->signalled_end = entry;
	files->signalled_end = &entry->next;
	files->signalled_count++;
	lock_release(&files->signals_lock);
}

/* Without memory the request waits until it is answered. */
static void watch(struct files *files, const struct search *search, pid_t thread)
{
	struct signalled *entry = malloc(sizeof(*entry));

	if (!entry)
		return;
	*entry = (struct signalled){ .req = search->req,
				     .serial = search->serial,
				     .thread = thread };
	put_last(files, entry);
}

void signals_interrupted(fuse_req_t req, void *context)
{
	struct files *files = context;
	pid_t thread = fuse_req_ctx(req)->pid;
	struct search search = { .req = req, .take = is_dying(thread) };

	files_search(files, &search); /* if it is not found, somebody is about to answer it */
	if (search.found && !search.take)
		watch(files, &search, thread);
}

/* True: it waits on. */
static bool waits_on(struct files *files, const struct signalled *entry)
{
	struct search search = { .req = entry->req,
				 .serial = entry->serial,
				 .take = is_dying(entry->thread) };

	files_search(files, &search);
	return search.found && !search.take;
}

/* A part of them at a time: the thread that calls this has other things to do. */
void signals_poll(struct files *files)
{
	struct signalled *entry;
	unsigned left;

	lock_acquire(&files->signals_lock);
	left = files->signalled_count;
	lock_release(&files->signals_lock);
	left = left < POLLED_AT_A_TIME ? left : POLLED_AT_A_TIME;
	for (; left && (entry = take_first(files)); left--)
		if (waits_on(files, entry))
			put_last(files, entry);
		else
			free(entry);
}

void signals_free(struct files *files)
{
	for (struct signalled *next; files->signalled; files->signalled = next) {
		next = files->signalled->next;
		free(files->signalled);
	}
}
