/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The directory .shade: names, inode numbers, attributes, jobs, and who may use it.
 *
 * Only the user who mounted, root, and the group that an option names may use the files, whatever
 * the permissions of the mount: every open looks at the caller.
 *
 * Directories are numbered: 0 is .shade, then come jobs/NAME, then groups/NAME. Each has 32 inode
 * numbers, of which the first is its own; the last of directory 0 are jobs/ and groups/ themselves.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "control/internal.h"

#define NUMBERS 32
#define JOBS_INO (CONTROL_DIR + NUMBERS - 1)
#define GROUPS_INO (CONTROL_DIR + NUMBERS - 2)
#define FIRST_GROUP (JOBS_MAX + 1) /* the directory of group 0 */

static_assert(CONTROL_DIR + NUMBERS * (FIRST_GROUP + GROUPS_MAX) <= CONTROL_END, "numbers suffice");

static const struct entry entries[] = {
	{ "control", ENTRY_CONTROL, NULL, NULL },
	{ "stats", ENTRY_TEXT, report_stats, report_job_stats },
	{ "scores", ENTRY_LONG_TEXT, report_scores, report_scores },
	{ "order", ENTRY_LONG_TEXT, report_order, report_order },
	{ "metrics", ENTRY_TEXT, report_metrics, NULL },
	{ "config", ENTRY_TEXT, report_config, NULL },
	{ "samples", ENTRY_SAMPLES, NULL, NULL },
	{ "resident", ENTRY_LONG_TEXT, report_resident, NULL },
	{ "trace", ENTRY_TRACE, NULL, NULL },
	{ "epochs", ENTRY_TEXT, report_epochs, NULL },
	{ "history", ENTRY_LONG_TEXT, report_history, NULL },
	{ "refused", ENTRY_TEXT, report_refused, NULL },
	{ "predictions", ENTRY_TEXT, report_predictions, NULL },
};

#define ENTRIES (sizeof(entries) / sizeof(entries[0]))

/* In the directory of a group. */
static const struct entry group_entries[] = {
	{ "members", ENTRY_TEXT, NULL, report_group_members },
	{ "order", ENTRY_LONG_TEXT, NULL, report_group_order },
	{ "scores", ENTRY_LONG_TEXT, NULL, report_group_scores },
};

#define GROUP_ENTRIES (sizeof(group_entries) / sizeof(group_entries[0]))

static_assert(1 + ENTRIES < NUMBERS - 1, "each file of a directory has a number");

/* --- numbers -----------------------------------------------------------------------------------*/

static unsigned dir_of(uint64_t ino)
{
	assert(control_owns(ino));
	return (unsigned)((ino - CONTROL_DIR) / NUMBERS);
}

static uint64_t dir_ino(unsigned dir)
{
	return CONTROL_DIR + (uint64_t)dir * NUMBERS;
}

static bool is_group(unsigned dir)
{
	return dir >= FIRST_GROUP;
}

bool control_is_dir(uint64_t ino)
{
	return ino == JOBS_INO || ino == GROUPS_INO || ino == dir_ino(dir_of(ino));
}

bool control_is_of_job(uint64_t ino)
{
	return dir_of(ino) > 0;
}

const struct entry *entry_of(uint64_t ino)
{
	uint64_t number = ino - dir_ino(dir_of(ino));

	if (is_group(dir_of(ino))) {
		assert(number >= 1 && number <= GROUP_ENTRIES);
		return &group_entries[number - 1];
	}
	assert(number >= 1 && number <= ENTRIES);
	return &entries[number - 1];
}

static bool is_in(const struct entry *entry, unsigned dir)
{
	return !dir || entry->kind == ENTRY_CONTROL || entry->job_report;
}

static const struct entry *entries_in(unsigned dir, size_t *count)
{
	*count = is_group(dir) ? GROUP_ENTRIES : ENTRIES;
	return is_group(dir) ? group_entries : entries;
}

/* --- who may -----------------------------------------------------------------------------------*/

static bool is_in_group(const struct control_caller *caller, gid_t group)
{
	gid_t groups[256];
	int count;

	if (caller->gid == group)
		return true;
	count = caller->groups(caller->context, groups, 256);
	for (int i = 0; i < count && i < 256; i++)
		if (groups[i] == group)
			return true;
	return false;
}

bool caller_may_use(const struct control *control, const struct control_caller *caller)
{
	const struct control_options *options = &control->options;

	return caller->uid == options->owner || caller->uid == 0 ||
	       (options->has_group && is_in_group(caller, options->group));
}

/* --- names and attributes ----------------------------------------------------------------------*/

struct stat control_stat(const struct control *control, uint64_t ino)
{
	bool dir = control_is_dir(ino), group = control->options.has_group;
	mode_t mode = dir ? S_IFDIR | (group ? 0770 : 0700) : S_IFREG | (group ? 0660 : 0600);

	if (dir && ino != JOBS_INO)
		mode &= ~(mode_t)0020;
	if (!dir && entry_of(ino)->kind != ENTRY_CONTROL)
		mode &= ~(mode_t)0222;
	return (struct stat){ .st_ino = ino,
			      .st_mode = mode,
			      .st_nlink = dir ? 2 : 1,
			      .st_uid = control->options.owner,
			      .st_gid = group ? control->options.group : 0 };
}

/* The directory of a job, or 0. With an empty name: one that no job has. */
static unsigned find_job_locked(const struct control *control, const char *name)
{
	lock_assert_held(&control->jobs_lock);
	for (unsigned dir = 1; dir <= JOBS_MAX; dir++)
		if (!strcmp(control->jobs[dir].name, name))
			return dir;
	return 0;
}

static int lookup_group(struct control *control, const char *name, uint64_t *ino)
{
	unsigned group = 0;

	lock_acquire(&control->groups_lock);
	while (group < GROUPS_MAX && (!*name || strcmp(control->groups[group].name, name)))
		group++;
	lock_release(&control->groups_lock);
	*ino = dir_ino(FIRST_GROUP + group % GROUPS_MAX);
	return group < GROUPS_MAX ? 0 : -ENOENT;
}

static int lookup_job(struct control *control, const char *name, uint64_t *ino)
{
	unsigned dir;

	lock_acquire(&control->jobs_lock);
	dir = *name ? find_job_locked(control, name) : 0;
	lock_release(&control->jobs_lock);
	*ino = dir_ino(dir);
	return dir ? 0 : -ENOENT;
}

int control_lookup(struct control *control, uint64_t dir, const char *name, uint64_t *ino)
{
	const struct entry *found;
	size_t count;

	if (dir == JOBS_INO)
		return lookup_job(control, name, ino);
	if (dir == GROUPS_INO)
		return lookup_group(control, name, ino);
	*ino = JOBS_INO;
	if (dir == CONTROL_DIR && !strcmp(name, "jobs"))
		return 0;
	*ino = GROUPS_INO;
	if (dir == CONTROL_DIR && !strcmp(name, "groups"))
		return 0;
	found = entries_in(dir_of(dir), &count);
	for (size_t i = 0; control_is_dir(dir) && i < count; i++) {
		*ino = dir + 1 + i;
		if (!strcmp(found[i].name, name) && is_in(&found[i], dir_of(dir)))
			return 0;
	}
	return -ENOENT;
}

/* The name at a position of a directory, and its inode number. NULL: the position is empty. */
static const char *name_at_locked(const struct control *control, uint64_t dir, unsigned position,
				  uint64_t *ino)
{
	const struct entry *found;
	const char *name;
	size_t count;

	lock_assert_held(&control->jobs_lock);
	if (dir == JOBS_INO || dir == GROUPS_INO) {
		name = dir == JOBS_INO ? control->jobs[position + 1].name
				       : control->groups[position].name;
		*ino = dir_ino(position + (dir == JOBS_INO ? 1 : FIRST_GROUP));
		return *name ? name : NULL;
	}
	found = entries_in(dir_of(dir), &count);
	if (position >= count) {
		*ino = position == ENTRIES ? JOBS_INO : GROUPS_INO;
		if (dir != CONTROL_DIR)
			return NULL;
		return position == ENTRIES ? "jobs" : "groups";
	}
	*ino = dir + 1 + position;
	return is_in(&found[position], dir_of(dir)) ? found[position].name : NULL;
}

void control_list(struct control *control, uint64_t dir, uint64_t from,
		  bool (*entry)(void *context, const char *name, uint64_t ino, uint64_t next),
		  void *context)
{
	unsigned count = dir == JOBS_INO ? JOBS_MAX : dir == GROUPS_INO ? GROUPS_MAX : ENTRIES + 2;

	assert(control_is_dir(dir));
	lock_acquire(&control->jobs_lock);
	lock_acquire(&control->groups_lock);
	for (unsigned i = from < count ? (unsigned)from : count; i < count; i++) {
		uint64_t ino;
		const char *name = name_at_locked(control, dir, i, &ino);

		if (name && !entry(context, name, ino, i + 1))
			break;
	}
	lock_release(&control->groups_lock);
	lock_release(&control->jobs_lock);
}

/* --- jobs --------------------------------------------------------------------------------------*/

int job_make_locked(struct control *control, const char *name, unsigned *dir)
{
	int rc;

	lock_assert_held(&control->jobs_lock);
	if (strlen(name) >= sizeof(control->jobs[0].name))
		return -ENAMETOOLONG;
	if (strpbrk(name, "\t\n")) /* these end fields and lines where names are listed */
		return -EINVAL;
	if (find_job_locked(control, name))
		return -EEXIST;
	*dir = find_job_locked(control, "");
	if (!*dir && guess_make_way_locked(control))
		*dir = find_job_locked(control, "");
	if (!*dir)
		return -ENOSPC;
	rc = cache_job_begin(control->options.cache, &control->jobs[*dir].id);
	if (!rc)
		strcpy(control->jobs[*dir].name, name);
	control->jobs[*dir].alive_ms = clock_now_ms();
	control->jobs[*dir].guess = 0;
	if (!rc)
		heirs_keep_dir_locked(control, *dir);
	return rc;
}

static int remove_job_locked(struct control *control, const char *name)
{
	unsigned dir = find_job_locked(control, name);

	lock_assert_held(&control->jobs_lock);
	if (!dir)
		return -ENOENT;
	if (control->jobs[dir].opens)
		return -EBUSY;
	return job_end_locked(control, dir);
}

int control_make_job(struct control *control, const struct control_caller *caller, uint64_t parent,
		     const char *name, uint64_t *ino)
{
	unsigned dir = 0;
	int rc;

	assert(*name);
	if (!caller_may_use(control, caller))
		return -EACCES;
	if (parent != JOBS_INO)
		return -EPERM;
	lock_acquire(&control->jobs_lock);
	rc = job_make_locked(control, name, &dir);
	if (rc == -EEXIST && caller->is_repeated) {
		dir = find_job_locked(control, name);
		rc = 0;
	}
	lock_release(&control->jobs_lock);
	*ino = dir_ino(dir);
	return rc;
}

int control_remove_job(struct control *control, const struct control_caller *caller,
		       uint64_t parent, const char *name)
{
	int rc;

	assert(*name);
	if (!caller_may_use(control, caller))
		return -EACCES;
	if (parent != JOBS_INO)
		return -EPERM;
	lock_acquire(&control->jobs_lock);
	rc = remove_job_locked(control, name);
	if (rc == -ENOENT && caller->is_repeated)
		rc = 0;
	lock_release(&control->jobs_lock);
	return rc;
}

static bool mounts(const struct control *control, uid_t uid)
{
	return !uid || uid == control->options.owner;
}

/* Whether the job or the group of a directory is still there. */
static bool exists_locked(struct control *control, unsigned dir)
{
	bool exists;

	lock_assert_held(&control->jobs_lock);
	if (!is_group(dir))
		return !dir || *control->jobs[dir].name;
	lock_acquire(&control->groups_lock);
	exists = *control->groups[dir - FIRST_GROUP].name;
	lock_release(&control->groups_lock);
	return exists;
}

static int enter_locked(struct control_file *file, unsigned dir, uid_t uid)
{
	struct control *control = file->control;
	int rc;

	lock_assert_held(&control->jobs_lock);
	if (!exists_locked(control, dir))
		return -ENOENT;
	rc = quota_open(&control->quota, uid, mounts(control, uid), &file->user);
	if (rc)
		return rc;
	file->dir = dir;
	if (is_group(dir)) {
		file->job = dir - FIRST_GROUP;
	} else {
		file->job = dir ? control->jobs[dir].id : 0;
		control->jobs[dir].opens++;
		control->jobs[dir].controls += file->entry->kind == ENTRY_CONTROL;
	}
	file->next = control->files;
	file->before = &control->files;
	if (file->next)
		file->next->before = &file->next;
	control->files = file;
	return 0;
}

int job_enter(struct control_file *file, uint64_t ino, const struct control_caller *caller)
{
	struct control *control = file->control;
	int rc;

	lock_acquire(&control->jobs_lock);
	rc = enter_locked(file, dir_of(ino), caller->uid);
	lock_release(&control->jobs_lock);
	if (rc == -EMFILE && !atomic_exchange(&control->told_of_files, true))
		log_say(LOG_WARNINGS,
			"user %u has too many files of .shade open and gets no more of them",
			(unsigned)caller->uid);
	return rc;
}

void job_leave(struct control_file *file)
{
	struct control *control = file->control;

	job_unclaim(file);
	lock_acquire(&control->jobs_lock);
	if (!is_group(file->dir)) {
		assert(control->jobs[file->dir].opens);
		control->jobs[file->dir].opens--;
	}
	if (!is_group(file->dir) && file->entry->kind == ENTRY_CONTROL) {
		control->jobs[file->dir].controls--;
		control->jobs[file->dir].alive_ms = clock_now_ms();
	}
	*file->before = file->next;
	if (file->next)
		file->next->before = file->before;
	charge_end_locked(file);
	lock_release(&control->jobs_lock);
}
