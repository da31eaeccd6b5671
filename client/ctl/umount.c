/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Unmounting. A native mount has .shade on a mount of its own below it, which must be unmounted
 * first. So this looks beforehand whether the mount is in use, which would leave a mount without
 * its .shade. It asks the daemon nothing, because that may be dead.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "busy.h"
#include "call.h"
#include "fail.h"
#include "mountinfo.h"
#include "path.h"
#include "say.h"

#define HELPER "fusermount3"

/* Why an unmount failed, in the words of the kernel or of fusermount3. */
struct refusal {
	char text[512];
};

/* Replaces the child process by the helper. */
static void exec_helper(const char *point, bool lazy, int errors)
{
	dup2(errors, STDERR_FILENO);
	setenv("LC_ALL", "C", 1);
	execlp(HELPER, HELPER, lazy ? "-uz" : "-u", "--", point, (char *)NULL);
	dprintf(STDERR_FILENO, "there is no %s to do it for you: %s", HELPER, strerror(errno));
	_exit(127);
}

/* fusermount3 is set-user-id, so that users can unmount their own mounts. */
static int run_helper(const char *point, bool lazy, struct refusal *refusal)
{
	size_t used = 0;
	ssize_t got;
	int status = 0;
	int ends[2];
	pid_t child;

	if (pipe2(ends, O_CLOEXEC))
		return -errno;
	child = fork();
	if (!child)
		exec_helper(point, lazy, ends[1]);
	close(ends[1]);
	while ((got = read(ends[0], refusal->text + used, sizeof(refusal->text) - 1 - used)) > 0)
		used += (size_t)got;
	close(ends[0]);
	refusal->text[used] = '\0';
	refusal->text[strcspn(refusal->text, "\n")] = '\0';
	if (child < 0 || waitpid(child, &status, 0) < 0)
		return -errno;
	if (WIFEXITED(status) && !WEXITSTATUS(status))
		return 0;
	return strstr(refusal->text, "busy") ? -EBUSY : -EPERM;
}

/* The number of the mount that is at a point; 0: none is. */
static uint64_t mount_at(const char *point)
{
	struct mountinfo info;
	uint64_t id;

	if (mountinfo_find(&info, point) <= 0)
		return 0;
	id = info.id;
	mountinfo_close(&info);
	return id;
}

static bool is_mounted(uint64_t id)
{
	struct mountinfo info;
	bool found = false;

	if (mountinfo_open(&info))
		return true;
	while (!found && mountinfo_next(&info) > 0)
		found = info.id == id;
	mountinfo_close(&info);
	return found;
}

/* Enters the directory that a mount is in. Somebody may rename what leads there, and put something
 * else in its place; the name of a mount point itself nobody can change. So what is there is
 * compared with the number after that. 0 or a negative errno. */
static int enter_parent(const char *point, uint64_t id, const char **name)
{
	char parent[PATH_MAX + 8];
	struct statx stat;
	char *slash;

	snprintf(parent, sizeof(parent), "%s", point);
	slash = strrchr(parent, '/');
	*name = point + (slash - parent) + 1;
	slash[slash == parent] = '\0';
	if (chdir(parent) ||
	    statx(AT_FDCWD, **name ? *name : ".",
		  AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, STATX_MNT_ID, &stat))
		return -errno;
	return stat.stx_mnt_id == id ? 0 : -ESTALE;
}

static int unmount_there(const char *point, uint64_t id, bool lazy)
{
	const char *name;
	int rc = enter_parent(point, id, &name);

	if (!rc && umount2(name, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)))
		rc = -errno;
	/* The current directory must not keep a mount busy. */
	return chdir("/") && !rc ? -errno : rc;
}

static int unmount_one(const char *point, uint64_t id, bool lazy, struct refusal *refusal)
{
	int rc = unmount_there(point, id, lazy);

	snprintf(refusal->text, sizeof(refusal->text), "%s", strerror(-rc));
	if (rc == -EPERM || (rc == -EACCES && geteuid() != 0))
		rc = run_helper(point, lazy, refusal);
	return rc;
}

/* Other mounts below POINT keep it busy as well: prints them. Returns how many there are. */
static unsigned print_mounts_below(const char *point, const char *control)
{
	struct mountinfo info;
	unsigned count = 0;

	if (mountinfo_open(&info))
		return 0;
	while (mountinfo_next(&info) > 0) {
		if (!path_is_below(info.point, point) || !strcmp(info.point, point) ||
		    !strcmp(info.point, control))
			continue;
		say_line(stderr, "  %s is mounted below it (%s)", info.point, info.type);
		count++;
	}
	mountinfo_close(&info);
	return count;
}

static int say_busy(const char *point, const char *control, const struct busy *busy)
{
	say(EXIT_FAILED, "%s is busy; --lazy detaches it all the same. It is used by", point);
	if (!print_mounts_below(point, control) && !busy->count)
		fputs("  nobody that could be found\n", stderr);
	busy_print(busy, stderr);
	return EXIT_FAILED;
}

/* An overlay is ours if its lower layer is where native mode keeps it. */
static bool is_ours(const struct mountinfo *info, bool has_control)
{
	if (!strcmp(info->type, "fuse.shadefs"))
		return true;
	if (strcmp(info->type, "overlay"))
		return false;
	return has_control || !strcmp(info->source, "shadefs") ||
	       strstr(info->options, "/shadefs/");
}

/* Whether the mount with this number has a .shade that answers. */
static bool has_files(const char *point, uint64_t id)
{
	int root = open(point, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct statx stat;
	bool has;

	if (root < 0)
		return false;
	has = !statx(root, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, &stat) &&
	      stat.stx_mnt_id == id && !faccessat(root, ".shade/control", F_OK, 0);
	close(root);
	return has;
}

/* Whether a shadefs is mounted at POINT; prints what is wrong otherwise. Returns an exit code, and
 * the number of the mount. */
static int check_ours(const char *given, const char *point, bool has_control, uint64_t *id)
{
	struct mountinfo info;
	int code = EXIT_OK;

	if (mountinfo_find(&info, point) <= 0)
		return say(EXIT_FAILED, "nothing is mounted at '%s'", given);
	*id = info.id;
	if (!is_ours(&info, has_control) && !has_files(point, info.id))
		code = say(EXIT_FAILED,
			   "what is mounted at '%s' is no shadefs but %s; umount(8) unmounts "
			   "anything",
			   given, info.type);
	mountinfo_close(&info);
	return code;
}

static int unmount_both(const char *point, uint64_t id, const char *control, bool lazy)
{
	uint64_t control_id = mount_at(control);
	struct refusal refusal = { "" };
	struct busy *busy = must(calloc(1, sizeof(*busy)));
	const char *failed = point;
	int rc = 0;

	/* A shadefs daemon does not count: it may use the mount until .shade is unmounted. */
	if (control_id && !lazy) {
		busy_find(busy, point);
		rc = busy->others ? -EBUSY : 0;
	}
	if (!rc && control_id) {
		failed = control;
		rc = unmount_one(control, control_id, lazy, &refusal);
	}
	if (!rc) {
		failed = point;
		rc = unmount_one(point, id, lazy, &refusal);
	}
	/* A daemon whose .shade was unmounted may have unmounted the rest by itself. */
	if (rc && !is_mounted(id))
		rc = 0;
	if (rc == -EBUSY) {
		busy_find(busy, point);
		say_busy(point, control, busy);
	} else if (rc) {
		say(EXIT_FAILED, "could not unmount %s: %s", failed, refusal.text);
	}
	free(busy);
	return rc ? EXIT_FAILED : EXIT_OK;
}

/* Resolves the symbolic links of GIVEN, even if it is a mount that does not answer. */
static bool resolve_mount_point(const char *given, char *point)
{
	char parent[PATH_MAX];
	char *name;

	if (realpath(given, point))
		return true;
	if (strlen(given) >= sizeof(parent))
		return false;
	strcpy(parent, given);
	for (size_t end = strlen(parent); end > 1 && parent[end - 1] == '/'; end--)
		parent[end - 1] = '\0';
	name = strrchr(parent, '/');
	if (name)
		*name++ = '\0';
	if (!realpath(name ? (*parent ? parent : "/") : ".", point))
		return false;
	if (!name)
		name = parent;
	if (strlen(point) + strlen(name) + 2 > PATH_MAX)
		return false;
	if (strcmp(point, "/"))
		strcat(point, "/");
	strcat(point, name);
	return true;
}

int verb_umount(struct call *call)
{
	char point[PATH_MAX];
	char control[PATH_MAX + 8];
	uint64_t id = 0;
	int code;

	if (!resolve_mount_point(call->given_mount, point))
		return say(EXIT_FAILED, "there is no '%s': %s", call->given_mount, strerror(errno));
	snprintf(control, sizeof(control), "%s/.shade", point);
	code = check_ours(call->given_mount, point, mount_at(control) != 0, &id);
	if (code)
		return code;
	/* The current directory of this process must not keep the mount busy. */
	if (chdir("/"))
		return say(EXIT_FAILED, "could not leave the current directory: %s",
			   strerror(errno));
	return unmount_both(point, id, control, call->options.lazy);
}
