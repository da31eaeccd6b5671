/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * libshade-score: how important each sample is, and which samples an epoch reads. For C99 and
 * C++; plain types only, so that ctypes and other bindings can call it as it is.
 *
 * A training does this, with the same seed and options on every rank:
 *
 *     shade_scorer_begin(s, epoch, resident)         an epoch begins: its order is drawn
 *     n = shade_scorer_order(s, epoch, rank, world, ids, room)         what this rank reads
 *     shade_scorer_update(s, ids, losses, count, NULL)                 after every batch
 *
 * Score: a loss that is k-th within its batch, 0 the smallest, gives ln(k + 10). Equal losses
 * share the mean of their ranks, and a batch of one ranks in the middle of 64; the last visit of a
 * sample wins, within a batch as well.
 *
 * Lookahead: with options.lookahead 0 begin(e) draws the order of e, from the scores at that
 * moment. With 1 it draws that of e + 1, so that order(e + 1) can be announced while e runs and
 * eviction is exact; the order of e itself was drawn by begin(e - 1). Only the first begin()
 * draws both. What was drawn stays: later updates do not change it, another begin() of the same
 * epoch neither. The orders of the epoch that was begun last and of the one after it are kept.
 *
 * Several ranks: all draw the same whole order and take exact parts of it, if scores and
 * `resident` are the same on all. So each rank scores its batches with shade_scorer_rank_batch(),
 * which keeps none of the scores; when an epoch begins, the ranks gather what they have, and every
 * rank merges all of it, its own part included, in the sequence of ranks. All give begin() the same
 * residency: what is resident somewhere. shade_scorer_digest() tells whether that went well. If
 * they run on several machines, all call shade_scorer_nodes() before that. (Mode paper is SHADE's
 * own: there each rank draws for itself.)
 *
 * Calls return 0 or a count, or a negative errno and then change nothing; shade_score_error()
 * has the sentence. A scorer may be used by several threads; calls take turns.
 *   -EINVAL  a value that makes no sense: a loss that is not a number, a bad state
 *   -ERANGE  an id, a label or a rank that is out of range
 *   -ENOENT  an epoch that was not begun
 *   -ENOSPC  the array is too small
 *   -EAGAIN  too many batches are in flight on the device
 *   -ENODEV  backend cuda where no device answers
 *   -EIO     the device failed; the scorer can be saved and destroyed, no more
 *   -ENOTSUP something that this backend or mode does not have
 *   -ENOMEM  here or on the device, which then goes on: the same batch can be given again,
 *            later, smaller or in host memory
 */
#ifndef SHADE_SCORE_H
#define SHADE_SCORE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SHADE_SCORE_BATCH_MAX 65536u /* samples of one batch */
#define SHADE_SCORE_NONE (-1.0f)     /* where a score would be: there is none */

struct shade_scorer;

enum shade_score_mode {
	SHADE_SCORE_UNIFORM = 0,     /* a fresh permutation: what loaders do today */
	SHADE_SCORE_REPLACEMENT = 1, /* uniform, with replacement */
	SHADE_SCORE_PAPER = 2,	     /* SHADE's own procedure, for comparison */
	SHADE_SCORE_PADS = 3,	     /* importance and residency, within bounds; the default */
	SHADE_SCORE_ECHO = 4,	     /* each fetched sample is used several times while resident */
	SHADE_SCORE_ADAPT = 5,	     /* "auto": echo, as often as the source is too slow */
	/* Epochs that leave samples out, by the last loss of each; see below. */
	SHADE_SCORE_PRUNE = 6, /* after InfoBatch: half of those whose loss is below the mean */
	SHADE_SCORE_IIS = 7    /* iCACHE's: each with chance percentile(loss)^0.33 */
};

enum shade_score_backend {
	SHADE_SCORE_AUTO = 0, /* cuda where a device answers, else cpu */
	SHADE_SCORE_CPU = 1,
	SHADE_SCORE_CUDA = 2
};

enum shade_score_dtype { SHADE_SCORE_F32 = 0, SHADE_SCORE_F16 = 1, SHADE_SCORE_BF16 = 2 };

/* Where the arrays of a batch are. A scorer of backend cuda takes both. */
enum shade_score_memory { SHADE_SCORE_HOST = 0, SHADE_SCORE_DEVICE = 1 };

/* Fill in with shade_scorer_defaults(), then set `samples` and what else is wanted. */
struct shade_scorer_options {
	uint32_t size;	    /* sizeof(struct shade_scorer_options) */
	uint32_t samples;   /* the ids are 0 to samples - 1 */
	uint64_t seed;	    /* 0 */
	uint32_t mode;	    /* SHADE_SCORE_PADS */
	uint32_t backend;   /* SHADE_SCORE_AUTO */
	uint32_t lookahead; /* 0 or 1; 0 */
	/* Entries of a whole epoch; 0: as many as samples. prune, iis: 0, and get_options() tells
	 * how many they can be at most. */
	uint32_t draws;
	double rep; /* paper, pads: times a drawn resident comes, 1 to 1000; 1 */
	/* echo: mean uses of a fetched sample, 1 to 1000; 0: 4. adapt: those that it begins with;
	 * 0: 1; get_options() tells those in force. */
	double uses;
	double most_uses;     /* adapt: they never get above this, 1 to 1000; 8 */
	double strength;      /* echo, adapt: how far uses grow with importance, 0 to 1; 0 */
	uint32_t max_repeats; /* pads: entries of one sample in an epoch; 0: 2 rep, at least 4 */
	/* pads, prune, iis with substitutes: every sample comes once in so many epochs; where echo
	 * leaves samples out, in so many passes through the data set; 0: 5 */
	uint32_t cover_epochs;
	uint32_t capacity; /* echo, adapt: samples that the cache holds; must be given there */
	int32_t device;	   /* cuda: its number; -1: the caller's current one */
	/* prune: the chance of a sample whose loss is below the mean, 0.01 to 1; 0: 0.5. echo,
	 * adapt: the same for each sample that is to be fetched; 0: none is left out. */
	double keep;
	uint32_t epochs; /* with `keep`: of the whole training; 0: not known. See below. */
	/* prune, iis: entries of an epoch are a multiple of this, the number of ranks, so that all
	 * have equally many; 0: 1 */
	uint32_t multiple;
	uint32_t substitute; /* iis: 1: residents stand in for absent samples of low loss; 0 */
	uint32_t package;    /* iis: absent samples of low loss come in runs of so many; 0: not */
};

/* One batch, for shade_scorer_update_batch(). Zero what is not used. */
struct shade_score_batch {
	uint32_t size;	     /* sizeof(struct shade_score_batch) */
	uint32_t count;	     /* samples: 1 to SHADE_SCORE_BATCH_MAX */
	const uint32_t *ids; /* always in host memory; copied before the call returns */
	uint32_t memory;     /* enum shade_score_memory, of everything below */
	uint32_t dtype;	     /* of the logits, enum shade_score_dtype */
	const void *logits;  /* count rows of `classes`; NULL: `losses` are given instead */
	uint64_t row_stride; /* elements from one row to the next; 0: `classes` */
	uint32_t classes;
	uint32_t label_bytes; /* 4: labels are int32_t; 8: int64_t */
	const void *labels;   /* the right class of each row */
	const float *losses;  /* only if `logits` is NULL */
	float *losses_out;    /* may be NULL; else the cross-entropies */
	float *scores_out;    /* may be NULL; else the scores */
	void *stream;	      /* device memory: the cudaStream_t that orders all of this */
};

/* The version of the library, as "1.2.3". */
const char *shade_score_version(void);
/* Why the last call of this thread failed: one sentence, without a full stop. Never NULL. */
const char *shade_score_error(void);

void shade_scorer_defaults(struct shade_scorer_options *options);
int shade_scorer_create(struct shade_scorer **out, const struct shade_scorer_options *options);
void shade_scorer_destroy(struct shade_scorer *s);
/* "cpu" or "cuda". */
const char *shade_scorer_backend(const struct shade_scorer *s);
/* The options in force: those of create(), with `draws` and `backend` resolved, or what load() has
 * replaced them with. The caller sets options->size; -EINVAL if the library has another size. */
int shade_scorer_get_options(struct shade_scorer *s, struct shade_scorer_options *options);

/* Scores a batch by its losses, in host memory. `scores_out` may be NULL. A loss that is not a
 * number: -EINVAL, and nothing of the batch is taken. An infinite one ranks as it compares. */
int shade_scorer_update(struct shade_scorer *s, const uint32_t *ids, const float *losses,
			uint32_t count, float *scores_out);

/* The same by logits, or with arrays in device memory. The latter returns at once: everything
 * happens in the order of the stream, the inputs must stay until that has come so far, and the
 * outputs are device memory. A bad loss or label is then found later: the batch is left out,
 * all of scores_out is SHADE_SCORE_NONE, and shade_scorer_sync() says so. */
int shade_scorer_update_batch(struct shade_scorer *s, const struct shade_score_batch *batch);

/* The same, but the scores go to scores_out alone, which must be given, and the scorer keeps none
 * of them: for one of several ranks, which merges the scores of all of them later. */
int shade_scorer_rank_batch(struct shade_scorer *s, const struct shade_score_batch *batch);

/* Waits for the batches that are in flight on the device. -EINVAL or -ERANGE: batches were left
 * out since the last sync, and why; all others are taken. Everything below waits by itself. */
int shade_scorer_sync(struct shade_scorer *s);

/* Scores from other ranks: finite, 0 or more. */
int shade_scorer_merge(struct shade_scorer *s, const uint32_t *ids, const float *scores,
		       uint32_t count);
/* All scores, by id; SHADE_SCORE_NONE: never scored. `scores` has room for all samples. */
int shade_scorer_scores(struct shade_scorer *s, float *scores);

/* --- modes prune and iis -----------------------------------------------------------------------
 * They leave samples out, by their last losses, which the scorer keeps in these modes, and in echo
 * and adapt with `keep`. A sample without a loss always comes.
 *
 * prune (after InfoBatch, ICLR '24): a sample whose loss is below the mean comes with chance
 * `keep`, and weights() then has 1/keep. Those that were in no order for cover_epochs come, and in
 * the last eighth of `epochs` all do.
 * iis (iCACHE, HPCA '23): all come in epochs 0 to 4 and in every third one; in the others each with
 * chance percentile(loss)^0.33. Of those that come the 70 % with the highest losses are H, the rest
 * L. With `substitute` an absent L sample names a resident one instead, each at most twice, unless
 * it was in no order for cover_epochs; such ones are added. Then there are no weights. With
 * `package` absent L samples come in runs of neighbours.
 *
 * An epoch has as many entries as are left: shade_scorer_length() is the most that they can be, and
 * shade_scorer_order() with ids NULL tells those of an epoch that was drawn. */

/* Last losses from other ranks, any number; in modes without losses nothing changes. */
int shade_scorer_merge_losses(struct shade_scorer *s, const uint32_t *ids, const float *losses,
			      uint32_t count);
/* All last losses, by id; a NaN: none. -ENOTSUP in modes without losses. */
int shade_scorer_losses(struct shade_scorer *s, float *losses);
/* Which samples are neighbours at the source, for `package`: all ids, so that those that are near
 * there (one directory, its inodes in their sequence) are near here. NULL: their ids say it. It is
 * not saved with the state. All ranks must say the same. */
int shade_scorer_neighbours(struct shade_scorer *s, const uint32_t *ids);

/* Where the ranks of a training run: those that share a mount are one node. */
struct shade_score_nodes {
	uint32_t size;		 /* sizeof(struct shade_score_nodes) */
	uint32_t world;		 /* ranks */
	const uint32_t *node_of; /* by rank; nodes count from 0 */
	uint32_t block;		 /* entries of a rank that are assigned together; 0: 1024 */
	uint32_t capacity;	 /* echo, adapt: samples that all hold together; 0: as before */
	double mix;		 /* the share of entries that go to any node, 0 to 1 */
};

/* Orders that are drawn from now on are not dealt out to the ranks in turn: an entry goes to the
 * node that has read its sample last, and so most likely has it in memory; every rank gets as many
 * entries as it would otherwise. All ranks must say the same. NULL: in turn again. Who says it for
 * the first time after epoch 0 guesses who has what. */
int shade_scorer_nodes(struct shade_scorer *s, const struct shade_score_nodes *nodes);

/* How many entries one training step of all ranks has, for orders of mode echo that are drawn from
 * now on: a sample comes again so many entries later at the earliest, as far as the capacity
 * allows. 0: not known, which counts as 1024. It is saved with the state. All ranks must say the
 * same. */
int shade_scorer_batch(struct shade_scorer *s, uint32_t entries);

/* `epoch` begins: draws, see above. `resident`: a bit for each sample, the first one the lowest
 * bit of the first byte, (samples + 7) / 8 bytes as in MNT/.shade/resident; NULL: none is. */
int shade_scorer_begin(struct shade_scorer *s, uint64_t epoch, const uint8_t *resident);

/* --- mode adapt --------------------------------------------------------------------------------
 * A sample comes once an epoch where the source keeps up, and as often as is needed, up to
 * most_uses, where the training waits for it: so that it waits for a twentieth of the time at
 * most. For that the training tells what it has measured, and the uses of orders that are drawn
 * from then on follow. The first begin() draws no epoch ahead, since nothing is known then. */

/* What one rank has measured while it read an order, or a part of one. */
struct shade_score_span {
	double seconds;
	double waited;	      /* of these, the training waited for the source */
	double read;	      /* bytes that it has read; 0: not known */
	double bytes;	      /* backend_bytes of .shade/stats: how much they grew, */
	double limited;	      /* limited_ms, as seconds, */
	double limited_bytes; /* limited_bytes; */
	double rate;	      /* what shade_score_rate() makes of all that */
};

/* What the source gives at most, in bytes a second, after a span and with what was known before it;
 * 0: it is not known. Keep one for each mount. */
double shade_score_rate(double before, const struct shade_score_span *span);
/* One span for each rank, the same on all ranks, of the epoch that was begun last. Returns 1 if the
 * uses are others now than those of that epoch's order, by a tenth or more, else 0. In other modes
 * nothing changes. */
int shade_scorer_measured(struct shade_scorer *s, const struct shade_score_span *spans,
			  uint32_t count);
/* Draws the entries of the epoch that was begun last from `position` on once more, with the scores
 * and uses of now, and the order of the epoch after it, if there is a lookahead. What comes before
 * stays. Modes echo and adapt on one node; otherwise -ENOTSUP. After that weights() of entries
 * before the position are exact only if strength is 0. */
int shade_scorer_redraw(struct shade_scorer *s, uint64_t epoch, uint32_t position,
			const uint8_t *resident);

/* How many entries that part of an order has, or in modes prune and iis can have at most; 0: there
 * is no such part. */
uint32_t shade_scorer_length(struct shade_scorer *s, uint32_t rank, uint32_t world);
/* That part of the order of an epoch that was drawn. Returns its length, and with ids NULL only
 * that. */
int64_t shade_scorer_order(struct shade_scorer *s, uint64_t epoch, uint32_t rank, uint32_t world,
			   uint32_t *ids, uint64_t room);
/* For each id the factor of its loss that keeps the gradient over that epoch unbiased; pads.h says
 * and skip.h say how exactly. Mode paper and substitutes have none: -ENOTSUP. */
int shade_scorer_weights(struct shade_scorer *s, uint64_t epoch, const uint32_t *ids,
			 float *weights, uint32_t count);
/* A number that is the same on two ranks if their orders of `epoch` were drawn from the same
 * scores, residency, seed and options, and assigned alike. */
int shade_scorer_digest(struct shade_scorer *s, uint64_t epoch, uint64_t *digest);

/* The whole state. Returns its bytes; writes them if `room` is enough, -ENOSPC if not. With
 * buffer NULL only tells how many; another thread that then begins an epoch or loads may make
 * them more, so who shares a scorer asks again on -ENOSPC. */
int64_t shade_scorer_save(struct shade_scorer *s, void *buffer, uint64_t room);
/* Makes this scorer what the saved one was, its options but for backend, device, draws and multiple
 * included. `samples` must be the same. If `draws`, or where samples are left out `multiple`, are
 * others, since a training resumes on more or fewer ranks, the orders are left out and must be
 * drawn by another begin(). Anything can be given: what is no state is refused. */
int shade_scorer_load(struct shade_scorer *s, const void *buffer, uint64_t size);

#ifdef __cplusplus
}
#endif

#endif
