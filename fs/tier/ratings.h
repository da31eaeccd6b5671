/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Times to live that are to be set anew: a queue that is worked off at a steady rate, so that a new
 * order, which concerns all files, does not keep the servers from everything else. */
#ifndef SHADE_TIER_RATINGS_H
#define SHADE_TIER_RATINGS_H

#include "source/store.h"
#include "tier/engine.h"

struct tier_ratings;

/* NULL: no memory. `volume` is not copied. */
struct tier_ratings *tier_ratings_create(const char *volume);
/* No request may be under way. */
void tier_ratings_destroy(struct tier_ratings *ratings);

/* Returns how many were taken. The caller then wakes the engine. */
size_t tier_ratings_add(struct tier_ratings *ratings, const struct store_rating *list,
			size_t count);
/* In the engine's thread: submits what is due. Returns when the next are. */
uint64_t tier_ratings_tick(struct tier_ratings *ratings, struct engine *engine, uint64_t now_ms);
/* How many the servers have answered. */
uint64_t tier_ratings_count(const struct tier_ratings *ratings);

#endif
