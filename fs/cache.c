/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Accesses: what the front end reports, and what follows from it. */
#include "cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cache_internal.h"
#include "log.h"

uint64_t cache_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

struct tree *cache_tree(struct cache *cache)
{
	return cache->tree;
}

void waiter_answer_all(struct waiter *waiters, int rc)
{
	for (struct waiter *next; waiters; waiters = next) {
		next = waiters->next;
		waiters->answer(waiters, rc, NULL, 0);
	}
}

void cache_drop_victims_locked(struct cache *cache, const struct sched_verdict *verdict)
{
	for (uint32_t i = 0; i < verdict->victim_count; i++) {
		struct node *node = cache->nodes[verdict->victims[i]];

		if (node)
			(void)residency_drop(cache->residency, node);
	}
}

/* --- files come and go: called by the tree --------------------------------------------------- */

static int make_slot_locked(struct cache *cache, struct node *node)
{
	if (cache->slot_count == cache->slot_room) {
		uint32_t room = cache->slot_room ? cache->slot_room + cache->slot_room / 4 + 1 : 64;
		struct node **grown = realloc(cache->nodes, room * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		cache->nodes = grown;
		cache->slot_room = room;
	}
	if (sched_grow(cache->sched, cache->slot_count + 1) ||
	    sched_size(cache->sched, cache->slot_count, node->attr.size))
		return -ENOMEM;
	cache->nodes[cache->slot_count] = node;
	return (int)cache->slot_count++;
}

/* Without a slot a file is read like a large one: slow, but right. */
static uint32_t file_added(void *context, struct node *node)
{
	struct cache *cache = context;
	int slot;

	pthread_mutex_lock(&cache->lock);
	slot = make_slot_locked(cache, node);
	pthread_mutex_unlock(&cache->lock);
	return slot < 0 ? SLOT_NONE : (uint32_t)slot;
}

/* The bytes of the old version are of no use to whoever opens from now on. */
static void forget_version_locked(struct cache *cache, struct node *old)
{
	if (old->slot == SLOT_NONE)
		return;
	if (!sched_evict(cache->sched, old->slot)) {
		cache->stats.stale_drops++;
		(void)residency_drop(cache->residency, old);
	}
	if (old->flight && old->flight->admitted) {
		old->flight->admitted = false;
		(void)sched_cancel(cache->sched, old->slot);
	}
}

static void file_replaced(void *context, struct node *old, struct node *fresh)
{
	struct cache *cache = context;

	pthread_mutex_lock(&cache->lock);
	forget_version_locked(cache, old);
	if (old->slot != SLOT_NONE) {
		cache->nodes[old->slot] = fresh;
		(void)sched_size(cache->sched, old->slot, fresh->attr.size);
	}
	old->slot = SLOT_NONE;
	pthread_mutex_unlock(&cache->lock);
}

static void file_removed(void *context, struct node *node)
{
	struct cache *cache = context;

	pthread_mutex_lock(&cache->lock);
	forget_version_locked(cache, node);
	if (node->slot != SLOT_NONE) {
		(void)sched_remove(cache->sched, node->slot);
		cache->nodes[node->slot] = NULL;
	}
	node->slot = SLOT_NONE;
	pthread_mutex_unlock(&cache->lock);
}

static const struct tree_events tree_events = { file_added, file_replaced, file_removed };

/* --- accesses ------------------------------------------------------------------------------------
 */

static bool is_large(const struct cache *cache, const struct node *node)
{
	return node->attr.size > cache->range_bytes || node->slot == SLOT_NONE;
}

/* Whether the node is still what the source has; asks it if that was too long ago. */
static int check_version(struct cache *cache, struct node *node)
{
	uint64_t now = cache_now_ms();
	struct store_attr attr;
	char *path;
	int rc;

	if (atomic_load(&node->stale))
		return -ESTALE;
	if (now - __atomic_load_n(&node->checked_ms, __ATOMIC_RELAXED) <=
	    cache->options.staleness_ms)
		return 0;
	path = node_path(node);
	if (!path)
		return -ENOMEM;
	rc = store_stat(cache->store, path, &attr);
	free(path);
	if (rc && rc != -ENOENT)
		return rc;
	if (rc || !store_same_version(&attr, &node->attr)) {
		tree_mark_stale(cache->tree, node);
		return -ESTALE;
	}
	__atomic_store_n(&node->checked_ms, now, __ATOMIC_RELAXED);
	return 0;
}

/* Lets the waiter wait for the flight. True: it need not, the bytes are there. */
static bool join_locked(struct flight *flight, struct waiter *waiter)
{
	if (flight->state == FLIGHT_READY)
		return true;
	waiter->next = flight->waiters;
	flight->waiters = waiter;
	return false;
}

/* Decides over an open. 0: answer now; 1: it waits; or a negative errno. */
static int open_locked(struct cache *cache, struct node *node, struct waiter *waiter)
{
	struct sched_verdict verdict;
	struct flight *flight;
	int rc;

	if (is_large(cache, node)) {
		cache->stats.large_opens++;
		return 0;
	}
	rc = sched_access(cache->sched, SCHED_JOB_ANY, node->slot, node->attr.size, &verdict);
	if (rc)
		return rc;
	cache_drop_victims_locked(cache, &verdict);
	if (node->attr.size == 0 && verdict.action == SCHED_ADMIT)
		return sched_commit(cache->sched, node->slot);
	if (verdict.action == SCHED_HIT || node->attr.size == 0)
		return 0;
	flight = flight_get_locked(cache, node);
	if (!flight) {
		if (verdict.action == SCHED_ADMIT)
			(void)sched_cancel(cache->sched, node->slot);
		return -ENOMEM;
	}
	if (verdict.action == SCHED_ADMIT)
		flight->admitted = true;
	flight_store_locked(flight);
	return join_locked(flight, waiter) ? 0 : 1;
}

void cache_open(struct cache *cache, struct node *node, struct waiter *waiter)
{
	int rc = check_version(cache, node);

	if (!rc) {
		pthread_mutex_lock(&cache->lock);
		rc = cache->stopping ? -ESHUTDOWN : open_locked(cache, node, waiter);
		if (!rc)
			node->opens++;
		pthread_mutex_unlock(&cache->lock);
	}
	if (rc <= 0)
		waiter->answer(waiter, rc, NULL, 0);
	/* Also after a hit: it may have made room to fetch ahead. */
	flight_start_all(cache);
}

/* The kernel asks for bytes. It would not if it had them, so if the sample counts as
 * resident, they were reclaimed. */
static int read_locked(struct cache *cache, struct node *node, struct waiter *waiter,
		       struct flight **ready)
{
	struct flight *flight;

	if (cache->stopping)
		return -ESHUTDOWN;
	if (!node->flight && atomic_load(&node->stale))
		return -ESTALE;
	flight = flight_get_locked(cache, node);
	if (!flight)
		return -ENOMEM;
	if (flight->state == FLIGHT_WAITING && !flight->waiters && !flight->admitted &&
	    sched_resident(cache->sched, node->slot)) {
		flight->restoring = true;
		cache->stats.reclaimed++;
	}
	if (!flight->admitted && !flight->restoring)
		node->dirty = true;
	if (!join_locked(flight, waiter))
		return 1;
	flight->users++;
	*ready = flight;
	return 0;
}

static void answer_from(struct waiter *waiter, const struct flight *flight)
{
	size_t left = waiter->offset < flight->size ? flight->size - waiter->offset : 0;

	waiter->answer(waiter, 0, (const char *)flight->buffer + (left ? waiter->offset : 0),
		       left < waiter->size ? left : waiter->size);
}

void cache_read(struct cache *cache, struct node *node, struct waiter *waiter)
{
	size_t wanted = waiter->size;
	struct flight *ready = NULL;
	int rc;

	if (is_large(cache, node)) {
		flight_read_range(cache, node, waiter);
		return;
	}
	pthread_mutex_lock(&cache->lock);
	rc = read_locked(cache, node, waiter, &ready);
	pthread_mutex_unlock(&cache->lock);
	if (rc < 0) {
		waiter->answer(waiter, rc, NULL, 0);
	} else if (rc > 0) {
		flight_start_all(cache);
	} else {
		answer_from(waiter, ready);
		pthread_mutex_lock(&cache->lock);
		ready->users--;
		ready->delivered += wanted;
		flight_end_if_done_locked(ready);
		pthread_mutex_unlock(&cache->lock);
	}
}

void cache_release(struct cache *cache, struct node *node)
{
	pthread_mutex_lock(&cache->lock);
	node->opens--;
	if (!node->opens) {
		if (node->flight)
			flight_end_if_done_locked(node->flight);
		if (node->dirty &&
		    !(node->slot != SLOT_NONE && sched_resident(cache->sched, node->slot))) {
			node->dirty = false;
			(void)residency_drop(cache->residency, node);
		}
	}
	pthread_mutex_unlock(&cache->lock);
}

static void forgotten(void *context, struct node *node)
{
	struct cache *cache = context;

	if (!node_is_file(node))
		return;
	pthread_mutex_lock(&cache->lock);
	node->dirty = false;
	if (node->slot != SLOT_NONE && node->attr.size && !sched_evict(cache->sched, node->slot))
		cache->stats.reclaimed++;
	pthread_mutex_unlock(&cache->lock);
}

void cache_forget(struct cache *cache, struct node *node, uint64_t count)
{
	tree_forget(cache->tree, node, count, forgotten, cache);
}

struct waiter *cache_take_waiter(struct cache *cache,
				 bool (*is)(const struct waiter *waiter, void *context),
				 void *context)
{
	struct waiter *found = NULL;

	pthread_mutex_lock(&cache->lock);
	for (struct flight *flight = cache->flights; flight && !found; flight = flight->next)
		for (struct waiter **at = &flight->waiters; *at; at = &(*at)->next)
			if (is(*at, context)) {
				found = *at;
				*at = found->next;
				break;
			}
	pthread_mutex_unlock(&cache->lock);
	return found;
}

/* --- begin and end
 * ---------------------------------------------------------------------------------- */

int cache_create(struct cache **out, struct store *store, const struct cache_options *options)
{
	struct cache *cache = calloc(1, sizeof(*cache));
	int rc;

	if (!cache)
		return -ENOMEM;
	cache->options = *options;
	cache->store = store;
	cache->flights_end = &cache->flights;
	cache->range_bytes = options->capacity_bytes / 8;
	if (cache->range_bytes > options->inflight_bytes / 2)
		cache->range_bytes = options->inflight_bytes / 2;
	pthread_mutex_init(&cache->lock, NULL);
	pthread_cond_init(&cache->changed, NULL);
	rc = sched_create(&cache->sched, options->capacity_bytes - options->inflight_bytes,
			  options->policy);
	if (!rc)
		rc = tree_open(&cache->tree, store, options->staleness_ms, &tree_events, cache);
	if (rc) {
		sched_destroy(cache->sched);
		free(cache);
		return rc;
	}
	*out = cache;
	return 0;
}

int cache_start(struct cache *cache, const struct residency_kernel *kernel, void *context)
{
	int rc = residency_open(&cache->residency, cache->tree, kernel, context);

	if (rc)
		return rc;
	rc = -pthread_create(&cache->clock, NULL, flight_watch, cache);
	if (rc)
		residency_close(cache->residency);
	return rc;
}

void cache_stop(struct cache *cache)
{
	struct waiter *waiters = NULL;

	pthread_mutex_lock(&cache->lock);
	cache->stopping = true;
	for (struct flight *flight = cache->flights; flight; flight = flight->next) {
		struct waiter **end = &flight->waiters;

		while (*end)
			end = &(*end)->next;
		*end = waiters;
		waiters = flight->waiters;
		flight->waiters = NULL;
		if (flight->state == FLIGHT_RUNNING)
			store_cancel(cache->store, &flight->read);
	}
	pthread_cond_broadcast(&cache->changed);
	pthread_mutex_unlock(&cache->lock);
	waiter_answer_all(waiters, -ESHUTDOWN);
	pthread_join(cache->clock, NULL);
	residency_close(cache->residency);
	pthread_mutex_lock(&cache->lock);
	while (cache->running)
		pthread_cond_wait(&cache->changed, &cache->lock);
	pthread_mutex_unlock(&cache->lock);
}

void cache_destroy(struct cache *cache)
{
	for (struct flight *next, *flight = cache->flights; flight; flight = next) {
		next = flight->next;
		free(flight->buffer);
		free(flight->path);
		free(flight);
	}
	tree_close(cache->tree);
	sched_destroy(cache->sched);
	free(cache->nodes);
	free(cache->numbering);
	free(cache->ids);
	free(cache->warm_queue);
	pthread_mutex_destroy(&cache->lock);
	pthread_cond_destroy(&cache->changed);
	free(cache);
}
