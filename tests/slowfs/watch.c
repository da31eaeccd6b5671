/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * libfuse joins all its threads when a session ends, so a request that hangs, or sleeps
 * for long, would keep the program alive for ever. This thread ends such waits as soon as
 *   - a signal asks for the end,
 *   - the connection was aborted (umount -f), or
 *   - the mount was detached (umount -l) while somebody still reads from it.
 * In the first case it also gets the main thread out of libfuse's loop, which sleeps on a
 * semaphore that only a signal handler interrupts.
 */
#include "watch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "mountinfo.h"
#include "ops.h"
#include "pace.h"
#include "rule.h"

/* To be told of an abort at once, the thread would be woken by each request as well. */
#define ABORT_CHECK_MS 200
#define KICK_MS 10

enum { POLL_SIGNAL, POLL_STOP, POLL_MOUNTS, POLL_COUNT };

struct watch {
	struct fuse_session *session;
	const char *mountpoint;
	pthread_t thread, main_thread;
	int ready_fd, signal_fd, stop_fd, mounts_fd;
	char device[32]; /* of the mount, as mountinfo writes it */
	bool answered;	 /* read after the thread was joined */
};

static void end_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGHUP);
}

void watch_block_signals(void)
{
	sigset_t set;

	end_signals(&set);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static void end_waits(void)
{
	rule_close();
	pace_close();
}

/* Notes the mount's device without asking the mount, and then asks it whether it answers. */
static bool find_mount(struct watch *watch)
{
	struct statx st;
	struct statfs fs;

	if (statx(AT_FDCWD, watch->mountpoint, AT_STATX_DONT_SYNC, STATX_TYPE, &st) ||
	    statfs(watch->mountpoint, &fs)) {
		fprintf(stderr, "slowfs: the mount at %s does not answer: %s\n", watch->mountpoint,
			strerror(errno));
		return false;
	}
	snprintf(watch->device, sizeof(watch->device), "%u:%u", st.stx_dev_major, st.stx_dev_minor);
	return true;
}

/* A daemon has nothing to say to the terminal any more. */
static void tell_ready(struct watch *watch)
{
	int null_fd;

	if (watch->ready_fd < 0)
		return;
	if (write(watch->ready_fd, "", 1) != 1)
		fprintf(stderr, "slowfs: nobody waits for the mount: %s\n", strerror(errno));
	close(watch->ready_fd);
	null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int fd = 0; null_fd >= 0 && fd <= 2; fd++)
		dup2(null_fd, fd);
	if (null_fd > 2)
		close(null_fd);
}

static bool is_mounted(const struct watch *watch)
{
	struct mountinfo info;
	bool found = false;

	if (mountinfo_open(&info))
		return true;
	while (!found && mountinfo_next(&info) > 0)
		found = !strcmp(info.device, watch->device);
	mountinfo_close(&info);
	return found;
}

static bool is_aborted(const struct watch *watch)
{
	struct pollfd fd = { .fd = fuse_session_fd(watch->session) };

	return poll(&fd, 1, 0) == 1 && (fd.revents & POLLERR);
}

/* Until watch_stop(): a single signal could come just before the main thread sleeps. */
static void kick_main(struct watch *watch)
{
	struct pollfd stop = { .fd = watch->stop_fd, .events = POLLIN };

	end_waits();
	fuse_session_exit(watch->session);
	do
		pthread_kill(watch->main_thread, SIGUSR1);
	while (poll(&stop, 1, KICK_MS) <= 0);
}

static void *run(void *argument)
{
	struct watch *watch = argument;
	struct pollfd fds[POLL_COUNT] = {
		[POLL_SIGNAL] = { .fd = watch->signal_fd, .events = POLLIN },
		[POLL_STOP] = { .fd = watch->stop_fd, .events = POLLIN },
		[POLL_MOUNTS] = { .fd = watch->mounts_fd, .events = POLLPRI },
	};

	watch->answered = find_mount(watch);
	if (!watch->answered) {
		kick_main(watch);
		return NULL;
	}
	tell_ready(watch);
	for (;;) {
		poll(fds, POLL_COUNT, ABORT_CHECK_MS);
		if (fds[POLL_STOP].revents)
			return NULL;
		if (fds[POLL_SIGNAL].revents) {
			kick_main(watch);
			return NULL;
		}
		if (is_aborted(watch) || (fds[POLL_MOUNTS].revents && !is_mounted(watch)))
			end_waits();
	}
}

static void on_kick(int signal)
{
	(void)signal;
}

static void watch_free(struct watch *watch)
{
	if (watch->signal_fd >= 0)
		close(watch->signal_fd);
	if (watch->stop_fd >= 0)
		close(watch->stop_fd);
	if (watch->mounts_fd >= 0)
		close(watch->mounts_fd);
	free(watch);
}

struct watch *watch_start(struct fuse_session *session, const char *mountpoint, int ready_fd)
{
	struct sigaction kick = { .sa_handler = on_kick }; /* no SA_RESTART */
	struct watch *watch = calloc(1, sizeof(*watch));
	sigset_t set;
	int ret = ENOMEM;

	if (!watch)
		goto fail;
	end_signals(&set);
	watch->session = session;
	watch->mountpoint = mountpoint;
	watch->main_thread = pthread_self();
	watch->ready_fd = ready_fd;
	watch->signal_fd = signalfd(-1, &set, SFD_CLOEXEC);
	watch->stop_fd = eventfd(0, EFD_CLOEXEC);
	/* Without /proc, umount -l is not noticed; the rest works. */
	watch->mounts_fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	ret = errno;
	if (watch->signal_fd < 0 || watch->stop_fd < 0)
		goto fail;
	sigaction(SIGUSR1, &kick, NULL);
	ret = pthread_create(&watch->thread, NULL, run, watch);
	if (!ret)
		return watch;
fail:
	fprintf(stderr, "slowfs: cannot watch the mount: %s\n", strerror(ret));
	if (watch)
		watch_free(watch);
	return NULL;
}

int watch_stop(struct watch *watch)
{
	int answered;

	eventfd_write(watch->stop_fd, 1);
	pthread_join(watch->thread, NULL);
	answered = watch->answered;
	watch_free(watch);
	return answered;
}
