/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/watchdog.h"

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
#include <time.h>
#include <unistd.h>

#define MOUNTS_MAX 2

/* Shared by both processes. */
static struct charge {
	unsigned count;
	dev_t devices[MOUNTS_MAX];
	char points[MOUNTS_MAX][4096];
} * charge;

static pid_t guardian;

/* The kernel's own way, where its control file system is mounted; users have it, too. */
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

/* A forced unmount ends the connection, and in a namespace of our own it unmounts for
 * nobody else: they see errors, not an empty directory. */
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
	/* The signal is sent when its main thread dies. Others may be caught in the kernel, and
	 * then it stays the parent. */
	while (getppid() == daemon)
		if (sigwaitinfo(&wanted, &info) == SIGUSR2 && info.si_pid == daemon)
			break;
	for (unsigned i = 0; i < charge->count; i++)
		if (!abort_by_device(charge->devices[i]))
			abort_by_force(charge->points[i]);
	_exit(0);
}

int guardian_start(void)
{
	pid_t self = getpid();
	sigset_t blocked;

	charge = mmap(NULL, sizeof(*charge), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (charge == MAP_FAILED)
		return -errno;
	/* Until it waits for it; the daemon never gets one. */
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR2);
	sigprocmask(SIG_BLOCK, &blocked, NULL);
	guardian = fork();
	if (guardian == 0)
		watch(self);
	return guardian < 0 ? -errno : 0;
}

void guardian_add(const char *mount_point)
{
	struct stat stat_buffer;
	unsigned at = 0;

	if (guardian <= 0 || strlen(mount_point) >= sizeof(charge->points[0]) ||
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

void guardian_act(void)
{
	struct timespec moment = { .tv_nsec = 10000000 };

	if (guardian <= 0)
		return;
	kill(guardian, SIGUSR2);
	for (int i = 0; i < 200 && !waitpid(guardian, NULL, WNOHANG); i++)
		nanosleep(&moment, NULL);
	guardian = 0;
}

void guardian_stop(void)
{
	if (guardian <= 0)
		return;
	charge->count = 0;
	kill(guardian, SIGKILL);
	waitpid(guardian, NULL, 0);
	guardian = 0;
}
