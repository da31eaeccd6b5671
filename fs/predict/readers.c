/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "predict/readers.h"

struct reader *readers_get(struct readers *readers, int32_t thread)
{
	struct reader *reader = &readers->all[(uint32_t)thread % READERS_MAX];

	if (reader->thread != thread || !thread)
		*reader = (struct reader){ .thread = thread, .training = READER_OF_NOBODY };
	return reader;
}

/* Workers run the program of the process that made them; a launcher or a shell runs another one,
 * and may live for long after the training. */
static void look_at(struct reader *reader)
{
	struct process lineage[PROCESS_DEPTH];
	unsigned length = process_lineage(reader->thread, lineage);

	if (length > 0)
		reader->self = lineage[0];
	if (length > 1 && process_is_same_program(lineage[0].pid, lineage[1].pid))
		reader->parent = lineage[1];
}

void reader_assign(struct reader *reader, int training)
{
	reader->training = training;
	reader->pending_count = 0;
	reader->told = false;
	look_at(reader);
}

void readers_forget(struct readers *readers, int training)
{
	for (unsigned i = 0; i < READERS_MAX; i++) {
		struct reader *reader = &readers->all[i];

		if (reader->thread && reader->training == training)
			*reader = (struct reader){ 0 };
	}
}

static bool lives(const struct process *process)
{
	return process->pid && process_lives(process);
}

bool readers_live(struct readers *readers, int training)
{
	for (unsigned i = 0; i < READERS_MAX; i++) {
		struct reader *reader = &readers->all[i];

		if (!reader->thread || reader->training != training)
			continue;
		if (lives(&reader->self) || lives(&reader->parent))
			return true;
		*reader = (struct reader){ 0 };
	}
	return false;
}
