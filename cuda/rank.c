/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* shade-score rank: losses in, scores out. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "grow.h"
#include "shade/pads.h"

#define LOSSES_MAX (1u << 24)

struct batch {
	float *losses, *scores;
	uint32_t count, room;
};

static void add(struct batch *batch, float loss)
{
	uint32_t scores_room = batch->room; /* both arrays have the same room */

	must_do(grow(batch->scores, scores_room, batch->count, 1), "reading the losses");
	must_do(grow(batch->losses, batch->room, batch->count, 1), "reading the losses");
	batch->losses[batch->count++] = loss;
}

/* Prints the scores of a batch; `ended` by a blank line, which is printed as well. */
static void flush(struct batch *batch, bool ended)
{
	if (batch->count && pads_rank_batch(batch->losses, batch->count, batch->scores))
		give_up("out of memory");
	for (uint32_t i = 0; i < batch->count; i++)
		printf("%.9g\n", (double)batch->scores[i]);
	if (ended)
		putchar('\n');
	batch->count = 0;
	if (fflush(stdout))
		give_up("cannot write the scores: %s", strerror(errno));
}

int command_rank(const struct command_options *options)
{
	struct batch batch = { 0 };
	struct lines lines;

	(void)options;
	lines_open(&lines, "-");
	while (lines_next(&lines)) {
		if (!lines_has_word(&lines)) {
			flush(&batch, true);
			continue;
		}
		if (batch.count == LOSSES_MAX)
			lines_fail(&lines, "a batch has at most %u losses", LOSSES_MAX);
		add(&batch, (float)lines_take_real(&lines, "a loss"));
		lines_end(&lines);
	}
	flush(&batch, false);
	lines_close(&lines);
	free(batch.losses);
	free(batch.scores);
	return 0;
}
