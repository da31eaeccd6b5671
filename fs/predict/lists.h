/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How loaders may have listed the files that are read: for each folder that much of what is read is
 * below, and for each kind of loader.
 */
#ifndef SHADE_LISTS_H
#define SHADE_LISTS_H

#include "cache/cache.h"
#include "shade/shuffle.h"

#define LISTS_ROOTS 4 /* folders that are tried at a time */
#define LISTS_MAX (LISTS_ROOTS * SHUFFLE_LISTINGS)

struct list {
	char *root; /* the folder's path, "" for the top of the mount */
	enum shuffle_listing listing;
	uint32_t count;
	uint32_t *slots;    /* by index */
	uint32_t *index_of; /* by slot; UINT32_MAX: it is not in the list */
	uint32_t slot_count;
};

#define LISTS_TRIED 16

struct lists {
	uint64_t version;	  /* of the names that they were made of */
	char *tried[LISTS_TRIED]; /* folders whose lists are here, or worth nothing */
	unsigned tried_count;
	unsigned count;
	struct list all[LISTS_MAX];
};

/* The lists that the reads of a window, by slots, may be of. Those that are there already are kept,
 * unless names have changed. 0, -EAGAIN (no scan is complete), -ENOMEM, -ECANCELED. */
int lists_make(struct lists *lists, struct cache *cache, const struct shuffle_window *window,
	       const _Atomic bool *stop);
void lists_free(struct lists *lists);
void list_free(struct list *list);
/* UINT32_MAX: it is not in the list. */
static inline uint32_t list_index(const struct list *list, uint32_t slot)
{
	return slot < list->slot_count ? list->index_of[slot] : UINT32_MAX;
}

#endif
