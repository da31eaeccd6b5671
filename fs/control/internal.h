/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The inside of control, for directory.c (names), jobs.c (who reads for which, and their end),
 * groups.c (groups of them), guesses.c (those that were recognised), open.c (open files), charge.c
 * (how much each user has), apply.c (the file `control`), figures.c, report.c and history.c
 * (texts), refused.c (the file `refused`), names.c (the file `samples`) and trace.c (the file
 * `trace`). */
#ifndef SHADE_CONTROL_INTERNAL_H
#define SHADE_CONTROL_INTERNAL_H

#include <stdio.h>

#include "base/threads.h"
#include "control/claims.h"
#include "control/control.h"
#include "control/group.h"
#include "control/heirs.h"
#include "control/parse.h"
#include "control/quota.h"

#define JOBS_MAX 15	    /* besides job 0, which is always there */
#define GROUPS_MAX JOBS_MAX /* each has a member at least */

#define FILES_MAX 4096 /* open ones: quota.h allows fewer */
#define REFUSED_MAX 16

/* A write to `control` that was not taken. */
struct refusal {
	uint64_t at_ms; /* by clock_now_ms() */
	uid_t uid;
	char job[64]; /* "-": job 0 */
	char sentence[256];
};

struct control {
	struct control_options options; /* constant */
	const char *mode;		/* constant once there are requests */

	struct lock jobs_lock;
	struct {
		char name[64]; /* empty: no job has this directory */
		uint32_t id;   /* the policy core's number of the job */
		unsigned opens;
		unsigned controls;  /* of these: `control` */
		uint64_t alive_ms;  /* its training was last known to live */
		uint64_t guess;	    /* it was recognised, as the so-manieth; 0: it was made */
	} jobs[JOBS_MAX + 1];	    /* jobs_lock: by directory number; 0 is .shade, for job 0 */
	uint64_t guesses;	    /* jobs_lock: so many, ever */
	uint64_t inherited_guesses; /* constant: those up to this are of a daemon that has died */
	struct control_file *files; /* jobs_lock: all that are open */
	struct control_file *by_place[FILES_MAX]; /* jobs_lock: by their numbers, see heirs.c */
	struct quota quota;			  /* jobs_lock: who has them */
	struct {
		uint64_t count; /* since the mount */
		struct refusal list[REFUSED_MAX];
	} refused;				   /* jobs_lock: the latest, as a ring */
	_Atomic bool told_of_files, told_of_bytes; /* the log knows that somebody wanted too many */

	struct lock groups_lock;
	struct group groups[GROUPS_MAX]; /* groups_lock: by number; without a name: not there */
	/* groups_lock: by job: the file that has said which group it is in, until it is closed */
	const struct control_file *speakers[GROUP_MEMBERS];

	struct lock claims_lock;
	struct claims claims; /* claims_lock */
	uint64_t looked_ms;   /* only control_tick() uses it: who lives was looked at */

	struct lock report_lock; /* held while a text on all samples is made */
	struct names *names;	 /* report_lock: the latest list; NULL: nobody reads one */

	struct lock trace_lock;
	struct control_waiter *waiters; /* trace_lock: reads of `trace` */
	bool stopping;			/* trace_lock */
};

struct control_file {
	struct control *control;
	struct kept_file *kept;		     /* for a successor */
	uint64_t kept_bytes;		     /* lock: of its table and its unfinished writes */
	uint64_t number;		     /* constant: what the kernel calls it */
	unsigned users;			     /* jobs_lock: requests that have found it */
	bool is_closed;			     /* jobs_lock: the last of them ends it */
	uint64_t ino;			     /* constant */
	const struct entry *entry;	     /* which file it is */
	unsigned dir;			     /* the number of its directory */
	uint32_t job;			     /* the policy core's number; of a group its own */
	struct kept_part *text;		     /* texts: what a reader gets, made at the open */
	uint64_t names_wanted;		     /* lock: `samples` of a dead daemon; its version */
	struct names *names;		     /* `samples`; jobs_lock: the list that it shows */
	struct quota_user *user;	     /* who opened it; constant */
	struct process process;		     /* `control`: constant, if it `claims` */
	bool claims;			     /* constant: this process reads for the job */
	uint64_t bytes;			     /* jobs_lock: what counts of it as the user's */
	struct lock lock;		     /* `control`: one command at a time */
	struct control_parser *parser;	     /* `control`; lock */
	bool answered;			     /* lock: the answer was read */
	unsigned char *reply;		     /* lock: what is read instead of it; NULL: nothing */
	size_t reply_size, reply_at;	     /* lock */
	bool reply_is_lost;		     /* lock: it was a dead daemon's */
	bool has_new_table;		     /* lock: that is not kept yet */
	bool holds_samples;		     /* lock: ids of the cache's are kept */
	uint64_t trace_at;		     /* `trace`; trace_lock: the next access to tell of */
	struct control_file *next, **before; /* jobs_lock: in control->files */
};

/* --- open.c */

/* Ends an open file without a last command. */
void open_end(struct control_file *file);
/* The same for one that has not entered its job. */
void open_free(struct control_file *file);

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

/* A job with this name. 0 or a negative errno. */
int job_make_locked(struct control *control, const char *name, unsigned *dir);

/* --- guesses.c */

/* Ends a job that was only recognised, so that its directory is free. False: there is none. */
bool guess_make_way_locked(struct control *control);

/* --- jobs.c */

/* The file was opened by this thread: its process reads for the job from now on; and not only
 * because of this file. With a time that the process began at it is not another one's number. */
void job_claim(struct control_file *file, int32_t thread, uint64_t start);
void job_unclaim(struct control_file *file);
/* The job of a directory that has no open files, and whose name goes. 0 or a negative errno. */
int job_end_locked(struct control *control, unsigned dir);
/* What was said for a job goes at once, and the job with it unless it is in use; "0": job 0, if no
 * other has that name; "": all that nobody uses but the file. 0 or -ENOENT. */
int jobs_forget(const struct control_file *file, const char *name);
/* Looks who lives, and which trainings have ended. */
void jobs_tick(struct control *control);

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
/* Of the list: others are the same if they have the same. */
uint64_t names_version(const struct names *names);
/* Up to `max` bytes of its text. To be freed; NULL: no memory. */
char *names_copy(const struct names *names, uint64_t offset, size_t max, size_t *used);

/* --- report.c */

report report_config, report_predictions, report_scores, report_order, report_resident,
	report_job_stats;

/* The share that a job has read in its epoch: of the samples that it has said to read, else of
 * all. */
double coverage_of(const struct control *control, const struct sched_job_stats *stats);

/* --- figures.c */

report report_stats, report_metrics;

/* --- refused.c */

report report_refused;
/* The latest write was refused; the answer of the parser says why. */
void refused_add(struct control_file *file);

/* --- history.c */

report report_epochs, report_history;

/* --- apply.c: the context of a parser is its file */

extern const struct control_ops apply_ops;
/* The answer to the last write from the beginning, once; then nothing. To be freed; NULL: no
 * memory. */
int apply_take_answer(struct control_file *file, const struct control_caller *caller, size_t max,
		      char **answer, size_t *length);

/* Nothing more comes of the last write: a line without a newline counts. */
void apply_finish(struct control_file *file);
/* What the file counts of its user's. */
uint64_t apply_bytes(const struct control_file *file);
/* What was to be read instead is forgotten. */
void apply_drop_reply(struct control_file *file);

/* --- groups.c: what is said on the `control` of a job. 0 or a negative errno; -ENXIO: the job is
 * in no group. */

/* "": it leaves its group. -EPERM: job 0. */
int groups_join(struct control_file *file, const char *name);
/* The file is closed. */
void groups_close(struct control_file *file);
int groups_begin(struct control_file *file, struct shade_ioctl_group *turn);
int groups_put(struct control_file *file, uint64_t epoch, const uint32_t *ids, const float *weights,
	       uint32_t count);
/* What is read on the file next is that record. */
int groups_read_order(struct control_file *file, uint64_t epoch);
int groups_read_importance(struct control_file *file);
/* Their `job` is the number of a group. */
report report_group_members, report_group_order, report_group_scores;

/* --- trace.c */

void trace_open(struct control_file *file);
void trace_close(struct control_file *file);
void trace_read(struct control_file *file, struct control_waiter *waiter);
/* Answers those who wait and whom there is something to tell. */
void trace_tick(struct control *control);
/* Answers all that wait; `stops`: and nobody waits any more from now on. */
void trace_end(struct control *control, bool stops);

#endif
