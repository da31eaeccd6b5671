/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The file `control`: a write goes to the file's parser, which calls apply_ops below for each
 * command, and these call the cache. A read gets the answer. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control/internal.h"

/* --- what the parser asks and orders ------------------------------------------------------------
 */

static const struct control_options *options_of(void *context)
{
	return &((struct control_file *)context)->control->options;
}

static struct cache *cache_of(void *context)
{
	return options_of(context)->cache;
}

static uint32_t job_of(void *context)
{
	return ((struct control_file *)context)->job;
}

static uint32_t on_sample_count(void *context)
{
	return cache_scan_complete(cache_of(context)) ? cache_samples(cache_of(context)) : 0;
}

/* The parser may keep the id as long as the file is open. */
static int on_find_sample(void *context, const char *path, uint32_t *id)
{
	struct control_file *file = context;

	if (!file->holds_samples)
		cache_hold_samples(cache_of(context));
	file->holds_samples = true;
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

static int on_uses(void *context, double uses)
{
	cache_set_uses(cache_of(context), job_of(context), uses);
	return 0;
}

static int on_group(void *context, const char *name)
{
	int rc = groups_join(context, name);

	if (!rc)
		heirs_joined(context, name);
	return rc;
}

static int on_shared(void *context, uint64_t epoch, const uint32_t *ids, const float *weights,
		     uint32_t count)
{
	return groups_put(context, epoch, ids, weights, count);
}

static int on_read_shared(void *context, uint64_t epoch)
{
	return groups_read_order(context, epoch);
}

static int on_read_importance(void *context)
{
	return groups_read_importance(context);
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

static uint64_t capacity_of(void *context, uint64_t bytes, double share)
{
	const struct control_options *options = options_of(context);

	if (share <= 0)
		return bytes;
	return (uint64_t)((double)options->hooks->memory_bytes(options->context) * share);
}

static int on_check_capacity(void *context, uint64_t bytes, double share)
{
	const struct control_options *options = options_of(context);
	uint64_t wanted = capacity_of(context, bytes, share);

	return wanted > options->inflight_bytes &&
			       wanted <= options->hooks->memory_bytes(options->context)
		       ? 0
		       : -EINVAL;
}

static int on_capacity(void *context, uint64_t bytes, double share)
{
	return cache_set_capacity(cache_of(context), capacity_of(context, bytes, share));
}

static int on_forget(void *context, const char *name)
{
	return jobs_forget(context, name);
}

/* Without it coverage is of all samples: nothing else is lost. */
static void on_table(void *context, const uint32_t *ids, uint32_t count)
{
	(void)cache_name(cache_of(context), ((struct control_file *)context)->job, ids, count);
}

static int on_policy(void *context, const char *name)
{
	return cache_set_policy(cache_of(context), name);
}

static int on_rescan(void *context)
{
	options_of(context)->hooks->rescan(options_of(context)->context);
	return 0;
}

/* Others may use .shade, but the program runs with the rights of the user who mounted. */
static int on_upgrade(void *context, char *why, size_t room)
{
	const struct control_options *options = options_of(context);

	if (!((struct control_file *)context)->user->mounts) {
		snprintf(why, room, "only root and the user who mounted may do that");
		return -EPERM;
	}
	return options->hooks->upgrade(options->context, why, room);
}

const struct control_ops apply_ops = {
	.sample_count = on_sample_count,
	.find_sample = on_find_sample,
	.check_path = on_check_path,
	.check_policy = on_check_policy,
	.check_capacity = on_check_capacity,
	.scores = on_scores,
	.order = on_order,
	.epoch = on_epoch,
	.uses = on_uses,
	.group = on_group,
	.shared = on_shared,
	.read_shared = on_read_shared,
	.read_importance = on_read_importance,
	.warm = on_warm,
	.evict = on_evict,
	.pin = on_pin,
	.unpin = on_unpin,
	.capacity = on_capacity,
	.policy = on_policy,
	.rescan = on_rescan,
	.upgrade = on_upgrade,
	.forget = on_forget,
	.table = on_table,
};

/* --- requests ----------------------------------------------------------------------------------*/

static void catch_up(const struct control *control)
{
	control->options.hooks->catch_up(control->options.context);
}

/* What the write may need counts before it is parsed, and what it has left counts after that. */
static int write_locked(struct control_file *file, const void *data, size_t size)
{
	uint64_t bytes = apply_bytes(file);
	int rc;

	lock_assert_held(&file->lock);
	apply_drop_reply(file);
	if (charge_bytes(file, bytes + bytes / 2 + CONTROL_WRITE_FACTOR * size))
		return control_parser_refuse(file->parser);
	rc = control_parser_write(file->parser, data, size);
	if (rc)
		apply_drop_reply(file);
	return rc;
}

uint64_t apply_bytes(const struct control_file *file)
{
	return control_parser_bytes(file->parser) + file->reply_size + file->kept_bytes;
}

int control_write(struct control_file *file, const struct control_caller *caller, const void *data,
		  size_t size)
{
	int rc;

	assert(file->parser);
	catch_up(file->control);
	lock_acquire(&file->lock);
	if (!heirs_was_written(file, caller, &rc)) {
		rc = write_locked(file, data, size);
		if (rc)
			refused_add(file);
		file->answered = file->reply_is_lost = false;
		heirs_wrote(file, caller->request, data, size, rc);
		charge_set(file, apply_bytes(file));
	}
	lock_release(&file->lock);
	return rc;
}

void apply_drop_reply(struct control_file *file)
{
	free(file->reply);
	file->reply = NULL;
	file->reply_size = file->reply_at = 0;
}

/* The next part of what is read instead of an answer. */
static char *take_reply_locked(struct control_file *file, size_t max, size_t *length)
{
	size_t left = file->reply_size - file->reply_at;
	char *copy;

	lock_assert_held(&file->lock);
	*length = left < max ? left : max;
	copy = malloc(*length + 1);
	if (!copy)
		return NULL;
	memcpy(copy, file->reply + file->reply_at, *length);
	file->reply_at += *length;
	if (file->reply_at == file->reply_size) {
		apply_drop_reply(file);
		charge_set(file, apply_bytes(file));
		file->answered = true;
	}
	return copy;
}

void apply_finish(struct control_file *file)
{
	if (control_parser_finish(file->parser))
		refused_add(file);
}

/* A line without a newline ends here. */
static void finish_locked(struct control_file *file)
{
	bool was_unfinished = control_parser_is_unfinished(file->parser);
	int rc;

	lock_assert_held(&file->lock);
	if (!was_unfinished)
		return;
	rc = control_parser_finish(file->parser);
	if (rc)
		refused_add(file);
	heirs_finished(file, rc);
}

static char *take_answer_locked(struct control_file *file, size_t max, size_t *length)
{
	const char *text;

	lock_assert_held(&file->lock);
	if (file->reply)
		return take_reply_locked(file, max, length);
	if (!file->answered)
		finish_locked(file);
	text = file->answered ? "" : control_parser_answer(file->parser);
	file->answered = true;
	*length = strnlen(text, max);
	return strndup(text, *length);
}

int apply_take_answer(struct control_file *file, const struct control_caller *caller, size_t max,
		      char **answer, size_t *length)
{
	int rc = 0;

	lock_acquire(&file->lock);
	if (heirs_was_read(file, caller))
		file->answered = false;
	if (file->reply_is_lost)
		rc = -EIO;
	else
		*answer = take_answer_locked(file, max, length);
	heirs_read(file, caller->request);
	lock_release(&file->lock);
	return rc;
}

static int query_locked(struct control_file *file, struct shade_ioctl_query *query)
{
	struct cache_sample sample;
	uint32_t id;
	int rc;

	lock_assert_held(&file->lock);
	rc = control_parser_id(file->parser, query->id, &id);
	if (!rc)
		rc = cache_get_sample(cache_of(file), file->job, id, &sample);
	if (rc)
		return rc;
	query->frequency = sample.frequency;
	query->score = sample.score;
	query->resident = sample.resident;
	query->size = sample.size;
	return 0;
}

static int ioctl_locked(struct control_file *file, unsigned command, const void *in, size_t in_size,
			void *out, size_t *out_size)
{
	struct shade_ioctl_query query;
	int rc;

	lock_assert_held(&file->lock);
	if (command == SHADE_IOCTL_GROUP && in_size == sizeof(struct shade_ioctl_group)) {
		memcpy(out, in, in_size);
		*out_size = in_size;
		return groups_begin(file, out);
	}
	if (command == SHADE_IOCTL_SCORES && in_size == sizeof(struct shade_ioctl_scores))
		return control_parser_scores(file->parser, in);
	if (command == SHADE_IOCTL_EPOCH && in_size == sizeof(struct shade_ioctl_epoch))
		return cache_epoch(cache_of(file), file->job,
				   ((const struct shade_ioctl_epoch *)in)->epoch);
	if (command != SHADE_IOCTL_QUERY || in_size != sizeof(query))
		return -ENOTTY;
	memcpy(&query, in, sizeof(query));
	rc = query_locked(file, &query);
	memcpy(out, &query, sizeof(query));
	*out_size = sizeof(query);
	return rc;
}

int control_ioctl(struct control_file *file, unsigned command, const void *in, size_t in_size,
		  void *out, size_t *out_size)
{
	int rc;

	static_assert(sizeof(struct shade_ioctl_query) <= CONTROL_IOCTL_MAX, "answers have room");
	*out_size = 0;
	catch_up(file->control);
	if (!file->parser)
		return -ENOTTY;
	lock_acquire(&file->lock);
	rc = ioctl_locked(file, command, in, in_size, out, out_size);
	file->answered = rc == -ENOTTY;
	lock_release(&file->lock);
	return rc;
}
