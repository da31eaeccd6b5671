/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The source: where files really are. A backend fills in a `struct store_ops`; dir.c is the one
 * for a directory that is mounted.
 *
 * Paths are relative to the root of the source, "" is the root itself; no path leaves it,
 * whatever links there are. Names and attributes are asked for with calls that wait; file
 * contents come asynchronously, many at a time. Nothing is ever written.
 *
 * Somebody may rename what is at the source at any moment, so a path alone says nothing about which
 * file or directory it leads to. Callers say which one they mean, and the backend compares that
 * with what it has opened: -ESTALE if it is another.
 */
#ifndef SHADE_STORE_H
#define SHADE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "source/attr.h"

struct statvfs;
struct store;

/* One read of one version: from `offset`, up to `size` bytes. */
struct store_read {
	const char *path;		   /* until done */
	const struct store_attr *expected; /* until done */
	void *buffer; /* of store_buffer(); NULL: only see whether the version is still there */
	uint64_t offset;
	size_t size;
	/* Called once, from a thread of the backend, which nobody may keep waiting: 0 with `got`
	 * bytes (less than `size` only at the end of the file), -ESTALE if this is not the
	 * version that was expected, or another negative errno. */
	void (*done)(struct store_read *read, int rc);
	void *context; /* the caller's */
	size_t got;
	bool awaited; /* somebody waits for it already; else it is read ahead */
	float worth;  /* of this version, for a tier: see struct store_rating */
	/* Not from a tier, nor for one: the version may still be being written, or it is too long
	 * ago that the source was asked for it. */
	bool from_source;
	/* Set by the backend: these are the version's bytes, but the source was not asked whether
	 * it still has this version. */
	bool unchecked;

	/* The backend's own; 0 before store_read() and store_cancel(). */
	void *progress;
	bool cancelled;
	struct store_read *next;
};

/* A directory that is open: what has its path by now does not matter. */
struct store_dir {
	struct store *store;
	/* The backend's own. */
	int fd;
	void *handle;
};

/* How much it is worth to have a version at hand: from 0 to 1, the sooner it is used and the more
 * important it is, the more. */
struct store_rating {
	struct store_attr attr;
	float worth;
};

/* What a backend counts, for .shade/stats. */
struct store_count {
	const char *name;
	uint64_t value;	  /* never less than before */
	const char *help; /* one sentence */
};
#define STORE_COUNTS_MAX 16

/* Called for each name but . and ..; a result other than 0 ends the listing. `rc` is 0, or a
 * negative errno if the source has the name and fails to tell of it; then `attr` is NULL. */
typedef int store_entry(void *context, const char *name, const struct store_attr *attr, int rc);

/* Whether there is a source at all. */
enum store_life {
	STORE_ALIVE,
	STORE_DEAD,    /* its file system has ended, and is still mounted, or not mounted again */
	STORE_REPLACED /* something else is mounted where it was */
};

/* What a backend does. Each call but `read` and `cancel` may wait for the source. */
struct store_ops {
	int (*stat)(struct store *store, const char *path, struct store_attr *attr);
	int (*acl)(struct store *store, const char *path, const struct store_attr *expected,
		   void *value, size_t size);
	int (*readlink)(struct store *store, const char *path, const struct store_attr *expected,
			char **target);
	int (*open_dir)(struct store_dir *dir, const char *path, const struct store_attr *expected,
			struct store_attr *attr);
	int (*stat_in)(const struct store_dir *dir, const char *name, struct store_attr *attr);
	int (*list)(struct store_dir *dir, store_entry *entry, void *context);
	void (*close_dir)(struct store_dir *dir);
	int (*statfs)(struct store *store, struct statvfs *out);
	void (*read)(struct store *store, struct store_read *read);
	void (*cancel)(struct store *store, struct store_read *read);
	void (*close)(struct store *store);
	/* NULL: these mean nothing to it. They do not wait. */
	void (*stop)(struct store *store);
	unsigned (*count)(struct store *store, struct store_count *counts, unsigned room);
	void (*forget)(struct store *store, const struct store_attr *attr);
	enum store_life (*life)(const struct store *store);
	size_t (*rate)(struct store *store, const struct store_rating *ratings, size_t count);
	/* NULL as well. This one waits. */
	bool (*revive)(struct store *store);
};

/* A backend's own struct begins with this. */
struct store {
	const struct store_ops *ops;
};

struct estate;

/* A directory as the source. 0 or a negative errno. `depth`: how many reads at a time; `estate`:
 * what a successor needs is kept there; NULL: there will be none. */
int store_dir_open(struct store **out, const char *path, unsigned depth, struct estate *estate);
/* The daemon is about to end: calls that wait for the source should fail with -ESHUTDOWN from now
 * on, if the backend can have them do so. Reads are cancelled by their callers. */
void store_stop(struct store *store);
/* All reads must be done. */
void store_close(struct store *store);

/* Whatever is there. */
int store_stat(struct store *store, const char *path, struct store_attr *attr);
/* Access control lists, as the kernel keeps them in this attribute of a file. */
#define STORE_ACL "system.posix_acl_access"
/* Its length, or a negative errno: -ENODATA if there is none, also because there cannot be one;
 * -ERANGE if it needs more room; -ESTALE if this is not the version that was expected, or, of a
 * directory, not the directory that was. With a `size` of 0 only the length is told. `expected` may
 * be NULL for the root. */
int store_acl(struct store *store, const char *path, const struct store_attr *expected, void *value,
	      size_t size);
/* A string that the caller frees. -ESTALE if this is not the version that was expected. */
int store_readlink(struct store *store, const char *path, const struct store_attr *expected,
		   char **target);
/* Opens a directory and asks for its attributes. -ESTALE if it is not the directory that was
 * expected, whatever its version; -ENOTDIR or -ELOOP if it is none. */
int store_open_dir(struct store *store, const char *path, const struct store_attr *expected,
		   struct store_dir *dir, struct store_attr *attr);
void store_close_dir(struct store_dir *dir);
/* One name in it. */
int store_stat_in(const struct store_dir *dir, const char *name, struct store_attr *attr);
/* All names in it, in any sequence. Returns what `entry` returned if that was not 0. Entries that
 * vanish meanwhile are left out. If the directory itself does not answer, the listing fails as a
 * whole. Nothing else can be asked of the directory after that; it is still to be closed. */
int store_list(struct store_dir *dir, store_entry *entry, void *context);
int store_statfs(struct store *store, struct statvfs *out);

/* For a caller with a thread of its own, called now and then: if calls have failed as they do when
 * the source's file system has ended, looks whether it has, and whether it was mounted again. True:
 * it is another one from now on, and everything that is known of it must be compared again. */
bool store_revive(struct store *store);
enum store_life store_life(const struct store *store);

/* Nobody knows a name of this version any more: what is kept to find it by can go. It may still be
 * asked for. */
void store_forget(struct store *store, const struct store_attr *attr);
bool store_takes_ratings(const struct store *store);
/* What versions are worth by now. Returns how many it has taken, from the first on; the others may
 * be told later. */
size_t store_rate(struct store *store, const struct store_rating *ratings, size_t count);

/* Fills in at most `room` figures, STORE_COUNTS_MAX or more. How many there are. */
unsigned store_get_counts(struct store *store, struct store_count *counts, unsigned room);

/* A buffer for a read of `size` bytes, to be freed; NULL: no memory. */
void *store_buffer(size_t size);
void store_read(struct store *store, struct store_read *read);
/* Asks a read that hangs to end; it still ends by `done`. It may come before store_read() does:
 * then the read ends at once. */
void store_cancel(struct store *store, struct store_read *read);

#define STORE_MORE 1 /* to read */

/* For backends: `bytes` more have come, and after that the file was `found`. 0, STORE_MORE, -ESTALE
 * if the version is another, or -EIO if the source gives fewer bytes than the version has. */
int store_read_outcome(struct store_read *read, const struct store_attr *found, size_t bytes);

#endif
