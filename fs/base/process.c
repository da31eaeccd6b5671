/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fnv.h"

/* --- texts --------------------------------------------------------------------------------------
 */

/* The name of a program stands in parentheses, and may have some itself. After the last one come
 * the state, the parent, and as the 20th field when the process began. */
int process_parse_stat(const char *text, struct process *process)
{
	const char *at = strrchr(text, ')');
	int parent, used = 0;
	uint64_t start;
	char state, *end;

	if (sscanf(text, "%" SCNd32, &process->pid) != 1 || !at ||
	    sscanf(at, ") %c %d%n", &state, &parent, &used) != 2)
		return -EINVAL;
	at += used;
	for (int skipped = 0; skipped < 17; skipped++) {
		at += strspn(at, " ");
		at += strcspn(at, " ");
	}
	start = strtoull(at, &end, 10);
	if (end == at)
		return -EINVAL;
	process->parent = parent;
	process->start = start;
	process->has_ended = state == 'Z' || state == 'X';
	return 0;
}

int process_parse_status(const char *text, int32_t *pid)
{
	const char *at = strstr(text, "\nTgid:");

	return at && sscanf(at, "\nTgid: %" SCNd32, pid) == 1 && *pid > 0 ? 0 : -EINVAL;
}

/* A line a hierarchy: number, controllers and path, with colons between. */
static bool is_below_root(const char *line, size_t length)
{
	const char *path = memchr(line, ':', length);

	path = path ? memchr(path + 1, ':', length - (size_t)(path + 1 - line)) : NULL;
	return path && length - (size_t)(path - line) > 2;
}

uint64_t process_parse_cgroup(const char *text)
{
	bool says_something = false;
	uint64_t hash;

	for (const char *line = text; *line;) {
		size_t length = strcspn(line, "\n");

		says_something |= is_below_root(line, length);
		line += length + (line[length] == '\n');
	}
	if (!says_something)
		return 0;
	hash = fnv64_add(FNV64_BEGIN, text, strlen(text));
	return hash ? hash : 1;
}

/* --- /proc --------------------------------------------------------------------------------------
 */

int process_read(int32_t thread, const char *name, char text[PROCESS_TEXT])
{
	char path[64];
	ssize_t length;
	int fd;

	*text = 0;
	if (thread <= 0)
		return -ESRCH; /* in another PID namespace */
	snprintf(path, sizeof(path), "/proc/%d/%s", (int)thread, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	length = read(fd, text, PROCESS_TEXT - 1);
	close(fd);
	text[length > 0 ? length : 0] = 0;
	return length > 0 ? 0 : -ESRCH;
}

static int read_process(int32_t pid, struct process *process)
{
	char text[PROCESS_TEXT];
	int rc = process_read(pid, "stat", text);

	return rc ? rc : process_parse_stat(text, process);
}

unsigned process_lineage(int32_t thread, struct process *lineage)
{
	char text[PROCESS_TEXT];
	unsigned count = 0;
	int32_t pid;

	if (process_read(thread, "status", text) || process_parse_status(text, &pid))
		return 0;
	while (count < PROCESS_DEPTH && pid > 0 && !read_process(pid, &lineage[count]))
		pid = lineage[count++].parent;
	return count;
}

bool process_lives(const struct process *process)
{
	struct process found;

	return !read_process(process->pid, &found) && found.start == process->start &&
	       !found.has_ended;
}

uint64_t process_cgroup(int32_t thread)
{
	char text[PROCESS_TEXT];

	return process_read(thread, "cgroup", text) ? 0 : process_parse_cgroup(text);
}

static bool stat_program(int32_t pid, struct stat *attr)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	return pid > 0 && !stat(path, attr);
}

bool process_is_same_program(int32_t a, int32_t b)
{
	struct stat x, y;

	return stat_program(a, &x) && stat_program(b, &y) && x.st_dev == y.st_dev &&
	       x.st_ino == y.st_ino;
}
