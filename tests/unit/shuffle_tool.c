/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the library says, for a test that asks torch the same:
 *	shuffle-tool permute SEED N
 *	shuffle-tool list folder|timm < PATHS
 *	shuffle-tool order turns|batches|repeated SEED N WORLD BATCH RANK...
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shade/shuffle.h"

#define PATHS_MAX 100000

static void permute(uint32_t seed, uint32_t n)
{
	uint32_t *out = malloc((size_t)n * sizeof(*out));

	shuffle_permute(seed, out, n);
	for (uint32_t i = 0; i < n; i++)
		printf("%u\n", out[i]);
	free(out);
}

static char *names[PATHS_MAX], *dirs[PATHS_MAX];

static const char *name_of(const void *context, uint32_t file)
{
	(void)context;
	return names[file];
}

static void list(enum shuffle_listing listing)
{
	static uint32_t dir_of[PATHS_MAX], out[PATHS_MAX];
	char line[4096];
	uint32_t count = 0;
	int64_t listed;

	while (count < PATHS_MAX && fgets(line, sizeof(line), stdin)) {
		char *slash;

		line[strcspn(line, "\n")] = 0;
		slash = strrchr(line, '/');
		names[count] = strdup(slash ? slash + 1 : line);
		dirs[count] = slash ? strndup(line, (size_t)(slash + 1 - line)) : strdup("");
		dir_of[count] = count; /* each comes many times */
		count++;
	}
	listed = shuffle_list(&(struct shuffle_files){ .dirs = (const char *const *)dirs,
						       .dir_count = count,
						       .dir_of = dir_of,
						       .count = count,
						       .name = name_of },
			      listing, out);
	for (int64_t i = 0; i < listed; i++)
		printf("%s%s\n", dirs[out[i]], names[out[i]]);
}

static void order(enum shuffle_kind kind, uint32_t seed, uint32_t n, char **words)
{
	struct shuffle_layout layout = { .kind = kind,
					 .world = (uint32_t)atol(words[0]),
					 .batch = (uint32_t)atol(words[1]) };
	uint32_t *permutation = malloc((size_t)n * sizeof(*permutation)), place;

	for (char **word = words + 2; *word; word++)
		layout.local[atol(*word) / 64] |= (uint64_t)1 << atol(*word) % 64;
	shuffle_permute(seed, permutation, n);
	for (uint64_t at = 0; at < shuffle_layout_positions(&layout, n); at++)
		if (shuffle_layout_at(&layout, n, at, &place))
			printf("%u\n", permutation[place]);
	free(permutation);
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "permute"))
		permute((uint32_t)strtoul(argv[2], NULL, 10), (uint32_t)atol(argv[3]));
	else if (argc == 3 && !strcmp(argv[1], "list"))
		list(strcmp(argv[2], "timm") ? SHUFFLE_IMAGE_FOLDER : SHUFFLE_TIMM);
	else if (argc > 7 && !strcmp(argv[1], "order"))
		order(argv[2][0] == 't'	  ? SHUFFLE_TURNS
		      : argv[2][0] == 'b' ? SHUFFLE_BATCHES
					  : SHUFFLE_REPEATED,
		      (uint32_t)strtoul(argv[3], NULL, 10), (uint32_t)atol(argv[4]), argv + 5);
	else
		return 2;
	return 0;
}
