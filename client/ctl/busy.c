/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Only the names in /proc/PID are compared. Nothing below the mount is touched, because its daemon
 * may be dead, and a request to it would then hang or fail.
 */
#include "busy.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "path.h"
#include "say.h"

/* Whether the link NAME of the process leads below POINT; -1 if we may not know. */
static int link_leads(pid_t pid, const char *name, const char *point, char *path)
{
	char link[64 + NAME_MAX];
	ssize_t length;

	snprintf(link, sizeof(link), "/proc/%d/%s", (int)pid, name);
	length = readlink(link, path, PATH_MAX - 1);
	if (length < 0)
		return errno == EACCES ? -1 : 0;
	path[length] = '\0';
	return path_is_below(path, point);
}

/* The same for all open files. */
static int files_lead(struct holder *holder, const char *point)
{
	char name[64];
	struct dirent *entry;
	int found = 0;
	DIR *files;

	snprintf(name, sizeof(name), "/proc/%d/fd", (int)holder->pid);
	files = opendir(name);
	if (!files)
		return errno == EACCES ? -1 : 0;
	while (!found && (entry = readdir(files))) {
		if (!isdigit((unsigned char)*entry->d_name))
			continue;
		snprintf(name, sizeof(name), "fd/%.20s", entry->d_name);
		found = link_leads(holder->pid, name, point, holder->path) > 0;
		snprintf(holder->what, sizeof(holder->what), "file %.20s", entry->d_name);
	}
	closedir(files);
	return found;
}

/* The same for what is mapped: a file may be closed by now. */
static int maps_lead(struct holder *holder, const char *point)
{
	char name[64];
	char *line = NULL;
	size_t size = 0;
	int found = 0;
	FILE *maps;

	snprintf(name, sizeof(name), "/proc/%d/maps", (int)holder->pid);
	maps = fopen(name, "re");
	if (!maps)
		return errno == EACCES ? -1 : 0;
	while (!found && getline(&line, &size, maps) > 0) {
		const char *path = strchr(line, '/');

		line[strcspn(line, "\n")] = '\0';
		if (path && path_is_below(path, point)) {
			found = 1;
			snprintf(holder->path, sizeof(holder->path), "%s", path);
			snprintf(holder->what, sizeof(holder->what), "mapped");
		}
	}
	free(line);
	fclose(maps);
	return found;
}

/* 1 if the process of HOLDER uses the mount, -1 if we may not know. */
static int holder_find(struct holder *holder, const char *point)
{
	static const struct {
		const char *link;
		const char *what;
	} links[] = { { "cwd", "directory" }, { "root", "root" }, { "exe", "program" } };
	int files;
	int maps;

	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
		if (link_leads(holder->pid, links[i].link, point, holder->path) <= 0)
			continue;
		snprintf(holder->what, sizeof(holder->what), "%s", links[i].what);
		return 1;
	}
	files = files_lead(holder, point);
	if (files > 0)
		return 1;
	maps = maps_lead(holder, point);
	return maps ? maps : files;
}

static void read_name(struct holder *holder)
{
	char path[64];
	FILE *file;

	strcpy(holder->name, "?");
	snprintf(path, sizeof(path), "/proc/%d/comm", (int)holder->pid);
	file = fopen(path, "re");
	if (!file)
		return;
	if (fgets(holder->name, sizeof(holder->name), file))
		holder->name[strcspn(holder->name, "\n")] = '\0';
	fclose(file);
}

/* Anybody may call a process shadefs: that of a native mount is root's. */
static bool is_daemon(const struct holder *holder)
{
	unsigned effective = 1;
	char path[64], line[256];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)holder->pid);
	file = strcmp(holder->name, "shadefs") ? NULL : fopen(path, "re");
	if (!file)
		return false;
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "Uid: %*u %u", &effective) == 1)
			break;
	fclose(file);
	return !effective;
}

void busy_find(struct busy *busy, const char *point)
{
	struct holder *holder;
	struct holder spare;
	struct dirent *entry;
	DIR *proc = opendir("/proc");

	memset(busy, 0, sizeof(*busy));
	while (proc && (entry = readdir(proc))) {
		int found;

		holder = busy->count < BUSY_MAX ? &busy->holders[busy->count] : &spare;
		holder->pid = (pid_t)atoi(entry->d_name);
		if (holder->pid <= 0 || holder->pid == getpid())
			continue;
		found = holder_find(holder, point);
		busy->hidden += found < 0;
		if (found <= 0)
			continue;
		read_name(holder);
		busy->others += !is_daemon(holder);
		if (holder == &spare)
			busy->more++;
		else
			busy->count++;
	}
	if (proc)
		closedir(proc);
}

void busy_print(const struct busy *busy, FILE *out)
{
	for (unsigned i = 0; i < busy->count; i++) {
		const struct holder *holder = &busy->holders[i];

		say_line(out, "  %7d  %-15s  %s (%s)", (int)holder->pid, holder->name, holder->path,
			 holder->what);
	}
	if (busy->more)
		fprintf(out, "  and %u more\n", busy->more);
	if (busy->hidden)
		fprintf(out, "  %u other%s could not be looked at%s\n", busy->hidden,
			busy->hidden == 1 ? "" : "s", geteuid() ? "; root sees more" : "");
}
