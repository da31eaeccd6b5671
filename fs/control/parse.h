/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * From bytes written to .shade/control to calls: one parser for each open descriptor, no
 * I/O, no threads, one caller at a time. The languages are in shade/control.h.
 *
 * A write is parsed and checked as far as its messages are complete, and only then applied.
 * Any failure before that calls nothing and leaves the order that is open and the table of
 * the descriptor as they were before the write; an unfinished message is dropped.
 *
 * Since checks come first, they see the state before the write: `rescan` and `warm` of what
 * the rescan will find do not go into one write.
 */
#ifndef SHADE_CONTROL_PARSE_H
#define SHADE_CONTROL_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shade/control.h"

/* Bytes of one write. The kernel cuts at 1 MiB. */
#define CONTROL_WRITE_MAX ((size_t)32 << 20)

/* How many times the bytes of a write may be needed to read it. */
#define CONTROL_WRITE_FACTOR 10

/*
 * Memory of a descriptor, at most: 256 MiB for the order that is open, 256 MiB for its table,
 * 256 MiB for a record that is not complete (128 MiB of scores, an order, the next table), and
 * ten times the bytes of the write at hand; up to half as much again is spare room. It
 * grows with the bytes that have come, never with what a header promises. The caller may allow
 * less, see control_parser_bytes().
 */

struct control_parser;

/* What a parser asks and orders; all are needed. `ctx` is control_parser_new()'s. Paths are
 * relative to the mount, without a leading "./"; "." is the mount itself. */
struct control_ops {
	/* Questions, before anything of a write is applied. */
	uint32_t (*sample_count)(void *ctx);
	int (*find_sample)(void *ctx, const char *path, uint32_t *id); /* 0 or -ENOENT */
	int (*check_path)(void *ctx, const char *path);		       /* 0 or -ENOENT */
	int (*check_policy)(void *ctx, const char *name);	       /* 0 or -EINVAL */
	/* 0, or -EINVAL if it is too small. */
	int (*check_capacity)(void *ctx, uint64_t bytes, double share);

	/* Commands, in the sequence they were written. The first that returns a negative errno
	 * ends the write: what came before it stays applied, what follows is not, and the
	 * descriptor's open order and table are as before the write, so that it can be
	 * sent again. `score` lines that follow each other are one call. */
	int (*scores)(void *ctx, const uint32_t *ids, const float *scores, uint32_t count);
	int (*order)(void *ctx, uint64_t epoch, const uint32_t *ids, uint32_t count);
	int (*epoch)(void *ctx, uint64_t epoch);
	int (*uses)(void *ctx, double uses);	   /* 1 to SHADE_USES_MAX */
	int (*group)(void *ctx, const char *name); /* "": the job leaves its group */
	/* An order for the group; `weights` are by entry, or NULL. */
	int (*shared)(void *ctx, uint64_t epoch, const uint32_t *ids, const float *weights,
		      uint32_t count);
	/* What is read next on the descriptor: an order of the group, or its importances. */
	int (*read_shared)(void *ctx, uint64_t epoch);
	int (*read_importance)(void *ctx);
	int (*warm)(void *ctx, const char *path);
	int (*evict)(void *ctx, const char *path);
	int (*pin)(void *ctx, const char *path);
	int (*unpin)(void *ctx, const char *path);
	/* `share` above 0: that part of the memory, at most 1; otherwise `bytes`. */
	int (*capacity)(void *ctx, uint64_t bytes, double share); /* -EBUSY: pins need more */
	int (*policy)(void *ctx, const char *name);
	int (*rescan)(void *ctx);
	int (*upgrade)(void *ctx, char *why, size_t room); /* with a reason if it fails */
	int (*forget)(void *ctx, const char *job);	   /* "": all that are gone; -ENOENT */
	/* The descriptor has a table from now on: the mount's ids. */
	void (*table)(void *ctx, const uint32_t *ids, uint32_t count);
};

/* NULL: no memory. `ops` must outlive the parser. */
struct control_parser *control_parser_new(const struct control_ops *ops, void *ctx);

/* Drops an unfinished message and an open order. NULL is fine. */
void control_parser_free(struct control_parser *p);

/* Takes all of `data`. 0; -EINVAL: bad input; -ENOMEM; or what a command returned. */
int control_parser_write(struct control_parser *p, const void *data, size_t size);

/* No more bytes will come for now: a last line without a newline is executed, an unfinished
 * record is -EINVAL. An open order stays open until control_parser_free(), for a flush is
 * not always a close. Otherwise as control_parser_write(). */
int control_parser_finish(struct control_parser *p);

/* What the parser has allocated. A write of `size` bytes adds half of that, or CONTROL_WRITE_FACTOR
 * times `size`, or the sum of both, at most. */
uint64_t control_parser_bytes(const struct control_parser *p);
/* The caller has no memory for a write: it fails as if it had been parsed and refused. -ENOMEM. */
int control_parser_refuse(struct control_parser *p);

/* What the last call did, a line of text: "ok 3 commands", or what was wrong and where. Holds
 * until the next call. */
const char *control_parser_answer(const struct control_parser *p);

/* SHADE_IOCTL_SCORES: checks the scores and applies them, as a write would. */
int control_parser_scores(struct control_parser *p, const struct shade_ioctl_scores *scores);

/* Whether something is between its begin and its end: an order, a record, a line. */
bool control_parser_is_unfinished(const struct control_parser *p);
/* Whether the last write has changed the table. */
bool control_parser_has_new_table(const struct control_parser *p);

/* What another parser was told is told again: its table, which is copied, then each write since
 * something is unfinished; no bytes: one that was refused. No command is called. 0, -ENOMEM, or
 * -EINVAL: it means nothing any more. Last its answer, of fewer than 512 bytes. */
int control_parser_set_table(struct control_parser *p, const uint32_t *ids, uint32_t count);
int control_parser_replay(struct control_parser *p, const void *data, size_t size);
void control_parser_set_answer(struct control_parser *p, const char *answer);

/* The table of the descriptor: the mount's ids by its own. NULL: they are the same. */
const uint32_t *control_parser_table(const struct control_parser *p, uint32_t *count);

/* The mount's id for an id on this descriptor, or -EINVAL. */
int control_parser_id(struct control_parser *p, uint32_t id, uint32_t *mount_id);

#endif
