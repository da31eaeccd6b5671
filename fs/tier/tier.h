/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A store over another one: whole files are asked for in a Redis Cluster that all nodes share, and
 * what comes from the store below is put there. Everything else goes to the store below.
 *
 * What the cluster has is what some node has read of this very version: its key says so, and the
 * value's checksum or MAC, that these are the bytes. The source was not asked, so a hit is as fresh
 * as what the tree knows of the file. Anything that goes wrong is a read from below.
 */
#ifndef SHADE_TIER_H
#define SHADE_TIER_H

#include "source/store.h"
#include "tier/engine.h"

#define TIER_FILE_MAX ((size_t)8 << 20)	   /* bytes of a file that is kept there */
#define TIER_PUTS_MAX ((uint64_t)16 << 20) /* bytes that wait to be put */
#define TIER_SERVERS_SHOWN 64

struct tier_options {
	const struct slots_address *seeds;
	unsigned seed_count;
	const char *user, *password; /* NULL: none */
	const void *secret;	     /* for MACs; NULL: checksums */
	size_t secret_size;
	const char *volume; /* what all nodes call the source */
	uint64_t timeout_ms;
};

/* Does not wait for the cluster. 0 or a negative errno; store_close() closes `below`, too. */
int store_tier_open(struct store **out, struct store *below, const struct tier_options *options);

struct tier_stats {
	uint64_t hits, misses;
	uint64_t puts;
	uint64_t puts_spared;  /* such values have been evicted before anybody asked for them */
	uint64_t puts_dropped; /* too much waited already, or nobody took them */
	uint64_t errors;       /* of servers and of values */
	uint64_t fallbacks;    /* reads that the source got although the tier might have had them */
	uint64_t ratings;      /* times to live that were set anew */
	/* What a hit, a miss and the source have taken lately; 0: not known. */
	double hit_us, miss_us, source_us;
	unsigned server_count;
	struct engine_server_stats servers[TIER_SERVERS_SHOWN];
};

void store_tier_stats(struct store *store, struct tier_stats *stats);

#endif
