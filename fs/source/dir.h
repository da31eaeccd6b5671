/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The inside of a directory as the source, for dir.c (contents) and dir_names.c. */
#ifndef SHADE_DIR_H
#define SHADE_DIR_H

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>

#include "source/store.h"

#define DIR_WANTED (STATX_BASIC_STATS) /* for dir_convert() */

/* How a path below the root is opened: no link leads out of it. */
static inline struct open_how dir_how_beneath(int flags)
{
	return (struct open_how){ .flags = (uint64_t)(flags | O_CLOEXEC | O_NOFOLLOW),
				  .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
					     RESOLVE_NO_MAGICLINKS };
}

struct devices *dir_devices(struct store *store);
/* Something has failed so: perhaps the source is dead. Returns it. */
int dir_doubt(const struct store *store, int rc);
/* A descriptor of the directory, good for the calls that end in `at`. */
int dir_root(const struct store *store);
void dir_convert(struct store *store, const struct statx *from, struct store_attr *to);

/* dir_names.c: names and attributes, for the ops of dir.c. */
int dir_stat(struct store *store, const char *path, struct store_attr *attr);
int dir_acl(struct store *store, const char *path, const struct store_attr *expected, void *value,
	    size_t size);
int dir_readlink(struct store *store, const char *path, const struct store_attr *expected,
		 char **target);
int dir_open_dir(struct store_dir *dir, const char *path, const struct store_attr *expected,
		 struct store_attr *attr);
int dir_stat_in(const struct store_dir *dir, const char *name, struct store_attr *attr);
int dir_list(struct store_dir *dir, store_entry *entry, void *context);
void dir_close_dir(struct store_dir *dir);
int dir_statfs(struct store *store, struct statvfs *out);

#endif
