/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The file `refused`: why the latest writes to `control` were not taken. Whoever writes with a
 * shell's echo gets no more than "Invalid argument", and has no descriptor to read the answer from.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "control/internal.h"
#include "escape.h"

void refused_add(struct control_file *file)
{
	struct control *control = file->control;
	const char *answer = control_parser_answer(file->parser);
	struct refusal *refusal;

	lock_acquire(&control->jobs_lock);
	refusal = &control->refused.list[control->refused.count++ % REFUSED_MAX];
	refusal->at_ms = clock_now_ms();
	refusal->uid = file->user->uid;
	snprintf(refusal->job, sizeof(refusal->job), "%s",
		 file->dir ? control->jobs[file->dir].name : "-");
	snprintf(refusal->sentence, sizeof(refusal->sentence), "%.*s", (int)strcspn(answer, "\n"),
		 answer);
	lock_release(&control->jobs_lock);
}

/* The oldest first: seconds since then, user, job, sentence. */
int report_refused(struct control *control, uint32_t job, FILE *out)
{
	uint64_t now_ms = clock_now_ms(), first;

	(void)job;
	lock_acquire(&control->jobs_lock);
	first = control->refused.count > REFUSED_MAX ? control->refused.count - REFUSED_MAX : 0;
	fprintf(out, "# %" PRIu64 " writes to control were refused\n", control->refused.count);
	for (uint64_t i = first; i < control->refused.count; i++) {
		const struct refusal *refusal = &control->refused.list[i % REFUSED_MAX];

		fprintf(out, "%" PRIu64 "\t%u\t", (now_ms - refusal->at_ms) / 1000,
			(unsigned)refusal->uid);
		escape_print(out, refusal->job, ESCAPE_LINE);
		fputc('\t', out);
		escape_print(out, refusal->sentence, ESCAPE_LINE);
		fputc('\n', out);
	}
	lock_release(&control->jobs_lock);
	return 0;
}
