/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Makes a tree like those of image data sets:
 *
 *	bench-tree DIRECTORY FOLDERS FILES LEAST MOST
 *
 * FILES files in all, in FOLDERS folders (0: in DIRECTORY itself), of LEAST to MOST bytes that
 * do not compress. The same arguments give the same tree.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t state = 0x9e3779b97f4a7c15;

/* xorshift64: any bytes will do. */
static uint64_t next_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static bool write_file(int fd, char *buffer, size_t size)
{
	uint64_t word;

	for (size_t at = 0; at < size; at += sizeof(word)) {
		word = next_random();
		memcpy(buffer + at, &word, sizeof(word));
	}
	for (size_t at = 0; at < size;) {
		ssize_t written = write(fd, buffer + at, size - at);

		if (written <= 0)
			return false;
		at += (size_t)written;
	}
	return true;
}

static bool make_file(int root, const char *name, char *buffer, size_t size)
{
	bool made;
	int fd;

	if (!size)
		return !mknodat(root, name, S_IFREG | 0644, 0);
	fd = openat(root, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return false;
	made = write_file(fd, buffer, size);
	return !close(fd) && made;
}

/* False: errno says what was wrong. */
static bool make_tree(int root, unsigned long folders, unsigned long files, size_t least,
		      size_t most, char *buffer)
{
	char name[96];

	for (unsigned long i = 0; i < folders; i++) {
		snprintf(name, sizeof(name), "n%08lu", i);
		if (mkdirat(root, name, 0755))
			return false;
	}
	for (unsigned long i = 0; i < files; i++) {
		size_t size = least + (most > least ? next_random() % (most - least) : 0);

		if (folders)
			snprintf(name, sizeof(name), "n%08lu/n%08lu_%lu.JPEG", i % folders,
				 i % folders, i / folders);
		else
			snprintf(name, sizeof(name), "image_%08lu.JPEG", i);
		if (!make_file(root, name, buffer, size))
			return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	unsigned long folders, files, least, most;
	char *buffer;
	bool made;
	int root;

	if (argc != 6) {
		fputs("usage: bench-tree DIRECTORY FOLDERS FILES LEAST MOST\n", stderr);
		return 2;
	}
	folders = strtoul(argv[2], NULL, 10);
	files = strtoul(argv[3], NULL, 10);
	least = strtoul(argv[4], NULL, 10);
	most = strtoul(argv[5], NULL, 10);
	root = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	buffer = malloc(most + sizeof(uint64_t));
	made = root >= 0 && buffer && make_tree(root, folders, files, least, most, buffer);
	if (!made)
		perror(argv[1]);
	free(buffer);
	return made ? 0 : 1;
}
