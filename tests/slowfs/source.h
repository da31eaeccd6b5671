/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The source behind the nodes. All return 0 (or a descriptor, a length) or -errno. */
#ifndef SLOWFS_SOURCE_H
#define SLOWFS_SOURCE_H

#include <stddef.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

struct node;

/* Opens the source directory and makes it the root node. */
int source_init(const char *directory);
void source_destroy(void);

/* -ESTALE: the file is gone, or its name stands for another one. */
int source_open(const struct node *node, int flags);
/* By its path, "." for the root. */
int source_open_directory(const char *path);
int source_stat(const struct node *node, struct stat *st);

int source_stat_child(const struct node *parent, const char *name, struct stat *st);
int source_readlink(const struct node *node, char *target, size_t size);
int source_statfs(struct statvfs *st);

#endif
