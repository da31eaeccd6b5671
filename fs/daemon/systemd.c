/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Sends a datagram to the socket that $NOTIFY_SOCKET names. That is too little to link libsystemd
 * for. */
#include "daemon/systemd.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"

static void tell(const char *text)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const char *path = getenv("NOTIFY_SOCKET");
	size_t length = path ? strlen(path) : 0;
	socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
	int fd;

	if (!length || length >= sizeof(address.sun_path) || (*path != '/' && *path != '@'))
		return;
	memcpy(address.sun_path, path, length);
	if (*path == '@')
		*address.sun_path = 0; /* an abstract name */
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 ||
	    sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&address, size) < 0)
		log_say(LOG_WARNINGS, "cannot tell the service manager at %s", path);
	if (fd >= 0)
		close(fd);
}

/* A newline would begin another message. */
static void tell_status(const char *begin, const char *status)
{
	char text[4096];
	int length = snprintf(text, sizeof(text), "%sSTATUS=", begin);

	snprintf(text + length, sizeof(text) - (size_t)length, "%s", status);
	for (char *at = text + length; *at; at++)
		if (*at == '\n')
			*at = ' ';
	tell(text);
}

void systemd_ready(const char *status)
{
	tell_status("READY=1\n", status);
}

void systemd_status(const char *status)
{
	tell_status("", status);
}

void systemd_stopping(void)
{
	tell("STOPPING=1");
}
