/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * From the ids that trainers use (positions in the sorted list of all files, as the last complete
 * scan found them) to slots of the policy core, and back. The caller holds the cache's lock.
 */
#ifndef SHADE_NUMBERING_H
#define SHADE_NUMBERING_H

#include <stdbool.h>
#include <stdint.h>

#define ID_NONE UINT32_MAX
/* An id with this bit is a slot, and stays what it is when the numbering changes. */
#define ID_IS_SLOT ((uint32_t)1 << 31)

struct numbering {
	uint32_t *slots; /* by id; NULL: no scan is complete yet */
	uint32_t *ids;	 /* by slot; ID_NONE: the file came after the scan */
	uint32_t id_count, slot_count;
};

/* Takes over `slots`, which is by id, whatever comes of it. `slot_count`: slots are below this.
 * 0 or -ENOMEM. */
int numbering_replace(struct numbering *numbering, uint32_t *slots, uint32_t id_count,
		      uint32_t slot_count);
void numbering_free(struct numbering *numbering);
static inline bool numbering_is_complete(const struct numbering *numbering)
{
	return numbering->slots;
}
/* 0, -EAGAIN before the first scan is complete, -ERANGE if there is no such id. */
int numbering_slot(const struct numbering *numbering, uint32_t id, uint32_t *slot);
/* ID_NONE: it has no number. */
uint32_t numbering_id(const struct numbering *numbering, uint32_t slot);

#endif
