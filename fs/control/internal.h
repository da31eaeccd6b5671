/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The inside of control, for directory.c (names and jobs), open.c (open files), charge.c (how
 * much each user has), apply.c (the file `control`), report.c (texts), names.c (the file `samples`)
 * and trace.c (the file `trace`). */
#ifndef SHADE_CONTROL_INTERNAL_H
#define SHADE_CONTROL_INTERNAL_H

#include <stdio.h>

#include "base/threads.h"
#include "control/control.h"
#include "control/parse.h"
#include "control/quota.h"

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
	struct quota quota;	    /* jobs_lock: who has them */
	_Atomic bool told_of_files, told_of_bytes; /* the log knows that somebody wanted too many */

	struct lock report_lock; /* held while a text on all samples is made */
	struct names *names;	 /* report_lock: the latest list; NULL: nobody reads one */

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
	struct names *names;		     /* `samples`; jobs_lock: the list that it shows */
	struct quota_user *user;	     /* who opened it; constant */
	uint64_t bytes;			     /* jobs_lock: what counts of it as the user's */
	struct lock lock;		     /* `control`: one command at a time */
	struct control_parser *parser;	     /* `control`; lock */
	bool answered;			     /* lock: the answer was read */
	bool holds_samples;		     /* lock: ids of the cache's are kept */
	uint64_t trace_at;		     /* `trace`; trace_lock: the next access to tell of */
	struct control_file *next, **before; /* jobs_lock: in control->files */
};

/* --- directory.c */

enum entry_kind { ENTRY_TEXT, ENTRY_LONG_TEXT, ENTRY_SAMPLES, ENTRY_CONTROL, ENTRY_TRACE };

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
/* Adds the file to those that are open: a job cannot end while it has any. 0; -ENOENT if the job
 * has ended; -EMFILE if the caller has too many. */
int job_enter(struct control_file *file, uint64_t ino, const struct control_caller *caller);
void job_leave(struct control_file *file);

/* --- charge.c */

/* From now on the file counts as `bytes` of its user's. -ENOMEM: these are too many, and it counts
 * as before; the log is told once. */
int charge_bytes(struct control_file *file, uint64_t bytes);
/* The same, whatever the limit is. */
void charge_set(struct control_file *file, uint64_t bytes);
/* The file shows this list. A list counts once for each user who has it, however often. */
int charge_names(struct control_file *file, struct names *names);
/* The file is closed, and not among those that are open any more. Another one of its user's takes
 * over what their list counts. */
void charge_end_locked(struct control_file *file);

/* --- names.c */

/* The list of samples as they are now. 0, -EAGAIN or -ENOMEM. */
int names_get(struct control *control, struct names **out);
void names_put(struct control *control, struct names *names);
uint64_t names_bytes(const struct names *names);
/* Up to `max` bytes of its text. To be freed; NULL: no memory. */
char *names_copy(const struct names *names, uint64_t offset, size_t max, size_t *used);

/* --- report.c */

report report_stats, report_metrics, report_config, report_scores, report_order, report_resident,
	report_job_stats;

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
