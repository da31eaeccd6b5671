/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The world around the cache: a source whose files change, hang and fail (source.c), a kernel with
 * inodes, names, pages and folio locks (kernel.c), and people who read, write, hint and reclaim
 * (people.c). check.c looks after every turn whether all promises hold.
 */
#ifndef SHADE_TEST_WORLD_H
#define SHADE_TEST_WORLD_H

#include "cache/cache.h"
#include "fibers.h"

#define PAGE 4096
#define DIRS 3
#define FILES 18     /* of the source, at most */
#define PAGES_MAX 16 /* of a file */
#define READERS_MAX 8
#define SILENT_UNKNOWN UINT64_MAX
#define JOBS 3 /* trainings that are read for, besides job 0 */

/* What a run is like, drawn from its seed. */
struct plan {
	bool observed;	  /* native mode: opens are seen afterwards */
	bool changes;	  /* writers at the source */
	bool faults;	  /* reads that fail or come short */
	bool hangs;	  /* reads that hang */
	bool dirs_hang;	  /* listings and stats that hang */
	bool deaf;	  /* what hangs does not hear a cancel */
	bool reclaims;	  /* the kernel takes pages back, and forgets inodes */
	bool stores_fail; /* the kernel takes some of the pages and refuses the rest */
	bool hints;	  /* scores, orders, warm, pin, evict */
	bool resizes;	  /* capacity and policy */
	bool jobs;	  /* it is known for which training each reader reads */
	bool jobs_end;	  /* trainings end, and others begin */
	bool interrupts;  /* readers that are interrupted */
	bool stops_early; /* the daemon ends under load */
	unsigned readers;
	int large;	  /* so many files are large */
	unsigned holders; /* who have files open for long */
	unsigned opens;	  /* by each reader */
	uint32_t latency_ms;
	uint64_t capacity_pages, inflight_pages, prefetch_pages;
	uint64_t staleness_ms, deadline_ms;
	const char *policy;
};

struct world {
	struct plan plan;
	struct store *store;
	struct cache *cache;
	struct tree *tree;
	_Atomic bool stopping; /* cache_stop() has begun */
	uint32_t jobs[JOBS];
	uint32_t silent;       /* a training that announces and does not read */
	uint64_t silent_ahead; /* so many samples; or it is announcing them just now */
	unsigned readers_left;
	unsigned helpers_left;	/* other fibers that must end before the cache does */
	uint64_t limit_bytes;	/* memory must stay below this */
	uint64_t calm_since_ms; /* since then nothing hangs, and everybody must come through */
};

extern struct world world;

/* --- source.c --------------------------------------------------------------------------------- */

/* What a page of a file holds, instead of its bytes. */
struct stamp {
	uint64_t file;	  /* by inode number at the source */
	uint64_t version; /* by change time */
};

struct file {
	int dir;
	char name[16];
	bool exists, hangs, changing;
	struct store_attr attr;

	unsigned reading;   /* reads of whole files under way */
	uint64_t faulty_ms; /* when it last changed, failed or hung; UINT64_MAX: does so now */
};

extern struct file files[FILES];
extern bool page_counts[PAGES_MAX + 1]; /* files of so many pages have been */
extern bool dir_hangs[DIRS];

struct store *source_open(void);
void source_change(void); /* one file, in some way */
void source_fault(void);  /* some fault begins or ends */
void source_calm(void);	  /* all faults end */
/* The file with this path. NULL: there never was one. */
struct file *source_find(const char *path);
/* Whether a file was ever in a directory, by their inode numbers. */
bool source_was_in(uint64_t file, uint64_t dir);
/* The number of a version. */
uint64_t source_version(const struct store_attr *attr);
/* When this version of a file was no more; UINT64_MAX: it is the present one. */
uint64_t source_superseded_ms(uint64_t version);
/* Whether a page of this version may be of the one before: the version was written in place, and
 * somebody read it before it was complete, not long ago. */
bool source_explains_mixture(uint64_t version, const struct stamp *stamp);
/* Whether an error can be explained by what happened at the source since then. */
bool source_explains(const struct file *file, uint64_t since_ms);
/* Whether a directory hung since then, or so shortly before that names in it may be old. */
bool source_dir_hung(int dir, uint64_t since_ms);
/* Whether reading the file may take as long as the deadline. */
bool source_may_delay(const struct file *file, uint64_t since_ms);

/* --- kernel.c --------------------------------------------------------------------------------- */

extern const struct page_cache_kernel kernel_ops;

void kernel_reset(void);
/* The kernel's memory for files that are not read by ranges. */
uint64_t kernel_pages(void);
/* The name of a version that is known to be superseded must not stay, whoever has it open. */
void kernel_check_names(void);
/* One way of reclaiming. */
void kernel_reclaim(void);
/* The mount has ended: who waits for it goes on. */
void kernel_end(void);

/* How a file is read, and for which training. */
struct reader {
	uint32_t job; /* or SCHED_JOB_ANY */
	bool direct;
	uint64_t hold_ms; /* it is kept open for so long */
};

/* Reads a whole file like a reader would: open, READs, close. 0 or a negative errno. Checks that
 * all bytes are of the version that was opened, and that the source had it not too long ago. */
int kernel_read_file(int dir, const char *name, const struct reader *reader);
/* Native mode: tells the cache of opens and closes until the end. */
void kernel_tell_accesses(void *unused);

/* --- people.c --------------------------------------------------------------------------------- */

void people_start(void);

/* --- check.c ---------------------------------------------------------------------------------- */

void check_step(void);
/* Pages of the kernel and buffers of the daemon, or what is counted as such if that is more. */
uint64_t check_memory_bytes(void);
/* When nothing is under way. */
void check_rest(void);

#endif
