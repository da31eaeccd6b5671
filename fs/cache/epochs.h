/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A bounded record of the epochs of one job: a row of figures for each of the latest, and of the
 * very latest also some of their accesses, for replays. Pure: counters, slots and times come in,
 * rows come out. The caller holds the cache's lock.
 *
 * A row runs until the next epoch is announced. Where nobody announces any, it ends after as many
 * accesses as there are samples; so does, after EPOCHS_OVERDUE times as many, one that was
 * announced, since the training that announced it has ended. A row that has no access yet does not
 * end: it becomes the next one, so what was fetched for it beforehand counts.
 *
 * Accesses are sampled by a hash of the slot, so that of one sample all are kept or none (as in
 * SHARDS, FAST '15): a replay of them in a cache that is smaller by the same share hits as often.
 * If they are too many for a row, the share is halved, and what is kept by then is thinned out.
 */
#ifndef SHADE_EPOCHS_H
#define SHADE_EPOCHS_H

#include <stdbool.h>
#include <stdint.h>

#define EPOCHS_ROWS 256	    /* with figures, the running one included */
#define EPOCHS_TRACED 16    /* with accesses, the same */
#define EPOCHS_ENTRIES 1024 /* accesses of a row */
#define EPOCHS_OVERDUE 4
#define EPOCHS_EVERY ((uint64_t)1 << 32) /* the threshold of hashes that takes all slots */

/* Counters of the job and of the mount that a row has the growth of. epochs_counter_names has their
 * names, and history.c fills them in. */
enum epoch_counter {
	EPOCH_ACCESSES,
	EPOCH_HITS,
	EPOCH_HITS_PREFETCHED,
	EPOCH_MISSES,
	EPOCH_COALESCED,
	EPOCH_EVICTIONS,
	EPOCH_RECLAIMED,
	EPOCH_BACKEND_READS,
	EPOCH_BACKEND_BYTES,
	EPOCH_FETCH_ERRORS,
	EPOCH_WAITS,
	EPOCH_WAIT_MS,
	EPOCH_WAITING_MS,
	EPOCH_LIMITED_MS,
	EPOCH_LIMITED_BYTES,
	EPOCH_COUNTERS,
};

extern const char *const epochs_counter_names[EPOCH_COUNTERS];

struct epoch_counters {
	uint64_t values[EPOCH_COUNTERS];
};

struct epoch_entry {
	uint32_t slot;
	float score; /* below 0: none */
};

/* When an order became known: while the row `serial` ran and had `entries` of its accesses. */
struct epoch_mark {
	uint64_t serial;
	uint32_t entries;
};

struct epoch_row {
	uint64_t serial; /* counts rows from 0 */
	uint64_t epoch;	 /* as announced, else the serial */
	uint32_t job;
	bool announced, running;
	bool ordered;		     /* an order was announced for it */
	struct epoch_mark mark;	     /* ordered */
	uint64_t begin_ms, end_ms;   /* since the mount; the end is the last access */
	uint64_t seen;		     /* accesses of samples */
	uint32_t distinct, samples;  /* samples that were accessed, of how many */
	double uses;		     /* of a fetched sample, as told before its first access */
	uint64_t threshold;	     /* slots whose hash is below this have their accesses kept */
	uint32_t entries;	     /* so many */
	struct epoch_counters grown; /* while it runs: the counters at its beginning */
};

struct epoch_access {
	uint32_t slot;
	float score;	  /* if the slot is picked */
	double uses;	  /* what the training has told */
	uint32_t samples; /* of the mount */
	uint64_t now_ms;
};

/* An order for an epoch that has not begun. */
struct epoch_order {
	uint64_t epoch;
	uint32_t job;
	struct epoch_mark mark;
};

#define EPOCHS_ORDERS 8 /* of these, the latest */

struct epochs {
	struct epoch_row *rows;	     /* EPOCHS_ROWS, by serial */
	struct epoch_entry *entries; /* EPOCHS_TRACED times EPOCHS_ENTRIES, by serial */
	uint64_t serial;	     /* of the running row */
	uint64_t *seen;		     /* bitmap of slots that it has accessed */
	uint32_t words;		     /* of it */
	struct epoch_order orders[EPOCHS_ORDERS];
	unsigned order_count;
};

/* 0 or -ENOMEM. */
int epochs_open(struct epochs *epochs);
void epochs_close(struct epochs *epochs);
/* Makes room for slots below this; without memory, others are not counted as distinct. */
void epochs_reserve(struct epochs *epochs, uint32_t slots);

/* Whether accesses of the slot are kept, by now. */
bool epochs_picks(const struct epochs *epochs, uint32_t slot);
bool epochs_hashes_below(uint32_t slot, uint64_t threshold);

/* True: the row is as long as it may be, and epochs_end() is to be called. */
bool epochs_access(struct epochs *epochs, const struct epoch_access *access);
/* The row is over; `counters` as they are now. */
void epochs_end(struct epochs *epochs, const struct epoch_counters *counters, uint32_t samples);
/* The training has ended: its row is over, and what it has announced is not for the next, for which
 * counters begin at `counters`. */
void epochs_leave(struct epochs *epochs, const struct epoch_counters *counters, uint32_t samples);
/* An epoch is announced. Ranks of a training may each do so: the second changes nothing. */
void epochs_begin(struct epochs *epochs, uint32_t job, uint64_t epoch,
		  const struct epoch_counters *counters, uint32_t samples, uint64_t now_ms);
/* An order is announced. */
void epochs_order(struct epochs *epochs, uint32_t job, uint64_t epoch);

/* The serial of the first row that is kept; of the first that still has its accesses. */
uint64_t epochs_first(const struct epochs *epochs);
uint64_t epochs_first_traced(const struct epochs *epochs);
/* A row as it is now: the running one, too, has what the counters have grown by; with NULL for
 * them, what has grown means nothing. */
struct epoch_row epochs_row(const struct epochs *epochs, uint64_t serial,
			    const struct epoch_counters *counters, uint32_t samples);
/* The accesses of a row that has them. */
const struct epoch_entry *epochs_entries(const struct epochs *epochs, uint64_t serial);

#endif
