/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What open files count of their users' share: quota.h has the rule. */
#include <assert.h>
#include <errno.h>

#include "base/log.h"
#include "control/internal.h"

/* It grows with the data set, as orders and tables do. */
static uint64_t byte_limit(const struct control *control)
{
	return QUOTA_BYTES + QUOTA_BYTES_A_SAMPLE * cache_samples(control->options.cache);
}

static void tell_of_bytes(struct control *control, const struct control_file *file)
{
	if (!atomic_exchange(&control->told_of_bytes, true))
		log_say(LOG_WARNINGS,
			"user %u has texts, tables and unfinished orders open in .shade that take "
			"as much memory as one user may have",
			(unsigned)file->user->uid);
}

static int charge_locked(struct control_file *file, uint64_t bytes, uint64_t limit)
{
	struct control *control = file->control;
	int rc;

	lock_assert_held(&control->jobs_lock);
	rc = quota_change(&control->quota, file->user, file->bytes, bytes, limit);
	if (!rc)
		file->bytes = bytes;
	return rc;
}

int charge_bytes(struct control_file *file, uint64_t bytes)
{
	struct control *control = file->control;
	uint64_t limit = byte_limit(control);
	int rc;

	lock_acquire(&control->jobs_lock);
	rc = charge_locked(file, bytes, limit);
	lock_release(&control->jobs_lock);
	if (rc)
		tell_of_bytes(control, file);
	return rc;
}

void charge_set(struct control_file *file, uint64_t bytes)
{
	struct control *control = file->control;

	lock_acquire(&control->jobs_lock);
	quota_set(&control->quota, file->user, file->bytes, bytes);
	file->bytes = bytes;
	lock_release(&control->jobs_lock);
}

/* Another open file of the same user that shows the same list. */
static struct control_file *find_twin_locked(const struct control_file *file,
					     const struct names *names)
{
	struct control_file *twin = file->control->files;

	lock_assert_held(&file->control->jobs_lock);
	while (twin && (twin == file || twin->user != file->user || twin->names != names))
		twin = twin->next;
	return twin;
}

int charge_names(struct control_file *file, struct names *names)
{
	struct control *control = file->control;
	uint64_t limit = byte_limit(control);
	int rc = 0;

	lock_acquire(&control->jobs_lock);
	if (!find_twin_locked(file, names))
		rc = charge_locked(file, names_bytes(names), limit);
	if (!rc)
		file->names = names;
	lock_release(&control->jobs_lock);
	if (rc)
		tell_of_bytes(control, file);
	return rc;
}

void charge_end_locked(struct control_file *file)
{
	struct control_file *twin = file->names ? find_twin_locked(file, file->names) : NULL;

	lock_assert_held(&file->control->jobs_lock);
	if (twin) {
		twin->bytes += file->bytes;
		file->bytes = 0;
	}
	quota_close(&file->control->quota, file->user, file->bytes);
}
