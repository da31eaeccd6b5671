/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Every 64 bytes begin with the number of the edition and of the block; the rest follows from both,
 * so that a block which is torn, or in another place, is none. */
#include <stdio.h>
#include <string.h>

#include "model.h"

#define WORDS (BLOCK / sizeof(uint64_t))

static uint64_t mix(uint64_t z)
{
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u; /* splitmix64 */
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static void make_block(uint64_t words[WORDS], uint64_t edition, uint64_t index)
{
	uint64_t key = mix(edition * 0x9e3779b97f4a7c15u + index);

	words[0] = edition;
	words[1] = index;
	for (size_t i = 2; i < WORDS; i++)
		words[i] = key += edition;
}

void content_fill(void *to, uint64_t edition, uint64_t offset, size_t size)
{
	uint64_t words[WORDS], index = offset / BLOCK;

	for (size_t at = 0; at < size; at += BLOCK, index++) {
		make_block(words, edition, index);
		memcpy((char *)to + at, words, size - at < BLOCK ? size - at : BLOCK);
	}
}

bool content_is(const void *data, size_t size, uint64_t edition)
{
	uint64_t words[WORDS], index = 0;

	for (size_t at = 0; at < size; at += BLOCK, index++) {
		make_block(words, edition, index);
		if (memcmp((const char *)data + at, words, size - at < BLOCK ? size - at : BLOCK))
			return false;
	}
	return true;
}

uint64_t content_edition(const void *data, uint64_t index)
{
	uint64_t words[WORDS], edition;

	memcpy(&edition, (const char *)data + index * BLOCK, sizeof(edition));
	make_block(words, edition, index);
	return memcmp((const char *)data + index * BLOCK, words, BLOCK) ? 0 : edition;
}

const char *content_describe(const void *data, size_t size, char text[512])
{
	uint64_t blocks = size / BLOCK, begin = 0;
	size_t at = (size_t)snprintf(text, 512, "%zu bytes", size);

	for (uint64_t i = 0; i < blocks && at < 440; i++) {
		uint64_t edition = content_edition(data, i);

		if (i + 1 < blocks && content_edition(data, i + 1) == edition)
			continue;
		at += (size_t)snprintf(text + at, 512 - at, ", blocks %llu to %llu of %s %llu",
				       (unsigned long long)begin, (unsigned long long)i,
				       edition ? "edition" : "none", (unsigned long long)edition);
		begin = i + 1;
	}
	if (begin < blocks)
		snprintf(text + at, 512 - at, ", and so on");
	return text;
}
