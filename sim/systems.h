/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The systems that shade-sim compare knows by name: a sampler, a policy, and who asks whose cache.
 */
#ifndef SHADE_SIM_SYSTEMS_H
#define SHADE_SIM_SYSTEMS_H

#include "run.h"

/* What a reader gets of what its order names. */
enum system_bytes {
	SYSTEM_OWN,	 /* each file's own bytes, where the order has it */
	SYSTEM_MOVED,	 /* its own bytes, but at another place of the epoch */
	SYSTEM_REPLACED, /* the bytes of another sample for some */
};

struct system {
	const char *name;
	const char *summary;
	const char *policy;
	enum system_bytes bytes;
	enum run_assign assign; /* over nodes */
	uint32_t lookahead;
	bool quiver;
	struct pads_request request; /* the sampler, */
	enum run_skip skips;	     /* and what it leaves out */
	struct skip_request skip;
};

/* In the order of the table; NULL past the last. */
const struct system *systems_get(unsigned index);
/* NULL: there is none of that name. */
const struct system *systems_find(const char *name);
/* "own", "moved" or "replaced". */
const char *systems_bytes_name(enum system_bytes bytes);

#endif
