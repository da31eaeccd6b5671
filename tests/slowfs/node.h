/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The names that the kernel knows: parent, name, and which file of the source it was. */
#ifndef SLOWFS_NODE_H
#define SLOWFS_NODE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

struct node;

/* The root lives from node_init() to node_destroy(), which frees all others too. */
void node_init(const struct stat *st);
void node_destroy(void);
struct node *node_root(void);

/*
 * The node of `name` in `parent`, with one lookup more, for the file that `st` shows. If
 * the name stood for another file before, that file's node becomes stale. NULL: no memory.
 */
struct node *node_get(struct node *parent, const char *name, const struct stat *st);

/* Takes lookups back; the node may be gone afterwards. */
void node_forget(struct node *node, uint64_t lookups);

/* Whether `st` shows the very file that the node was made for. */
int node_is(const struct node *node, const struct stat *st);

/* Writes the path below the root, "." for the root itself. Returns 0, -ESTALE if the name
 * has been given to another file, or -ENAMETOOLONG. */
int node_path(const struct node *node, char *path, size_t size);

#endif
