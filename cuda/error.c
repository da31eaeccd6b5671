/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "scorer.h"

static _Thread_local char sentence[512];

int score_fail(int code, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(sentence, sizeof(sentence), format, args);
	va_end(args);
	return code;
}

const char *shade_score_error(void)
{
	return sentence;
}

const char *shade_score_version(void)
{
	return SHADE_VERSION;
}

uint64_t score_hash(uint64_t hash, const void *bytes, size_t size)
{
	const unsigned char *at = bytes;

	for (; size; at += 4) {
		size_t step = size < 4 ? size : 4;
		uint32_t word = 0;

		memcpy(&word, at, step);
		hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
		hash ^= hash >> 29;
		size -= step;
	}
	return hash;
}

int score_no_memory(void)
{
	return score_fail(-ENOMEM, "out of memory");
}
