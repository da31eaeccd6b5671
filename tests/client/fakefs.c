/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A mount for tests of shadectl: shows the directory STATE read-only, files as they are at each
 * open, and plays the control file. What is written to a file named `control` is appended to
 * STATE.log, and `HANDLE SIZE` of each write to STATE.writes. STATE.rules says what is refused:
 * lines `TEXT<TAB>ERRNO<TAB>ANSWER`; the first whose TEXT is in a write decides. With ERRNO 0 the
 * write succeeds, and ANSWER is the answer. Otherwise the answer is "ok". Before a write that
 * succeeds returns, STATE.next, if it is there, takes the place of STATE/.shade/stats.
 *
 * usage: fakefs STATE MNT [FUSE OPTION...]
 */
#define FUSE_USE_VERSION 31
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *state;
static uint64_t handles;

/* One open control file. */
struct control {
	uint64_t number;
	char answer[1024];
};

static void full_path(char *full, const char *path)
{
	snprintf(full, PATH_MAX, "%s%s", state, path);
}

static FILE *beside(const char *suffix, const char *mode)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s.%s", state, suffix);
	return fopen(path, mode);
}

static int is_control(const char *path)
{
	const char *name = strrchr(path, '/');

	return name && !strcmp(name, "/control");
}

static int fake_getattr(const char *path, struct stat *st, struct fuse_file_info *info)
{
	char full[PATH_MAX];

	(void)info;
	full_path(full, path);
	return lstat(full, st) ? -errno : 0;
}

static int fake_readdir(const char *path, void *buffer, fuse_fill_dir_t fill, off_t offset,
			struct fuse_file_info *info, enum fuse_readdir_flags flags)
{
	char full[PATH_MAX];
	struct dirent *entry;
	DIR *directory;

	(void)offset;
	(void)info;
	(void)flags;
	full_path(full, path);
	directory = opendir(full);
	if (!directory)
		return -errno;
	while ((entry = readdir(directory)))
		fill(buffer, entry->d_name, NULL, 0, 0);
	closedir(directory);
	return 0;
}

static int fake_open(const char *path, struct fuse_file_info *info)
{
	char full[PATH_MAX];
	struct control *control;
	int fd;

	info->direct_io = !strstr(path, ".bin");
	if (is_control(path)) {
		control = calloc(1, sizeof(*control));
		if (!control)
			return -ENOMEM;
		control->number = ++handles;
		info->nonseekable = 1;
		info->fh = (uint64_t)(uintptr_t)control;
		return 0;
	}
	if ((info->flags & O_ACCMODE) != O_RDONLY)
		return -EROFS;
	full_path(full, path);
	fd = open(full, O_RDONLY | O_CLOEXEC);
	info->fh = (uint64_t)fd;
	return fd < 0 ? -errno : 0;
}

static int fake_read(const char *path, char *buffer, size_t size, off_t offset,
		     struct fuse_file_info *info)
{
	struct control *control = (struct control *)(uintptr_t)info->fh;
	ssize_t got;

	if (is_control(path)) {
		size_t length = strlen(control->answer);

		memcpy(buffer, control->answer, length < size ? length : size);
		return (int)(length < size ? length : size);
	}
	got = pread((int)info->fh, buffer, size, offset);
	return got < 0 ? -errno : (int)got;
}

/* What STATE.rules has against these commands: a negative errno and an answer. */
static int judge(struct control *control, const char *text, size_t size)
{
	char line[2048];
	char *rest;
	int rc = 0;
	FILE *rules = beside("rules", "re");

	strcpy(control->answer, "ok\n");
	while (rules && fgets(line, sizeof(line), rules)) {
		char *words;
		char *number;

		rest = line;
		words = strsep(&rest, "\t");
		number = strsep(&rest, "\t");
		if (!rest || !memmem(text, size, words, strlen(words)))
			continue;
		rc = -atoi(number);
		snprintf(control->answer, sizeof(control->answer), "%s", rest);
		break;
	}
	if (rules)
		fclose(rules);
	return rc;
}

static void change_stats(void)
{
	char from[PATH_MAX];
	char to[PATH_MAX];

	snprintf(from, sizeof(from), "%s.next", state);
	full_path(to, "/.shade/stats");
	if (rename(from, to) && errno != ENOENT)
		perror(from);
}

static int fake_write(const char *path, const char *buffer, size_t size, off_t offset,
		      struct fuse_file_info *info)
{
	struct control *control = (struct control *)(uintptr_t)info->fh;
	FILE *writes = beside("writes", "ae");
	FILE *log = beside("log", "ae");
	int rc = -EIO;

	(void)offset;
	if (is_control(path) && log && writes) {
		fprintf(writes, "%ju %zu\n", (uintmax_t)control->number, size);
		rc = judge(control, buffer, size);
		if (!rc) {
			fwrite(buffer, 1, size, log);
			change_stats();
		}
	}
	if (log)
		fclose(log);
	if (writes)
		fclose(writes);
	return rc ? rc : (int)size;
}

static int fake_release(const char *path, struct fuse_file_info *info)
{
	if (is_control(path))
		free((struct control *)(uintptr_t)info->fh);
	else
		close((int)info->fh);
	return 0;
}

static const struct fuse_operations operations = {
	.getattr = fake_getattr,
	.readdir = fake_readdir,
	.open = fake_open,
	.read = fake_read,
	.write = fake_write,
	.release = fake_release,
};

int main(int argc, char **argv)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	int rc = 1;

	if (argc < 3) {
		fprintf(stderr, "usage: fakefs STATE MNT [FUSE OPTION...]\n");
		return 2;
	}
	state = realpath(argv[1], NULL);
	if (!state)
		return 1;
	fuse_opt_add_arg(&args, argv[0]);
	fuse_opt_add_arg(&args, "-f");
	fuse_opt_add_arg(&args, "-s");
	fuse_opt_add_arg(&args, "-oattr_timeout=0,entry_timeout=0");
	for (int i = 2; i < argc; i++)
		fuse_opt_add_arg(&args, argv[i]);
	rc = fuse_main(args.argc, args.argv, &operations, NULL);
	fuse_opt_free_args(&args);
	return rc;
}
