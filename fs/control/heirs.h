/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a successor has to know of control: the directories of jobs, and open files.
 *
 * An open file is called by a number, which the kernel has, and which is never used again. What is
 * kept of it is a block of the estate, and parts that belong to it, such as its text.
 *
 * Of the file `control` that is what its writer counts on: the table, the order or record that is
 * not complete, as the bytes that were written of it, and the answer to the last write. All of it
 * changes at once, when `current` does: so a write that comes again after a death was applied as a
 * whole and is answered as it was then, or it is applied now.
 */
#ifndef SHADE_CONTROL_HEIRS_H
#define SHADE_CONTROL_HEIRS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/process.h"
#include "control/control.h"

/* Bytes of a file: its text, its table, or a write. */
struct kept_part {
	struct kept_part *next; /* of writes */
	bool is_used;		/* while a successor looks what is */
	uint64_t size;
	unsigned char bytes[];
};

/* Of the file `control`, after one of its requests. */
struct kept_state {
	uint64_t written_by; /* the last write */
	uint64_t read_by;    /* the last read of its answer */
	int rc;		     /* of the write */
	bool is_answered;
	bool is_lost;		      /* for want of memory: a successor does not know the file */
	bool has_reply;		      /* which is read instead of the answer, and is lost */
	struct kept_part *table;      /* NULL: ids are the mount's */
	struct kept_part *first_part; /* writes whose last message is not complete; NULL: none */
	struct kept_part *last_part;
	char group[64]; /* that its job is in because it has said so */
	char answer[512];
};

struct kept_file {
	uint64_t number;
	uint64_t opened_by; /* the request */
	uint64_t ino;
	uid_t uid;
	bool claims;
	struct process process;	  /* if it claims */
	uint64_t names_version;	  /* of `samples`; 0: there are none */
	struct kept_part *text;	  /* NULL: it has none */
	_Atomic uint32_t current; /* which of the states counts */
	struct kept_state states[2];
};

/* --- by files */

/* Keeps an open file, and numbers it. 0 or -ENOMEM. */
int heirs_keep(struct control_file *file, const struct control_caller *caller);
/* Nobody finds it any more. False: it was closed before. */
bool heirs_close(struct control_file *file);
/* The file is closed: nothing is kept of it. */
void heirs_drop(struct control_file *file);
/* The file that this request has opened, for a daemon that died before it could answer; or NULL. It
 * is to be put. */
struct control_file *heirs_find_open(struct control *control, uint64_t request);
/* A copy of `text`, which belongs to the file. NULL: no memory. */
struct kept_part *heirs_new_text(struct control_file *file, const char *text, size_t size);

/* --- by the file `control`, with its lock held */

/* Whether the request was applied before the last daemon died. Then `*rc` is what came of it. */
bool heirs_was_written(const struct control_file *file, const struct control_caller *caller,
		       int *rc);
/* The request was applied, or refused; it was `data`. */
void heirs_wrote(struct control_file *file, uint64_t request, const void *data, size_t size,
		 int rc);
/* The end of the last write was taken as the end of a line. */
void heirs_finished(struct control_file *file, int rc);
/* It has said that its job is in a group; "": in none. */
void heirs_joined(struct control_file *file, const char *group);
/* An answer was read. Before that: whether a dead daemon has had it read by the same request. */
bool heirs_was_read(const struct control_file *file, const struct control_caller *caller);
void heirs_read(struct control_file *file, uint64_t request);

/* --- the begin of a successor */

/* Jobs and open files are as they were. A file that cannot be is unknown from now on. 0 or a
 * negative errno. */
int heirs_restore(struct control *control);
/* A directory of a job has another job, or none. */
void heirs_keep_dir_locked(struct control *control, unsigned dir);

#endif
