/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The source's files as a FUSE connection.
 *
 * In portable mode it is what users see, with .shade inside. In native mode an overlay is in front
 * of it: the kernel sends no opens, names never time out, and .shade is an empty directory, on
 * which native/ mounts the real one.
 */
#ifndef SHADE_FILES_H
#define SHADE_FILES_H

#include "cache/cache.h"
#include "control/control.h"
#include "fuse/numbers.h"
#include "fuse/session.h"

struct files;

/* What a daemon that takes over needs. It is in memory that outlives the daemon. */
struct files_heritage {
	struct numbers numbers; /* by which the kernel knows nodes */
	struct session_heritage session;
};

struct files_options {
	struct cache *cache;
	struct store *store;
	struct control *control;
	const char *source;
	double staleness_s;
	bool allow_other; /* who may enter is then decided by the source's modes, owners and lists
			   */
	bool noexec;	  /* portable */
	unsigned workers; /* that may wait for the source */
	struct files_heritage *heritage; /* until files_destroy() */
	bool is_successor;		 /* the heritage is a dead daemon's */
	void (*ended)(void *context);	 /* the mount has ended without files_unmount() */
	void *context;
};

/* Whether this program answers the kernel's first request as the one did that was asked: 0;
 * -EPROTO: no; or another negative errno. Changes nothing. */
int files_check(const struct files_heritage *heritage, bool native, bool allow_other);

/* 0 or a negative errno. */
int files_create(struct files **out, const struct files_options *options);
/* Where to mount. Nothing is copied. */
struct files_point {
	const char *path; /* its name */
	int directory;	  /* a descriptor of it, which is needed only for the call */
	int above;	  /* of the directory that it is in, until files_unmount() */
	int connection;	  /* a successor's: it is mounted, and served by this; otherwise -1 */
};

/* Mounts, or takes over, and serves. 0 or a negative errno. */
int files_mount(struct files *files, const struct files_point *point, bool native);
/* What was mounted; until files_unmount(). */
const struct mount *files_get_mount(const struct files *files);
/* A descriptor of the connection, which is not the caller's; until files_unmount(). */
int files_connection(const struct files *files);
/* A descriptor of the mount's root, which keeps the mount busy, also while files_unmount() is under
 * way; or a negative errno. */
int files_reach(struct files *files);
/* Takes no more requests; those at hand are answered if that takes no longer than a moment. The
 * process ends next. */
void files_pause(struct files *files);
/* No request is handled any more when it returns. Nothing happens if it is not mounted. */
void files_unmount(struct files *files);
/* Call it every few milliseconds while it is mounted: answers callers that are being killed. */
void files_tick(struct files *files);
/* Not mounted any more. NULL is fine. */
void files_destroy(struct files *files);

/* The node that the kernel knows by a number. It may be gone, or never have been: the address is
 * only to be compared. NULL: no node has such a number. */
const struct node *files_find(const struct files *files, uint64_t number);

/* How the cache reaches the kernel's page cache; the context is a struct files. It can be given to
 * the cache before the mount: the kernel then knows no file. */
extern const struct page_cache_kernel files_kernel;

#endif
