/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "fuzz.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t fuzz_seed;

void fuzz_fail(const char *what)
{
	fprintf(stderr, "%s: not so: %s\n", fuzz_name, what);
	if (fuzz_seed)
		fprintf(stderr, "replay it with %s-fuzz %" PRIu64 " 1\n", fuzz_name, fuzz_seed);
	abort();
}

uint32_t fuzz_roll(struct fuzz_random *random, uint32_t below)
{
	random->state = random->state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((random->state >> 33) % below);
}

size_t fuzz_join(struct fuzz_random *random, const struct fuzz_part *parts, size_t part_count,
		 uint32_t most, uint8_t *data)
{
	size_t size = 0;

	for (uint32_t count = 1 + fuzz_roll(random, most); count; count--) {
		const struct fuzz_part *part = &parts[fuzz_roll(random, (uint32_t)part_count)];

		if (part->size > FUZZ_INPUT_MAX - size)
			break;
		memcpy(data + size, part->text, part->size);
		size += part->size;
	}
	return size;
}

void *fuzz_copy(const void *data, size_t size)
{
	void *copy = malloc(size ? size : 1);

	fuzz_require(copy, "there is memory");
	if (size)
		memcpy(copy, data, size);
	return copy;
}
