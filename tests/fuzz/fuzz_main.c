/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A fuzzer as a program that makes up its own inputs. Each has a seed, from which alone it follows:
 *
 *     NAME-fuzz [SEED [ROUNDS]]		 tries the inputs of ROUNDS seeds from SEED on
 *     NAME-fuzz --seeds DIRECTORY COUNT writes inputs as files, for libFuzzer to begin with
 *
 * One in three inputs stays as fuzz_make() wrote it; the others are changed in up to four places.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

/* Words at which parsers have their borders. */
static const struct fuzz_part odd_words[] = {
	FUZZ_PART("0"),
	FUZZ_PART("-1"),
	FUZZ_PART("4294967295"),
	FUZZ_PART("4294967296"),
	FUZZ_PART("18446744073709551615"),
	FUZZ_PART("18446744073709551616"),
	FUZZ_PART("1e309"),
	FUZZ_PART("nan"),
	FUZZ_PART("-inf"),
	FUZZ_PART("0x10"),
	FUZZ_PART("\\000"),
	FUZZ_PART("\\777"),
	FUZZ_PART("\\"),
	FUZZ_PART(" "),
	FUZZ_PART("\n"),
	FUZZ_PART("\t"),
	FUZZ_PART("\r\n"),
	FUZZ_PART("\0"),
	FUZZ_PART("/"),
	FUZZ_PART(".."),
	FUZZ_PART("#"),
	FUZZ_PART("\033[2J"),
	FUZZ_PART("\377\377\377\377"),
	FUZZ_PART("\0\0\0\200"),
};

/* Puts `piece` at `at`; what follows moves, or is overwritten. Returns the new size. */
static size_t put_piece(uint8_t *data, size_t size, size_t at, const void *piece, size_t piece_size,
			bool over)
{
	size_t end = at + piece_size;

	if (over) {
		piece_size = end <= size ? piece_size : size - at;
	} else if (piece_size > FUZZ_INPUT_MAX - size) {
		return size;
	} else {
		memmove(data + end, data + at, size - at);
		size += piece_size;
	}
	memcpy(data + at, piece, piece_size);
	return size;
}

static size_t change(struct fuzz_random *random, uint8_t *data, size_t size)
{
	uint32_t at = fuzz_roll(random, (uint32_t)size);
	size_t left = size - at;
	size_t length = 1 + fuzz_roll(random, left < 40 ? (uint32_t)left : 40);
	const struct fuzz_part *word =
		&odd_words[fuzz_roll(random, sizeof(odd_words) / sizeof(odd_words[0]))];
	uint8_t piece[40];

	switch (fuzz_roll(random, 6)) {
	case 0:
		data[at] = (uint8_t)fuzz_roll(random, 256);
		return size;
	case 1:
		data[at] ^= (uint8_t)(1u << fuzz_roll(random, 8));
		return size;
	case 2: /* a piece goes */
		memmove(data + at, data + at + length, left - length);
		return size - length;
	case 3: /* a piece comes again elsewhere */
		memcpy(piece, data + at, length);
		return put_piece(data, size, fuzz_roll(random, (uint32_t)size), piece, length,
				 fuzz_roll(random, 2));
	case 4:
		return put_piece(data, size, at, word->text, word->size, fuzz_roll(random, 2));
	default: /* the end is missing */
		return fuzz_roll(random, 4) ? size : at;
	}
}

static size_t make_input(uint64_t seed, uint8_t *data)
{
	struct fuzz_random random = { seed };
	size_t size;

	for (int i = 0; i < 4; i++)
		(void)fuzz_roll(&random, 2); /* neighbouring seeds become strangers */
	size = fuzz_make(&random, data);
	fuzz_require(size <= FUZZ_INPUT_MAX, "fuzz_make() keeps to its room");
	if (fuzz_roll(&random, 3))
		for (uint32_t count = 1 + fuzz_roll(&random, 4); count && size; count--)
			size = change(&random, data, size);
	return size;
}

static int write_inputs(const char *directory, uint64_t count)
{
	static uint8_t data[FUZZ_INPUT_MAX];

	for (uint64_t seed = 1; seed <= count; seed++) {
		size_t size = make_input(seed, data);
		char path[4096];
		FILE *file;

		snprintf(path, sizeof(path), "%s/seed-%" PRIu64, directory, seed);
		file = fopen(path, "w");
		if (!file || fwrite(data, 1, size, file) != size || fclose(file)) {
			perror(path);
			return 1;
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	static uint8_t data[FUZZ_INPUT_MAX];
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	uint64_t rounds = argc > 2 ? strtoull(argv[2], NULL, 0) : 200000;

	if (argc == 4 && !strcmp(argv[1], "--seeds"))
		return write_inputs(argv[2], strtoull(argv[3], NULL, 0));
	for (uint64_t i = 0; i < rounds; i++) {
		size_t size;
		uint8_t *exact;

		if (i % 1000 == 0) { /* a sanitizer does not say which one it was */
			printf("seeds from %" PRIu64 "\n", seed + i);
			fflush(stdout);
		}
		fuzz_seed = seed + i;
		size = make_input(fuzz_seed, data);
		exact = fuzz_copy(data, size);
		LLVMFuzzerTestOneInput(exact, size);
		free(exact);
	}
	return 0;
}
