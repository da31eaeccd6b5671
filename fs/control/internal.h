/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The inside of control, for directory.c (names and jobs), open.c (open files), apply.c (the file
 * `control`), report.c (texts) and trace.c (the file `trace`). */
#ifndef SHADE_CONTROL_INTERNAL_H
#define SHADE_CONTROL_INTERNAL_H

#include <stdio.h>

#include "base/threads.h"
#include "control/control.h"
#include "control/parse.h"

#define JOBS_MAX 15 /* besides job 0, which is always there */

struct control {
	struct control_options options; /* constant */
	const char *mode;		/* constant once there are requests */

	struct lock jobs_lock;
	struct {
		char name[64]; /* empty: no job has this directory */
		uint32_t id;   /* the policy core's number of the job */
		unsigned opens;
	} jobs[JOBS_MAX + 1];	    /* jobs_lock: by directory number; 0 is .shade, for job 0 */
	struct control_file *files; /* jobs_lock: all that are open */

	struct lock trace_lock;
	struct control_waiter *waiters; /* trace_lock: reads of `trace` */
	bool stopping;			/* trace_lock */
};

struct control_file {
	struct control *control;
	const struct entry *entry;	     /* which file it is */
	unsigned dir;			     /* the number of its directory */
	uint32_t job;			     /* the policy core's number */
	char *text;			     /* texts: what a reader gets, made at the open */
	size_t size;			     /* of the text */
	struct lock lock;		     /* `control`: one command at a time */
	struct control_parser *parser;	     /* `control`; lock */
	bool answered;			     /* lock: the answer was read */
	bool holds_samples;		     /* lock: ids of the cache's are kept */
	uint64_t trace_at;		     /* `trace`; trace_lock: the next access to tell of */
	struct control_file *next, **before; /* jobs_lock: in control->files */
};

/* --- directory.c */

enum entry_kind { ENTRY_TEXT, ENTRY_CONTROL, ENTRY_TRACE };

/* Writes a report; 0 or -ENOMEM. */
typedef int report(struct control *control, uint32_t job, FILE *out);

/* A file of .shade. */
struct entry {
	const char *name;
	enum entry_kind kind;
	report *report;	    /* texts: in .shade */
	report *job_report; /* texts: in the directory of a job; NULL: not there */
};

const struct entry *entry_of(uint64_t ino);
bool caller_may_use(const struct control *control, const struct control_caller *caller);
/* Adds the file to those that are open: a job cannot end while it has any. 0, or -ENOENT if the job
 * has ended. */
int job_enter(struct control_file *file, uint64_t ino);
void job_leave(struct control_file *file);

/* --- report.c */

report report_stats, report_metrics, report_config, report_samples, report_scores, report_order,
	report_resident, report_job_stats;

/* --- apply.c: the context of a parser is its file */

extern const struct control_ops apply_ops;
/* The answer to the last write from the beginning, once; then nothing. To be freed; NULL: no
 * memory. */
char *apply_take_answer(struct control_file *file, size_t max, size_t *length);

/* --- trace.c */

void trace_open(struct control_file *file);
void trace_close(struct control_file *file);
void trace_read(struct control_file *file, struct control_waiter *waiter);
/* Answers all that wait; `stops`: and nobody waits any more from now on. */
void trace_end(struct control *control, bool stops);

#endif
