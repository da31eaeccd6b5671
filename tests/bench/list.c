/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Lists a tree as `ls -lR` does, every entry with its attributes: bench-list DIRECTORY.
 * Prints the seconds that it took, the entries and the bytes of the files. */
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

static unsigned long long entries, bytes;

static int count(const char *path, const struct stat *attributes, int type, struct FTW *place)
{
	(void)path;
	(void)place;
	entries++;
	if (type == FTW_F)
		bytes += (unsigned long long)attributes->st_size;
	return 0;
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
	double start = now_s();

	if (argc != 2) {
		fputs("usage: bench-list DIRECTORY\n", stderr);
		return 2;
	}
	if (nftw(argv[1], count, 16, FTW_PHYS)) {
		perror(argv[1]);
		return 1;
	}
	printf("%.9f %llu %llu\n", now_s() - start, entries, bytes);
	return 0;
}
