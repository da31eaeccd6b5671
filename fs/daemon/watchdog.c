/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/watchdog.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mount.h"
#include "base/threads.h"
#include "daemon/channel.h"

/* What the watchdog is told of a mount. With it comes a descriptor of the file that aborts
 * the connection, if the FUSE control file system is mounted: the file is bound to this connection,
 * whose number may mean another one later. */
struct charge {
	enum watchdog_kind kind;
	struct mount mount;
	int abort; /* -1: none */
};

static pid_t watchdog; /* 0: not started, or ended */
static int channel;    /* to the watchdog */

/* --- the watchdog's process --------------------------------------------------------------------*/

static void take_charges(struct charge *charges)
{
	struct charge charge;
	int abort;

	while (channel_receive(channel, &charge, sizeof(charge), &abort)) {
		struct charge *known = &charges[charge.kind];

		if (known->abort >= 0)
			close(known->abort);
		*known = charge;
		known->abort = abort;
	}
}

static void abort_by_force(const struct mount *mount)
{
	int root = mount_reach(mount);

	if (root < 0)
		return;
	mount_abort(root);
	close(root);
}

/* By the FUSE control file system, where it is mounted. Users may do that for their own mounts. */
static void end_connection(const struct charge *charge)
{
	if (charge->mount.id && (charge->abort < 0 || write(charge->abort, "1", 1) != 1))
		abort_by_force(&charge->mount);
}

static volatile sig_atomic_t is_asked; /* by the supervisor, or by the kernel when that dies */
static pid_t supervisor_pid;

static void ask(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)context;
	if (info->si_pid == supervisor_pid)
		is_asked = 1;
}

static void close_all_but_channel(void)
{
	long limit = sysconf(_SC_OPEN_MAX);

	for (int fd = limit < 1024 ? (int)limit : 1024; fd >= 0; fd--)
		if (fd != channel)
			close(fd);
}

__attribute__((noreturn)) static void watch(void)
{
	struct charge charges[WATCHDOG_KINDS] = { 0 };
	struct sigaction action = { .sa_sigaction = ask, .sa_flags = SA_SIGINFO };
	sigset_t others;

	for (unsigned i = 0; i < WATCHDOG_KINDS; i++)
		charges[i].abort = -1;
	close_all_but_channel();
	sigaction(SIGUSR2, &action, NULL);
	sigprocmask(SIG_SETMASK, NULL, &others);
	sigdelset(&others, SIGUSR2);
	prctl(PR_SET_NAME, "shadefs-guard");
	prctl(PR_SET_PDEATHSIG, SIGUSR2);
	/* The signal is sent when the supervisor dies, which has one thread. */
	while (getppid() == supervisor_pid && !is_asked) {
		struct pollfd polled = { .fd = channel, .events = POLLIN };

		if (ppoll(&polled, 1, NULL, &others) > 0) {
			take_charges(charges);
			if (polled.revents & POLLHUP)
				break;
		}
	}
	take_charges(charges);
	for (unsigned i = 0; i < WATCHDOG_KINDS; i++)
		end_connection(&charges[i]);
	_exit(0);
}

/* --- the supervisor's side
 * -------------------------------------------------------------------------*/

int watchdog_start(void)
{
	sigset_t blocked;
	int ends[2], rc;

	assert(!watchdog);
	rc = channel_open(ends);
	if (rc)
		return rc;
	/* Blocked until the child waits for it; the supervisor never gets one. */
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR2);
	sigprocmask(SIG_BLOCK, &blocked, NULL);
	supervisor_pid = getpid();
	watchdog = fork();
	channel = ends[watchdog == 0];
	if (watchdog == 0)
		watch();
	close(ends[1]);
	return watchdog < 0 ? -errno : 0;
}

void watchdog_add(enum watchdog_kind kind, const struct mount *mount)
{
	struct charge charge = { .kind = kind, .mount = *mount };
	char path[64];
	int abort;

	if (watchdog <= 0)
		return;
	snprintf(path, sizeof(path), "/sys/fs/fuse/connections/%u/abort", mount->minor);
	abort = open(path, O_WRONLY | O_CLOEXEC);
	charge.mount.above = -1; /* a descriptor of another process */
	(void)channel_send(channel, &charge, sizeof(charge), abort);
	if (abort >= 0)
		close(abort);
}

void watchdog_act(void)
{
	if (watchdog <= 0)
		return;
	kill(watchdog, SIGUSR2);
	for (int i = 0; i < 200 && !waitpid(watchdog, NULL, WNOHANG); i++)
		clock_sleep_us(10000);
	watchdog = 0;
}

void watchdog_stop(void)
{
	if (watchdog <= 0)
		return;
	kill(watchdog, SIGKILL);
	waitpid(watchdog, NULL, 0);
	watchdog = 0;
}

struct watchdog_place watchdog_place(void)
{
	return (struct watchdog_place){ .pid = watchdog > 0 ? watchdog : 0,
					.channel = watchdog > 0 ? channel : -1 };
}

void watchdog_take(const struct watchdog_place *place)
{
	watchdog = place->pid;
	channel = place->channel;
}

void watchdog_leave(void)
{
	if (watchdog > 0)
		close(channel);
	watchdog = 0;
}

const struct format_line watchdog_format[] = { FORMAT_SIZE(struct charge),
					       FORMAT_FIELD(struct charge, mount),
					       FORMAT_FIELD(struct charge, abort),
					       FORMAT_NUMBER(WATCHDOG_KINDS), FORMAT_END };
