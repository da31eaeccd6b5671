/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "control/heirs.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/estate.h"
#include "base/format.h"
#include "base/log.h"
#include "control/internal.h"

static_assert(CONTROL_DIRS == JOBS_MAX + 1, "each job has a directory");
static_assert((FILES_MAX & (FILES_MAX - 1)) == 0, "numbers end in a place");

static struct estate *estate_of(const struct control_file *file)
{
	return file->control->options.estate;
}

/* --- parts -------------------------------------------------------------------------------------*/

static struct kept_part *new_part(struct estate *estate, const void *bytes, size_t size)
{
	struct kept_part *part = estate_new(estate, sizeof(*part) + size);

	if (!part)
		return NULL;
	part->size = size;
	if (size)
		memcpy(part->bytes, bytes, size);
	estate_keep(part, ESTATE_PART);
	return part;
}

static void free_parts(struct estate *estate, struct kept_part *part)
{
	while (part) {
		struct kept_part *next = part->next;

		estate_free(estate, part);
		part = next;
	}
}

struct kept_part *heirs_new_text(struct control_file *file, const char *text, size_t size)
{
	return new_part(estate_of(file), text, size);
}

/* --- open files --------------------------------------------------------------------------------*/

static struct kept_state *state_of(const struct control_file *file)
{
	return &file->kept->states[atomic_load(&file->kept->current)];
}

/* A copy of the present state, to be changed and then to be the present one. */
static struct kept_state *change(struct control_file *file)
{
	struct kept_file *kept = file->kept;
	struct kept_state *next = &kept->states[!atomic_load(&kept->current)];

	*next = *state_of(file);
	return next;
}

static void commit(struct control_file *file)
{
	struct kept_file *kept = file->kept;

	atomic_store(&kept->current, !atomic_load(&kept->current));
}

/* The last bits of a number are the file's place, so that nobody has to search for it. */
static unsigned place_of(uint64_t number)
{
	return (unsigned)(number & (FILES_MAX - 1));
}

static int find_place_locked(const struct control *control, unsigned *place)
{
	lock_assert_held(&control->jobs_lock);
	for (unsigned i = 0; i < FILES_MAX; i++)
		if (!control->by_place[i]) {
			*place = i;
			return 0;
		}
	return -EMFILE;
}

static int give_number(struct control_file *file)
{
	struct control *control = file->control;
	unsigned place = 0;
	int rc;

	lock_acquire(&control->jobs_lock);
	rc = find_place_locked(control, &place);
	if (!rc) {
		uint64_t serial = atomic_fetch_add(&control->options.heritage->numbers, 1) + 1;

		file->number = serial * FILES_MAX + place;
		control->by_place[place] = file;
	}
	lock_release(&control->jobs_lock);
	return rc;
}

static void lose_number(struct control_file *file)
{
	struct control *control = file->control;

	lock_acquire(&control->jobs_lock);
	if (control->by_place[place_of(file->number)] == file)
		control->by_place[place_of(file->number)] = NULL;
	lock_release(&control->jobs_lock);
}

struct control_file *control_find(struct control *control, uint64_t number)
{
	struct control_file *file;

	lock_acquire(&control->jobs_lock);
	file = control->by_place[place_of(number)];
	if (file && file->number != number)
		file = NULL;
	if (file)
		file->users++;
	lock_release(&control->jobs_lock);
	return file;
}

void control_put(struct control_file *file)
{
	struct control *control = file->control;
	bool is_last;

	lock_acquire(&control->jobs_lock);
	is_last = --file->users == 0 && file->is_closed;
	lock_release(&control->jobs_lock);
	if (is_last)
		open_end(file);
}

bool heirs_close(struct control_file *file)
{
	struct control *control = file->control;
	bool is_first;

	lock_acquire(&control->jobs_lock);
	is_first = !file->is_closed;
	file->is_closed = true;
	control->by_place[place_of(file->number)] = NULL;
	lock_release(&control->jobs_lock);
	return is_first;
}

uint64_t control_number(const struct control_file *file)
{
	return file->number;
}

int heirs_keep(struct control_file *file, const struct control_caller *caller)
{
	struct kept_file *kept = estate_new(estate_of(file), sizeof(*kept));
	int rc;

	if (!kept)
		return -ENOMEM;
	kept->opened_by = caller->request;
	file->kept = kept;
	file->users = 1; /* who opens it */
	rc = give_number(file);
	if (rc) {
		file->kept = NULL;
		estate_free(estate_of(file), kept);
		return rc;
	}
	kept->number = file->number;
	kept->ino = file->ino;
	kept->uid = caller->uid;
	kept->claims = file->claims;
	kept->process = file->process;
	kept->names_version = file->names ? names_version(file->names) : 0;
	kept->text = file->text;
	estate_keep(kept, ESTATE_OPEN);
	return 0;
}

void heirs_drop(struct control_file *file)
{
	struct kept_file *kept = file->kept;
	struct kept_part *table = NULL, *writes = NULL;

	if (kept) {
		table = state_of(file)->table;
		writes = state_of(file)->first_part;
		if (state_of(file)->last_part)
			state_of(file)->last_part->next = NULL;
		lose_number(file);
	}
	estate_free(estate_of(file), kept);
	free_parts(estate_of(file), table);
	free_parts(estate_of(file), writes);
	free_parts(estate_of(file), file->text);
}

struct control_file *heirs_find_open(struct control *control, uint64_t request)
{
	struct control_file *found = NULL;

	lock_acquire(&control->jobs_lock);
	for (unsigned i = 0; i < FILES_MAX && !found; i++)
		if (control->by_place[i] && control->by_place[i]->kept->opened_by == request)
			found = control->by_place[i];
	if (found)
		found->users++;
	lock_release(&control->jobs_lock);
	return found;
}

/* --- the file `control` ------------------------------------------------------------------------*/

bool heirs_was_written(const struct control_file *file, const struct control_caller *caller,
		       int *rc)
{
	lock_assert_held(&file->lock);
	*rc = state_of(file)->rc;
	return caller->is_repeated && state_of(file)->written_by == caller->request;
}

bool heirs_was_read(const struct control_file *file, const struct control_caller *caller)
{
	lock_assert_held(&file->lock);
	return caller->is_repeated && state_of(file)->read_by == caller->request;
}

void heirs_read(struct control_file *file, uint64_t request)
{
	struct kept_state *next = change(file);

	lock_assert_held(&file->lock);
	next->read_by = request;
	next->is_answered = file->answered;
	next->has_reply = file->reply;
	commit(file);
}

/* Nothing is unfinished, so the writes before do not matter any more, and the table is what the
 * parser has. */
static int keep_finished(struct control_file *file, struct kept_state *next)
{
	uint32_t count;
	const uint32_t *table = control_parser_table(file->parser, &count);

	next->first_part = next->last_part = NULL;
	if (file->has_new_table)
		next->table =
			table ? new_part(estate_of(file), table, count * sizeof(*table)) : NULL;
	file->has_new_table = false;
	file->kept_bytes = next->table ? next->table->size : 0;
	return table && !next->table ? -ENOMEM : 0;
}

/* One more write, of no bytes: what was unfinished before is forgotten. The present state does not
 * reach as far as the new part. */
static int keep_write(struct control_file *file, struct kept_state *next, const void *data,
		      size_t size)
{
	struct kept_part *part = new_part(estate_of(file), data, size);

	if (!part)
		return -ENOMEM;
	if (next->last_part) {
		free_parts(estate_of(file), next->last_part->next);
		next->last_part->next = part;
	} else {
		next->first_part = part;
	}
	next->last_part = part;
	file->kept_bytes += sizeof(*part) + size;
	return 0;
}

static void free_what_was(struct control_file *file, const struct kept_state *before)
{
	const struct kept_state *now = state_of(file);

	if (before->table != now->table)
		free_parts(estate_of(file), before->table);
	if (before->first_part != now->first_part)
		free_parts(estate_of(file), before->first_part);
}

/* Without memory a successor does not know the file: its writer then gets an error. */
static void keep_state(struct control_file *file, struct kept_state *next, const void *data,
		       size_t size)
{
	struct kept_state before = *state_of(file);
	int rc = control_parser_is_unfinished(file->parser) ? keep_write(file, next, data, size)
							    : keep_finished(file, next);

	if (rc) {
		log_say(LOG_WARNINGS, "no memory to keep what was written to .shade/control");
		next->is_lost = true;
		next->table = next->first_part = next->last_part = NULL;
	}
	next->is_answered = file->answered;
	next->has_reply = file->reply;
	strcpy(next->answer, control_parser_answer(file->parser));
	commit(file);
	free_what_was(file, &before);
}

void heirs_wrote(struct control_file *file, uint64_t request, const void *data, size_t size, int rc)
{
	struct kept_state *next = change(file);

	lock_assert_held(&file->lock);
	next->written_by = request;
	next->rc = rc;
	file->has_new_table |= !rc && control_parser_has_new_table(file->parser);
	keep_state(file, next, data, rc ? 0 : size);
}

void heirs_finished(struct control_file *file, int rc)
{
	lock_assert_held(&file->lock);
	keep_state(file, change(file), "\n", rc ? 0 : 1);
}

void heirs_joined(struct control_file *file, const char *group)
{
	struct kept_state *next = change(file);

	lock_assert_held(&file->lock);
	strcpy(next->group, group);
	commit(file);
}

/* --- jobs --------------------------------------------------------------------------------------*/

void heirs_keep_dir_locked(struct control *control, unsigned dir)
{
	struct control_heritage *heritage = control->options.heritage;

	lock_assert_held(&control->jobs_lock);
	atomic_store(&heritage->dirs[dir].is_there, false);
	if (!*control->jobs[dir].name)
		return;
	heritage->dirs[dir].job = control->jobs[dir].id;
	heritage->dirs[dir].guess = control->jobs[dir].guess;
	strcpy(heritage->dirs[dir].name, control->jobs[dir].name);
	atomic_store(&heritage->dirs[dir].is_there, true);
}

static bool has_dir_locked(const struct control *control, uint32_t job)
{
	lock_assert_held(&control->jobs_lock);
	for (unsigned dir = 1; dir <= JOBS_MAX; dir++)
		if (*control->jobs[dir].name && control->jobs[dir].id == job)
			return true;
	return false;
}

static void restore_dir_locked(struct control *control, unsigned dir, uint64_t now_ms)
{
	const struct control_heritage *heritage = control->options.heritage;
	struct sched_job_stats stats;

	lock_assert_held(&control->jobs_lock);
	if (!atomic_load(&heritage->dirs[dir].is_there) ||
	    cache_job_stats(control->options.cache, heritage->dirs[dir].job, &stats))
		return;
	control->jobs[dir].id = heritage->dirs[dir].job;
	control->jobs[dir].guess = heritage->dirs[dir].guess;
	control->jobs[dir].alive_ms = now_ms;
	strcpy(control->jobs[dir].name, heritage->dirs[dir].name);
}

/* A daemon may have died between the begin of a job and that of its directory, or their ends. */
static void restore_dirs(struct control *control)
{
	uint64_t now_ms = clock_now_ms();

	lock_acquire(&control->jobs_lock);
	control->guesses = atomic_load(&control->options.heritage->guesses);
	control->inherited_guesses = control->guesses;
	for (unsigned dir = 1; dir <= JOBS_MAX; dir++)
		restore_dir_locked(control, dir, now_ms);
	for (uint32_t job = 1; job < SCHED_JOBS_MAX; job++)
		if (!has_dir_locked(control, job))
			(void)cache_job_end(control->options.cache, job);
	lock_release(&control->jobs_lock);
}

/* --- the begin of a successor ------------------------------------------------------------------*/

static void use_parts(struct kept_part *part, const struct kept_part *last)
{
	for (; part; part = part == last ? NULL : part->next)
		part->is_used = true;
}

/* What a daemon had kept for a file that it had not kept yet, or not any more. */
static void free_unused_parts(struct estate *estate)
{
	struct kept_part *part = NULL;
	struct kept_file *kept = NULL;

	while ((part = estate_next(estate, ESTATE_PART, part)))
		part->is_used = false;
	while ((kept = estate_next(estate, ESTATE_OPEN, kept))) {
		struct kept_state *state = &kept->states[atomic_load(&kept->current)];

		use_parts(kept->text, kept->text);
		use_parts(state->table, state->table);
		use_parts(state->first_part, state->last_part);
		if (state->last_part)
			state->last_part->next = NULL;
	}
	while ((part = estate_next(estate, ESTATE_PART, part)))
		if (!part->is_used)
			estate_free(estate, part);
}

/* The parser is as it was: it has the table, and has read what is not complete. */
static int restore_parser(struct control_file *file, const struct kept_state *state)
{
	const struct kept_part *table = state->table;
	int rc = 0;

	file->parser = control_parser_new(&apply_ops, file);
	if (!file->parser)
		return -ENOMEM;
	if (state->is_lost)
		return -EIO;
	if (table) {
		cache_hold_samples(file->control->options.cache);
		file->holds_samples = true;
		rc = control_parser_set_table(file->parser, (const uint32_t *)table->bytes,
					      (uint32_t)(table->size / sizeof(uint32_t)));
		file->kept_bytes = table->size;
	}
	for (const struct kept_part *part = state->first_part; part && !rc; part = part->next) {
		rc = control_parser_replay(file->parser, part->bytes, part->size);
		file->kept_bytes += sizeof(*part) + part->size;
	}
	control_parser_set_answer(file->parser, state->answer);
	file->answered = state->is_answered;
	file->reply_is_lost = state->has_reply;
	return rc;
}

static int restore_kind(struct control_file *file)
{
	const struct kept_file *kept = file->kept;
	int rc = 0;

	switch (file->entry->kind) {
	case ENTRY_CONTROL:
		rc = restore_parser(file, state_of(file));
		if (!rc && kept->claims)
			job_claim(file, kept->process.pid, kept->process.start);
		return rc ? rc : charge_bytes(file, apply_bytes(file));
	case ENTRY_TRACE:
		trace_open(file);
		return 0;
	case ENTRY_SAMPLES:
		file->names_wanted = kept->names_version;
		return 0;
	default:
		return charge_bytes(file, file->text ? file->text->size : 0);
	}
}

static int restore_file(struct control *control, struct kept_file *kept)
{
	struct control_file *file = calloc(1, sizeof(*file));
	struct control_caller caller = { .uid = kept->uid };
	int rc;

	if (!file)
		return -ENOMEM;
	*file = (struct control_file){ .control = control,
				       .entry = entry_of(kept->ino),
				       .ino = kept->ino,
				       .number = kept->number,
				       .text = kept->text,
				       .kept = kept };
	lock_init(&file->lock, LOCK_HANDLE);
	rc = job_enter(file, kept->ino, &caller);
	if (rc) {
		open_free(file);
		return rc;
	}
	control->by_place[place_of(file->number)] = file;
	rc = restore_kind(file);
	if (rc)
		open_end(file);
	return rc;
}

/* A group that its job has said to be in: it has no order yet, and the next one is drawn anew. */
static void rejoin(struct control_file *file)
{
	const struct kept_state *state = state_of(file);

	if (file->entry->kind == ENTRY_CONTROL && *state->group)
		(void)groups_join(file, state->group);
}

int heirs_restore(struct control *control)
{
	struct estate *estate = control->options.estate;
	struct kept_file *kept = NULL;

	restore_dirs(control);
	free_unused_parts(estate);
	while ((kept = estate_next(estate, ESTATE_OPEN, kept))) {
		int rc = restore_file(control, kept);

		if (rc)
			log_say(LOG_ERRORS, "an open file of .shade is lost: %s", strerror(-rc));
		if (rc == -ENOMEM)
			return rc;
	}
	for (struct control_file *file = control->files; file; file = file->next)
		rejoin(file);
	return 0;
}

const struct format_line control_format[] = { FORMAT_SIZE(struct control_heritage),
					      FORMAT_FIELD(struct control_heritage, dirs),
					      FORMAT_NUMBER(FILES_MAX),
					      FORMAT_SIZE(struct kept_file),
					      FORMAT_FIELD(struct kept_file, ino),
					      FORMAT_FIELD(struct kept_file, process),
					      FORMAT_FIELD(struct kept_file, names_version),
					      FORMAT_FIELD(struct kept_file, text),
					      FORMAT_FIELD(struct kept_file, states),
					      FORMAT_SIZE(struct kept_state),
					      FORMAT_FIELD(struct kept_state, is_answered),
					      FORMAT_FIELD(struct kept_state, table),
					      FORMAT_FIELD(struct kept_state, group),
					      FORMAT_FIELD(struct kept_state, answer),
					      FORMAT_FIELD(struct kept_part, bytes),
					      FORMAT_END };
