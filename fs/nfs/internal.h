/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The inside of an NFS export as the source, for store.c (begin and end), reads.c (contents) and
 * names.c. */
#ifndef SHADE_NFS_INTERNAL_H
#define SHADE_NFS_INTERNAL_H

#include <stdatomic.h>

#include "base/threads.h"
#include "nfs/handles.h"
#include "nfs/mount.h"
#include "nfs/rpc.h"
#include "nfs/store.h"
#include "source/devices.h"

#define NFS_READ_MOST ((size_t)1 << 20)	  /* bytes of one READ */
#define NFS_LIST_MOST ((uint32_t)1 << 18) /* bytes of one part of a listing */

struct reads;

struct nfs_store {
	struct store store;
	struct nfs_options options;
	struct rpc *rpc;
	struct handles handles; /* of files and links */
	struct devices *devices;
	struct reads *reads;
	size_t read_most;	/* bytes of one READ */
	uint32_t list_most;	/* bytes of one part of a listing */
	_Atomic bool has_begun; /* somebody was told of the source: the start is over */

	struct lock lock;
	struct nfs_export export; /* lock */
	struct nfs_handle root;	  /* lock: of the source's top */
	struct store_attr top;	  /* what it was at first; constant once the store is open */
	uint64_t mounted_ms;	  /* lock: when it was last asked for */
};

/* What the mount shows of attributes that the server has sent. */
void nfs_convert(struct nfs_store *store, const struct nfs_attr *from, struct store_attr *to);
void nfs_get_root(struct nfs_store *store, struct nfs_handle *root);
/* Whether a file's handle is kept: that of a directory is looked up anew each time, so that what is
 * found is what has the path now. */
static inline bool nfs_keeps_handle(const struct store_attr *attr)
{
	return (attr->mode & 0170000) == 0100000 || (attr->mode & 0170000) == 0120000;
}

/* reads.c. All but the last two are called by any thread. */
int reads_create(struct reads **out, struct nfs_store *store);
void reads_destroy(struct reads *reads);
void reads_add(struct reads *reads, struct store_read *read);
void reads_cancel(struct reads *reads, struct store_read *read);
/* In the I/O thread: something was added or cancelled. */
void reads_woken(void *reads);

/* names.c. */
/* Finds the top of the source below what was mounted, and asks what the server can do. */
int nfs_begin(struct nfs_store *store);
int nfs_stat(struct store *store, const char *path, struct store_attr *attr);
int nfs_acl(struct store *store, const char *path, const struct store_attr *expected, void *value,
	    size_t size);
int nfs_readlink(struct store *store, const char *path, const struct store_attr *expected,
		 char **target);
int nfs_open_dir(struct store_dir *dir, const char *path, const struct store_attr *expected,
		 struct store_attr *attr);
int nfs_stat_in(const struct store_dir *dir, const char *name, struct store_attr *attr);
void nfs_close_dir(struct store_dir *dir);
int nfs_statfs(struct store *store, struct statvfs *out);
/* list.c. */
int nfs_list(struct store_dir *dir, store_entry *entry, void *context);

/*
 * Who reads directories waits for the server as long as it takes, as with a directory that is
 * mounted: the tree looks at the deadline itself, and answers with what it knows while such a call
 * is under way. An error instead would let each lookup wait for a deadline of its own. Others have
 * the deadline.
 */
uint64_t nfs_deadline(const struct nfs_store *store);

/* A call that waits for its reply until `until_ms`, with room for all replies but those of READ and
 * READDIRPLUS. */
struct nfs_question {
	struct rpc_call call;
	uint8_t buffer[NFS_REPLY_MAX + NFS_LINK_MAX];
};
/* 0 and `question->call.result`, or a negative errno. */
int nfs_ask(struct nfs_store *store, struct nfs_question *question, enum nfs_procedure procedure,
	    const struct nfs_handle *handle, const char *name, uint64_t until_ms);
/* One name in a directory, with its attributes. */
int nfs_lookup(struct nfs_store *store, const struct nfs_handle *dir, const char *name,
	       struct nfs_found *found, struct store_attr *attr, uint64_t until_ms);

#endif
