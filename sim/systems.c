/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "systems.h"

#include <string.h>

#define REP_SHADE 3 /* how often SHADE repeats a resident that was drawn */
#define USES_ECHO 4 /* what mode auto goes up to behind a slow source, unless told */

/* Over nodes the systems of others split an order as PyTorch's DistributedSampler does, and each
 * node has a cache for itself, unless its paper says otherwise. */
static const struct system systems[] = {
	{ .name = "default",
	  .summary = "a fresh permutation, the least recently used leaves",
	  .policy = "lru",
	  .assign = RUN_STRIDE,
	  .request = { .mode = PADS_UNIFORM } },
	{ .name = "base",
	  .summary = "iCACHE's Base: as default, but computes only with what iis would read",
	  .policy = "lru",
	  .assign = RUN_STRIDE,
	  .request = { .mode = PADS_UNIFORM },
	  .skips = RUN_SKIP_COMPUTE,
	  .skip = { .mode = SKIP_IIS } },
	{ .name = "coordl",
	  .summary = "CoorDL: what came first stays; over nodes one has each sample",
	  .policy = "minio",
	  .assign = RUN_HASH,
	  .request = { .mode = PADS_UNIFORM } },
	{ .name = "quiver",
	  .summary = "Quiver: two chunks, and what is there of ten batches first",
	  .policy = "minio",
	  .bytes = SYSTEM_MOVED,
	  .assign = RUN_HASH,
	  .quiver = true,
	  .request = { .mode = PADS_UNIFORM } },
	{ .name = "ilfu",
	  .summary = "iCACHE's sampling, the least frequently used leaves",
	  .policy = "lfu",
	  .assign = RUN_STRIDE,
	  .skips = RUN_SKIP_READS,
	  .skip = { .mode = SKIP_IIS } },
	{ .name = "icache",
	  .summary = "iCACHE: its sampling, its cache, and substitutes",
	  .policy = "icache",
	  .bytes = SYSTEM_REPLACED,
	  .assign = RUN_STRIDE,
	  .skips = RUN_SKIP_READS,
	  .skip = { .mode = SKIP_IIS, .substitute = true } },
	{ .name = "shade-paper",
	  .summary = "SHADE: its PADS with residents three times, and APP",
	  .policy = "app",
	  .assign = RUN_STRIDE,
	  .request = { .mode = PADS_PAPER, .rep = REP_SHADE } },
	{ .name = "shadefs",
	  .summary = "the default where the source keeps up: each sample once",
	  .policy = "shade",
	  .lookahead = 1,
	  .request = { .mode = PADS_UNIFORM } },
	{ .name = "echo",
	  .summary = "the default behind a slow source: each fetched sample four times",
	  .policy = "shade",
	  .lookahead = 1,
	  .request = { .mode = PADS_ECHO, .uses = USES_ECHO } },
	{ .name = "prune",
	  .summary = "our prune: half of the samples with small losses are left out",
	  .policy = "shade",
	  .lookahead = 1,
	  .skips = RUN_SKIP_READS,
	  .skip = { .mode = SKIP_PRUNE } },
	{ .name = "prune-echo",
	  .summary = "our echo over what prune leaves",
	  .policy = "shade",
	  .lookahead = 1,
	  .request = { .mode = PADS_ECHO, .uses = USES_ECHO },
	  .skips = RUN_SKIP_STREAM,
	  .skip = { .mode = SKIP_PRUNE } },
};

#define COUNT (sizeof(systems) / sizeof(systems[0]))

const struct system *systems_get(unsigned index)
{
	return index < COUNT ? &systems[index] : NULL;
}

const struct system *systems_find(const char *name)
{
	for (unsigned i = 0; i < COUNT; i++)
		if (!strcmp(systems[i].name, name))
			return &systems[i];
	return NULL;
}

const char *systems_bytes_name(enum system_bytes bytes)
{
	static const char *const names[] = {
		[SYSTEM_OWN] = "own", [SYSTEM_MOVED] = "moved", [SYSTEM_REPLACED] = "replaced"
	};

	return names[bytes];
}
