/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Shuffles that need not be announced because they can be recognised.
 *
 * torch's DistributedSampler permutes the samples with a generator that is seeded with seed +
 *epoch, and the seed is 0 unless somebody says otherwise. Whoever sees the first reads of an epoch
 *can try the likely seeds, and then knows the rest of that epoch and all later ones.
 *
 *	randperm.c	the permutation, and where a few samples are in it
 *	listing.c	how loaders number the files below a folder
 *	match.c		whether some reads are the work of a seed
 *	window.c	the first reads since an epoch seems to have begun
 *	layout.c	which part of the permutation the ranks of this machine read
 *	follow.c	a training that was recognised: its place in the epoch, the next epoch, its
 *end
 *
 * Pure like sched/: no I/O, threads, clocks or globals. Functions that can fail return 0 or a
 * negative errno. An index is a sample's number in its loader's list, a place is where the
 * permutation has it.
 */
#ifndef SHADE_SHUFFLE_H
#define SHADE_SHUFFLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHUFFLE_FILES_MIN 64	     /* fewer prove nothing */
#define SHUFFLE_FILES_MAX (1u << 24) /* of one list; torch changes its algorithm far above that */
#define SHUFFLE_READS 64	     /* that one window has */
#define SHUFFLE_PREFIX 16384	     /* places that are looked at in a quick search */
#define SHUFFLE_WORLD_MAX 4096	     /* ranks, or ranks times workers */
#define SHUFFLE_BEYOND UINT32_MAX    /* a place that was not reached */

/* --- randperm.c --------------------------------------------------------------------------------
 */

/* torch.randperm(n) of a CPU generator after manual_seed(seed). */
void shuffle_permute(uint32_t seed, uint32_t *out, uint32_t n);
/* The places of up to SHUFFLE_READS distinct indices in that permutation, as far as they are below
 * `limit`, at the cost of `limit` steps and no memory. */
void shuffle_locate(uint32_t seed, uint32_t n, uint32_t limit, const uint32_t *indices,
		    unsigned count, uint32_t *places);

/* --- listing.c ---------------------------------------------------------------------------------
 */

enum shuffle_listing {
	SHUFFLE_IMAGE_FOLDER, /* torchvision's ImageFolder */
	SHUFFLE_TIMM,	      /* timm's folder reader */
	SHUFFLE_LISTINGS
};

/* All files below a folder, in any sequence. */
struct shuffle_files {
	const char *const *dirs; /* paths below the folder: "" for itself, else "a/b/" */
	uint32_t dir_count;
	const uint32_t *dir_of; /* by file */
	uint32_t count;
	const char *(*name)(const void *context, uint32_t file);
	const void *context;
};

/* Fills in the numbers of the files that the loader takes, as it lists them; `out` has room for all
 * of them. How many these are, or -ENOMEM. */
int64_t shuffle_list(const struct shuffle_files *files, enum shuffle_listing listing,
		     uint32_t *out);
const char *shuffle_listing_name(enum shuffle_listing listing);

/* --- match.c -----------------------------------------------------------------------------------
 */

struct shuffle_read {
	int32_t thread;
	uint32_t index;
};

struct shuffle_match {
	uint32_t seed;
	double score;	/* powers of ten by which chance is less likely; more than enough: known */
	unsigned reads; /* that were looked at */
	unsigned hits;	/* that the seed explains */
	unsigned possible; /* that it could have: all, or those that follow another one */
	uint32_t within;   /* they are among the first so many places; 0: they follow each other */
};

#define SHUFFLE_SURE 9.0   /* the score that is enough to recognise a training */
#define SHUFFLE_LIKELY 4.0 /* and its next epoch, of which there are only two possibilities */

/* What each seed is tried on. */
struct shuffle_trial {
	uint32_t n;	    /* of the list */
	uint32_t limit;	    /* places that are looked at: SHUFFLE_PREFIX, or n for all */
	double tries_log10; /* how many hypotheses there are in all */
	unsigned count;	    /* of the reads */
	struct shuffle_read reads[SHUFFLE_READS]; /* distinct, in the sequence in which they came */
	uint8_t before[SHUFFLE_READS]; /* the last read of the same thread; its own number: none */
};

/* One more read; nothing happens if there are enough, or if the index is there already. */
void shuffle_trial_add(struct shuffle_trial *trial, int32_t thread, uint32_t index);
/* How good the best explanation is if the reads are at these places. */
struct shuffle_match shuffle_weigh(const struct shuffle_trial *trial, const uint32_t *places);
/* Whether nothing better needs to be looked for: it is certain, and explains nearly all reads.
 * Where two numberings agree in part, the wrong one explains a part of them. */
bool shuffle_match_is_plain(const struct shuffle_match *match);
/* Tries seeds from `first` on; `best` is replaced by what is better. Ends with one that is plain.
 */
void shuffle_search(const struct shuffle_trial *trial, uint32_t first, uint32_t seeds,
		    struct shuffle_match *best);
/* Whether each thread reads through the list from its begin to its end: then nobody shuffles. */
bool shuffle_is_sequential(const struct shuffle_trial *trial);

/* --- window.c ----------------------------------------------------------------------------------
 */

/* The first distinct reads since an epoch seems to have begun: at a pause, or, once the window is
 * full, when a sample comes again or a thread is new. */
struct shuffle_window {
	unsigned count;				  /* of the reads */
	unsigned tried;				  /* so many were there at the last try */
	struct shuffle_read reads[SHUFFLE_READS]; /* `index` is the sample's slot */
	uint64_t total;				  /* reads since the begin, whoever was first */
	uint64_t last_ms;
	uint64_t *seen; /* bitmap by slot */
	uint32_t slots; /* of it */
};

int shuffle_window_add(struct shuffle_window *window, int32_t thread, uint32_t slot,
		       uint64_t now_ms);
/* Whether there is enough to try, or to try again; the window remembers that it was asked. */
bool shuffle_window_is_due(struct shuffle_window *window, uint64_t now_ms);
/* What came so far was explained, or will not be: the window begins with the next read. */
void shuffle_window_restart(struct shuffle_window *window);
void shuffle_window_free(struct shuffle_window *window);

/* --- layout.c ----------------------------------------------------------------------------------
 */

enum shuffle_kind {
	SHUFFLE_TURNS,	  /* DistributedSampler: ranks take turns, sample by sample */
	SHUFFLE_BATCHES,  /* accelerate: batch by batch */
	SHUFFLE_REPEATED, /* timm's RepeatAugSampler: each sample three times, then in turns */
};

/* An epoch is a sequence of positions, more or fewer than there are places. */
struct shuffle_layout {
	enum shuffle_kind kind;
	uint32_t world;				/* ranks; 0: not known yet */
	uint32_t batch;				/* SHUFFLE_BATCHES: the samples of one */
	uint32_t end;				/* positions from here on are left out; 0: none */
	uint64_t local[SHUFFLE_WORLD_MAX / 64]; /* bitmap of the ranks that read here */
};

/* A read, and where it is in the permutation. */
struct shuffle_step {
	int32_t thread;
	uint32_t place;
};

/* What the steps of several threads, each in sequence, tell. The layout is extended, or replaced if
 * it was wrong. True: it has changed. */
bool shuffle_layout_learn(struct shuffle_layout *layout, const struct shuffle_step *steps,
			  uint32_t count, uint32_t n);
uint64_t shuffle_layout_positions(const struct shuffle_layout *layout, uint32_t n);
/* The place that a position has, and whether it is read here. */
bool shuffle_layout_at(const struct shuffle_layout *layout, uint32_t n, uint64_t position,
		       uint32_t *place);
unsigned shuffle_layout_ranks(const struct shuffle_layout *layout);
const char *shuffle_kind_name(enum shuffle_kind kind);

/* --- follow.c ----------------------------------------------------------------------------------
 */

struct shuffle_follow;

enum shuffle_event {
	SHUFFLE_NOTHING,
	SHUFFLE_CHANGED, /* the orders are others by now, as far as they are ahead */
	SHUFFLE_NEXT,	 /* the next epoch has begun; both orders are others */
	SHUFFLE_LOST,	 /* reads do not follow any more */
};

#define SHUFFLE_RECENT 1000    /* reads by which it is seen that they do not; */
#define SHUFFLE_ASTRAY_MAX 100 /* more than this of them */

/* A training whose reads were recognised. -ENOMEM. */
int shuffle_follow_create(struct shuffle_follow **out, const struct shuffle_trial *trial,
			  const struct shuffle_match *match);
void shuffle_follow_free(struct shuffle_follow *follow);
/* One of its threads reads. `ours`: it is nobody else's who has announced it. -ENOMEM, or an event.
 */
int shuffle_follow_read(struct shuffle_follow *follow, int32_t thread, uint32_t index, bool ours);
/* Whether a thread that nobody knows may be one of its own, by one read: the sample is ahead and
 * not far, or at the begin of the next epoch. */
bool shuffle_follow_expects(const struct shuffle_follow *follow, uint32_t index);
/* And by two: one follows the other as in a rank's part. */
bool shuffle_follow_fits(const struct shuffle_follow *follow, uint32_t last, uint32_t index);
/* Whether it is known how that is. */
bool shuffle_follow_has_stride(const struct shuffle_follow *follow);
/* How many reads of this epoch were seen. */
uint32_t shuffle_follow_count(const struct shuffle_follow *follow);
/* Reads were missed: what is far behind the readers counts as read. */
void shuffle_follow_skip(struct shuffle_follow *follow);
/* What the ranks of this machine will read: of this epoch what is ahead, or the whole next one. To
 * be freed. From now on reads are expected to follow. -ENOMEM; -EAGAIN: it is not known yet who
 * reads what. */
int shuffle_follow_order(struct shuffle_follow *follow, bool next, uint32_t **indices,
			 uint32_t *count);
uint32_t shuffle_follow_seed(const struct shuffle_follow *follow);
/* Whether the seed stays the same from epoch to epoch: set_epoch() is not called. */
bool shuffle_follow_is_stuck(const struct shuffle_follow *follow);
const struct shuffle_layout *shuffle_follow_layout(const struct shuffle_follow *follow);
size_t shuffle_follow_bytes(const struct shuffle_follow *follow);

#endif
