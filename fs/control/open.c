/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Begin and end of control, and its open files: most texts are made at the open; what `samples`,
 * `control` and `trace` do is in names.c, apply.c and trace.c. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control/internal.h"

/* --- begin and end -----------------------------------------------------------------------------*/

int control_create(struct control **out, const struct control_options *options)
{
	const struct control_hooks *hooks = options->hooks;
	struct control *control = calloc(1, sizeof(*control));

	assert(options->cache && hooks->print_config && hooks->memory_bytes && hooks->rescan &&
	       hooks->upgrade && hooks->catch_up && hooks->accesses_lost);
	if (!control)
		return -ENOMEM;
	control->options = *options;
	control->mode = "portable";
	control->jobs[0].alive_ms = clock_now_ms();
	lock_init(&control->jobs_lock, LOCK_JOBS);
	lock_init(&control->claims_lock, LOCK_CLAIMS);
	lock_init(&control->report_lock, LOCK_REPORT);
	lock_init(&control->groups_lock, LOCK_GROUPS);
	lock_init(&control->trace_lock, LOCK_TRACE);
	if (options->is_successor && heirs_restore(control)) {
		control_destroy(control);
		return -ENOMEM;
	}
	*out = control;
	return 0;
}

void control_set_mode(struct control *control, const char *mode)
{
	control->mode = mode;
}

void control_stop(struct control *control)
{
	trace_end(control, true);
}

void control_tick(struct control *control)
{
	trace_tick(control);
	jobs_tick(control);
}

void open_free(struct control_file *file)
{
	if (file->holds_samples)
		cache_release_samples(file->control->options.cache);
	control_parser_free(file->parser);
	if (file->names)
		names_put(file->control, file->names);
	lock_destroy(&file->lock);
	heirs_drop(file);
	free(file->reply);
	free(file);
}

void open_end(struct control_file *file)
{
	if (file->entry->kind == ENTRY_TRACE)
		trace_close(file);
	if (file->entry->kind == ENTRY_CONTROL)
		groups_close(file);
	job_leave(file);
	open_free(file);
}

void control_close_all(struct control *control)
{
	trace_end(control, false);
	while (control->files) {
		struct control_file *file = control->files;

		open_end(file);
		assert(control->files != file);
	}
}

void control_destroy(struct control *control)
{
	if (!control)
		return;
	control_close_all(control);
	assert(!control->names && !control->quota.users);
	lock_destroy(&control->jobs_lock);
	lock_destroy(&control->claims_lock);
	lock_destroy(&control->report_lock);
	lock_destroy(&control->groups_lock);
	lock_destroy(&control->trace_lock);
	free(control);
}

/* --- open files --------------------------------------------------------------------------------*/

static int make_text(struct control_file *file)
{
	report *make = file->dir ? file->entry->job_report : file->entry->report;
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);
	int rc;

	if (!out)
		return -ENOMEM;
	rc = make(file->control, file->job, out);
	if (fclose(out))
		rc = -ENOMEM;
	if (!rc)
		file->text = heirs_new_text(file, text, size);
	free(text);
	return !rc && !file->text ? -ENOMEM : rc;
}

static int open_text(struct control_file *file)
{
	bool is_long = file->entry->kind == ENTRY_LONG_TEXT;
	int rc;

	/* One at a time: making it takes more memory than it has in the end. */
	if (is_long)
		lock_acquire(&file->control->report_lock);
	rc = make_text(file);
	if (is_long)
		lock_release(&file->control->report_lock);
	return rc ? rc : charge_bytes(file, file->text->size);
}

/* Before the scan there are no samples to show. */
static int open_samples(struct control_file *file)
{
	struct names *names;
	int rc = names_get(file->control, &names);

	if (rc)
		return rc == -EAGAIN ? 0 : rc;
	rc = charge_names(file, names);
	if (rc)
		names_put(file->control, names);
	return rc;
}

static int file_fill(struct control_file *file)
{
	switch (file->entry->kind) {
	case ENTRY_CONTROL:
		file->parser = control_parser_new(&apply_ops, file);
		return file->parser ? 0 : -ENOMEM;
	case ENTRY_TRACE:
		trace_open(file);
		return 0;
	case ENTRY_SAMPLES:
		return open_samples(file);
	default:
		return open_text(file);
	}
}

int control_open(struct control *control, const struct control_caller *caller, uint64_t ino,
		 bool writes, struct control_file **out)
{
	const struct entry *entry = entry_of(ino);
	struct control_file *file;
	int rc;

	if (caller->is_repeated && (*out = heirs_find_open(control, caller->request)))
		return 0;
	if (!caller_may_use(control, caller) || (writes && entry->kind != ENTRY_CONTROL))
		return -EACCES;
	control->options.hooks->catch_up(control->options.context);
	file = calloc(1, sizeof(*file));
	if (!file)
		return -ENOMEM;
	file->control = control;
	file->entry = entry;
	file->ino = ino;
	lock_init(&file->lock, LOCK_HANDLE);
	rc = job_enter(file, ino, caller);
	if (!rc) {
		rc = file_fill(file);
		if (rc)
			job_leave(file);
	}
	if (rc) {
		open_free(file);
		return rc;
	}
	if (entry->kind == ENTRY_CONTROL)
		job_claim(file, caller->thread, 0);
	rc = heirs_keep(file, caller);
	if (rc)
		open_end(file);
	else
		*out = file;
	return rc;
}

bool control_is_seekable(const struct control_file *file)
{
	return file->entry->kind != ENTRY_CONTROL && file->entry->kind != ENTRY_TRACE;
}

void control_close(struct control_file *file)
{
	if (heirs_close(file) && file->parser)
		apply_finish(file);
}

static char *copy_text(const struct control_file *file, uint64_t offset, size_t max, size_t *length)
{
	size_t size = file->text ? file->text->size : 0;
	size_t left = offset < size ? size - (size_t)offset : 0;
	char *copy;

	*length = left < max ? left : max;
	copy = malloc(*length + 1);
	if (copy && *length)
		memcpy(copy, file->text->bytes + offset, *length);
	return copy;
}

/* The list that a dead daemon had shown, if it can be made again. */
static int find_names(struct control_file *file)
{
	uint64_t wanted;
	int rc = 0;

	lock_acquire(&file->lock);
	wanted = file->names_wanted;
	if (wanted && !file->names)
		rc = open_samples(file);
	lock_release(&file->lock);
	if (!rc && wanted && (!file->names || names_version(file->names) != wanted))
		rc = -EIO;
	return rc;
}

static int copy_samples(struct control_file *file, const struct control_waiter *waiter, char **copy,
			size_t *length)
{
	int rc = find_names(file);

	if (rc)
		return rc;
	*copy = file->names ? names_copy(file->names, waiter->offset, waiter->size, length)
			    : calloc(1, 1);
	return 0;
}

/* Answers with a copy: once the reader has its answer, the file may be closed. */
void control_read(struct control_file *file, struct control_waiter *waiter)
{
	size_t length = 0;
	char *copy = NULL;
	int rc = 0;

	assert(waiter->answer && waiter->is_interrupted && waiter->caller);
	if (file->entry->kind == ENTRY_TRACE) {
		trace_read(file, waiter);
		return;
	}
	if (file->parser)
		rc = apply_take_answer(file, waiter->caller, waiter->size, &copy, &length);
	else if (file->entry->kind == ENTRY_SAMPLES)
		rc = copy_samples(file, waiter, &copy, &length);
	else
		copy = copy_text(file, waiter->offset, waiter->size, &length);
	if (!rc && !copy)
		rc = -ENOMEM;
	waiter->answer(waiter, rc, copy, rc ? 0 : length);
	free(copy);
}
