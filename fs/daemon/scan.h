/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A thread that numbers the samples: once at the start, and again whenever somebody asks. In native
 * mode a second one reads directories again before names are older than `staleness`, since the
 * kernel never asks for a name twice there. They are two because the numbering waits for every
 * directory: one that hangs must not keep the mount from noticing that permissions were revoked.
 */
#ifndef SHADE_SCAN_H
#define SHADE_SCAN_H

#include "cache/cache.h"

struct scan;

struct scan_options {
	struct cache *cache;
	struct store *store;  /* that it reads */
	const char *source;   /* for messages */
	const char *manifest; /* the file that keeps the names; NULL: none */
	int manifest_fd;      /* its directory */
	uint64_t staleness_ms;
	void (*flush)(void *context); /* native mode: has the overlay forget names */
	void *context;
};

/* Loads the manifest, too. 0 or a negative errno. */
int scan_create(struct scan **out, const struct scan_options *options);
/* Starts the threads. 0 or a negative errno. */
int scan_start(struct scan *scan, bool native);
/* Has the samples numbered again, soon. From any thread, also before the start. */
void scan_want(struct scan *scan);
/* Has the threads end as soon as they can. */
void scan_stop(struct scan *scan);
/* Waits for the threads, if they were started, after scan_stop(). */
void scan_destroy(struct scan *scan);

#endif
