/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* `shadectl report`: to standard output, or to a file that is there whole or not at all. */
#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fail.h"
#include "say.h"

/* An existing file keeps its permissions; a new one has those that the user's mask leaves. */
static mode_t mode_for(const char *path)
{
	struct stat old;
	mode_t mask = umask(0);

	umask(mask);
	return stat(path, &old) ? 0666 & ~mask : old.st_mode & 07777;
}

static bool is_special(const char *path)
{
	struct stat old;

	return !stat(path, &old) && !S_ISREG(old.st_mode);
}

static int say_failed(const char *path, int error)
{
	return say(EXIT_FAILED, "could not write '%s': %s", path, strerror(error));
}

/* Writes and closes. Returns 0 or an errno. */
static int write_page(const struct report *report, int fd)
{
	FILE *out = fdopen(fd, "w");
	int error;

	if (!out) {
		error = errno;
		close(fd);
		return error;
	}
	report_print(report, out);
	error = fflush(out) || ferror(out) ? errno : 0;
	if (!error && fsync(fd) && errno != EINVAL && errno != EROFS)
		error = errno;
	if (fclose(out) && !error)
		error = errno;
	return error;
}

/* Through a new file beside it, so that nobody sees half of a page. */
static int replace(const struct report *report, const char *path)
{
	char *beside = must(malloc(strlen(path) + sizeof(".XXXXXX")));
	int error = 0, fd;

	stpcpy(stpcpy(beside, path), ".XXXXXX");
	fd = mkostemp(beside, O_CLOEXEC);
	if (fd < 0) {
		error = errno;
		free(beside);
		return say_failed(path, error);
	}
	if (fchmod(fd, mode_for(path)))
		error = errno;
	if (error)
		close(fd);
	else
		error = write_page(report, fd);
	if (!error && rename(beside, path))
		error = errno;
	if (error)
		unlink(beside);
	free(beside);
	return error ? say_failed(path, error) : EXIT_OK;
}

/* What is no file, as /dev/stdout or a pipe, is written to; a directory is refused. */
static int write_through(const struct report *report, const char *path)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int error = fd < 0 ? errno : write_page(report, fd);

	return error ? say_failed(path, error) : EXIT_OK;
}

int verb_report(struct call *call)
{
	struct report *report = must(calloc(1, sizeof(*report)));
	const char *path = call->options.output;
	int code = report_take(report, call);

	if (!code && (!path || !strcmp(path, "-")))
		report_print(report, stdout);
	else if (!code)
		code = is_special(path) ? write_through(report, path) : replace(report, path);
	report_free(report);
	return code;
}
