/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "jobs.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "say.h"

static double ratio(double part, double whole)
{
	return whole > 0 ? part / whole : NAN;
}

static void print_job(const char *name, const char *stats, const char *indent, FILE *out)
{
	double accesses = pair_number(stats, "accesses"), step_ms = pair_number(stats, "t_step_ms");

	say_line(out,
		 "%sjob %s: epoch %s, hits %s of %s accesses, %s a second, coverage %s, %s ahead",
		 indent, name, say_count(pair_number(stats, "epoch")).text,
		 say_percent(ratio(pair_number(stats, "hits"), accesses)).text,
		 say_count(accesses).text, say_count(ratio(1000, step_ms)).text,
		 say_percent(pair_number(stats, "coverage")).text,
		 say_count(pair_number(stats, "order_ahead")).text);
}

/* The next word of a line, or NULL. */
static const char *after_tab(const char *word)
{
	word += strcspn(word, "\t\n");
	return *word == '\t' ? word + 1 : NULL;
}

/* A group in one line: who is in it, and which order of the group each reads from where. */
static void print_group(const char *name, const char *members, const char *indent, FILE *out)
{
	char *line = NULL;
	size_t size = 0;
	FILE *text = open_memstream(&line, &size);

	if (!text)
		return;
	for (const char *at = members; *at; at += strcspn(at, "\n"), at += *at == '\n') {
		const char *epoch = after_tab(at), *position = epoch ? after_tab(epoch) : NULL;

		if (position)
			fprintf(text, "%s%.*s in order %.*s at %.*s", at == members ? "" : ", ",
				(int)(epoch - at - 1), at, (int)(position - epoch - 1), epoch,
				(int)strcspn(position, "\t\n"), position);
	}
	if (!fclose(text))
		say_line(out, "%sgroup %s: %s", indent, name, line);
	free(line);
}

/* Prints FILE of each directory below FOLDER. One may go while it is looked at: then it is left
 * out. */
static void print_each(const struct mount *mount, const char *folder, const char *file,
		       void (*print)(const char *name, const char *text, const char *indent,
				     FILE *out),
		       const char *indent, FILE *out)
{
	int fd = mount_file(mount, folder);
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!directory) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((entry = readdir(directory))) {
		char name[64 + sizeof(entry->d_name)], *text;

		snprintf(name, sizeof(name), "%s/%s/%s", folder, entry->d_name, file);
		if (entry->d_name[0] == '.' || mount_read(mount, name, &text))
			continue;
		print(entry->d_name, text, indent, out);
		free(text);
	}
	closedir(directory);
}

bool jobs_are_several(const struct mount *mount)
{
	int fd = mount_file(mount, "jobs");
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	bool found = false;

	if (!directory) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	while (!found && (entry = readdir(directory)))
		found = entry->d_name[0] != '.';
	closedir(directory);
	return found;
}

/* What the mount says of job 0, which has no directory of its own. */
static void print_first(const char *stats, const char *indent, FILE *out)
{
	say_line(out, "%sjob 0: epoch %s, coverage %s, %s ahead", indent,
		 say_count(pair_number(stats, "epoch")).text,
		 say_percent(pair_number(stats, "coverage")).text,
		 say_count(pair_number(stats, "order_ahead")).text);
}

void jobs_print(const struct mount *mount, const char *stats, const char *indent, FILE *out)
{
	if (!jobs_are_several(mount))
		return;
	print_first(stats, indent, out);
	print_each(mount, "jobs", "stats", print_job, indent, out);
	print_each(mount, "groups", "members", print_group, indent, out);
}
