/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is written to a control file: from commands to the cache. */
#include <errno.h>
#include <string.h>

#include "base/threads.h"
#include "control/shade.h"

static struct cache *cache_of(void *context)
{
	return ((struct shade_handle *)context)->front->cache;
}

static uint32_t job_of(void *context)
{
	return ((struct shade_handle *)context)->job;
}

static uint32_t on_sample_count(void *context)
{
	return cache_scan_complete(cache_of(context)) ? cache_samples(cache_of(context)) : 0;
}

static int on_find_sample(void *context, const char *path, uint32_t *id)
{
	return cache_find_sample(cache_of(context), path, id);
}

static int on_check_path(void *context, const char *path)
{
	struct tree *tree = cache_tree(cache_of(context));
	struct node *node;
	int rc = tree_find(tree, path, clock_now_ms(), &node);

	if (!rc)
		tree_release(tree, node);
	return rc;
}

static int on_check_policy(void *context, const char *name)
{
	(void)context;
	for (unsigned i = 0; sched_policy_name(i); i++)
		if (!strcmp(sched_policy_name(i), name))
			return 0;
	return -EINVAL;
}

static int on_scores(void *context, const uint32_t *ids, const float *scores, uint32_t count)
{
	return cache_score(cache_of(context), job_of(context), ids, scores, count);
}

static int on_order(void *context, uint64_t epoch, const uint32_t *ids, uint32_t count)
{
	return cache_order(cache_of(context), job_of(context), epoch, ids, count);
}

static int on_epoch(void *context, uint64_t epoch)
{
	return cache_epoch(cache_of(context), job_of(context), epoch);
}

static int on_warm(void *context, const char *path)
{
	return cache_warm(cache_of(context), path);
}

static int on_evict(void *context, const char *path)
{
	return cache_evict(cache_of(context), path);
}

static int on_pin(void *context, const char *path)
{
	return cache_pin(cache_of(context), path, true);
}

static int on_unpin(void *context, const char *path)
{
	return cache_pin(cache_of(context), path, false);
}

static uint64_t capacity_of(uint64_t bytes, double share)
{
	const char *which;

	return share > 0 ? (uint64_t)((double)options_memory(&which) * share) : bytes;
}

static int on_check_capacity(void *context, uint64_t bytes, double share)
{
	const struct front *front = ((struct shade_handle *)context)->front;

	return capacity_of(bytes, share) > front->options.inflight_bytes ? 0 : -EINVAL;
}

static int on_capacity(void *context, uint64_t bytes, double share)
{
	return cache_set_capacity(cache_of(context), capacity_of(bytes, share));
}

static int on_policy(void *context, const char *name)
{
	return cache_set_policy(cache_of(context), name);
}

static int on_rescan(void *context)
{
	atomic_store(&((struct shade_handle *)context)->front->scan_wanted, true);
	return 0;
}

const struct control_ops shade_control_ops = {
	.sample_count = on_sample_count,
	.find_sample = on_find_sample,
	.check_path = on_check_path,
	.check_policy = on_check_policy,
	.check_capacity = on_check_capacity,
	.scores = on_scores,
	.order = on_order,
	.epoch = on_epoch,
	.warm = on_warm,
	.evict = on_evict,
	.pin = on_pin,
	.unpin = on_unpin,
	.capacity = on_capacity,
	.policy = on_policy,
	.rescan = on_rescan,
};
