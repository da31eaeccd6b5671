/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Scores and orders, as include/shade/control.h has them, on descriptors that stay open over a
 * death of the daemon and on new ones. All of them are right, so a mount that refuses one is wrong.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "readers.h"

#define REST_NS (50 * MS)
#define KEPT_WRITES 100
#define LINE_ROOM 64
#define SCORES 20

struct text {
	char *data;
	size_t size, room;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *text, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	text->size +=
		(size_t)vsnprintf(text->data + text->size, text->room - text->size, format, args);
	va_end(args);
	if (text->size >= text->room)
		abort();
}

static int open_control(struct reader *reader)
{
	char path[PATH_ROOM];
	int fd;

	snprintf(path, sizeof(path), "%s/.shade/control", options.mount);
	set_doing(reader, "open .shade/control, not", 0);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		report(reader, ERRORS, "open .shade/control: %s", strerror(errno));
	return fd;
}

/* What the mount says of a refusal. */
static void report_refusal(struct reader *reader, int fd, const struct text *text, ssize_t done)
{
	int error = errno;
	char why[200];
	ssize_t size = pread(fd, why, sizeof(why), 0);

	report(reader, ERRORS, "write to .shade/control: %s, %zd of %zu bytes: '%.*s' of '%.60s'",
	       done < 0 ? strerror(error) : "short", done, text->size, size < 0 ? 0 : (int)size,
	       why, text->data);
}

static bool send_text(struct reader *reader, int fd, const struct text *text)
{
	uint64_t began = now_ns();
	ssize_t done;

	set_doing(reader, "write hints, not", 0);
	done = write(fd, text->data, text->size);
	if (done != (ssize_t)text->size) {
		report_refusal(reader, fd, text, done);
		return false;
	}
	count_time(began);
	count(HINTS, 1);
	return true;
}

static void write_scores(struct reader *reader, struct text *text)
{
	text->size = 0;
	for (unsigned i = 0; i < SCORES; i++)
		add(text, "score %llu %llu.5\n", (unsigned long long)draw(reader, options.files),
		    (unsigned long long)draw(reader, 100));
}

static void write_ids(struct reader *reader, struct text *text, unsigned epoch)
{
	add(text, "order %u", epoch);
	for (uint64_t i = 0; i < options.files; i++)
		add(text, " %llu", (unsigned long long)draw(reader, options.files));
	add(text, "\n");
}

static void write_order(struct reader *reader, struct text *text, unsigned epoch)
{
	text->size = 0;
	add(text, "order %u begin\n", epoch);
	write_ids(reader, text, epoch);
	add(text, "order %u end\nepoch %u\n", epoch, epoch);
}

/* The same order over three writes. */
static bool send_in_pieces(struct reader *reader, int fd, struct text *text, unsigned epoch)
{
	bool sent;

	text->size = 0;
	add(text, "order %u begin\n", epoch);
	sent = send_text(reader, fd, text);
	text->size = 0;
	write_ids(reader, text, epoch);
	rest(REST_NS);
	sent = sent && send_text(reader, fd, text);
	text->size = 0;
	add(text, "order %u end\nepoch %u\n", epoch, epoch);
	return sent && send_text(reader, fd, text);
}

static bool send_something(struct reader *reader, int fd, struct text *text, unsigned *epoch)
{
	if (draw(reader, 4)) {
		write_scores(reader, text);
		return send_text(reader, fd, text);
	}
	++*epoch;
	if (options.hints > 1 && !draw(reader, 2))
		return send_in_pieces(reader, fd, text, *epoch);
	write_order(reader, text, *epoch);
	return send_text(reader, fd, text);
}

void *give_hints(void *context)
{
	struct reader *reader = context;
	struct text text = { .room = LINE_ROOM * (options.files + SCORES + 4) };
	unsigned epoch = 0;

	text.data = malloc(text.room);
	if (!text.data)
		abort();
	while (!is_ending()) {
		uint64_t writes = draw(reader, 2) ? 1 : KEPT_WRITES;
		int fd = open_control(reader);

		while (fd >= 0 && writes-- && !is_ending() &&
		       send_something(reader, fd, &text, &epoch))
			rest(REST_NS);
		if (fd >= 0)
			close(fd);
		rest(REST_NS);
	}
	free(text.data);
	return NULL;
}
