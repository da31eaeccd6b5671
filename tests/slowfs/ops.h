/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The FUSE handlers. Each decodes, counts, waits, calls, and answers exactly once. */
#ifndef SLOWFS_OPS_H
#define SLOWFS_OPS_H

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

#include <stdbool.h>

struct handle;
struct node;

/* How many requests can be in work, asleep or hanging, at once. */
#define OPS_THREADS 256

/* The control file's node id: no address of a node, and not the root's. */
#define OPS_CONTROL_ID 2

const struct fuse_lowlevel_ops *ops_table(void);

/* Shared by the handlers: */

struct node *ops_node(fuse_ino_t ino);
struct handle *ops_handle(const struct fuse_file_info *fi);

/* Seconds for the kernel to keep what it is told. */
double ops_timeout(void);

/* Finds `name`, with one lookup on its node. Returns 0 or -errno. */
int ops_entry(struct node *parent, const char *name, struct fuse_entry_param *entry);
bool ops_is_control(fuse_ino_t parent, const char *name);

/* Lets the faults of `path` strike an OPEN (of a directory too); an interrupt of the
 * request ends its hanging. Returns 0 or the -errno to answer. */
int ops_enter_open(fuse_req_t req, const char *path);
int ops_enter_read(fuse_req_t req, const struct handle *handle);

/* ops_meta.c */
void ops_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void ops_forget(fuse_req_t req, fuse_ino_t ino, uint64_t lookups);
void ops_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
void ops_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void ops_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		 struct fuse_file_info *fi);
void ops_readlink(fuse_req_t req, fuse_ino_t ino);
void ops_statfs(fuse_req_t req, fuse_ino_t ino);

/* ops_file.c */
void ops_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void ops_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi);
void ops_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t offset,
	       struct fuse_file_info *fi);
void ops_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);

/* ops_dir.c */
void ops_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void ops_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		 struct fuse_file_info *fi);
void ops_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		     struct fuse_file_info *fi);

#endif
