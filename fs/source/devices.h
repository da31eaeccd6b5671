/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The file systems that a source spans. Each has a small number, which fits into a struct
 * store_attr; the source's top is in number 0.
 *
 * A number is given for the mount's life, but for the top's, which may be mounted again. A source
 * with more file systems than the table has room for shares the numbers that are left among them.
 * Nodes have these numbers, so the table is in the estate, where a successor finds it.
 */
#ifndef SHADE_DEVICES_H
#define SHADE_DEVICES_H

#include <stdatomic.h>

#include "base/format.h"
#include "source/attr.h"

#define DEVICES_KNOWN 1536 /* have numbers of their own */

struct devices {
	_Atomic uint64_t keys[DEVICES_KNOWN]; /* by number, without gaps; 0: none */
};

extern const struct format_line devices_format[]; /* with the attributes that name them */

struct estate;

/* The table that there is in the estate, or a new one. NULL: no memory. With an estate it stays. */
struct devices *devices_open(struct estate *estate);
void devices_close(struct devices *devices, const struct estate *estate);
static inline bool devices_are_known(struct devices *devices)
{
	return atomic_load(&devices->keys[0]);
}

/* From any thread. The first device that is asked about gets number 0. */
unsigned devices_number(struct devices *devices, uint32_t major, uint32_t minor);

/* The source's top was mounted again: number 0 is this device from now on. */
void devices_replace_top(struct devices *devices, uint32_t major, uint32_t minor);

#endif
