/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "fuse/fusermount.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHANNEL 3 /* the number that the channel has in the program */

/* Runs the program until it ends; `channel` becomes its descriptor CHANNEL. */
static int run(const char *const *arguments, int channel)
{
	posix_spawn_file_actions_t actions;
	pid_t child;
	int rc;

	rc = posix_spawn_file_actions_init(&actions);
	if (rc)
		return -rc;
	if (channel >= 0)
		rc = posix_spawn_file_actions_adddup2(&actions, channel, CHANNEL);
	if (!rc)
		rc = posix_spawnp(&child, arguments[0], &actions, NULL, (char *const *)arguments,
				  environ);
	posix_spawn_file_actions_destroy(&actions);
	if (!rc)
		waitpid(child, NULL, 0);
	return -rc;
}

/* The program sends the connection with one byte; if it fails, it sends nothing. */
static int receive(int channel)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} attached;
	char byte;
	struct iovec part = { &byte, 1 };
	struct msghdr message = { .msg_iov = &part,
				  .msg_iovlen = 1,
				  .msg_control = &attached,
				  .msg_controllen = sizeof(attached) };
	const struct cmsghdr *head;
	int fd;

	if (recvmsg(channel, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) <= 0)
		return -EACCES;
	head = CMSG_FIRSTHDR(&message);
	if (!head || head->cmsg_type != SCM_RIGHTS)
		return -EIO;
	memcpy(&fd, CMSG_DATA(head), sizeof(fd));
	return fd;
}

int fusermount_mount(const char *mount_point, const char *options)
{
	/* env(1) sets the variable in the child alone. */
	const char *arguments[] = { "env", "_FUSE_COMMFD=3", "fusermount3", "-o", options,
				    "--",  mount_point,	     NULL };
	int ends[2], own, rc;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return -errno;
	/* dup2() onto the same number would leave it to be closed. */
	own = fcntl(ends[1], F_DUPFD_CLOEXEC, CHANNEL + 1);
	rc = own < 0 ? -errno : run(arguments, own);
	if (!rc)
		rc = receive(ends[0]);
	if (own >= 0)
		close(own);
	close(ends[0]);
	close(ends[1]);
	return rc;
}

void fusermount_unmount(const char *mount_point)
{
	const char *arguments[] = { "fusermount3", "-uzq", "--", mount_point, NULL };

	(void)run(arguments, -1);
}
