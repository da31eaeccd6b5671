/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The numbering, and the walk over the tree that makes it. */
#include "cache/numbering.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "cache/internal.h"
#include "grow.h"

int numbering_replace(struct numbering *numbering, uint32_t *slots, uint32_t id_count,
		      uint32_t slot_count)
{
	uint32_t *ids = malloc((slot_count + 1) * sizeof(*ids));

	assert(slots || !id_count);
	if (!slots)
		slots = calloc(1, sizeof(*slots)); /* empty, but complete */
	if (!ids || !slots) {
		free(ids);
		free(slots);
		return -ENOMEM;
	}
	memset(ids, 0xff, (slot_count + 1) * sizeof(*ids)); /* ID_NONE */
	for (uint32_t id = 0; id < id_count; id++)
		ids[slots[id]] = id;
	numbering_free(numbering);
	*numbering = (struct numbering){ slots, ids, id_count, slot_count };
	return 0;
}

void numbering_free(struct numbering *numbering)
{
	free(numbering->slots);
	free(numbering->ids);
	*numbering = (struct numbering){ 0 };
}

int numbering_slot(const struct numbering *numbering, uint32_t id, uint32_t *slot)
{
	if (!numbering->slots)
		return -EAGAIN;
	if (id & ID_IS_SLOT) {
		*slot = id & ~ID_IS_SLOT;
		return 0;
	}
	if (id >= numbering->id_count)
		return -ERANGE;
	*slot = numbering->slots[id];
	return 0;
}

uint32_t numbering_id(const struct numbering *numbering, uint32_t slot)
{
	return slot < numbering->slot_count ? numbering->ids[slot] : ID_NONE;
}

/* --- the walk -----------------------------------------------------------------------------------
 */

struct scan {
	struct cache *cache;
	const _Atomic bool *stop;
	uint32_t *slots;
	uint32_t count, room;
};

/* The children of one directory, held, so that the tree's lock is not held below. */
struct children {
	struct node **nodes;
	uint32_t count, room;
};

static bool take_child(void *context, struct node *child, uint32_t index)
{
	struct children *children = context;

	(void)index;
	if (grow(children->nodes, children->room, children->count, 1))
		return false;
	node_hold(child);
	children->nodes[children->count++] = child;
	return true;
}

static int add_sample(struct scan *scan, uint32_t slot)
{
	if (grow(scan->slots, scan->room, scan->count, 1))
		return -ENOMEM;
	scan->slots[scan->count++] = slot;
	return 0;
}

/* Children are sorted by name and a directory's files come where its name stands, so this
 * is the sequence of sorted paths, component by component. */
static int scan_dir(struct scan *scan, struct node *dir)
{
	struct tree *tree = scan->cache->tree;
	struct children children = { 0 };
	int rc = tree_await_here(tree, dir, clock_now_ms());

	if (!rc)
		rc = tree_children(tree, dir, TREE_BEGIN, clock_now_ms(), false, false, take_child,
				   &children, NULL);
	for (uint32_t i = 0; i < children.count; i++) {
		struct node *child = children.nodes[i];
		uint32_t slot = node_slot(child);

		if (!rc && atomic_load(scan->stop))
			rc = -ECANCELED;
		if (!rc && node_is_dir(child)) {
			rc = scan_dir(scan, child);
			if (tree_is_unreadable(tree, child, rc) ||
			    (rc == -ESTALE && tree_is_displaced(tree, child)))
				rc = 0; /* it has no samples */
		} else if (!rc && slot != SLOT_NONE) {
			rc = add_sample(scan, slot);
		}
		tree_release(tree, child);
	}
	free(children.nodes);
	return rc;
}

/* Then whoever reads `samples` has the right list, also of a daemon that has died. */
static bool is_as_before_locked(const struct cache *cache, const struct scan *scan)
{
	const struct numbering *numbering = &cache->numbering;

	lock_assert_held(&cache->lock);
	return numbering_is_complete(numbering) && numbering->id_count == scan->count &&
	       !memcmp(numbering->slots, scan->slots, scan->count * sizeof(*scan->slots));
}

int cache_scan(struct cache *cache, const _Atomic bool *stop)
{
	struct scan scan = { .cache = cache, .stop = stop };
	int rc = scan_dir(&scan, tree_root(cache->tree));

	if (rc) {
		free(scan.slots);
		return rc;
	}
	lock_acquire(&cache->lock);
	if (is_as_before_locked(cache, &scan)) {
		free(scan.slots);
	} else {
		rc = numbering_replace(&cache->numbering, scan.slots, scan.count,
				       cache->slots.count);
		if (!rc)
			heirs_keep_numbers_locked(cache);
		cache->slots.version++;
		said_names_locked(cache);
		slots_reuse_locked(cache);
	}
	lock_release(&cache->lock);
	return rc;
}

int numbering_below(struct cache *cache, const char *path, uint32_t **slots, uint32_t *count)
{
	static const _Atomic bool never;
	struct scan scan = { .cache = cache, .stop = &never };
	struct node *node;
	uint32_t slot;
	int rc = tree_find(cache->tree, path, clock_now_ms(), &node);

	if (rc)
		return rc;
	if (node_is_dir(node))
		rc = scan_dir(&scan, node);
	else if ((slot = node_slot(node)) != SLOT_NONE)
		rc = add_sample(&scan, slot);
	else
		rc = -ENOENT;
	tree_release(cache->tree, node);
	if (rc)
		free(scan.slots);
	*slots = scan.slots;
	*count = scan.count;
	return rc;
}

/* --- questions ----------------------------------------------------------------------------------
 */

bool cache_scan_complete(struct cache *cache)
{
	bool complete;

	lock_acquire(&cache->lock);
	complete = numbering_is_complete(&cache->numbering);
	lock_release(&cache->lock);
	return complete;
}

uint32_t cache_samples(struct cache *cache)
{
	uint32_t count;

	lock_acquire(&cache->lock);
	count = numbering_is_complete(&cache->numbering) ? cache->numbering.id_count
							 : cache->slots.count;
	lock_release(&cache->lock);
	return count;
}

int cache_find_sample(struct cache *cache, const char *path, uint32_t *id)
{
	struct node *node;
	int rc = tree_find(cache->tree, path, clock_now_ms(), &node);

	if (rc)
		return rc;
	lock_acquire(&cache->lock);
	if (!numbering_is_complete(&cache->numbering))
		rc = -EAGAIN;
	else if (numbering_id(&cache->numbering, node_slot(node)) == ID_NONE)
		rc = -ENOENT;
	else
		node->cache.is_meant = true;
	*id = node_slot(node) | ID_IS_SLOT;
	lock_release(&cache->lock);
	tree_release(cache->tree, node);
	return rc;
}

uint32_t cache_id_of_slot(uint32_t slot)
{
	return slot | ID_IS_SLOT;
}

void cache_hold_samples(struct cache *cache)
{
	lock_acquire(&cache->lock);
	cache->slots.tables++;
	lock_release(&cache->lock);
}

void cache_release_samples(struct cache *cache)
{
	lock_acquire(&cache->lock);
	assert(cache->slots.tables > 0);
	cache->slots.tables--;
	slots_reuse_locked(cache);
	lock_release(&cache->lock);
}

int cache_slots(struct cache *cache, uint32_t *ids, uint32_t count)
{
	int rc = 0;

	lock_acquire(&cache->lock);
	for (uint32_t i = 0; !rc && i < count; i++)
		rc = numbering_slot(&cache->numbering, ids[i], &ids[i]);
	lock_release(&cache->lock);
	return rc;
}

void cache_ids(struct cache *cache, uint32_t *slots, uint32_t count)
{
	lock_acquire(&cache->lock);
	for (uint32_t i = 0; i < count; i++)
		slots[i] = numbering_id(&cache->numbering, slots[i]);
	lock_release(&cache->lock);
}
