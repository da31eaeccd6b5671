/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the files behind .shade share: shade_files.c (the directory and open files), shade_print.c
 * (what can be read), shade_control.c (commands), shade_trace.c (accesses as they happen). */
#ifndef SHADE_SHADE_H
#define SHADE_SHADE_H

#include <stdio.h>

#include "base/threads.h"
#include "control/parse.h"
#include "daemon/daemon.h"

/* An open file. */
struct shade_handle {
	struct front *front;
	unsigned place; /* whose directory it is in */
	uint32_t job;	/* the policy core's number of it */
	char *text;	/* what a reader gets, made at the open */
	size_t size;
	struct lock lock;	       /* control: one command at a time */
	struct control_parser *parser; /* lock */
	bool answered;		       /* lock: the answer was read */
	bool traces;
	uint64_t trace_at;		     /* the next access to tell of */
	struct shade_handle *next, **before; /* jobs_lock: in front->handles */
};

/* --- shade_print.c */

void print_stats(struct front *front, uint32_t job, FILE *out);
void print_metrics(struct front *front, uint32_t job, FILE *out);
void print_config(struct front *front, uint32_t job, FILE *out);
void print_samples(struct front *front, uint32_t job, FILE *out);
void print_scores(struct front *front, uint32_t job, FILE *out);
void print_order(struct front *front, uint32_t job, FILE *out);
void print_resident(struct front *front, uint32_t job, FILE *out);
void print_job_stats(struct front *front, uint32_t job, FILE *out);

/* --- shade_control.c: the context of a parser is its handle */

extern const struct control_ops shade_control_ops;

/* --- shade_trace.c */

void trace_open(struct shade_handle *handle);
void trace_close(struct shade_handle *handle);
/* Answers now, or when there is something to tell. */
void trace_read(struct shade_handle *handle, fuse_req_t req, size_t size);

#endif
