/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * libshade: a mounted shadefs for a program, for C99 and C++.
 *
 * A handle is one open control descriptor: scores and orders go in, what is resident and how
 * well it went come out. Functions return 0 or a negative errno, and shade_error() then
 * has a sentence; where the daemon refused something (-EINVAL), it is the daemon's own.
 * -ENODEV: no shadefs there; -ENOTCONN: its daemon is gone, and the handle is of no use.
 *
 * Threads may share a handle: what one call sends is never mixed with another's. A handle
 * must not be closed while it is used. Nothing here installs handlers, starts threads or prints.
 */
#ifndef SHADE_CLIENT_H
#define SHADE_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SHADE_API __attribute__((visibility("default")))
#else
#define SHADE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

struct shade;

/*
 * Opens the mount that PATH is in: its mount point, or any file or directory below. JOB names
 * the training among several that share the mount, and is made if it is not there; NULL: the
 * one that is always there. If a folder of the mount is bound elsewhere, as in a container, and
 * PATH is there, the environment variable SHADE_CONTROL has to name where its .shade is bound:
 * -ENXIO, and a sentence, if it does not. Close the handle with shade_close(), which takes NULL,
 * too.
 */
SHADE_API int shade_open(const char *path, const char *job, struct shade **opened);
SHADE_API void shade_close(struct shade *shade);

/* Why the last call of this thread that failed did; until its next one fails. */
SHADE_API const char *shade_error(void);

/* The mount point, without symbolic links; or where a folder of the mount is bound that PATH was
 * in. */
SHADE_API const char *shade_path(const struct shade *shade);
/* The path of that folder in the mount: "train" if MNT/train is bound at shade_path(); "" for the
 * mount itself. Paths that are given are translated; those of shade_samples() are the mount's. */
SHADE_API const char *shade_prefix(const struct shade *shade);

/* The version of the library. */
SHADE_API const char *shade_version(void);

/* Waits until the mount knows all its samples; -ETIMEDOUT after TIMEOUT_MS. */
SHADE_API int shade_wait(struct shade *shade, uint32_t timeout_ms);

/*
 * From now on the ids of this handle mean these files: 0 the first, COUNT - 1 the last. A path
 * is absolute, relative to the current directory, or relative to the mount, and may lead there
 * through symbolic links. Each must be a sample of the mount. No paths: the mount's own ids again.
 */
SHADE_API int shade_register(struct shade *shade, const char *const *paths, uint32_t count);

/* How important samples are: finite, 0 or more. All of them or none. */
SHADE_API int shade_scores(struct shade *shade, const uint32_t *ids, const float *scores,
			   uint32_t count);
/* What this epoch will read, in this order; in place of an earlier order of the epoch. */
SHADE_API int shade_order(struct shade *shade, uint64_t epoch, const uint32_t *ids, uint32_t count);
/* This epoch begins. */
SHADE_API int shade_epoch(struct shade *shade, uint64_t epoch);

/*
 * Trainings that read one shared order, each at its own pace. The job of this handle is in the
 * group NAME until the handle is closed; NULL: in none. The group's orders are a stream: EPOCH
 * counts them.
 */
SHADE_API int shade_group_join(struct shade *shade, const char *name);

/* What an epoch of a member reads: the order `first` from `offset` on, then the next one up to
 * there. */
struct shade_group_turn {
	uint64_t first;
	uint64_t offset;
};

/* The training begins its epoch EPOCH, and is told which stretch of the stream that is.
 * `turn->first`: what the stream counts from if it has no order yet. -ENXIO: in no group. */
SHADE_API int shade_group_begin(struct shade *shade, uint64_t epoch, struct shade_group_turn *turn);
/* An order for the group. WEIGHTS, by entry, may be NULL. -EEXIST: somebody was faster; -ERANGE: no
 * member reads that epoch now or next. */
SHADE_API int shade_group_put(struct shade *shade, uint64_t epoch, const uint32_t *ids,
			      const float *weights, uint32_t count);
/* An order of the group by the ids of this handle, UINT32_MAX: a sample that has none. *WEIGHTS is
 * NULL if all are 1. Both are released with shade_free(). -ENOENT: there is none. */
SHADE_API int shade_group_order(struct shade *shade, uint64_t epoch, uint32_t **ids,
				float **weights, uint32_t *count);
/* How important samples are to the members of the group together, 0 to 1; only those that one of
 * them has scored. Both are released with shade_free(). */
SHADE_API int shade_group_importance(struct shade *shade, uint32_t **ids, float **importance,
				     uint32_t *count);

/* The samples that ids of this handle can mean. */
SHADE_API int shade_sample_count(struct shade *shade, uint32_t *count);

/* Calls EACH with every sample of the mount, its own ids, until that returns something other
 * than 0, which is then returned. Paths are relative to the mount. */
SHADE_API int shade_samples(struct shade *shade,
			    int (*each)(void *context, uint32_t id, const char *path),
			    void *context);

/* Sets the bits of the samples below COUNT that are in memory, and clears the others: sample i
 * is bit i % 64 of word i / 64. By the ids of this handle. */
SHADE_API int shade_resident(struct shade *shade, uint64_t *bitmap, uint32_t count);

struct shade_sample {
	uint64_t size;	    /* bytes */
	float score;	    /* below 0: none yet */
	uint32_t frequency; /* how often it was read */
	uint32_t resident;  /* 1: in memory */
};

SHADE_API int shade_query(struct shade *shade, uint32_t id, struct shade_sample *sample);

/* A number of `stats`, of the job or else of the mount. -ENOENT: there is no such key;
 * -ERANGE: it is a word. */
SHADE_API int shade_stat(struct shade *shade, const char *key, double *value);

/* All of a file of .shade as a text, to be released with shade_free(): "stats", "config",
 * "metrics", "scores", "order"... -EFBIG above MAX bytes; 0: no limit. */
SHADE_API int shade_read(struct shade *shade, const char *name, size_t max, char **text,
			 size_t *length);
SHADE_API void shade_free(void *memory);

/* A descriptor for reading such a file bit by bit, or a negative errno. */
SHADE_API int shade_open_file(struct shade *shade, const char *name);

/* Fetches, drops, holds or no longer holds a file or all below a directory. */
SHADE_API int shade_warm(struct shade *shade, const char *path);
SHADE_API int shade_evict(struct shade *shade, const char *path);
SHADE_API int shade_pin(struct shade *shade, const char *path);
SHADE_API int shade_unpin(struct shade *shade, const char *path);

/*
 * Sends whole lines of text commands (control.h). ANSWER, of SIZE bytes, gets what the daemon
 * said without the newline; after a failure that is its sentence, or "". NULL: not wanted.
 */
SHADE_API int shade_command(struct shade *shade, const char *lines, size_t length, char *answer,
			    size_t size);

#ifdef __cplusplus
}
#endif

#endif
