/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The model test: threads change files at a source in every way that a user can, others read them
 * through a mount of it, and everything that is read is compared with what the source really had.
 * main.c says what is checked and when; tests/mount/model.py mounts, and runs this program.
 *
 *	content.c	bytes that tell which edition of which file they are
 *	history.c	what each path has been, and whether what was read can be right
 *	change.c	what is done at the source
 *	look.c		what is read through the mount
 *	hints.c		what the mount is told meanwhile, and how much memory it says that it uses
 *
 * An edition is what one operation writes: its number stands in every 64 bytes of it.
 */
#ifndef SHADE_TEST_MODEL_H
#define SHADE_TEST_MODEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MS 1000000ull
#define SECOND 1000000000ull

/* A name that is older than `staleness` is asked about again, but on a busy machine that takes its
 * time: only what is still wrong after this is a failure. */
#define PATIENCE_NS (20 * SECOND)
#define MIXTURE_NS (10 * SECOND) /* for a mixture of editions */
/* For how long after `staleness` an open may still get an earlier state of its path. */
#define LATE_NS (60 * SECOND)

struct options {
	const char *source, *mount;
	uint64_t seed, seconds;
	uint64_t staleness_ns;
	uint64_t files;		    /* paths */
	uint64_t smallest, largest; /* bytes of a file */
	uint64_t readers, writers;
	uint64_t hints;	  /* 1: scores, orders, warm, pin, evict, policies, drop_caches */
	uint64_t resizes; /* 1: capacities, too */
	uint64_t capacity;
	uint64_t memory;   /* 1: no file is so large that memory may be above the capacity */
	uint64_t in_place; /* of 100 changes, how many write in place */
};

extern struct options options;

/* --- main.c --------------------------------------------------------------------------------- */

uint64_t now_ns(void);
void sleep_ns(uint64_t ns);
/* Says what is wrong, and ends the program. */
__attribute__((noreturn, format(printf, 1, 2))) void fail(const char *format, ...);
/* Every thread works between these two, and rests when everything is to be compared. False: it is
 * to end. */
bool begin_work(void);
void end_work(void);

struct chance {
	uint64_t state;
};

/* A number below `below`, drawn. */
uint64_t draw(struct chance *chance, uint64_t below);
bool one_in(struct chance *chance, uint64_t times);

/* What is counted, for the last line. */
enum counter {
	OPENS_EXACT,  /* got one state that the source had */
	OPENS_DURING, /* got something else while, or just after, the file was written in place */
	OPENS_FAILED, /* got an error */
	OPENS_ABSENT, /* got ENOENT, and the path was absent */
	CHANGES,      /* at the source */
	COMPARISONS,  /* with the source, of a path that rests */
	LATE,	      /* of these: right only some time after `staleness` */
	HINTS,
	SAMPLES_MEMORY, /* of memory_bytes, none of which was above the capacity */
	COUNTERS
};

void count(enum counter counter);

/* --- content.c ------------------------------------------------------------------------------ */

#define BLOCK 64

/* The bytes of an edition from `offset` on, which is a multiple of BLOCK. */
void content_fill(void *to, uint64_t edition, uint64_t offset, size_t size);
/* Whether these are the first `size` bytes of an edition. */
bool content_is(const void *data, size_t size, uint64_t edition);
/* The edition that the whole block `index` belongs to; 0: to none, it is torn. */
uint64_t content_edition(const void *data, uint64_t index);
/* For reports: which blocks are of which edition. */
const char *content_describe(const void *data, size_t size, char text[512]);

/* --- history.c ------------------------------------------------------------------------------ */

enum kind {
	ABSENT,
	WHOLE,	/* the beginning of one edition */
	WRITTEN /* it is being written in place: anything between the states before and after */
};

struct state {
	enum kind kind;
	uint64_t edition; /* WRITTEN: the new one */
	uint64_t size;
	uint64_t from_ns, until_ns; /* when it may have been what the source had */
};

struct path {
	unsigned number;
	char name[32];		 /* below source and mount */
	bool in_place;		 /* it may be written in place; others only change at once */
	pthread_mutex_t writing; /* one change at a time; several by ascending number */
	pthread_mutex_t lock;
	struct state *states; /* lock: the last one is the present one */
	size_t count, room;   /* lock */
};

extern struct path *paths;
/* The path that was last written in place, and how often one was: half of the opens of
 * large files wait for that, to meet the writer. */
extern _Atomic unsigned path_written, writes_begun;
/* Not 0: something wrong was read, and nobody drops pages until it is known whether it stays. */
extern _Atomic unsigned suspicions;

uint64_t new_edition(void);
/* From now on the path may be so, or still as before ... */
void history_begin(struct path *path, enum kind kind, uint64_t edition, uint64_t size);
/* ... and from now on it is not as before. */
void history_end(struct path *path);
struct state history_present(struct path *path);

/* One look at a path: an open, and all that was read from it. */
struct look {
	uint64_t began_ns, ended_ns; /* before open(), after the last read */
	int error;		     /* 0, or what came instead */
	const char *data;
	size_t size;
	uint64_t stat_size; /* by fstat() */
};

/* Ends the program if what was seen cannot be right. True: it is one state of the path, which
 * nobody wrote in place at that time. */
bool history_judge(struct path *path, const struct look *look);
/* Ends the program: shows what the path was, and what was seen. */
__attribute__((noreturn)) void history_fail(struct path *path, const struct look *look,
					    const char *what);

/* --- change.c ------------------------------------------------------------------------------- */

void change_make_all(struct chance *chance);
/* One change of one path, or of two. */
void change_something(struct chance *chance, char *buffer);

/* --- look.c --------------------------------------------------------------------------------- */

/* Reads a path in some way, and judges what it got. */
void look_at_something(struct chance *chance, char *buffer, char *second);
/* `staleness` has passed since the path changed: the mount must have what the source has, soon.
 * Nobody may change the path meanwhile. */
void look_settled(struct path *path, char *buffer);
/* The same for the names in all directories. */
void look_at_names(void);

/* --- hints.c -------------------------------------------------------------------------------- */

void hint_something(struct chance *chance);
/* Takes everything back that keeps the mount from coming to rest. */
void hint_rest(void);
/* Memory must be below the capacity at any moment. */
void sample_memory(void);

#endif
