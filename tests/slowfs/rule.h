/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is to happen to single paths: faults, and counts of their requests. Paths are as
 * node_path() writes them. Safe from any thread. */
#ifndef SLOWFS_RULE_H
#define SLOWFS_RULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

#define RULE_MAX 65536
#define RULE_UNLIMITED UINT64_MAX
#define RULE_FIRST_READ UINT64_MAX

enum rule_kind {
	RULE_NONE,
	RULE_EIO,	 /* READ fails with EIO */
	RULE_ESTALE,	 /* READ fails with ESTALE */
	RULE_SHORT,	 /* READ gives half, and then the end of the file for that open */
	RULE_HANG,	 /* READ has no answer */
	RULE_CHANGE,	 /* the content is replaced under a reader */
	RULE_EIOOPEN,	 /* OPEN fails with EIO */
	RULE_ESTALEOPEN, /* OPEN fails with ESTALE */
	RULE_HANGOPEN,	 /* OPEN has no answer */
	RULE_KIND_COUNT
};

struct rule_fault {
	enum rule_kind kind;
	uint64_t count; /* how often it strikes, or RULE_UNLIMITED */
	uint64_t after; /* bytes that an open reads before it can strike; for RULE_CHANGE also
			 * RULE_FIRST_READ: whatever the first READ gives */
};

/* What the rules remember of one open; zeroed at first. */
struct rule_open {
	uint64_t delivered;   /* bytes so far */
	uint64_t short_epoch; /* the fault that ended the file early, or 0 */
};

/* A request that may hang; zeroed at first. */
struct rule_wait {
	bool interrupted;
};

/* "eio", "hangopen", ...; "once-" before a name means a count of 1. False: no such kind. */
bool rule_kind_parse(const char *name, struct rule_fault *fault);

/* Whether faults of this kind strike READs, not OPENs. */
bool rule_kind_reads(enum rule_kind kind);

/* Each returns 0, -ENOSPC at RULE_MAX paths or -ENOMEM. A fault replaces the one before;
 * its path is watched as well. */
int rule_set(const char *path, const struct rule_fault *fault);
int rule_watch(const char *path);

/* Takes the fault of one path, or of all for NULL, away and releases what hangs on it. */
void rule_clear(const char *path);
void rule_reset_counters(void);

/*
 * An OPEN or a READ of `path` arrives: counts it and lets a fault strike. Blocks while the
 * path hangs. Returns 0 to go on, or the -errno to answer: -EINTR after rule_interrupt(),
 * -ECONNABORTED after rule_close(), -EBUSY if too many hang already.
 */
int rule_enter_open(const char *path, struct rule_wait *wait);
int rule_enter_read(const char *path, const struct rule_open *open, struct rule_wait *wait);

/* A READ got `size` bytes: shortens or changes them. Returns how many to deliver. */
size_t rule_shape(const char *path, struct rule_open *open, unsigned char *data, size_t size);

/* Makes the times show that the content was replaced. */
void rule_stamp(const char *path, struct stat *st);

void rule_interrupt(struct rule_wait *wait);

/* Releases all that hangs, now and later. */
void rule_close(void);
void rule_destroy(void);

/* How many hang, and what is known of each path, one line each. */
void rule_print(FILE *out);

#endif
