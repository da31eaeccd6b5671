/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The estate: memory that outlives the daemon, for the successor that takes over if it dies.
 *
 * It is one mapping that the supervisor makes before the first daemon is forked. All daemons have
 * it at the same address, those of a newer program, too, so what is in it may point to what is in
 * it, but to nothing else: a successor has another heap. Blocks are handed out like malloc()'s. A
 * block counts only once it is kept: what was being filled in when the daemon died is free again. A
 * kill between two instructions loses no store that came before it, so whoever writes a block first
 * and keeps it then leaves no half of it.
 *
 * All functions may be called from any thread.
 */
#ifndef SHADE_ESTATE_H
#define SHADE_ESTATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/format.h"

#define ESTATE_FRONT 65536 /* bytes at a fixed place, zero at first */

struct estate;

/* What a block is. A successor looks for blocks by their kinds. */
enum estate_kind {
	ESTATE_NOTHING, /* free, or not kept yet */
	ESTATE_DEVICES, /* source/: struct devices */
	ESTATE_NODE,	/* names/: struct node */
	ESTATE_NEWS,	/* names/: what the tree has not told of yet */
	ESTATE_NUMBERS, /* cache/: the ids of samples */
	ESTATE_SAID,	/* cache/: what was said, see said.c */
	ESTATE_SCORES,	/* cache/: the scores of a job */
	ESTATE_ORDER,	/* sched/: an order of a job */
	ESTATE_OPEN,	/* control/: an open file */
	ESTATE_PART,	/* control/: a part of one */
	ESTATE_KINDS
};

/* 0 or a negative errno. To be called before there are threads. */
int estate_create(struct estate **out);
/* What another program needs to map it. */
struct estate_place {
	int fd;
	uint64_t address, room;
};
struct estate_place estate_place(const struct estate *estate);
/* Maps an estate that another program has made, at its address, and then has the descriptor. With
 * `only_reads` nothing but estate_front() may follow. 0; -EEXIST if something else is there, as may
 * happen by chance; or another negative errno. */
int estate_take(struct estate **out, const struct estate_place *place, bool only_reads);
/* Unmaps it, for this process alone. NULL is fine. */
void estate_destroy(struct estate *estate);
/* A successor begins: blocks that nobody has kept are free. To be called once, before the others,
 * and before there are threads. */
void estate_inherit(struct estate *estate);
/* ESTATE_FRONT bytes for whoever owns the estate. */
void *estate_front(struct estate *estate);

/* A block of zeros, aligned to 8 bytes. NULL: no memory. */
void *estate_new(struct estate *estate, size_t size);
/* From now on the block is there for a successor, as it is. */
void estate_keep(void *block, enum estate_kind kind);
/* NULL is fine. */
void estate_free(struct estate *estate, void *block);
/* The kept block of a kind after `block`, or the first one after NULL; NULL: there is none. The
 * caller makes sure that nobody else frees blocks of this kind meanwhile; it may do so itself. */
void *estate_next(const struct estate *estate, enum estate_kind kind, const void *block);
/* What its blocks take, free ones too. */
uint64_t estate_bytes(struct estate *estate);

extern const struct format_line estate_format[];

#endif
