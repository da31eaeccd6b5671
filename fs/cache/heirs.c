/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a successor makes of what a dead daemon has left.
 *
 * Nodes are where they were, and have the slots that they had. What the dead daemon was doing with
 * them is forgotten: fetches, ranges and what passes through. Who has a file open is still counted.
 * A request that was counted and not answered comes again, so there may be an open too many, or one
 * too few; that costs a drop, or a file that stays until room is needed.
 *
 * A file is resident again if all of it was stored. Whatever else the kernel may have of a file is
 * dropped: some of it may be of two versions, which young.c knew. Until all of that is counted as
 * leaving nothing is fetched, or memory could be above the capacity.
 *
 * What the kernel was to be told is told again, since nobody knows how far the dead daemon had got:
 * that directories have changed, and that names are not what they were.
 */
#include <stdlib.h>
#include <string.h>

#include "base/estate.h"
#include "cache/internal.h"

/* The numbering, as it was made last. */
struct kept_numbers {
	uint64_t version; /* the higher is the newer */
	uint32_t count;
	uint32_t slots[];
};

/* --- slots --------------------------------------------------------------------------------------
 */

static void reset(void *context, struct node *node)
{
	uint32_t *slot_count = context;

	node->pages.drop = DROP_NONE;
	if (node->pages.name != TELLING_NOTHING)
		node->pages.name = TELLING_OWED;
	if (!node_is_file(node))
		return;
	node->cache.fetch = NULL;
	node->cache.late_ms = 0;
	node->cache.charges = 0;
	node->cache.in_passing = node->cache.is_passing = false;
	if (node->detached)
		node->cache.slot = SLOT_NONE;
	else if (node->cache.slot != SLOT_NONE && node->cache.slot >= *slot_count)
		*slot_count = node->cache.slot + 1;
}

/* What was too young is so again, for as long as at first. */
static void restore_file(void *context, struct node *node)
{
	struct cache *cache = context;

	if (!node_is_file(node))
		return;
	lock_acquire(&cache->lock);
	if (node->cache.young) {
		node->cache.young = false;
		young_add_locked(cache, node, true, clock_now_ms());
	}
	/* The daemon may have died between giving it a name and a slot, or with two for one. */
	if (!node->detached && node->cache.slot != SLOT_NONE) {
		if (cache->slots.nodes[node->cache.slot])
			node->cache.slot = SLOT_NONE;
		else
			cache->slots.nodes[node->cache.slot] = node;
	}
	if (node->cache.slot != SLOT_NONE)
		(void)sched_size(cache->sched, node->cache.slot, cache_policy_size(cache, node));
	lock_release(&cache->lock);
}

/* A slot without a node may be meant by what clients have said. */
static void retire_empty_locked(struct cache *cache)
{
	lock_assert_held(&cache->lock);
	for (uint32_t slot = 0; slot < cache->slots.count; slot++)
		if (!cache->slots.nodes[slot])
			slots_retire_locked(cache, slot);
}

/* A file without a slot gets one, as if it were new. */
static void give_slot(void *context, struct node *node)
{
	struct cache *cache = context;

	if (!node_is_file(node) || node->detached || node->cache.slot != SLOT_NONE)
		return;
	lock_acquire(&cache->lock);
	slots_give_locked(cache, node);
	lock_release(&cache->lock);
}

static int make_slots(struct cache *cache, uint32_t count)
{
	int rc;

	lock_acquire(&cache->lock);
	cache->slots.nodes = calloc(count + 1, sizeof(*cache->slots.nodes));
	rc = cache->slots.nodes ? sched_grow(cache->sched, count) : -ENOMEM;
	if (!rc) {
		cache->slots.room = count + 1;
		cache->slots.count = count;
		history_reserve_locked(cache, count + 1);
	}
	lock_release(&cache->lock);
	return rc;
}

/* --- numbers ------------------------------------------------------------------------------------
 */

void heirs_keep_numbers_locked(struct cache *cache)
{
	struct estate *estate = cache->options.estate;
	struct kept_numbers *before = cache->kept_numbers, *kept;
	uint32_t count = cache->numbering.id_count;

	lock_assert_held(&cache->lock);
	if (!estate)
		return;
	kept = estate_new(estate, sizeof(*kept) + (size_t)count * sizeof(kept->slots[0]));
	if (kept) {
		kept->version = before ? before->version + 1 : 1;
		kept->count = count;
		memcpy(kept->slots, cache->numbering.slots, count * sizeof(kept->slots[0]));
		estate_keep(kept, ESTATE_NUMBERS);
	}
	estate_free(estate, before);
	cache->kept_numbers = kept;
}

static void find_numbers(struct cache *cache, uint32_t *slot_count)
{
	struct kept_numbers *at = NULL, *newest = NULL;

	while ((at = estate_next(cache->options.estate, ESTATE_NUMBERS, at))) {
		struct kept_numbers *older = newest && newest->version > at->version ? at : newest;

		newest = older == at ? newest : at;
		estate_free(cache->options.estate, older);
	}
	for (uint32_t id = 0; newest && id < newest->count; id++)
		if (newest->slots[id] >= *slot_count)
			*slot_count = newest->slots[id] + 1;
	cache->kept_numbers = newest;
}

static int restore_numbers(struct cache *cache)
{
	const struct kept_numbers *kept = cache->kept_numbers;
	uint32_t *slots;
	int rc;

	if (!kept)
		return 0;
	slots = malloc((kept->count + 1) * sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	memcpy(slots, kept->slots, kept->count * sizeof(*slots));
	lock_acquire(&cache->lock);
	rc = numbering_replace(&cache->numbering, slots, kept->count, cache->slots.count);
	lock_release(&cache->lock);
	return rc;
}

int heirs_inherit(struct cache *cache)
{
	uint32_t slot_count = 0;
	int rc;

	tree_for_all(cache->tree, reset, &slot_count);
	find_numbers(cache, &slot_count);
	rc = make_slots(cache, slot_count);
	if (rc)
		return rc;
	tree_for_all(cache->tree, restore_file, cache);
	rc = restore_numbers(cache);
	if (rc)
		return rc;
	lock_acquire(&cache->lock);
	retire_empty_locked(cache);
	lock_release(&cache->lock);
	tree_for_all(cache->tree, give_slot, cache);
	return said_restore(cache);
}

/* --- pages --------------------------------------------------------------------------------------
 */

/* Those who must leave for it are dropped by cache_settle(). */
static void take_pages(void *context, struct node *node)
{
	struct cache *cache = context;
	struct sched_verdict verdict;
	uint32_t slot = node_slot(node);

	if (slot == SLOT_NONE || atomic_load(&node->pages.there) != PAGES_WHOLE)
		return;
	lock_acquire(&cache->lock);
	if (!sched_warm(cache->sched, slot, cache_policy_size(cache, node), &verdict) &&
	    verdict.action == SCHED_ADMIT)
		(void)sched_commit(cache->sched, slot);
	lock_release(&cache->lock);
}

void heirs_take_pages(struct cache *cache)
{
	tree_for_all(cache->tree, take_pages, cache);
}

static void settle_file_locked(struct cache *cache, struct node *node, uint64_t now_ms)
{
	lock_assert_held(&cache->lock);
	if (atomic_load(&node->pages.there) != PAGES_NONE && !node->cache.fetch &&
	    !node->cache.is_passing && !cache_is_resident_locked(cache, node))
		passing_add_locked(cache, node, now_ms); /* closed ones are dropped at once */
}

/* What it was to be told of a name, and that a node without a name has none. */
static void settle_name(struct cache *cache, struct node *node)
{
	bool is_owed = page_cache_take_owed(cache->page_cache, node) || node->detached;

	if (node_is_dir(node) && atomic_exchange(&node->dir.is_torn, false))
		is_owed = true;
	if (is_owed && node->lookups)
		page_cache_forget_name(cache->page_cache, node);
}

struct settling {
	struct cache *cache;
	uint64_t now_ms;
};

static void settle(void *context, struct node *node)
{
	const struct settling *settling = context;
	struct cache *cache = settling->cache;

	settle_name(cache, node);
	if (!node->lookups)
		return;
	if (node->detached) {
		page_cache_audit(cache->page_cache, node);
	} else if (node_is_dir(node)) {
		(void)page_cache_drop(cache->page_cache, node);
	} else if (node_is_file(node)) {
		lock_acquire(&cache->lock);
		settle_file_locked(cache, node, settling->now_ms);
		lock_release(&cache->lock);
	}
}

void cache_settle(struct cache *cache)
{
	struct settling settling = { cache, clock_now_ms() };

	tree_for_all(cache->tree, settle, &settling);
	lock_acquire(&cache->lock);
	cache->is_settled = true;
	start_soon_locked(cache);
	lock_release(&cache->lock);
}

const struct format_line cache_format[] = { FORMAT_SIZE(struct kept_numbers),
					    FORMAT_FIELD(struct kept_numbers, count),
					    FORMAT_FIELD(struct kept_numbers, slots), FORMAT_END };
