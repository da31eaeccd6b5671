/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is done by hand: hints, pins, capacity; the numbering of samples; figures. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/threads.h"
#include "cache/internal.h"

#define TRIM_AT_A_TIME 64
#define TRIM_PATIENCE_MS 5000

/* --- the numbering ------------------------------------------------------------------------------
 */

struct scan {
	struct cache *cache;
	const _Atomic bool *stop;
	uint32_t *slots;
	uint32_t count, room;
	int rc;
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
	if (children->count == children->room) {
		uint32_t room = children->room ? children->room * 2 : 64;
		struct node **grown = realloc(children->nodes, room * sizeof(*grown));

		if (!grown)
			return false;
		children->nodes = grown;
		children->room = room;
	}
	node_hold(child);
	children->nodes[children->count++] = child;
	return true;
}

static int add_sample(struct scan *scan, uint32_t slot)
{
	if (scan->count == scan->room) {
		uint32_t room = scan->room ? scan->room + scan->room / 2 : 1024;
		uint32_t *grown = realloc(scan->slots, room * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		scan->slots = grown;
		scan->room = room;
	}
	scan->slots[scan->count++] = slot;
	return 0;
}

/* Children are sorted by name and a directory's files come where its name stands, so this
 * is the sequence of sorted paths, component by component. */
static int scan_dir(struct scan *scan, struct node *dir)
{
	struct tree *tree = scan->cache->tree;
	struct children children = { 0 };
	int rc = tree_children(tree, dir, TREE_BEGIN, clock_now_ms(), true, false, take_child,
			       &children, NULL);

	for (uint32_t i = 0; i < children.count; i++) {
		struct node *child = children.nodes[i];
		uint32_t slot = node_slot(child);

		if (!rc && atomic_load(scan->stop))
			rc = -ECANCELED;
		if (!rc && node_is_dir(child)) {
			rc = scan_dir(scan, child);
			if (rc == -EACCES || rc == -ENOENT || rc == -ENOTDIR || rc == -ELOOP ||
			    rc == -ENAMETOOLONG)
				rc = 0; /* what cannot be read has no samples */
		} else if (!rc && node_is_file(child) && slot != SLOT_NONE) {
			rc = add_sample(scan, slot);
		}
		tree_release(tree, child);
	}
	free(children.nodes);
	return rc;
}

int cache_scan(struct cache *cache, const _Atomic bool *stop)
{
	struct scan scan = { .cache = cache, .stop = stop };
	int rc = scan_dir(&scan, tree_root(cache->tree));
	uint32_t *ids = NULL;

	if (!rc) {
		lock_acquire(&cache->lock);
		ids = malloc((cache->slot_count + 1) * sizeof(*ids));
		rc = ids ? 0 : -ENOMEM;
		if (!rc) {
			memset(ids, 0xff, (cache->slot_count + 1) * sizeof(*ids));
			for (uint32_t id = 0; id < scan.count; id++)
				ids[scan.slots[id]] = id;
			free(cache->numbering);
			free(cache->ids);
			cache->numbering = scan.slots ? scan.slots : calloc(1, sizeof(uint32_t));
			cache->ids = ids;
			cache->ids_count = cache->slot_count;
			cache->numbered = scan.count;
		}
		lock_release(&cache->lock);
	}
	if (rc)
		free(scan.slots);
	return rc;
}

bool cache_scan_complete(struct cache *cache)
{
	bool complete;

	lock_acquire(&cache->lock);
	complete = cache->numbering != NULL;
	lock_release(&cache->lock);
	return complete;
}

uint32_t cache_samples(struct cache *cache)
{
	uint32_t count;

	lock_acquire(&cache->lock);
	count = cache->numbering ? cache->numbered : cache->slot_count;
	lock_release(&cache->lock);
	return count;
}

static int slot_locked(const struct cache *cache, uint32_t id, uint32_t *slot)
{
	if (!cache->numbering)
		return -EAGAIN;
	if (id >= cache->numbered)
		return -ERANGE;
	*slot = cache->numbering[id];
	return 0;
}

int cache_find_sample(struct cache *cache, const char *path, uint32_t *id)
{
	struct node *node;
	int rc = tree_find(cache->tree, path, clock_now_ms(), &node);

	if (rc)
		return rc;
	lock_acquire(&cache->lock);
	if (!cache->numbering)
		rc = -EAGAIN;
	else if (node->slot == SLOT_NONE || node->slot >= cache->ids_count ||
		 cache->ids[node->slot] == UINT32_MAX)
		rc = -ENOENT;
	else
		*id = cache->ids[node->slot];
	lock_release(&cache->lock);
	tree_release(cache->tree, node);
	return rc;
}

static struct cache_sample sample_locked(const struct cache *cache, uint32_t job, uint32_t slot)
{
	return (struct cache_sample){
		.score = sched_get_score(cache->sched, job, slot),
		.frequency = sched_get_frequency(cache->sched, slot),
		.resident = sched_resident(cache->sched, slot),
		.size = cache->nodes[slot] ? cache->nodes[slot]->attr.size : 0,
	};
}

int cache_get_sample(struct cache *cache, uint32_t job, uint32_t id, struct cache_sample *sample)
{
	uint32_t slot;
	int rc;

	lock_acquire(&cache->lock);
	rc = slot_locked(cache, id, &slot);
	if (!rc)
		*sample = sample_locked(cache, job, slot);
	lock_release(&cache->lock);
	return rc;
}

int cache_copy_samples(struct cache *cache, uint32_t job, struct cache_sample **samples,
		       uint32_t *count)
{
	int rc = 0;

	lock_acquire(&cache->lock);
	*count = cache->numbered;
	*samples = cache->numbering ? malloc((*count + 1) * sizeof(**samples)) : NULL;
	if (!*samples)
		rc = cache->numbering ? -ENOMEM : -EAGAIN;
	for (uint32_t id = 0; !rc && id < *count; id++)
		(*samples)[id] = sample_locked(cache, job, cache->numbering[id]);
	lock_release(&cache->lock);
	return rc;
}

/* Nodes are held under the lock, and their paths are made without it. */
int cache_copy_paths(struct cache *cache, char ***paths, uint32_t *count)
{
	struct node **nodes = NULL;
	int rc = 0;

	lock_acquire(&cache->lock);
	*count = cache->numbered;
	nodes = cache->numbering ? malloc((*count + 1) * sizeof(*nodes)) : NULL;
	if (!nodes)
		rc = cache->numbering ? -ENOMEM : -EAGAIN;
	for (uint32_t id = 0; !rc && id < *count; id++) {
		nodes[id] = cache->nodes[cache->numbering[id]];
		if (nodes[id])
			node_hold(nodes[id]);
	}
	lock_release(&cache->lock);
	for (uint32_t id = 0; !rc && id < *count; id++) {
		struct node *node = nodes[id];

		nodes[id] = node ? (void *)node_path(node) : NULL;
		if (node)
			tree_release(cache->tree, node);
	}
	*paths = (char **)nodes; /* each node's pointer has made way for its path's */
	return rc;
}

void cache_free_paths(char **paths, uint32_t count)
{
	for (uint32_t id = 0; paths && id < count; id++)
		free(paths[id]);
	free(paths);
}

char *cache_sample_path(struct cache *cache, uint32_t id)
{
	struct node *node = NULL;
	uint32_t slot;
	char *path;

	lock_acquire(&cache->lock);
	if (!slot_locked(cache, id, &slot) && (node = cache->nodes[slot]))
		node_hold(node);
	lock_release(&cache->lock);
	if (!node)
		return NULL;
	path = node_path(node);
	tree_release(cache->tree, node);
	return path;
}

uint32_t cache_ahead(struct cache *cache, uint32_t job, uint32_t *ids, uint32_t max)
{
	uint32_t count;

	lock_acquire(&cache->lock);
	count = sched_get_ahead(cache->sched, job, ids, max);
	for (uint32_t i = 0; i < count; i++)
		ids[i] = ids[i] < cache->ids_count ? cache->ids[ids[i]] : UINT32_MAX;
	lock_release(&cache->lock);
	return count;
}

/* --- jobs ---------------------------------------------------------------------------------------
 */

int cache_job_begin(struct cache *cache, uint32_t *job)
{
	int rc;

	lock_acquire(&cache->lock);
	rc = sched_job_begin(cache->sched, job);
	lock_release(&cache->lock);
	return rc;
}

int cache_job_end(struct cache *cache, uint32_t job)
{
	int rc;

	lock_acquire(&cache->lock);
	rc = sched_job_end(cache->sched, job);
	lock_release(&cache->lock);
	return rc;
}

int cache_job_stats(struct cache *cache, uint32_t job, struct sched_job_stats *stats)
{
	int rc;

	lock_acquire(&cache->lock);
	rc = sched_get_job_stats(cache->sched, job, stats);
	lock_release(&cache->lock);
	return rc;
}

/* --- accesses as they happen ------------------------------------------------------------------ */

uint64_t cache_trace_begin(struct cache *cache)
{
	uint64_t at;

	lock_acquire(&cache->lock);
	if (!cache->trace_readers++)
		cache->trace = calloc(TRACE_ROOM, sizeof(*cache->trace));
	at = cache->traced;
	lock_release(&cache->lock);
	return at;
}

void cache_trace_end(struct cache *cache)
{
	lock_acquire(&cache->lock);
	if (!--cache->trace_readers) {
		free(cache->trace);
		cache->trace = NULL;
	}
	lock_release(&cache->lock);
}

void cache_trace_locked(struct cache *cache, const struct node *node, enum sched_action action)
{
	if (!cache->trace)
		return;
	cache->trace[cache->traced++ % TRACE_ROOM] = (struct cache_access){
		.id = cache->ids && node->slot < cache->ids_count ? cache->ids[node->slot]
								  : UINT32_MAX,
		.action = action,
		.size = node->attr.size,
	};
}

uint32_t cache_trace(struct cache *cache, uint64_t *at, struct cache_access *accesses, uint32_t max,
		     uint64_t *lost)
{
	uint32_t count = 0;

	lock_acquire(&cache->lock);
	*lost = cache->trace && cache->traced - *at > TRACE_ROOM ? cache->traced - *at - TRACE_ROOM
								 : 0;
	*at += *lost;
	for (; cache->trace && count < max && *at < cache->traced; count++)
		accesses[count] = cache->trace[(*at)++ % TRACE_ROOM];
	lock_release(&cache->lock);
	return count;
}

/* --- hints ---------------------------------------------------------------------------------------
 */

int cache_score(struct cache *cache, uint32_t job, const uint32_t *ids, const float *scores,
		uint32_t count)
{
	int rc = 0;

	lock_acquire(&cache->lock);
	for (uint32_t i = 0; !rc && i < count; i++) {
		uint32_t slot;

		rc = slot_locked(cache, ids[i], &slot);
		if (!rc)
			rc = sched_score(cache->sched, job, slot, scores[i]);
	}
	lock_release(&cache->lock);
	return rc;
}

int cache_order(struct cache *cache, uint32_t job, uint64_t epoch, const uint32_t *ids,
		uint32_t count)
{
	uint32_t *slots = malloc((count + 1) * sizeof(*slots));
	int rc = slots ? 0 : -ENOMEM;

	lock_acquire(&cache->lock);
	for (uint32_t i = 0; !rc && i < count; i++)
		rc = slot_locked(cache, ids[i], &slots[i]);
	if (!rc)
		rc = sched_order(cache->sched, job, epoch, slots, count);
	lock_release(&cache->lock);
	free(slots);
	if (!rc)
		fetch_start_soon(cache);
	return rc;
}

int cache_epoch(struct cache *cache, uint32_t job, uint64_t epoch)
{
	int rc;

	lock_acquire(&cache->lock);
	rc = sched_epoch(cache->sched, job, epoch);
	lock_release(&cache->lock);
	fetch_start_soon(cache);
	return rc;
}

/* --- by hand
 * --------------------------------------------------------------------------------------- */

/* Waits until what left is gone, for a moment at most: a drop may wait for a reader. */
static void wait_for_drops_locked(struct cache *cache)
{
	uint64_t until_ms = clock_now_ms() + TRIM_PATIENCE_MS;

	cache_hurry_locked(cache, cache->leaving_bytes);
	while (cache->inflight_bytes + cache->passing_bytes + cache->leaving_bytes >
		       cache->options.inflight_bytes &&
	       !cache->stopping)
		if (!cond_wait_until(&cache->changed, &cache->lock, until_ms))
			break;
}

int cache_set_capacity(struct cache *cache, uint64_t bytes)
{
	uint32_t victims[TRIM_AT_A_TIME], count;

	if (bytes <= cache->options.inflight_bytes)
		return -EINVAL;
	lock_acquire(&cache->lock);
	(void)sched_set_capacity(cache->sched, bytes - cache->options.inflight_bytes);
	while ((count = sched_trim(cache->sched, victims, TRIM_AT_A_TIME)) > 0) {
		struct sched_verdict verdict = { .victim_count = count, .victims = victims };

		cache_drop_victims_locked(cache, &verdict);
	}
	wait_for_drops_locked(cache);
	cache->options.capacity_bytes = bytes;
	lock_release(&cache->lock);
	fetch_start_soon(cache);
	return 0;
}

int cache_set_policy(struct cache *cache, const char *policy)
{
	int rc;

	lock_acquire(&cache->lock);
	rc = sched_set_policy(cache->sched, policy);
	lock_release(&cache->lock);
	return rc;
}

static int queue_warm_locked(struct cache *cache, const uint32_t *slots, uint32_t count)
{
	uint32_t left = cache->warm_count - cache->warm_first;
	struct warm *grown;

	if (left)
		memmove(cache->warm_queue, cache->warm_queue + cache->warm_first,
			left * sizeof(*grown));
	cache->warm_first = 0;
	cache->warm_count = left;
	grown = realloc(cache->warm_queue, ((size_t)left + count + 1) * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	cache->warm_queue = grown;
	cache->warm_count += count;
	cache->stats.warm_pending += count;
	for (uint32_t i = 0; i < count; i++) {
		const struct node *node = cache->nodes[slots[i]];

		grown[left + i] = (struct warm){ node ? node->attr.size : 0, slots[i] };
		cache->stats.warm_pending_bytes += grown[left + i].size;
	}
	return 0;
}

/* The slots of all files at or below a path. */
static int slots_below(struct cache *cache, const char *path, uint32_t **slots, uint32_t *count)
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

int cache_warm(struct cache *cache, const char *path)
{
	uint32_t *slots, count;
	int rc = slots_below(cache, path, &slots, &count);

	if (rc)
		return rc;
	lock_acquire(&cache->lock);
	rc = queue_warm_locked(cache, slots, count);
	lock_release(&cache->lock);
	free(slots);
	fetch_start_soon(cache);
	return rc;
}

int cache_evict(struct cache *cache, const char *path)
{
	uint32_t *slots, count;
	int rc = slots_below(cache, path, &slots, &count);

	if (rc)
		return rc;
	lock_acquire(&cache->lock);
	for (uint32_t i = 0; i < count; i++) {
		struct sched_verdict verdict = { .victim_count = 1, .victims = &slots[i] };

		if (!sched_evict(cache->sched, slots[i]))
			cache_drop_victims_locked(cache, &verdict);
	}
	lock_release(&cache->lock);
	free(slots);
	return 0;
}

int cache_pin(struct cache *cache, const char *path, bool pin)
{
	uint32_t *slots, count;
	int rc = slots_below(cache, path, &slots, &count);

	if (rc)
		return rc;
	lock_acquire(&cache->lock);
	for (uint32_t i = 0; i < count; i++)
		(void)(pin ? sched_pin : sched_unpin)(cache->sched, slots[i]);
	lock_release(&cache->lock);
	free(slots);
	return 0;
}

/* Resident, in buffers, passing through, on its way out, and about to be stored. What is only
 * set aside needs no memory yet. */
static uint64_t memory_locked(const struct cache *cache, const struct cache_stats *stats)
{
	uint64_t bytes = stats->sched.resident_bytes + stats->inflight_bytes;

	for (const struct fetch *fetch = cache->fetches; fetch; fetch = fetch->next)
		if (fetch->admitted && fetch->state != FETCH_WAITING)
			bytes += cache_memory_of(fetch->node);
	return bytes;
}

void cache_get_stats(struct cache *cache, struct cache_stats *stats)
{
	lock_acquire(&cache->lock);
	*stats = cache->stats;
	sched_get_stats(cache->sched, &stats->sched);
	(void)sched_get_job_stats(cache->sched, 0, &stats->job);
	stats->policy = sched_policy(cache->sched);
	stats->capacity_bytes = cache->options.capacity_bytes;
	stats->inflight_bytes = cache->inflight_bytes + cache->passing_bytes + cache->leaving_bytes;
	stats->memory_bytes = memory_locked(cache, stats);
	lock_release(&cache->lock);
}
