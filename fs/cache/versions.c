/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the tree tells: files come, get other versions, and go. Each name has a slot in the policy
 * core from the moment it is first seen; a new version of it keeps the slot.
 */
#include <stdlib.h>

#include "base/threads.h"
#include "cache/internal.h"
#include "grow.h"

uint64_t cache_memory_of(const struct cache *cache, const struct node *node)
{
	uint64_t page = cache->page_bytes;

	return (node->attr.size + page - 1) / page * page;
}

bool cache_is_large(const struct cache *cache, const struct node *node)
{
	return node->attr.size > cache->range_bytes;
}

uint64_t cache_policy_size(const struct cache *cache, const struct node *node)
{
	return cache_is_large(cache, node) || node->cache.young ? UINT64_MAX
								: cache_memory_of(cache, node);
}

bool cache_is_resident_locked(const struct cache *cache, const struct node *node)
{
	lock_assert_held(&cache->lock);
	return node->cache.slot != SLOT_NONE && sched_resident(cache->sched, node->cache.slot);
}

struct node *cache_node_locked(const struct cache *cache, uint32_t slot)
{
	lock_assert_held(&cache->lock);
	return slot < cache->slots.count ? cache->slots.nodes[slot] : NULL;
}

/* --- slots --------------------------------------------------------------------------------------
 */

static void set_slot_locked(struct cache *cache, struct node *node, uint32_t slot)
{
	lock_assert_held(&cache->lock);
	cache->slots.nodes[slot] = node;
	__atomic_store_n(&node->cache.slot, slot, __ATOMIC_RELAXED);
}

static void lose_slot_locked(struct cache *cache, struct node *node)
{
	lock_assert_held(&cache->lock);
	__atomic_store_n(&node->cache.slot, SLOT_NONE, __ATOMIC_RELAXED);
}

/* A slot that nothing means, or a new one. */
static int find_slot_locked(struct cache *cache, uint32_t *slot)
{
	struct slots *slots = &cache->slots;

	lock_assert_held(&cache->lock);
	if (slots->free.count) {
		*slot = slots->free.slots[--slots->free.count];
		return 0;
	}
	if (slots->count == slots->room) {
		/* By a quarter, not by half: millions of files count. */
		uint32_t room = slots->room ? slots->room + slots->room / 4 + 1 : 64;
		struct node **grown = realloc(slots->nodes, room * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		slots->nodes = grown;
		slots->room = room;
		history_reserve_locked(cache, room);
	}
	if (sched_grow(cache->sched, slots->count + 1))
		return -ENOMEM;
	*slot = slots->count++;
	return 0;
}

static int make_slot_locked(struct cache *cache, struct node *node)
{
	uint32_t slot;
	int rc = find_slot_locked(cache, &slot);

	lock_assert_held(&cache->lock);
	if (rc)
		return rc;
	(void)sched_size(cache->sched, slot, cache_policy_size(cache, node));
	set_slot_locked(cache, node, slot);
	return 0;
}

/* Without memory it is not used again. */
static void add_slot(struct slot_list *list, uint32_t slot)
{
	if (!grow(list->slots, list->room, list->count, 1))
		list->slots[list->count++] = slot;
}

/* A trainer means files by numbers of the present numbering, or by the slots in its table. */
static void retire_slot_locked(struct cache *cache, struct node *node)
{
	uint32_t slot = node->cache.slot;
	bool is_numbered = numbering_id(&cache->numbering, slot) != ID_NONE;

	lock_assert_held(&cache->lock);
	(void)sched_remove(cache->sched, slot);
	said_forget_slot_locked(cache, slot);
	cache->slots.nodes[slot] = NULL;
	cache->slots.version++;
	said_names_locked(cache);
	add_slot(is_numbered || node->cache.is_meant ? &cache->slots.retired : &cache->slots.free,
		 slot);
}

void slots_retire_locked(struct cache *cache, uint32_t slot)
{
	lock_assert_held(&cache->lock);
	add_slot(&cache->slots.retired, slot);
}

void slots_give_locked(struct cache *cache, struct node *node)
{
	lock_assert_held(&cache->lock);
	(void)make_slot_locked(cache, node);
}

void slots_reuse_locked(struct cache *cache)
{
	struct slots *slots = &cache->slots;
	uint32_t kept = 0;

	lock_assert_held(&cache->lock);
	if (slots->tables)
		return;
	for (uint32_t i = 0; i < slots->retired.count; i++) {
		uint32_t slot = slots->retired.slots[i];

		if (numbering_id(&cache->numbering, slot) != ID_NONE) {
			slots->retired.slots[kept++] = slot;
			continue;
		}
		(void)sched_remove(cache->sched, slot); /* hints may have come meanwhile */
		said_forget_slot_locked(cache, slot);
		add_slot(&slots->free, slot);
	}
	slots->retired.count = kept;
}

void slots_free(struct slots *slots)
{
	free(slots->nodes);
	free(slots->retired.slots);
	free(slots->free.slots);
}

/* --- events: called with the tree's lock held
 * ---------------------------------------------------*/

/* Without a slot a file is never admitted: slow, but right. */
static void file_added(void *context, struct node *node, bool is_new)
{
	struct cache *cache = context;

	lock_acquire(&cache->lock);
	young_add_locked(cache, node, is_new, clock_now_ms());
	(void)make_slot_locked(cache, node);
	lock_release(&cache->lock);
}

/* The bytes and the name of the old version are of no use to whoever opens from now on. */
static void forget_version_locked(struct cache *cache, struct node *old, uint64_t now_ms)
{
	bool was_resident =
		old->cache.slot != SLOT_NONE && !sched_evict(cache->sched, old->cache.slot);

	lock_assert_held(&cache->lock);
	cache->stats.stale_drops += was_resident;
	if (was_resident || old->cache.is_passing) {
		passing_remove_locked(cache, old);
		drop_locked(cache, old, now_ms);
	}
	if (old->lookups)
		page_cache_forget_name(cache->page_cache, old);
	if (old->cache.fetch)
		fetch_unreserve_locked(old->cache.fetch); /* and its pages are counted */
}

static void file_replaced(void *context, struct node *old, struct node *fresh)
{
	struct cache *cache = context;
	uint64_t now_ms = clock_now_ms();

	lock_acquire(&cache->lock);
	forget_version_locked(cache, old, now_ms);
	young_add_locked(cache, fresh, true, now_ms);
	if (old->cache.slot != SLOT_NONE) {
		set_slot_locked(cache, fresh, old->cache.slot);
		fresh->cache.is_meant = old->cache.is_meant;
		fresh->cache.is_pinned = old->cache.is_pinned;
		(void)sched_size(cache->sched, old->cache.slot, cache_policy_size(cache, fresh));
	}
	lose_slot_locked(cache, old);
	lock_release(&cache->lock);
}

static void file_removed(void *context, struct node *node)
{
	struct cache *cache = context;

	lock_acquire(&cache->lock);
	forget_version_locked(cache, node, clock_now_ms());
	if (node->cache.slot != SLOT_NONE)
		retire_slot_locked(cache, node);
	lose_slot_locked(cache, node);
	lock_release(&cache->lock);
}

/* What the kernel remembers of it, its listing too, holds no more. */
static void dir_changed(void *context, struct node *dir)
{
	struct cache *cache = context;

	(void)page_cache_drop(cache->page_cache, dir);
	if (dir->detached && dir->lookups)
		page_cache_forget_name(cache->page_cache, dir);
}

/* The kernel looks its name up again, and then learns who may enter it now. */
static void owner_changed(void *context, struct node *dir)
{
	struct cache *cache = context;

	if (dir->lookups)
		page_cache_forget_name(cache->page_cache, dir);
}

const struct tree_events cache_tree_events = { .file_added = file_added,
					       .file_replaced = file_replaced,
					       .file_removed = file_removed,
					       .dir_changed = dir_changed,
					       .owner_changed = owner_changed };

/* --- the kernel forgets -------------------------------------------------------------------------
 */

/* The kernel has forgotten the node, and its pages are gone. Called with the tree's lock held. */
static void forgotten(void *context, struct node *node)
{
	struct cache *cache = context;

	if (!node_is_file(node))
		return;
	lock_acquire(&cache->lock);
	atomic_store(&node->pages.there, PAGES_NONE);
	passing_remove_locked(cache, node);
	if (node->cache.slot != SLOT_NONE && node->attr.size &&
	    !sched_evict(cache->sched, node->cache.slot))
		cache->stats.reclaimed++;
	if (node->cache.fetch)
		fetch_recount_locked(node->cache.fetch);
	lock_release(&cache->lock);
}

void cache_forget(struct cache *cache, struct node *node, uint64_t count)
{
	tree_forget(cache->tree, node, count, forgotten, cache);
}
