/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "native/utab.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/threads.h"
#include "escape.h"
#include "mountinfo.h"

#define RUN_MS 5000 /* how long the program may wait for the table's lock */
#define POLL_MS 5
#define LINES_MAX 16		/* for one mount point */
#define HELPER "helper=shadefs" /* ro comes by itself: the kernel tells */

/* Whether the child ended well in time. It is ended otherwise: nobody needs it. */
static bool wait_for(pid_t child)
{
	int status = -1;

	for (unsigned ms = 0; ms < RUN_MS; ms += POLL_MS) {
		pid_t ended = waitpid(child, &status, WNOHANG);

		if (ended)
			return ended == child && WIFEXITED(status) && !WEXITSTATUS(status);
		clock_sleep_us((uint64_t)POLL_MS * 1000);
	}
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	return false;
}

/* Runs a program of util-linux, silently, with nothing of the environment and no signal blocked. */
static bool run(const char *const *arguments)
{
	char path[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
	char *environment[] = { path, NULL };
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none;
	pid_t child;
	int rc;

	if (posix_spawn_file_actions_init(&actions))
		return false;
	if (posix_spawnattr_init(&attributes)) {
		posix_spawn_file_actions_destroy(&actions);
		return false;
	}
	sigemptyset(&none);
	rc = posix_spawnattr_setsigmask(&attributes, &none);
	if (!rc)
		rc = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
	for (int fd = 0; !rc && fd < 3; fd++)
		rc = posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
	if (!rc)
		rc = posix_spawn(&child, arguments[0], &actions, &attributes,
				 (char *const *)arguments, environment);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	return !rc && wait_for(child);
}

/* The mount's line of the kernel's list, which the caller closes; false: there is none. */
static bool find(const struct mount *mount, struct mountinfo *info)
{
	if (mountinfo_open(info))
		return false;
	while (mountinfo_next(info) > 0)
		if (info->id == mount->id)
			return true;
	mountinfo_close(info);
	return false;
}

/* The value of a field of a line, without escapes, if it is this one. */
static bool is_field(char *field, const char *name, const char *value)
{
	size_t length = strlen(name);

	return !strncmp(field, name, length) && unescape_in_place(field + length, ESCAPE_OCTAL) &&
	       !strcmp(field + length, value);
}

/* Whether the table has a line for a mount point, and if `source` is given, ours of that source. */
static bool has_line(const char *source, const char *point)
{
	FILE *file = fopen("/run/mount/utab", "re");
	bool found = false;
	char *line = NULL;
	size_t room = 0;

	while (file && !found && getline(&line, &room, file) > 0) {
		unsigned wanted = source ? 3 : 1, got = 0;
		char *rest = line, *field;

		while ((field = strsep(&rest, " \n")))
			got += is_field(field, "TARGET=", point) ||
			       (source && (is_field(field, "SRC=", source) ||
					   !strcmp(field, "OPTS=" HELPER)));
		found = got == wanted;
	}
	free(line);
	if (file)
		fclose(file);
	return found;
}

char *utab_add(const struct mount *mount)
{
	struct mountinfo info;
	char *point = NULL;

	if (!find(mount, &info))
		return NULL;

	const char *arguments[] = { "/bin/mount",      "--fake",   "--no-canonicalize",
				    "--internal-only", "--types",  "overlay",
				    "--options",       HELPER,	   "--",
				    info.source,       info.point, NULL };
	/* The daemon before this one may have left a line to us. */
	if (has_line(info.source, info.point) || run(arguments))
		point = strdup(info.point);
	else
		log_say(LOG_NOTES, "umount(8) was not told of %s: shadectl umount unmounts it",
			info.point);
	mountinfo_close(&info);
	return point;
}

void utab_remove(const char *point)
{
	const char *arguments[] = {
		"/bin/umount", "--fake", "--no-canonicalize", "--internal-only", "--", point, NULL
	};
	struct mountinfo info;

	if (mountinfo_find(&info, point)) {
		mountinfo_close(&info);
		return;
	}
	for (unsigned i = 0; i < LINES_MAX && has_line(NULL, point); i++)
		if (!run(arguments))
			return;
}
