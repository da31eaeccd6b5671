/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * For fuzzers of what commands read line by line. A command exits at the first fault; here that
 * jumps back to lines_try(), with the sentence. What had been allocated until then nobody would
 * free, so the code under test gets its memory from a list that is freed as a whole.
 *
 * Include this first: it includes text/lines.c, and what is included after it uses the list, too.
 */
#ifndef SHADE_LINES_FUZZ_H
#define SHADE_LINES_FUZZ_H

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "fail.h"
#include "fuzz.h"

/* --- memory ------------------------------------------------------------------------------------
 */

struct lines_block {
	struct lines_block *next, **link;
	size_t size;
	_Alignas(16) char bytes[];
};

static struct lines_block *lines_blocks;

static struct lines_block *lines_block_of(void *bytes)
{
	return (struct lines_block *)((char *)bytes - offsetof(struct lines_block, bytes));
}

static void lines_free(void *bytes)
{
	struct lines_block *block;

	if (!bytes)
		return;
	block = lines_block_of(bytes);
	*block->link = block->next;
	if (block->next)
		block->next->link = block->link;
	free(block);
}

static void *lines_realloc(void *old, size_t size)
{
	struct lines_block *block = malloc(sizeof(*block) + size);

	fuzz_require(block, "there is memory");
	block->size = size;
	block->next = lines_blocks;
	block->link = &lines_blocks;
	if (block->next)
		block->next->link = &block->next;
	lines_blocks = block;
	if (old) {
		size_t old_size = lines_block_of(old)->size;

		memcpy(block->bytes, old, old_size < size ? old_size : size);
		lines_free(old);
	}
	return block->bytes;
}

static void *lines_calloc(size_t count, size_t size)
{
	return memset(lines_realloc(NULL, count * size), 0, count * size);
}

/* getline() allocates by itself. */
static ssize_t lines_getline(char **line, size_t *room, FILE *file)
{
	char *text = NULL;
	size_t text_room = 0;
	ssize_t length = getline(&text, &text_room, file);

	if (length >= 0) {
		*line = lines_realloc(*line, (size_t)length + 1);
		*room = (size_t)length + 1;
		memcpy(*line, text, *room);
	}
	free(text);
	return length;
}

/* Frees what is left; whether there was something. */
static bool lines_forget(void)
{
	bool some = lines_blocks;

	while (lines_blocks) {
		struct lines_block *next = lines_blocks->next;

		free(lines_blocks);
		lines_blocks = next;
	}
	return some;
}

static FILE *lines_file; /* what is opened, whatever its name */

#define realloc(old, size) lines_realloc(old, size)
#define calloc(count, size) lines_calloc(count, size)
#define malloc(size) lines_realloc(NULL, size)
#define free(bytes) lines_free(bytes)
#define getline(line, room, file) lines_getline(line, room, file)
#define fopen(path, how) lines_file
#define fclose(file) ((void)(file))

/* NOLINTNEXTLINE(bugprone-suspicious-include): its memory is to come from the list. */
#include "lines.c"

/* --- the end of a command ----------------------------------------------------------------------
 */

static jmp_buf lines_back;
static char lines_sentence[8192]; /* of the last fault */

__attribute__((noreturn)) static void lines_leave(const char *format, va_list args)
{
	vsnprintf(lines_sentence, sizeof(lines_sentence), format, args);
	longjmp(lines_back, 1);
}

void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	lines_leave(format, args);
}

void fail_at(const char *file, unsigned long line, const char *format, ...)
{
	char sentence[4096];
	va_list args;

	va_start(args, format);
	vsnprintf(sentence, sizeof(sentence), format, args);
	va_end(args);
	fail("%s:%lu: %s", file, line, sentence);
}

void give_up(const char *format, ...)
{
	(void)format;
	fuzz_fail("no input makes a command give up");
}

void *must(void *allocated)
{
	return allocated;
}

void must_do(int rc, const char *what)
{
	fuzz_require(!rc, what);
}

#undef fclose

/* Calls `read` with `data` as the file that it opens. False: it has failed, and lines_sentence says
 * why. Whatever it has allocated stays until lines_forget(). */
static bool lines_try(void (*read)(void *context), void *context, const void *data, size_t size)
{
	volatile bool good = true; /* longjmp() keeps it */

	fuzz_require(!lines_file, "one file at a time");
	lines_file = fmemopen((void *)data, size, "r");
	fuzz_require(lines_file, "there is memory");
	if (setjmp(lines_back))
		good = false;
	else
		read(context);
	fclose(lines_file);
	lines_file = NULL;
	return good;
}

/* The sentence of a fault names the file, and a line that the text has. */
static void lines_check_sentence(const char *name, const uint8_t *data, size_t size)
{
	unsigned long lines = 1, line;
	size_t length = strlen(name);
	char *end;

	for (size_t i = 0; i < size; i++)
		lines += data[i] == '\n';
	fuzz_require(!strncmp(lines_sentence, name, length), "a fault names the file");
	fuzz_require(lines_sentence[length] == ':', "a fault names a line");
	line = strtoul(lines_sentence + length + 1, &end, 10);
	fuzz_require(line && line <= lines, "a fault names a line that is there");
	fuzz_require(end[0] == ':' && end[1] == ' ' && end[2], "a fault says why");
}

#endif
