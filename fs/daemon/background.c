/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/background.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A program may be started with standard input, output or error closed. What the daemon opens next
 * would get that number, and lose it to /dev/null when the terminal is closed. */
void background_open_files(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR);
	} while (fd >= 0 && fd < 2);
	if (fd > 2)
		close(fd);
}

void background_close_terminal(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = 0; fd < 3 && null >= 0; fd++)
		dup2(null, fd);
	if (null > 2)
		close(null);
}

int background_wait_for_child(int report)
{
	static char text[16384]; /* two paths fit */
	size_t length = 0;
	ssize_t got;
	bool failed;

	while (length < sizeof(text) - 1 &&
	       (got = read(report, text + length, sizeof(text) - 1 - length)) > 0)
		length += (size_t)got;
	text[length] = 0;
	failed = !memchr(text, 0, length); /* libfuse may have printed before that */
	if (!length)
		fputs("shadefs: the mount did not come up\n", stderr);
	fputs(text, failed ? stderr : stdout);
	return failed ? 1 : 0;
}
