/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Between parse.c, which keeps the state, text.c and binary.c, which read one language each. */
#ifndef SHADE_CONTROL_PARSE_INTERNAL_H
#define SHADE_CONTROL_PARSE_INTERNAL_H

#include "control/parse.h"

#include <assert.h>
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
	CONTROL_USES,
	CONTROL_WARM,
	CONTROL_EVICT,
	CONTROL_PIN,
	CONTROL_UNPIN,
	CONTROL_CAPACITY,
	CONTROL_POLICY,
	CONTROL_RESCAN,
	CONTROL_FORGET,
	CONTROL_GROUP,
	CONTROL_SHARED,
	CONTROL_READ_SHARED,
	CONTROL_READ_IMPORTANCE,
	CONTROL_UPGRADE,
};

/* The position of a message in a write, for the answer: lines and records are counted apart. */
struct control_position {
	bool is_record;
	uint32_t first;
	uint32_t last; /* of several `score` lines */
};

/* A checked message that waits until the whole write is. Offsets are bytes in a pool. */
struct control_command {
	enum control_kind kind;
	struct control_position position;
	uint32_t count;	  /* of scores, or of ids */
	bool is_weighted; /* `scores_at` are weights */
	size_t ids_at;	  /* in `ids`; of a text order in `order_ids` */
	size_t scores_at; /* in `scores` */
	size_t text_at;	  /* in `texts`: a path or a name */
	uint64_t number;  /* an epoch, or bytes */
	double share;	  /* of a capacity, or uses */
};

/* A text order between begin and end. */
struct control_order {
	bool open;
	bool is_shared; /* it is for the job's group */
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
	bool is_replaying; /* commands were called already */

	char why[400]; /* an upgrade was refused */
	char answer[512];
};

#define CONTROL_QUOTE_SIZE 64

/* How many ids there are for this descriptor. */
static inline uint32_t control_id_count(const struct control_parser *p)
{
	return p->table.used ? (uint32_t)(p->table.used / sizeof(uint32_t)) : p->id_limit;
}

/* From an id below control_id_count() to the mount's. */
static inline uint32_t control_map_id(const struct control_parser *p, uint32_t id)
{
	assert(id < control_id_count(p));
	return p->table.used ? ((const uint32_t *)p->table.data)[id] : id;
}

/* --- parse.c */

/* Makes the answer "line N: ..." or "record N, byte B: ..." and returns -EINVAL. */
int control_fail(struct control_parser *p, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Room for `size` more bytes; 0 or -ENOMEM. */
int control_pool_reserve(struct control_pool *pool, size_t size);
int control_pool_add(struct control_pool *pool, const void *data, size_t size);
void control_pool_free(struct control_pool *pool);
/* A new command at the present position; NULL: no memory. Holds until the next one is added. */
struct control_command *control_add_command(struct control_parser *p, enum control_kind kind);
/* Skips "./"; "." if nothing is left, which is not part of `path`; NULL: the path is empty or
 * absolute. */
const char *control_relative(const char *path);
/* For an answer: printable, and cut if it is long. Returns `quoted`. */
const char *control_quote(char quoted[CONTROL_QUOTE_SIZE], const char *text, size_t size);
/* Finds a sample; -EINVAL with an answer if there is none. */
int control_find_sample(struct control_parser *p, const char *path, uint32_t *id);

/* --- text.c */

/* Takes one line, or the part of it that is there. */
int control_text_take(struct control_parser *p, struct control_input *in);
/* The line ends here. */
int control_text_end(struct control_parser *p);

/* --- binary.c */

/* Takes one record, or the part of it that is there. */
int control_binary_take(struct control_parser *p, struct control_input *in);
/* The first that is no finite number of 0 or more; `count`: all are good. */
uint32_t control_bad_score(const float *scores, uint32_t count);

#endif
