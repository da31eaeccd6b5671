/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The settings that `-o` and the control file share. Safe from any thread. */
#ifndef SLOWFS_SETTING_H
#define SLOWFS_SETTING_H

#include <stdint.h>
#include <stdio.h>

enum setting {
	SETTING_DELAY_US,      /* added to each OPEN of a file */
	SETTING_READ_DELAY_US, /* added to each READ */
	SETTING_META_DELAY_US, /* added to each LOOKUP, GETATTR, READDIR and READDIRPLUS */
	SETTING_BANDWIDTH,     /* bytes a second over all READs together; 0: no limit */
	SETTING_SEEK_US,       /* added to READs of files that are no neighbours; see arm.h */
	SETTING_PASS_US,       /* for each file that the arm passes over instead of seeking */
	SETTING_TIMEOUT_US,    /* how long the kernel may keep attributes and names */
	SETTING_DIRECT_IO,     /* 1: the page cache is passed by, each read() is a READ */
	SETTING_KEEP_CACHE,    /* 1: without direct_io, an open leaves the pages as they are */
	SETTING_COUNT
};

uint64_t setting_load(enum setting setting);
void setting_store(enum setting setting, uint64_t value);

/* Understands `name` and `text` without storing. Returns 0, -ENOENT for an unknown name
 * or -EINVAL for a bad value. */
int setting_parse(const char *name, const char *text, enum setting *setting, uint64_t *value);

/* One `name value` line each, in the form that setting_parse() takes. */
void setting_print(FILE *out);

#endif
