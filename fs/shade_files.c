/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The files of .shade. One that is read is a text made when it is opened, so that a reader
 * sees one moment; `control` takes commands and answers on the same descriptor.
 *
 * Only who mounted, root, and the group that an option names may use them, whatever the
 * permissions of the mount: every open looks at the caller.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "control_parse.h"
#include "front.h"

#define AHEAD_SHOWN 100000 /* ids in `order` */

struct shade_file {
	const char *name;
	void (*print)(struct front *front, FILE *out); /* NULL: control */
};

/* An open file. */
struct shade_handle {
	char *text;
	size_t size;
	pthread_mutex_t lock;	       /* control: one command at a time */
	struct control_parser *parser; /* lock */
	bool answered;		       /* lock: the answer was read */
};

/* --- what can be read
 * ------------------------------------------------------------------------------ */

/* Odd bytes as \nnn, so that a line is a line. */
static void print_path(FILE *out, const char *path)
{
	for (; *path; path++) {
		unsigned char c = (unsigned char)*path;

		if (c == '\\')
			fputs("\\\\", out);
		else if (c < ' ' || c == 127)
			fprintf(out, "\\%03o", c);
		else
			fputc(c, out);
	}
}

struct figure {
	const char *name;
	const char *kind; /* of OpenMetrics */
	double value;
};

#define FIGURES_MAX 48

static double coverage_of(const struct cache_stats *s, uint32_t samples)
{
	return samples ? (double)s->job.covered / samples : 0;
}

static unsigned collect(struct front *front, struct figure *figures, const char **policy)
{
	uint32_t samples = cache_samples(front->cache);
	struct cache_stats s;
	unsigned count = 0;

	cache_get_stats(front->cache, &s);
	*policy = s.policy;
#define GAUGE(name, value) figures[count++] = (struct figure){ name, "gauge", (double)(value) }
#define COUNTER(name, value)                                                                       \
	figures[count++] = (struct figure)                                                         \
	{                                                                                          \
		name, "counter", (double)(value)                                                   \
	}
	GAUGE("capacity_bytes", s.capacity_bytes);
	GAUGE("resident_bytes", s.sched.resident_bytes);
	GAUGE("resident_samples", s.sched.resident_samples);
	GAUGE("reserved_bytes", s.sched.reserved_bytes);
	GAUGE("pinned_bytes", s.sched.pinned_bytes);
	GAUGE("inflight_bytes", s.inflight_bytes);
	GAUGE("samples", samples);
	GAUGE("scan_complete", cache_scan_complete(front->cache));
	COUNTER("accesses", s.sched.accesses + s.large_opens);
	COUNTER("hits", s.sched.hits);
	COUNTER("hits_prefetched", s.sched.hits_prefetched);
	COUNTER("misses", s.sched.admissions + s.sched.bypasses + s.large_opens);
	COUNTER("coalesced", s.sched.joins);
	COUNTER("admissions", s.sched.admissions);
	COUNTER("bypasses", s.sched.bypasses + s.large_opens);
	COUNTER("prefetches", s.sched.prefetches);
	COUNTER("evictions", s.sched.evictions);
	COUNTER("reclaimed", s.reclaimed);
	COUNTER("backend_reads", s.backend_reads);
	COUNTER("backend_bytes", s.backend_bytes);
	COUNTER("fetch_errors", s.fetch_errors);
	COUNTER("stale_drops", s.stale_drops);
	GAUGE("epoch", s.job.epoch);
	GAUGE("order_ahead", s.job.order_ahead);
	GAUGE("scored", s.job.scored);
	GAUGE("coverage", coverage_of(&s, samples));
	GAUGE("warm_pending", s.warm_pending);
	COUNTER("warm_done", s.warm_done);
	COUNTER("warm_refused", s.warm_refused);
	COUNTER("warm_failed", s.warm_failed);
	GAUGE("warm_pending_bytes", s.warm_pending_bytes);
	COUNTER("warm_done_bytes", s.warm_done_bytes);
	COUNTER("warm_refused_bytes", s.warm_refused_bytes);
#undef GAUGE
#undef COUNTER
	return count;
}

static void print_stats(struct front *front, FILE *out)
{
	struct figure figures[FIGURES_MAX];
	const char *policy;
	unsigned count = collect(front, figures, &policy);

	fprintf(out, "mode portable\npolicy %s\n", policy);
	for (unsigned i = 0; i < count; i++)
		fprintf(out, "%s %.15g\n", figures[i].name, figures[i].value);
}

static void print_metrics(struct front *front, FILE *out)
{
	struct figure figures[FIGURES_MAX];
	const char *policy;
	unsigned count = collect(front, figures, &policy);

	fprintf(out, "# TYPE shadefs info\nshadefs_info{policy=\"%s\",mode=\"portable\"} 1\n",
		policy);
	for (unsigned i = 0; i < count; i++)
		fprintf(out, "# TYPE shadefs_%s %s\nshadefs_%s%s %.15g\n", figures[i].name,
			figures[i].kind, figures[i].name,
			strcmp(figures[i].kind, "counter") ? "" : "_total", figures[i].value);
	fputs("# EOF\n", out);
}

static void print_option(void *context, const char *name, const char *value, const char *from)
{
	fprintf(context, "%s ", name);
	print_path(context, value);
	fprintf(context, " # %s\n", from);
}

static void print_config(struct front *front, FILE *out)
{
	options_list(&front->options, print_option, out);
}

static void print_samples(struct front *front, FILE *out)
{
	uint32_t samples = cache_scan_complete(front->cache) ? cache_samples(front->cache) : 0;

	for (uint32_t id = 0; id < samples; id++) {
		char *path = cache_sample_path(front->cache, id);

		fprintf(out, "%" PRIu32 "\t", id);
		print_path(out, path ? path : "");
		fputc('\n', out);
		free(path);
	}
}

static void print_scores(struct front *front, FILE *out)
{
	struct cache_sample sample;

	for (uint32_t id = 0; !cache_get_sample(front->cache, id, &sample); id++)
		fprintf(out, "%" PRIu32 "\t%.9g\t%" PRIu32 "\t%d\n", id, sample.score,
			sample.frequency, sample.resident);
}

static void print_order(struct front *front, FILE *out)
{
	uint32_t *ids = malloc(AHEAD_SHOWN * sizeof(*ids));
	uint32_t count = ids ? cache_ahead(front->cache, ids, AHEAD_SHOWN) : 0;

	for (uint32_t i = 0; i < count; i++)
		fprintf(out, "%" PRIu32 "\n", ids[i]);
	free(ids);
}

static void print_resident(struct front *front, FILE *out)
{
	struct cache_sample sample;
	unsigned char byte = 0;
	uint32_t id = 0;

	for (; !cache_get_sample(front->cache, id, &sample); id++) {
		byte |= (unsigned char)(sample.resident << id % 8);
		if (id % 8 == 7) {
			fputc(byte, out);
			byte = 0;
		}
	}
	if (id % 8)
		fputc(byte, out);
}

static const struct shade_file files[] = {
	{ "control", NULL },	    { "stats", print_stats },	    { "metrics", print_metrics },
	{ "config", print_config }, { "samples", print_samples },   { "scores", print_scores },
	{ "order", print_order },   { "resident", print_resident },
};

#define FILE_COUNT (sizeof(files) / sizeof(files[0]))
#define FIRST_FILE_INO (SHADE_DIR_INO + 1)

static const struct shade_file *file_of(fuse_ino_t ino)
{
	return &files[ino - FIRST_FILE_INO];
}

/* --- commands
 * ------------------------------------------------------------------------------------------ */

static struct cache *cache_of(void *context)
{
	return ((struct front *)context)->cache;
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
	int rc = tree_find(tree, path, cache_now_ms(), &node);

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
	return cache_score(cache_of(context), ids, scores, count);
}

static int on_order(void *context, uint64_t epoch, const uint32_t *ids, uint32_t count)
{
	return cache_order(cache_of(context), epoch, ids, count);
}

static int on_epoch(void *context, uint64_t epoch)
{
	return cache_epoch(cache_of(context), epoch);
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

static int on_capacity(void *context, uint64_t bytes, double share)
{
	const char *which;

	if (share > 0)
		bytes = (uint64_t)((double)options_memory(&which) * share);
	return cache_set_capacity(cache_of(context), bytes);
}

static int on_policy(void *context, const char *name)
{
	return cache_set_policy(cache_of(context), name);
}

static int on_rescan(void *context)
{
	atomic_store(&((struct front *)context)->scan_wanted, true);
	return 0;
}

static const struct control_ops control_ops = {
	.sample_count = on_sample_count,
	.find_sample = on_find_sample,
	.check_path = on_check_path,
	.check_policy = on_check_policy,
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

/* --- the directory
 * ----------------------------------------------------------------------------------------- */

static struct stat stat_of(const struct front *front, fuse_ino_t ino)
{
	bool dir = ino == SHADE_DIR_INO, group = front->options.group_name;
	mode_t mode = dir ? S_IFDIR | (group ? 0750 : 0700) : S_IFREG | (group ? 0660 : 0600);

	if (!dir && file_of(ino)->print)
		mode &= ~(mode_t)0222;
	return (struct stat){ .st_ino = ino,
			      .st_mode = mode,
			      .st_nlink = dir ? 2 : 1,
			      .st_uid = front->owner,
			      .st_gid = group ? front->options.group : 0 };
}

static bool in_group(fuse_req_t req, gid_t group)
{
	gid_t groups[256];
	int count = fuse_req_getgroups(req, 256, groups);

	if (fuse_req_ctx(req)->gid == group)
		return true;
	for (int i = 0; i < count && i < 256; i++)
		if (groups[i] == group)
			return true;
	return false;
}

static bool may_use(const struct front *front, fuse_req_t req)
{
	uid_t uid = fuse_req_ctx(req)->uid;

	return uid == front->owner || uid == 0 ||
	       (front->options.group_name && in_group(req, front->options.group));
}

static fuse_ino_t find_name(fuse_ino_t parent, const char *name)
{
	if (parent == FUSE_ROOT_ID)
		return SHADE_DIR_INO;
	for (size_t i = 0; parent == SHADE_DIR_INO && i < FILE_COUNT; i++)
		if (!strcmp(files[i].name, name))
			return FIRST_FILE_INO + i;
	return 0;
}

void shade_lookup(struct front *front, fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param entry = { .ino = find_name(parent, name) };

	if (!entry.ino) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	entry.attr = stat_of(front, entry.ino);
	entry.attr_timeout = entry.entry_timeout = front->options.staleness_s;
	fuse_reply_entry(req, &entry);
}

void shade_getattr(struct front *front, fuse_req_t req, fuse_ino_t ino)
{
	struct stat stat = stat_of(front, ino);

	fuse_reply_attr(req, &stat, front->options.staleness_s);
}

void shade_readdir(struct front *front, fuse_req_t req, size_t size, off_t offset, bool plus)
{
	char buffer[8192];
	size_t used = 0;

	if (size > sizeof(buffer))
		size = sizeof(buffer);
	for (size_t i = (size_t)offset; i < FILE_COUNT; i++) {
		struct fuse_entry_param entry = { .attr = stat_of(front, FIRST_FILE_INO + i) };
		char *at = buffer + used;
		size_t left = size - used, length;

		length = plus ? fuse_add_direntry_plus(req, at, left, files[i].name, &entry,
						       (off_t)i + 1)
			      : fuse_add_direntry(req, at, left, files[i].name, &entry.attr,
						  (off_t)i + 1);
		if (length > left)
			break;
		used += length;
	}
	fuse_reply_buf(req, buffer, used);
}

/* --- open files
 * ------------------------------------------------------------------------------------------------
 */

static struct shade_handle *handle_of(const struct fuse_file_info *fi)
{
	return (struct shade_handle *)(uintptr_t)fi->fh;
}

static void handle_free(struct shade_handle *handle)
{
	if (handle->parser)
		control_parser_free(handle->parser);
	pthread_mutex_destroy(&handle->lock);
	free(handle->text);
	free(handle);
}

static int handle_fill(struct front *front, const struct shade_file *file,
		       struct shade_handle *handle)
{
	FILE *out;

	if (!file->print) {
		handle->parser = control_parser_new(&control_ops, front);
		return handle->parser ? 0 : -ENOMEM;
	}
	out = open_memstream(&handle->text, &handle->size);
	if (!out)
		return -ENOMEM;
	file->print(front, out);
	return fclose(out) ? -ENOMEM : 0;
}

void shade_open(struct front *front, fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	const struct shade_file *file = file_of(ino);
	struct shade_handle *handle;
	int rc;

	if (!may_use(front, req) || (file->print && (fi->flags & O_ACCMODE) != O_RDONLY)) {
		fuse_reply_err(req, EACCES);
		return;
	}
	handle = calloc(1, sizeof(*handle));
	if (!handle) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	pthread_mutex_init(&handle->lock, NULL);
	rc = handle_fill(front, file, handle);
	if (rc) {
		handle_free(handle);
		fuse_reply_err(req, -rc);
		return;
	}
	fi->fh = (uintptr_t)handle;
	fi->direct_io = 1;
	fi->nonseekable = !file->print;
	if (fuse_reply_open(req, fi) == -ENOENT)
		handle_free(handle);
}

/* What the handle has to say at `offset`, copied: once the kernel has its answer, a release
 * may free the handle. */
static char *copy_text(struct shade_handle *handle, size_t size, off_t offset, size_t *length)
{
	const char *text = handle->text;
	size_t left = (size_t)offset < handle->size ? handle->size - (size_t)offset : 0;
	char *copy;

	pthread_mutex_lock(&handle->lock);
	if (handle->parser) {
		/* The answer to the last write, once; then the end of the file. */
		if (!handle->answered)
			(void)control_parser_finish(handle->parser);
		text = handle->answered ? "" : control_parser_answer(handle->parser);
		handle->answered = true;
		left = strlen(text);
		offset = 0;
	}
	*length = left < size ? left : size;
	copy = malloc(*length + 1);
	if (copy && *length)
		memcpy(copy, text + offset, *length);
	pthread_mutex_unlock(&handle->lock);
	return copy;
}

void shade_read(struct front *front, fuse_req_t req, size_t size, off_t offset,
		struct fuse_file_info *fi)
{
	size_t length;
	char *copy = copy_text(handle_of(fi), size, offset, &length);

	(void)front;
	if (copy)
		fuse_reply_buf(req, copy, length);
	else
		fuse_reply_err(req, ENOMEM);
	free(copy);
}

void shade_write(struct front *front, fuse_req_t req, const char *data, size_t size,
		 struct fuse_file_info *fi)
{
	struct shade_handle *handle = handle_of(fi);
	int rc;

	(void)front;
	pthread_mutex_lock(&handle->lock);
	rc = control_parser_write(handle->parser, data, size);
	handle->answered = false;
	pthread_mutex_unlock(&handle->lock);
	if (rc)
		fuse_reply_err(req, -rc);
	else
		fuse_reply_write(req, size);
}

void shade_release(struct front *front, fuse_req_t req, struct fuse_file_info *fi)
{
	struct shade_handle *handle = handle_of(fi);

	(void)front;
	if (handle->parser)
		(void)control_parser_finish(handle->parser);
	handle_free(handle);
	fuse_reply_err(req, 0);
}

/* --- ioctls
 * --------------------------------------------------------------------------------------------------------
 */

static int query(struct front *front, struct shade_handle *handle, struct shade_ioctl_query *q)
{
	struct cache_sample sample;
	uint32_t id;
	int rc = control_parser_id(handle->parser, q->id, &id);

	if (!rc)
		rc = cache_get_sample(front->cache, id, &sample);
	if (rc)
		return rc;
	q->frequency = sample.frequency;
	q->score = sample.score;
	q->resident = sample.resident;
	q->size = sample.size;
	return 0;
}

void shade_ioctl(struct front *front, fuse_req_t req, unsigned command, const void *in,
		 size_t in_size, struct fuse_file_info *fi)
{
	struct shade_handle *handle = handle_of(fi);
	struct shade_ioctl_query answer;
	size_t out_size = 0;
	int rc = -ENOTTY;

	if (handle->parser)
		pthread_mutex_lock(&handle->lock);
	if (!handle->parser) {
		rc = -ENOTTY;
	} else if (command == SHADE_IOCTL_SCORES && in_size == sizeof(struct shade_ioctl_scores)) {
		rc = control_parser_batch(handle->parser, in);
	} else if (command == SHADE_IOCTL_EPOCH && in_size == sizeof(struct shade_ioctl_epoch)) {
		rc = cache_epoch(front->cache, ((const struct shade_ioctl_epoch *)in)->epoch);
	} else if (command == SHADE_IOCTL_QUERY && in_size == sizeof(answer)) {
		memcpy(&answer, in, sizeof(answer));
		rc = query(front, handle, &answer);
		out_size = sizeof(answer);
	}
	if (handle->parser)
		pthread_mutex_unlock(&handle->lock);
	if (rc)
		fuse_reply_err(req, -rc);
	else
		fuse_reply_ioctl(req, 0, out_size ? &answer : NULL, out_size);
}
