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

#include <stddef.h>
#include <stdint.h>

#include "shade/control.h"

/* Bytes of one write. The kernel cuts at 1 MiB. */
#define CONTROL_WRITE_MAX ((size_t)32 << 20)

/*
 * Memory of a descriptor, at most: 256 MiB for the order that is open, 256 MiB for its table,
 * 256 MiB for a record that is not complete (128 MiB of scores, an order, the next table), and
 * ten times the bytes of the write at hand; up to half as much again is spare room. It
 * grows with the bytes that have come, never with what a header promises.
 */

struct control_parser;

/* What a parser asks and orders; all are needed. `ctx` is control_parser_new()'s. Paths are
 * relative to the mount, without "./" in front; "." is the mount itself. */
struct control_ops {
	/* Questions, before anything of a write is applied. */
	uint32_t (*sample_count)(void *ctx);
	int (*find_sample)(void *ctx, const char *path, uint32_t *id); /* 0 or -ENOENT */
	int (*check_path)(void *ctx, const char *path);		       /* 0 or -ENOENT */
	int (*check_policy)(void *ctx, const char *name);	       /* 0 or -EINVAL */

	/* Commands, in the sequence they were written. The first that returns a negative errno
	 * ends the write: what came before it stays applied, what follows is not, and the
	 * descriptor's open order and table are as before the write, so that it can be
	 * sent again. `score` lines that follow each other are one call. */
	int (*scores)(void *ctx, const uint32_t *ids, const float *scores, uint32_t count);
	int (*order)(void *ctx, uint64_t epoch, const uint32_t *ids, uint32_t count);
	int (*epoch)(void *ctx, uint64_t epoch);
	int (*warm)(void *ctx, const char *path);
	int (*evict)(void *ctx, const char *path);
	int (*pin)(void *ctx, const char *path);
	int (*unpin)(void *ctx, const char *path);
	/* `share` above 0: that part of the memory, at most 1; otherwise `bytes`. */
	int (*capacity)(void *ctx, uint64_t bytes, double share);
	int (*policy)(void *ctx, const char *name);
	int (*rescan)(void *ctx);
};

/* NULL: no memory. `ops` must outlive the parser. */
struct control_parser *control_parser_new(const struct control_ops *ops, void *ctx);

/* Forgets an unfinished message and an open order. NULL is fine. */
void control_parser_free(struct control_parser *p);

/* Takes all of `data`. 0; -EINVAL: bad input; -ENOMEM; or what a command returned. */
int control_parser_write(struct control_parser *p, const void *data, size_t size);

/* No more bytes will come for now: a last line without a newline is executed, an unfinished
 * record is -EINVAL. An open order stays open until control_parser_free(), for a flush is
 * not always a close. Otherwise as control_parser_write(). */
int control_parser_finish(struct control_parser *p);

/* What the last call did, a line of text: "ok 3 commands", or what was wrong and where. Holds
 * until the next call. */
const char *control_parser_answer(const struct control_parser *p);

/* SHADE_IOCTL_SCORES: checks the batch and hands it over, as a write would. */
int control_parser_batch(struct control_parser *p, const struct shade_ioctl_scores *batch);

/* The mount's id for an id on this descriptor, or -EINVAL. */
int control_parser_id(struct control_parser *p, uint32_t id, uint32_t *mount_id);

/* "4096", "512M", "8g" into `*bytes` with `*share` 0, or "40%" into `*share` = 0.4. -EINVAL:
 * neither, or more than 64 bits. 0 % and more than 100 % are refused. */
int control_parse_size(const char *text, uint64_t *bytes, double *share);

/*
 * The rest is between control_parse.c, which keeps the state, control_text.c and
 * control_binary.c, which read one language each.
 */
#ifdef CONTROL_PARSE_PARTS

#include <stdbool.h>

/* Bytes that grow. */
struct control_pool {
	unsigned char *data;
	size_t used;
	size_t room;
};

/* The part of a write that is not read yet. */
struct control_input {
	const char *at;
	const char *end;
};

enum control_kind {
	CONTROL_SCORES,
	CONTROL_ORDER,
	CONTROL_EPOCH,
	CONTROL_WARM,
	CONTROL_EVICT,
	CONTROL_PIN,
	CONTROL_UNPIN,
	CONTROL_CAPACITY,
	CONTROL_POLICY,
	CONTROL_RESCAN,
};

/* Where a message is, to be told: lines and records of a write are counted apart. */
struct control_place {
	bool is_record;
	uint32_t first;
	uint32_t last; /* of several `score` lines */
};

/* A checked message that waits until the whole write is. Offsets are bytes in a pool. */
struct control_command {
	enum control_kind kind;
	struct control_place place;
	uint32_t count;	  /* of scores, or of ids */
	size_t ids_at;	  /* in `ids`; of a text order in `order_ids` */
	size_t scores_at; /* in `scores` */
	size_t text_at;	  /* in `texts`: a path or a name */
	uint64_t number;  /* an epoch, or bytes */
	double share;
};

/* A text order between begin and end. */
struct control_order {
	bool open;
	uint64_t epoch;
	size_t ids_at; /* in `order_ids` */
};

/* A record that is being read. */
struct control_record {
	unsigned char head[32];
	uint32_t head_used;
	uint32_t head_need; /* grows as more of the head is understood; 0: no record */
	uint16_t type;
	uint64_t epoch;
	uint32_t count;
	uint32_t checked;    /* of the array at hand: entries that are known to be good */
	uint64_t body_bytes; /* after the head */
	uint64_t body_taken;
	size_t ids_at;	  /* in `ids` */
	size_t scores_at; /* in `scores` */
};

struct control_parser {
	const struct control_ops *ops;
	void *ctx;

	/* What lasts from write to write. */
	struct control_pool partial; /* the line, or the path of a table, that is not complete */
	bool in_ids;		     /* `partial` goes on with ids of an `order` line ... */
	size_t line_ids_at;	     /* ... whose ids begin here in `order_ids` */
	struct control_record record;
	struct control_order order;
	struct control_pool order_ids;
	struct control_pool table; /* the mount's ids by the client's; empty: they are the same */

	/* Of one write, but for the beginning of `record` in ids, scores and next_table. */
	struct control_pool ids;
	struct control_pool scores;
	struct control_pool texts;
	struct control_pool next_table;
	struct control_pool commands;
	uint32_t id_limit; /* ids are below this */
	uint32_t line;	   /* counted from 1 */
	uint32_t record_number;
	uint64_t message_count;

	/* What a failure goes back to. */
	struct control_order old_order;
	size_t old_order_used;
	struct control_pool old_table;
	bool table_changed;

	char answer[512];
};

#define CONTROL_QUOTE_SIZE 64

/* control_parse.c */

/* Makes the answer "line N: ..." or "record N, byte B: ..." and returns -EINVAL. */
int control_fail(struct control_parser *p, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Room for `size` more bytes; 0 or -ENOMEM. */
int control_pool_reserve(struct control_pool *pool, size_t size);
int control_pool_add(struct control_pool *pool, const void *data, size_t size);
void control_pool_free(struct control_pool *pool);
/* A new command at the present place; NULL: no memory. Holds until the next one is added. */
struct control_command *control_add_command(struct control_parser *p, enum control_kind kind);
/* How many ids there are for this descriptor. */
uint32_t control_id_count(const struct control_parser *p);
/* From an id below control_id_count() to the mount's. */
uint32_t control_map_id(const struct control_parser *p, uint32_t id);
/* Skips "./"; "." if nothing is left, which is not part of `path`; NULL: the path is empty or
 * absolute. */
const char *control_relative(const char *path);
/* For an answer: printable, and cut if it is long. Returns `quoted`. */
const char *control_quote(char quoted[CONTROL_QUOTE_SIZE], const char *text, size_t size);
/* Finds a sample; -EINVAL with an answer if there is none. */
int control_find_sample(struct control_parser *p, const char *path, uint32_t *id);

/* control_text.c: takes one line, or the part of it that is there. */
int control_text_take(struct control_parser *p, struct control_input *in);
/* The line ends here. */
int control_text_end(struct control_parser *p);

/* control_binary.c: takes one record, or the part of it that is there. */
int control_binary_take(struct control_parser *p, struct control_input *in);
/* The first that is no finite number of 0 or more; `count`: all are good. */
uint32_t control_bad_score(const float *scores, uint32_t count);

#endif
#endif
