/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Everything behind .shade: its directory of files and jobs, open files, commands, reports and the
 * trace. Nothing here knows FUSE: fuse/shade.c decodes requests, calls these functions and replies.
 *
 * A file that is read shows what there was when it was opened, so that a reader sees one moment;
 * `control` takes commands and answers on the same descriptor; a read of `trace` waits for the next
 * access. All functions may be called from any thread unless they say otherwise.
 */
#ifndef SHADE_FS_CONTROL_H
#define SHADE_FS_CONTROL_H

#include <stdio.h>
#include <sys/stat.h>

#include "cache/cache.h"

struct control;
struct control_file; /* an open file */
struct format_line;

/* What control needs of the daemon. */
struct control_hooks {
	/* Writes every option, its value and where that came from, a line each. */
	void (*print_config)(void *context, FILE *out);
	/* The bytes that a capacity of 100 % means. */
	uint64_t (*memory_bytes)(void *context);
	/* Numbers the samples again, some time soon. */
	void (*rescan)(void *context);
	/* Another version of the program is to go on with the mount. 0: it will, in a moment; or a
	 * negative errno with a reason, and then nothing has changed. Takes seconds. */
	int (*upgrade)(void *context, char *why, size_t room);
	/* Returns when the cache knows of all accesses up to now: a report or a command must see
	 * those that were made before it. */
	void (*catch_up)(void *context);
	/* At least so many accesses were not told of. */
	uint64_t (*accesses_lost)(void *context);
	/* Writes the lines of `stats`, or with `metrics` of `metrics`, that only the daemon knows.
	 * NULL: there are none. */
	void (*print_more)(void *context, FILE *out, bool metrics);
	/* Writes a line for each training that was recognised. NULL: none ever is. */
	void (*print_predictions)(void *context, FILE *out);
};

enum control_figure_kind { CONTROL_COUNTER, CONTROL_GAUGE };

struct control_figure {
	enum control_figure_kind kind;
	const char *name; /* of `stats`; _ms or _us at its end is the unit */
	double value;
	const char *help; /* one sentence, without backslashes and newlines */
};

/* For print_more(): a figure as a line of `stats`, or as lines of `metrics`. */
void control_print_figure(FILE *out, bool metrics, const struct control_figure *figure);
/* For figures with labels: what comes before them in `metrics`, where their names begin with
 * shadefs_ and those of counters end in _total. */
void control_print_head(FILE *out, enum control_figure_kind kind, const char *name,
			const char *help);

/* How what outlives a daemon is laid out. */
extern const struct format_line control_format[];

#define CONTROL_DIRS 16 /* of jobs; 0 is .shade itself */

/* What a successor needs of control besides what is in the estate. All zeros at first. */
struct control_heritage {
	_Atomic uint64_t numbers; /* of open files: so many were given */
	_Atomic uint64_t guesses;
	struct {
		uint32_t job;
		uint64_t guess;
		char name[64];
		_Atomic bool is_there;
	} dirs[CONTROL_DIRS];
};

struct control_options {
	struct cache *cache;
	struct estate *estate;
	struct control_heritage *heritage;
	bool is_successor; /* both are a dead daemon's */
	const struct control_hooks *hooks;
	void *context;		 /* of the hooks */
	uint64_t inflight_bytes; /* a capacity must be more */
	uint64_t grace_ms;	 /* a training that is gone for so long has ended */
	uid_t owner;		 /* who mounted; may use .shade, as root may */
	bool has_group;		 /* `group` may use it, too */
	gid_t group;
};

/* 0 or a negative errno. */
int control_create(struct control **out, const struct control_options *options);
/* What reports call the mode of the mount. Before the first request; `mode` is not copied. */
void control_set_mode(struct control *control, const char *mode);
/* Answers all reads of `trace` that wait, and from now on every other at once: with the end of the
 * file if there is nothing to tell. */
void control_stop(struct control *control);
/* The connection of .shade is gone, so no request is under way: answers whoever waits, and closes
 * all files. */
void control_close_all(struct control *control);
/* No request is under way. NULL is fine. */
void control_destroy(struct control *control);

/* Who makes a request. */
struct control_caller {
	uid_t uid;
	gid_t gid;
	int32_t thread; /* 0: it cannot be seen from here */
	/* Fills in up to `max` supplementary groups. Their number, or a negative errno. */
	int (*groups)(void *context, gid_t *groups, int max);
	void *context;
	uint64_t request; /* its number */
	bool is_repeated; /* a daemon that has died had read it, and may have done what it asks for
			   */
};

/* --- the directory ------------------------------------------------------------------------------
 * Files and directories have inode numbers from CONTROL_DIR, which is .shade itself, to
 * CONTROL_END. */

#define CONTROL_DIR 2
#define CONTROL_END 4096

static inline bool control_owns(uint64_t ino)
{
	return ino >= CONTROL_DIR && ino < CONTROL_END;
}

bool control_is_dir(uint64_t ino);
/* Names below jobs/ come and go, so nobody may remember them. */
bool control_is_of_job(uint64_t ino);
/* 0 or -ENOENT. */
int control_lookup(struct control *control, uint64_t dir, const char *name, uint64_t *ino);
struct stat control_stat(const struct control *control, uint64_t ino);
/* Calls `entry` for each name from position `from` on, until that returns false. 0 is the first
 * position; `next` is the one after the name. `entry` must not call control functions, but for
 * control_stat(). */
void control_list(struct control *control, uint64_t dir, uint64_t from,
		  bool (*entry)(void *context, const char *name, uint64_t ino, uint64_t next),
		  void *context);
/* Directories below jobs/ are trainings. Both return 0 or a negative errno. */
int control_make_job(struct control *control, const struct control_caller *caller, uint64_t parent,
		     const char *name, uint64_t *ino);
int control_remove_job(struct control *control, const struct control_caller *caller,
		       uint64_t parent, const char *name);

/* The job that a thread reads for, or SCHED_JOB_ANY: see claims.h. Never waits for anybody. */
uint32_t control_job_of(struct control *control, int32_t thread);

/* --- trainings that were recognised --------------------------------------------------------------
 * They get a job as others do, named "predicted", until a training that announces itself needs its
 * directory, somebody removes it, or nobody reads for it. Then the functions below return -ENOENT.
 */

struct control_guess {
	unsigned dir;
	uint64_t number; /* which one it is; 0: none */
	uint32_t job;	 /* the policy core's number */
};

/* Whether a job is one, perhaps of a daemon that has died. */
bool control_is_guess(struct control *control, uint32_t job);
/* -ENOSPC: the last free directory is left to others. */
int control_guess_begin(struct control *control, struct control_guess *guess);
void control_guess_end(struct control *control, const struct control_guess *guess);
/* Whether it is still there. `lives`: its training does. */
bool control_guess_is_there(struct control *control, const struct control_guess *guess, bool lives);
/* Orders as for cache_order_since(); the epoch begins. */
int control_guess_order(struct control *control, const struct control_guess *guess, uint64_t epoch,
			const uint32_t *ids, uint32_t count, uint64_t at);
int control_guess_epoch(struct control *control, const struct control_guess *guess, uint64_t epoch);
/* A thread reads for it, unless somebody claims otherwise. */
void control_guess_reader(struct control *control, const struct control_guess *guess,
			  int32_t thread);

/* --- open files -------------------------------------------------------------------------------*/

/* A read, answered exactly once: by control_read(), or later by control_tick(). */
struct control_waiter {
	/* `data` holds for the call only. Must not call control functions. */
	void (*answer)(struct control_waiter *waiter, int rc, const void *data, size_t size);
	/* Whether the reader was interrupted; it is then answered -EINTR. */
	bool (*is_interrupted)(struct control_waiter *waiter);
	const struct control_caller *caller; /* until control_read() returns */
	uint64_t offset;
	size_t size;
	struct control_file *file;   /* control's own */
	struct control_waiter *next; /* control's own */
};

/* The file is to be put, and to be closed some time. 0 or a negative errno; -EMFILE and -ENOMEM:
 * the caller has too much open, see quota.h. `writes`: the file is opened for writing. */
int control_open(struct control *control, const struct control_caller *caller, uint64_t ino,
		 bool writes, struct control_file **out);
/* The file by its number, until control_put(); NULL: there is none. A request may come twice after
 * a daemon has died: so the file may be closed meanwhile. */
struct control_file *control_find(struct control *control, uint64_t number);
void control_put(struct control_file *file);
uint64_t control_number(const struct control_file *file);
/* Whether the file has offsets; the others are streams. */
bool control_is_seekable(const struct control_file *file);
/* A last line of `control` without a newline is executed. No other call for the file is made. */
/* It has no number any more, and goes when it is put for the last time. */
void control_close(struct control_file *file);
void control_read(struct control_file *file, struct control_waiter *waiter);
/* Takes all of `data`, or returns a negative errno. For `control` alone. */
int control_write(struct control_file *file, const struct control_caller *caller, const void *data,
		  size_t size);
/* -ENOTTY if the file or the size of `in` does not fit the command. `out` has room for
 * CONTROL_IOCTL_MAX bytes and gets `out_size` of them. */
#define CONTROL_IOCTL_MAX 64
int control_ioctl(struct control_file *file, unsigned command, const void *in, size_t in_size,
		  void *out, size_t *out_size);

/* Answers the reads of `trace` that have something to tell, and ends jobs whose trainings are gone.
 * Call it every few milliseconds, in one thread: a busy mount is then told of in large pieces. */
void control_tick(struct control *control);

#endif
