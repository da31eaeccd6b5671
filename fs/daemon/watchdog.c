/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/watchdog.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/threads.h"

#define MOUNTS_MAX 2

/* What to end; memory that both processes share. */
static struct charge {
	unsigned count;
	dev_t devices[MOUNTS_MAX];
	char points[MOUNTS_MAX][4096];
} * charge;

static pid_t watchdog; /* 0: not started, or ended */

/* By the FUSE control file system, where it is mounted. Users may do that for their own mounts. */
static bool abort_by_device(dev_t device)
{
	char path[64];
	FILE *file;

	snprintf(path, sizeof(path), "/sys/fs/fuse/connections/%u/abort", minor(device));
	file = fopen(path, "we");
	if (!file)
		return false;
	fputs("1", file);
	return fclose(file) == 0;
}

/* A forced unmount ends the connection. In a mount namespace of our own it unmounts for nobody
 * else: others see errors, not an empty directory. */
static void abort_by_force(const char *mount_point)
{
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return;
	umount2(mount_point, MNT_FORCE);
}

__attribute__((noreturn)) static void watch(pid_t daemon)
{
	siginfo_t info;
	sigset_t wanted;

	sigemptyset(&wanted);
	sigaddset(&wanted, SIGUSR2);
	for (int fd = (int)sysconf(_SC_OPEN_MAX) < 1024 ? (int)sysconf(_SC_OPEN_MAX) : 1024;
	     fd >= 0; fd--)
		close(fd);
	prctl(PR_SET_NAME, "shadefs-guard");
	prctl(PR_SET_PDEATHSIG, SIGUSR2);
	/* The signal is sent when the daemon's main thread dies. As long as other threads of it are
	 * stuck in the kernel, the daemon stays the parent. */
	while (getppid() == daemon)
		if (sigwaitinfo(&wanted, &info) == SIGUSR2 && info.si_pid == daemon)
			break;
	for (unsigned i = 0; i < charge->count; i++)
		if (!abort_by_device(charge->devices[i]))
			abort_by_force(charge->points[i]);
	_exit(0);
}

int watchdog_start(void)
{
	pid_t self = getpid();
	sigset_t blocked;

	assert(!watchdog);
	charge = mmap(NULL, sizeof(*charge), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (charge == MAP_FAILED)
		return -errno;
	/* Blocked until the child waits for it; the daemon never gets one. */
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR2);
	sigprocmask(SIG_BLOCK, &blocked, NULL);
	watchdog = fork();
	if (watchdog == 0)
		watch(self);
	return watchdog < 0 ? -errno : 0;
}

void watchdog_add(const char *mount_point)
{
	struct stat stat_buffer;
	unsigned at = 0;

	if (watchdog <= 0 || strlen(mount_point) >= sizeof(charge->points[0]) ||
	    stat(mount_point, &stat_buffer))
		return;
	while (at < charge->count && strcmp(charge->points[at], mount_point))
		at++;
	if (at == MOUNTS_MAX)
		return;
	strcpy(charge->points[at], mount_point);
	charge->devices[at] = stat_buffer.st_dev;
	if (at == charge->count)
		charge->count++;
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
	charge->count = 0;
	kill(watchdog, SIGKILL);
	waitpid(watchdog, NULL, 0);
	watchdog = 0;
}
