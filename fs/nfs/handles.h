/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which handle a file has at the server, by file system and file number. There is one for each of
 * millions of files, so they are packed. Handles of one file system differ at their ends alone with
 * every server that was looked at, so what is before the last 12 bytes is kept once for all of
 * them: a handle then takes 23 bytes, and 5 to 8 in the index. A handle whose beginning is too rare
 * for that is kept whole.
 *
 * It is only a cache. A file that is not here is looked up by its name, and so is one whose handle
 * the server does not know any more; what a wrong handle leads to is found out by its attributes.
 */
#ifndef SHADE_NFS_HANDLES_H
#define SHADE_NFS_HANDLES_H

#include "base/threads.h"
#include "nfs/proto.h"

#define HANDLE_KINDS 17		/* of records, by what is kept of a handle, in steps of 4 bytes */
#define HANDLE_PREFIXES_MAX 255 /* that are kept once */

struct handle_kind {
	uint8_t **chunks;
	uint32_t chunk_count, chunk_room;
	uint32_t used; /* records, free ones included */
	uint32_t free; /* the first free record, plus 1; 0: none */
};

struct handles {
	struct lock lock;
	struct nfs_handle prefixes[HANDLE_PREFIXES_MAX]; /* lock */
	unsigned prefix_count;				 /* lock */
	struct handle_kind kinds[HANDLE_KINDS];		 /* lock */
	uint32_t *index;   /* lock: records by hash, plus 1; 0: empty */
	size_t index_room; /* lock */
	size_t count;	   /* lock */
};

void handles_init(struct handles *handles);
void handles_destroy(struct handles *handles);

/* Replaces what there was. Without memory nothing is kept. */
void handles_put(struct handles *handles, const struct store_attr *attr,
		 const struct nfs_handle *handle);
bool handles_find(struct handles *handles, const struct store_attr *attr,
		  struct nfs_handle *handle);
/* Nobody needs the handle of this version any more. That of a newer version stays: it is the same
 * file. */
void handles_forget(struct handles *handles, const struct store_attr *attr);

#endif
