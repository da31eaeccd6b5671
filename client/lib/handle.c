/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Finding and opening a mount. Its directories are held open by descriptor, so that a
 * long-lived client keeps talking to the mount it opened even if another one is mounted at the
 * same path.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bind.h"
#include "lib.h"

/* One for each thread, as errno is: two threads may share a handle, and a shade_open() that failed
 * leaves no handle to ask. */
static __thread char message[LIB_ANSWER_MAX + 256];

const char *shade_error(void)
{
	return message;
}

const char *shade_version(void)
{
	return SHADE_VERSION;
}

void lib_say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
}

static int fail_mount(const char *path, int rc)
{
	switch (-rc) {
	case ENOENT:
		return lib_fail(rc, "there is no '%s'", path);
	case ENODEV:
		return lib_fail(rc, "no shadefs is mounted at '%s'", path);
	case EACCES:
		return lib_fail(rc,
				"you may not control the shadefs at '%s': that is for the user "
				"who mounted it",
				path);
	case ENOTCONN:
	case ECONNABORTED:
		return lib_fail(-ENOTCONN, "the daemon of the shadefs at '%s' is gone", path);
	default:
		return lib_fail(rc, "could not open '%s': %s", path, strerror(-rc));
	}
}

int lib_fail_file(const struct shade *shade, const char *name, int rc)
{
	if (rc == -ENOTCONN || rc == -ECONNABORTED || rc == -EACCES)
		return fail_mount(shade->path, rc);
	if (rc == -EFBIG)
		return lib_fail(rc, "%s/.shade/%s is larger than that of a shadefs can be",
				shade->path, name);
	return lib_fail(rc, "%s/.shade/%s: %s", shade->path, name, strerror(-rc));
}

/* Cuts the last name off. False at the root. */
static bool go_up(char *path)
{
	char *slash = strrchr(path, '/');

	if (!slash || !path[1])
		return false;
	slash[slash == path] = '\0';
	return true;
}

/*
 * Looks for .shade in PATH and in the directories above it on the same filesystem, and leaves the
 * directory that has it in PATH. Returns a descriptor of .shade. Only directories are compared,
 * because overlayfs gives files other device numbers.
 */
static int find_shade(char *path)
{
	struct stat st;
	dev_t device = 0;
	int rc = -ENODEV;
	bool first = true;

	if (stat(path, &st))
		return -errno;
	if (!S_ISDIR(st.st_mode) && !go_up(path))
		return -ENODEV;
	do {
		int directory = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

		if (directory < 0 || fstat(directory, &st)) {
			rc = -errno;
			if (directory >= 0)
				close(directory);
			return rc;
		}
		if (first)
			device = st.st_dev;
		first = false;
		rc = st.st_dev == device ? lib_open_shade(directory, ".shade") : -ENODEV;
		close(directory);
	} while (rc == -ENODEV && st.st_dev == device && go_up(path));
	return rc;
}

static bool is_job_name(const char *job)
{
	return *job && *job != '.' && !strchr(job, '/') && strlen(job) < 200;
}

/* Opens the directory of the job, and makes it if it does not exist. */
static int open_job(struct shade *shade, const char *job)
{
	char name[256];
	int fd;

	if (!job) {
		fd = fcntl(shade->root, F_DUPFD_CLOEXEC, 0);
		return fd < 0 ? lib_fail(-errno, "%s", strerror(errno)) : fd;
	}
	if (!is_job_name(job))
		return lib_fail(-EINVAL, "'%s' cannot be the name of a job", job);
	if (faccessat(shade->root, "jobs", F_OK, 0))
		return lib_fail(-EOPNOTSUPP, "the shadefs at '%s' has no jobs", shade->path);
	snprintf(name, sizeof(name), "jobs/%s", job);
	if (mkdirat(shade->root, name, 0700) && errno != EEXIST) {
		if (errno != ENOSPC)
			return lib_fail_file(shade, name, -errno);
		return lib_fail(-ENOSPC,
				"the shadefs at '%s' has as many jobs as it can have; 'rmdir "
				"%s/.shade/jobs/NAME' ends one",
				shade->path, shade->path);
	}
	fd = openat(shade->root, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? lib_fail_file(shade, name, -errno) : fd;
}

/* The daemon ends a job that nobody uses, which this one may have been until now. */
static int open_control(struct shade *shade, const char *path, const char *job)
{
	for (int tries = 0; tries < 3; tries++) {
		int rc = open_job(shade, job);

		if (rc < 0)
			return rc;
		shade->job = rc;
		shade->control = openat(shade->job, "control", O_RDWR | O_CLOEXEC);
		if (shade->control >= 0 || errno != ENOENT || !job)
			break;
		close(shade->job);
		shade->job = -1;
		errno = ENOENT;
	}
	return shade->control < 0 ? fail_mount(path, -errno) : 0;
}

/* .shade of the mount that shade->path is in, which becomes where that is mounted. */
static int open_root(struct shade *shade)
{
	char *given = strdup(shade->path);
	int rc;

	if (!given)
		return lib_fail(-ENOMEM, "%s", strerror(ENOMEM));
	rc = find_shade(shade->path);
	if (rc == -ENODEV)
		rc = lib_open_bound(shade, given);
	else if (rc >= 0)
		shade->root = rc;
	free(given);
	return rc < 0 ? rc : 0;
}

static int open_parts(struct shade *shade, const char *path, const char *job)
{
	int rc;

	shade->path = realpath(path, NULL);
	if (!shade->path)
		return fail_mount(path, -errno);
	shade->prefix = strdup("");
	if (!shade->prefix)
		return lib_fail(-ENOMEM, "%s", strerror(ENOMEM));
	rc = open_root(shade);
	if (rc == -ENXIO || rc == -ENOMEM)
		return rc; /* with a sentence of its own */
	if (rc)
		return fail_mount(path, rc);
	return open_control(shade, path, job);
}

int shade_open(const char *path, const char *job, struct shade **opened)
{
	struct shade *shade = malloc(sizeof(*shade));
	int rc;

	if (!shade)
		return lib_fail(-ENOMEM, "%s", strerror(ENOMEM));
	*shade = (struct shade){ .root = -1, .job = -1, .control = -1 };
	pthread_mutex_init(&shade->lock, NULL);
	rc = open_parts(shade, path, job);
	if (rc)
		shade_close(shade);
	else
		*opened = shade;
	return rc;
}

void shade_close(struct shade *shade)
{
	if (!shade)
		return;
	if (shade->control >= 0)
		close(shade->control);
	if (shade->job >= 0)
		close(shade->job);
	if (shade->root >= 0)
		close(shade->root);
	pthread_mutex_destroy(&shade->lock);
	free(shade->table.ids);
	free(shade->path);
	free(shade->prefix);
	free(shade);
}

const char *shade_path(const struct shade *shade)
{
	return shade->path;
}

const char *shade_prefix(const struct shade *shade)
{
	return shade->prefix;
}
