/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/channel.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* What goes beside a message. */
union attachment {
	struct cmsghdr head;
	char bytes[CMSG_SPACE(sizeof(int))];
};

int channel_open(int ends[2])
{
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) ? -errno : 0;
}

int channel_send(int channel, const void *message, size_t size, int attached)
{
	union attachment attachment = { .head = { .cmsg_len = CMSG_LEN(sizeof(int)),
						  .cmsg_level = SOL_SOCKET,
						  .cmsg_type = SCM_RIGHTS } };
	struct iovec part = { (void *)message, size };
	struct msghdr head = { .msg_iov = &part, .msg_iovlen = 1 };

	if (attached >= 0) {
		memcpy(CMSG_DATA(&attachment.head), &attached, sizeof(attached));
		head.msg_control = &attachment;
		head.msg_controllen = sizeof(attachment);
	}
	return sendmsg(channel, &head, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

bool channel_receive(int channel, void *message, size_t size, int *attached)
{
	union attachment attachment;
	struct iovec part = { message, size };
	struct msghdr head = { .msg_iov = &part,
			       .msg_iovlen = 1,
			       .msg_control = &attachment,
			       .msg_controllen = sizeof(attachment) };
	const struct cmsghdr *found;
	ssize_t length = recvmsg(channel, &head, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	*attached = -1;
	if (length < 0)
		return false;
	found = CMSG_FIRSTHDR(&head);
	if (found && found->cmsg_level == SOL_SOCKET && found->cmsg_type == SCM_RIGHTS)
		memcpy(attached, CMSG_DATA(found), sizeof(*attached));
	if ((size_t)length == size)
		return true;
	if (*attached >= 0)
		close(*attached);
	return false;
}
