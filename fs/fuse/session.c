/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "fuse/session.h"
#include "base/threads.h"

#include <errno.h>
#include <linux/fuse.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

#define PATIENCE_MS 1000 /* with workers, at the end */

/* A request that waits for a worker. */
struct job {
	struct job *next;
	struct fuse_buf buffer;
	char data[];
};

struct channel {
	struct channel_options options;
	struct fuse_session *session;
	struct thread thread;
	_Atomic bool running, stopping;
	bool stopped; /* whose end it is: the thread was joined */
	struct thread *workers;
	unsigned worker_count; /* the thread's alone, but at the end */

	struct lock lock;
	struct cond changed;
	struct job *first, **end; /* lock */
	unsigned waiting;	  /* lock: jobs */
	unsigned idle;		  /* lock: workers */
	bool closing;		  /* lock */
};

static _Thread_local bool is_prompt;

bool channel_is_prompt(void)
{
	return is_prompt;
}

static void work(void *argument)
{
	struct channel *channel = argument;

	lock_acquire(&channel->lock);
	while (channel->first || !channel->closing) {
		struct job *job = channel->first;

		if (!job) {
			channel->idle++;
			cond_wait(&channel->changed, &channel->lock);
			channel->idle--;
			continue;
		}
		channel->waiting--;
		channel->first = job->next;
		if (!channel->first)
			channel->end = &channel->first;
		lock_release(&channel->lock);
		fuse_session_process_buf(channel->session, &job->buffer);
		free(job);
		lock_acquire(&channel->lock);
	}
	lock_release(&channel->lock);
}

static void start_worker(struct channel *channel)
{
	if (channel->worker_count < channel->options.workers &&
	    !thread_start(&channel->workers[channel->worker_count], "shade-worker", work, channel))
		channel->worker_count++;
}

/* The number of those that can be here at once is the kernel's callers': each waits for
 * its own. */
static int pass_on(struct channel *channel, const struct fuse_buf *buffer, size_t size)
{
	struct job *job = malloc(sizeof(*job) + size);
	bool all_busy;

	if (!job)
		return -ENOMEM;
	*job = (struct job){ .buffer = *buffer };
	memcpy(job->data, buffer->mem, size);
	job->buffer.mem = job->data;
	lock_acquire(&channel->lock);
	*channel->end = job;
	channel->end = &job->next;
	all_busy = ++channel->waiting > channel->idle;
	cond_wake_one(&channel->changed);
	lock_release(&channel->lock);
	if (all_busy)
		start_worker(channel);
	return 0;
}

/* By a handle that somebody has kept: the node may be long gone, so nobody may look at it. */
static bool is_by_handle(const struct fuse_in_header *head, size_t size)
{
	const char *name = (const char *)(head + 1);

	return head->opcode == FUSE_LOOKUP && size >= sizeof(*head) + 2 && name[0] == '.' &&
	       (!name[1] || (name[1] == '.' && size >= sizeof(*head) + 3 && !name[2]));
}

static void handle(struct channel *channel, const struct fuse_buf *buffer, size_t size)
{
	const struct fuse_in_header *head = buffer->mem;

	/* Without memory for a copy it is handled here: slow, but handled. */
	if (is_by_handle(head, size) ||
	    !channel->options.may_wait(channel->options.context, head->opcode, head->nodeid) ||
	    pass_on(channel, buffer, size))
		fuse_session_process_buf(channel->session, buffer);
}

static void serve(void *argument)
{
	struct channel *channel = argument;
	struct fuse_buf buffer = { .mem = NULL };

	is_prompt = true;
	while (!fuse_session_exited(channel->session)) {
		int rc = fuse_session_receive_buf(channel->session, &buffer);

		if (rc == -EINTR || rc == -EAGAIN)
			continue;
		if (rc <= 0)
			break;
		handle(channel, &buffer, (size_t)rc);
	}
	atomic_store(&channel->running, false);
	free(buffer.mem);
	if (!atomic_load(&channel->stopping))
		channel->options.ended(channel->options.context);
}

/* --- begin and end -----------------------------------------------------------------------------
 */

/* Commas would end the name and backslashes begin an escape, so they are left out of it. */
static int make_session(struct channel *channel)
{
	const struct channel_options *o = &channel->options;
	char program[] = "shadefs", flag[] = "-o", *text = NULL;
	char *argv[] = { program, flag, NULL, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(3, argv);
	char *name = strdup(o->source);

	for (char *at = name; at && *at; at++)
		if (*at == ',' || *at == '\\')
			*at = '_';
	if (!name ||
	    asprintf(&text, "default_permissions,subtype=shadefs,fsname=%s%s%s", name,
		     o->allow_other ? ",allow_other" : "", o->noexec ? ",noexec" : "") < 0) {
		free(name);
		return -ENOMEM;
	}
	argv[2] = text;
	channel->session = fuse_session_new(&args, o->ops, sizeof(*o->ops), o->context);
	fuse_opt_free_args(&args);
	free(text);
	free(name);
	return channel->session ? 0 : -ENOMEM;
}

static void stop_serving(struct channel *channel)
{
	struct timespec moment = { .tv_nsec = 1000000 };

	if (channel->stopped)
		return;
	channel->stopped = true;
	atomic_store(&channel->stopping, true);
	fuse_session_exit(channel->session);
	/* A signal that comes just before the read begins is lost: so, again. */
	while (atomic_load(&channel->running)) {
		thread_interrupt(&channel->thread, SIGUSR1);
		nanosleep(&moment, NULL);
	}
	thread_join(&channel->thread);
}

static bool is_busy(struct channel *channel)
{
	bool busy;

	lock_acquire(&channel->lock);
	busy = channel->first || channel->idle < channel->worker_count;
	lock_release(&channel->lock);
	return busy;
}

bool channel_stop(struct channel *channel)
{
	struct timespec moment = { .tv_nsec = 1000000 };

	stop_serving(channel);
	for (int ms = 0; ms < PATIENCE_MS && is_busy(channel); ms++)
		nanosleep(&moment, NULL);
	return !is_busy(channel);
}

void channel_detach(const char *mount_point)
{
	const char *arguments[] = { "fusermount3", "-uzq", "--", mount_point, NULL };
	pid_t child;

	/* Not root: there is a program for that. */
	if (umount2(mount_point, MNT_DETACH) && errno == EPERM &&
	    !posix_spawnp(&child, arguments[0], NULL, NULL, (char *const *)arguments, environ))
		waitpid(child, NULL, 0);
}

/* A worker may wait for a source that hangs. Who uses the mount does not wait for it; for how long
 * the daemon does, main.c says. */
static void stop_workers(struct channel *channel)
{
	if (is_busy(channel))
		channel_detach(channel->options.mount_point);
	lock_acquire(&channel->lock);
	channel->closing = true;
	cond_wake_all(&channel->changed);
	lock_release(&channel->lock);
	while (channel->worker_count)
		thread_join(&channel->workers[--channel->worker_count]);
}

static void release(struct channel *channel)
{
	if (channel->session)
		fuse_session_destroy(channel->session);
	lock_destroy(&channel->lock);
	cond_destroy(&channel->changed);
	free(channel->workers);
	free(channel);
}

void channel_close(struct channel *channel)
{
	(void)channel_stop(channel);
	stop_workers(channel);
	fuse_session_unmount(channel->session);
	release(channel);
}

struct fuse_session *channel_session(struct channel *channel)
{
	return channel->session;
}

static int start(struct channel *channel)
{
	int rc;

	channel->workers = calloc(channel->options.workers, sizeof(*channel->workers));
	if (!channel->workers)
		return -ENOMEM;
	rc = make_session(channel);
	if (rc)
		return rc;
	errno = 0;
	if (fuse_session_mount(channel->session, channel->options.mount_point))
		return errno ? -errno : -EIO;
	atomic_store(&channel->running, true);
	start_worker(channel);
	rc = channel->worker_count
		     ? thread_start(&channel->thread, "shade-requests", serve, channel)
		     : -EAGAIN;
	if (rc) {
		stop_workers(channel);
		fuse_session_unmount(channel->session);
	}
	return rc;
}

int channel_open(struct channel **out, const struct channel_options *options)
{
	struct channel *channel = calloc(1, sizeof(*channel));
	int rc;

	if (!channel)
		return -ENOMEM;
	channel->options = *options;
	channel->end = &channel->first;
	lock_init(&channel->lock, LOCK_SESSION);
	cond_init(&channel->changed);
	*out = channel; /* requests may come before start() returns */
	rc = start(channel);
	if (rc) {
		*out = NULL;
		release(channel);
	}
	return rc;
}
