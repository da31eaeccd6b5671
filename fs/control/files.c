/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The directory .shade. A file that is read is a text made when it is opened, so that a reader
 * sees one moment; `control` takes commands and answers on the same descriptor.
 *
 * Only who mounted, root, and the group that an option names may use them, whatever the
 * permissions of the mount: every open looks at the caller.
 *
 * Inode numbers: each directory has 32 of them, the first is its own. Place 0 is .shade, the
 * others are jobs/NAME; the last number of place 0 is jobs/ itself.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/threads.h"
#include "control/shade.h"

#define NUMBERS 32
#define JOBS_INO (SHADE_DIR_INO + NUMBERS - 1)

static_assert(SHADE_DIR_INO + NUMBERS * (SHADE_JOBS_MAX + 1) <= FIRST_NODE, "numbers suffice");

enum kind { KIND_TEXT, KIND_CONTROL, KIND_TRACE };

static const struct shade_file {
	const char *name;
	enum kind kind;
	void (*print)(struct front *front, uint32_t job, FILE *out);	 /* texts */
	void (*print_job)(struct front *front, uint32_t job, FILE *out); /* of a job's directory */
} files[] = {
	{ "control", KIND_CONTROL, NULL, NULL },
	{ "stats", KIND_TEXT, print_stats, print_job_stats },
	{ "scores", KIND_TEXT, print_scores, print_scores },
	{ "order", KIND_TEXT, print_order, print_order },
	{ "metrics", KIND_TEXT, print_metrics, NULL },
	{ "config", KIND_TEXT, print_config, NULL },
	{ "samples", KIND_TEXT, print_samples, NULL },
	{ "resident", KIND_TEXT, print_resident, NULL },
	{ "trace", KIND_TRACE, NULL, NULL },
};

#define FILES (sizeof(files) / sizeof(files[0]))

/* --- numbers ---------------------------------------------------------------------------------- */

static unsigned place_of(fuse_ino_t ino)
{
	return (unsigned)((ino - SHADE_DIR_INO) / NUMBERS);
}

static fuse_ino_t dir_of(unsigned place)
{
	return SHADE_DIR_INO + (fuse_ino_t)place * NUMBERS;
}

static bool is_dir(fuse_ino_t ino)
{
	return ino == JOBS_INO || ino == dir_of(place_of(ino));
}

static const struct shade_file *file_of(fuse_ino_t ino)
{
	return &files[ino - dir_of(place_of(ino)) - 1];
}

/* Whether the directory of a job has it, too. */
static bool is_of_job(const struct shade_file *file)
{
	return file->kind == KIND_CONTROL || file->print_job;
}

bool shade_is_dir(fuse_ino_t ino)
{
	return is_dir(ino);
}

/* --- who may ------------------------------------------------------------------------------------
 */

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

/* --- directories --------------------------------------------------------------------------------
 */

static struct stat stat_of(const struct front *front, fuse_ino_t ino)
{
	bool dir = is_dir(ino), group = front->options.group_name;
	mode_t mode = dir ? S_IFDIR | (group ? 0770 : 0700) : S_IFREG | (group ? 0660 : 0600);

	if (dir && ino != JOBS_INO)
		mode &= ~(mode_t)0020;
	if (!dir && file_of(ino)->kind != KIND_CONTROL)
		mode &= ~(mode_t)0222;
	return (struct stat){ .st_ino = ino,
			      .st_mode = mode,
			      .st_nlink = dir ? 2 : 1,
			      .st_uid = front->owner,
			      .st_gid = group ? front->options.group : 0 };
}

/* The place of a job, or 0. Jobs lock held. */
static unsigned find_job_locked(const struct front *front, const char *name)
{
	for (unsigned place = 1; place <= SHADE_JOBS_MAX; place++)
		if (!strcmp(front->jobs[place].name, name))
			return place;
	return 0;
}

/* The number of a name, or 0. */
static fuse_ino_t find_name(struct front *front, fuse_ino_t parent, const char *name)
{
	unsigned place = place_of(parent);

	if (parent == FUSE_ROOT_ID)
		return SHADE_DIR_INO;
	if (parent == JOBS_INO) {
		lock_acquire(&front->jobs_lock);
		place = *name ? find_job_locked(front, name) : 0;
		lock_release(&front->jobs_lock);
		return place ? dir_of(place) : 0;
	}
	if (parent == SHADE_DIR_INO && !strcmp(name, "jobs"))
		return JOBS_INO;
	for (size_t i = 0; is_dir(parent) && i < FILES; i++)
		if (!strcmp(files[i].name, name) && (!place || is_of_job(&files[i])))
			return parent + 1 + i;
	return 0;
}

static void reply_entry(struct front *front, fuse_req_t req, fuse_ino_t ino)
{
	struct fuse_entry_param entry = { .ino = ino, .attr = stat_of(front, ino) };

	/* Jobs come and go. */
	entry.attr_timeout = front->options.staleness_s;
	entry.entry_timeout = place_of(ino) ? 0 : front->options.staleness_s;
	fuse_reply_entry(req, &entry);
}

void shade_lookup(struct front *front, fuse_req_t req, fuse_ino_t parent, const char *name)
{
	fuse_ino_t ino = find_name(front, parent, name);

	if (ino)
		reply_entry(front, req, ino);
	else
		fuse_reply_err(req, ENOENT);
}

void shade_getattr(struct front *front, fuse_req_t req, fuse_ino_t ino)
{
	struct stat stat = stat_of(front, ino);

	fuse_reply_attr(req, &stat, front->options.staleness_s);
}

void shade_setattr(struct front *front, fuse_req_t req, fuse_ino_t ino, int what)
{
	if (what & ~(FUSE_SET_ATTR_SIZE | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_CTIME))
		fuse_reply_err(req, EROFS);
	else
		shade_getattr(front, req, ino);
}

/* The name of entry number `index` of a directory, and its number; NULL: no entry has
 * it. */
static const char *entry_name(const struct front *front, fuse_ino_t dir, unsigned index,
			      fuse_ino_t *ino)
{
	if (dir == JOBS_INO) {
		*ino = dir_of(index + 1);
		return *front->jobs[index + 1].name ? front->jobs[index + 1].name : NULL;
	}
	if (index == FILES) {
		*ino = JOBS_INO;
		return dir == SHADE_DIR_INO ? "jobs" : NULL;
	}
	*ino = dir + 1 + index;
	return dir == SHADE_DIR_INO || is_of_job(&files[index]) ? files[index].name : NULL;
}

void shade_readdir(struct front *front, fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		   bool plus)
{
	unsigned count = ino == JOBS_INO ? SHADE_JOBS_MAX : FILES + 1;
	char buffer[8192];
	size_t used = 0;

	if (size > sizeof(buffer))
		size = sizeof(buffer);
	lock_acquire(&front->jobs_lock);
	for (unsigned i = (unsigned)offset; i < count; i++) {
		struct fuse_entry_param entry = { 0 };
		fuse_ino_t number;
		const char *name = entry_name(front, ino, i, &number);
		size_t left = size - used, length;

		if (!name)
			continue;
		entry.attr = stat_of(front, number);
		length =
			plus ? fuse_add_direntry_plus(req, buffer + used, left, name, &entry, i + 1)
			     : fuse_add_direntry(req, buffer + used, left, name, &entry.attr,
						 i + 1);
		if (length > left)
			break;
		used += length;
	}
	lock_release(&front->jobs_lock);
	fuse_reply_buf(req, buffer, used);
}

/* --- jobs ---------------------------------------------------------------------------------------
 */

static int make_job_locked(struct front *front, const char *name, unsigned *place)
{
	int rc;

	if (strlen(name) >= sizeof(front->jobs[0].name))
		return -ENAMETOOLONG;
	if (find_job_locked(front, name))
		return -EEXIST;
	*place = find_job_locked(front, "");
	if (!*place)
		return -ENOSPC;
	rc = cache_job_begin(front->cache, &front->jobs[*place].id);
	if (!rc)
		strcpy(front->jobs[*place].name, name);
	return rc;
}

static int end_job_locked(struct front *front, const char *name)
{
	unsigned place = find_job_locked(front, name);

	if (!place)
		return -ENOENT;
	if (front->jobs[place].opens)
		return -EBUSY;
	*front->jobs[place].name = 0;
	return cache_job_end(front->cache, front->jobs[place].id);
}

void shade_mkdir(struct front *front, fuse_req_t req, fuse_ino_t parent, const char *name)
{
	unsigned place = 0;
	int rc = -EPERM;

	if (!may_use(front, req)) {
		rc = -EACCES;
	} else if (parent == JOBS_INO) {
		lock_acquire(&front->jobs_lock);
		rc = make_job_locked(front, name, &place);
		lock_release(&front->jobs_lock);
	}
	if (rc)
		fuse_reply_err(req, -rc);
	else
		reply_entry(front, req, dir_of(place));
}

void shade_rmdir(struct front *front, fuse_req_t req, fuse_ino_t parent, const char *name)
{
	int rc = -EPERM;

	if (!may_use(front, req)) {
		rc = -EACCES;
	} else if (parent == JOBS_INO) {
		lock_acquire(&front->jobs_lock);
		rc = end_job_locked(front, name);
		lock_release(&front->jobs_lock);
	}
	fuse_reply_err(req, -rc);
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
	if (handle->traces)
		trace_close(handle);
	lock_destroy(&handle->lock);
	free(handle->text);
	free(handle);
}

static int handle_fill(struct shade_handle *handle, const struct shade_file *file)
{
	FILE *out;

	if (file->kind == KIND_CONTROL) {
		handle->parser = control_parser_new(&shade_control_ops, handle);
		return handle->parser ? 0 : -ENOMEM;
	}
	if (file->kind == KIND_TRACE) {
		trace_open(handle);
		return 0;
	}
	out = open_memstream(&handle->text, &handle->size);
	if (!out)
		return -ENOMEM;
	(handle->place ? file->print_job : file->print)(handle->front, handle->job, out);
	return fclose(out) ? -ENOMEM : 0;
}

/* An open file keeps its job. */
static int handle_enter(struct shade_handle *handle, unsigned place)
{
	struct front *front = handle->front;
	int rc = 0;

	lock_acquire(&front->jobs_lock);
	if (place && !*front->jobs[place].name) {
		rc = -ENOENT;
	} else {
		handle->place = place;
		handle->job = place ? front->jobs[place].id : 0;
		front->jobs[place].opens++;
		handle->next = front->handles;
		handle->before = &front->handles;
		if (handle->next)
			handle->next->before = &handle->next;
		front->handles = handle;
	}
	lock_release(&front->jobs_lock);
	return rc;
}

static void handle_leave(struct shade_handle *handle)
{
	struct front *front = handle->front;

	lock_acquire(&front->jobs_lock);
	front->jobs[handle->place].opens--;
	*handle->before = handle->next;
	if (handle->next)
		handle->next->before = handle->before;
	lock_release(&front->jobs_lock);
}

void shade_close_all(struct front *front)
{
	while (front->handles) {
		struct shade_handle *handle = front->handles;

		handle_leave(handle);
		handle_free(handle);
	}
}

static int handle_new(struct front *front, fuse_ino_t ino, struct shade_handle **out)
{
	struct shade_handle *handle = calloc(1, sizeof(*handle));
	int rc;

	if (!handle)
		return -ENOMEM;
	handle->front = front;
	lock_init(&handle->lock, LOCK_HANDLE);
	rc = handle_enter(handle, place_of(ino));
	if (!rc) {
		rc = handle_fill(handle, file_of(ino));
		if (rc)
			handle_leave(handle);
	}
	if (rc)
		handle_free(handle);
	else
		*out = handle;
	return rc;
}

void shade_open(struct front *front, fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	const struct shade_file *file = file_of(ino);
	struct shade_handle *handle;
	int rc;

	if (!may_use(front, req) ||
	    (file->kind != KIND_CONTROL && (fi->flags & O_ACCMODE) != O_RDONLY)) {
		fuse_reply_err(req, EACCES);
		return;
	}
	rc = handle_new(front, ino, &handle);
	if (rc) {
		fuse_reply_err(req, -rc);
		return;
	}
	fi->fh = (uintptr_t)handle;
	fi->direct_io = 1;
	fi->nonseekable = file->kind != KIND_TEXT;
	if (fuse_reply_open(req, fi) == -ENOENT) {
		handle_leave(handle);
		handle_free(handle);
	}
}

/* What the handle has to say at `offset`, copied: once the kernel has its answer, a release
 * may free the handle. */
static char *copy_text(struct shade_handle *handle, size_t size, off_t offset, size_t *length)
{
	const char *text = handle->text;
	size_t left = (size_t)offset < handle->size ? handle->size - (size_t)offset : 0;
	char *copy;

	lock_acquire(&handle->lock);
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
	lock_release(&handle->lock);
	return copy;
}

void shade_read(struct front *front, fuse_req_t req, size_t size, off_t offset,
		struct fuse_file_info *fi)
{
	struct shade_handle *handle = handle_of(fi);
	size_t length;
	char *copy;

	(void)front;
	if (handle->traces) {
		trace_read(handle, req, size);
		return;
	}
	copy = copy_text(handle, size, offset, &length);
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
	lock_acquire(&handle->lock);
	rc = control_parser_write(handle->parser, data, size);
	handle->answered = false;
	lock_release(&handle->lock);
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
	handle_leave(handle);
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
		rc = cache_get_sample(front->cache, handle->job, id, &sample);
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
		lock_acquire(&handle->lock);
	if (!handle->parser) {
		rc = -ENOTTY;
	} else if (command == SHADE_IOCTL_SCORES && in_size == sizeof(struct shade_ioctl_scores)) {
		rc = control_parser_scores(handle->parser, in);
	} else if (command == SHADE_IOCTL_EPOCH && in_size == sizeof(struct shade_ioctl_epoch)) {
		rc = cache_epoch(front->cache, handle->job,
				 ((const struct shade_ioctl_epoch *)in)->epoch);
	} else if (command == SHADE_IOCTL_QUERY && in_size == sizeof(answer)) {
		memcpy(&answer, in, sizeof(answer));
		rc = query(front, handle, &answer);
		out_size = sizeof(answer);
	}
	if (handle->parser) {
		handle->answered = rc == -ENOTTY;
		lock_release(&handle->lock);
	}
	if (rc)
		fuse_reply_err(req, -rc);
	else
		fuse_reply_ioctl(req, 0, out_size ? &answer : NULL, out_size);
}
