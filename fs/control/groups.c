/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Groups of trainings: what members say on their own `control`, and the texts of .shade/groups.
 * group.h has the rules.
 *
 * A job is in a group as long as the descriptor is open that has said so; so a training that dies
 * is forgotten when the kernel closes its files, and its orders with it: nothing is kept for it.
 * Orders are kept as slots, which mean the same files whatever is scanned meanwhile, and are
 * translated into the ids of whoever reads them.
 */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "control/internal.h"

#define FIRST_MAX ((uint64_t)1 << 62)

static_assert(GROUP_MEMBERS == SCHED_JOBS_MAX, "a member is a job");

static struct cache *cache_of(const struct control *control)
{
	return control->options.cache;
}

/* --- who is in which ----------------------------------------------------------------------------
 */

/* The group of that name; with an empty name a free one. */
static struct group *find_named_locked(struct control *control, const char *name)
{
	lock_assert_held(&control->groups_lock);
	for (unsigned i = 0; i < GROUPS_MAX; i++)
		if (!strcmp(control->groups[i].name, name))
			return &control->groups[i];
	return NULL;
}

static struct group *find_of_job_locked(struct control *control, uint32_t job)
{
	lock_assert_held(&control->groups_lock);
	for (unsigned i = 0; i < GROUPS_MAX; i++)
		if (*control->groups[i].name && control->groups[i].members[job].is_in)
			return &control->groups[i];
	return NULL;
}

static void leave_locked(struct control *control, uint32_t job)
{
	struct group *group = find_of_job_locked(control, job);

	lock_assert_held(&control->groups_lock);
	control->speakers[job] = NULL;
	if (!group || group_leave(group, job))
		return;
	group_clear(group);
	cache_release_samples(cache_of(control));
}

static void join_locked(struct control_file *file, const char *name)
{
	struct control *control = file->control;
	struct group *group = find_named_locked(control, name);

	lock_assert_held(&control->groups_lock);
	if (find_of_job_locked(control, file->job) != group)
		leave_locked(control, file->job);
	if (!group) {
		group = find_named_locked(control, "");
		assert(group); /* each has a member, and a job is in one at most */
		strcpy(group->name, name);
		cache_hold_samples(cache_of(control));
	}
	group_join(group, file->job);
	control->speakers[file->job] = file;
}

int groups_join(struct control_file *file, const char *name)
{
	struct control *control = file->control;

	if (!file->job)
		return -EPERM;
	lock_acquire(&control->groups_lock);
	if (*name)
		join_locked(file, name);
	else
		leave_locked(control, file->job);
	lock_release(&control->groups_lock);
	return 0;
}

void groups_close(struct control_file *file)
{
	struct control *control = file->control;
	bool speaks;

	lock_acquire(&control->groups_lock);
	speaks = control->speakers[file->job] == file;
	if (speaks)
		leave_locked(control, file->job);
	lock_release(&control->groups_lock);
	if (speaks)
		(void)cache_drop_orders(cache_of(control), file->job);
}

/* --- epochs and orders --------------------------------------------------------------------------
 */

/* How far each member has got, by what its job has read. */
static void look_locked(struct control *control, struct group *group)
{
	lock_assert_held(&control->groups_lock);
	for (uint32_t job = 0; job < GROUP_MEMBERS; job++) {
		struct group_member *member = &group->members[job];
		struct sched_job_stats stats;

		if (!member->has_begun || cache_job_stats(cache_of(control), job, &stats))
			continue;
		member->read = stats.epoch == member->own_epoch ? stats.order_read : 0;
	}
}

static uint32_t reach_locked(struct control *control, const struct group *group)
{
	const struct group_order *order = &group->orders[0];

	lock_assert_held(&control->groups_lock);
	return group->order_count ? cache_reach(cache_of(control), order->ids, order->count) : 0;
}

static int begin_locked(struct control_file *file, struct shade_ioctl_group *turn)
{
	struct control *control = file->control;
	struct group *group = find_of_job_locked(control, file->job);
	struct group_place begin;
	int rc;

	lock_assert_held(&control->groups_lock);
	if (!group)
		return -ENXIO;
	look_locked(control, group);
	rc = group_begin(group, file->job, turn->epoch, turn->first, reach_locked(control, group),
			 &begin);
	if (rc)
		return rc;
	turn->first = begin.epoch;
	turn->offset = begin.position;
	return 0;
}

int groups_begin(struct control_file *file, struct shade_ioctl_group *turn)
{
	struct control *control = file->control;
	int rc;

	if (turn->first >= FIRST_MAX)
		return -EINVAL;
	lock_acquire(&control->groups_lock);
	rc = begin_locked(file, turn);
	lock_release(&control->groups_lock);
	return rc;
}

static void *copy_of(const void *words, uint32_t count)
{
	void *copy = malloc(((size_t)count + 1) * sizeof(uint32_t));

	if (copy)
		memcpy(copy, words, count * sizeof(uint32_t));
	return copy;
}

int groups_put(struct control_file *file, uint64_t epoch, const uint32_t *ids, const float *weights,
	       uint32_t count)
{
	struct control *control = file->control;
	struct group_order order = { epoch, count, copy_of(ids, count), NULL };
	struct group *group;
	int rc = -ENOMEM;

	if (weights)
		order.weights = copy_of(weights, count);
	if (order.ids && (order.weights || !weights))
		rc = count ? cache_slots(cache_of(control), order.ids, count) : -EINVAL;
	if (rc) {
		free(order.ids);
		free(order.weights);
		return rc;
	}
	lock_acquire(&control->groups_lock);
	group = find_of_job_locked(control, file->job);
	if (group) {
		rc = group_put(group, &order);
	} else {
		rc = -ENXIO;
		free(order.ids);
		free(order.weights);
	}
	lock_release(&control->groups_lock);
	return rc;
}

/* --- what is read on a descriptor ---------------------------------------------------------------
 */

/* From slots to the ids of a descriptor. If several of them mean one file, they take turns: so an
 * order that has the file as often has each of them. */
struct inverse {
	uint32_t *first; /* by slot: the id that is next; ID_NOWHERE */
	uint32_t *next;	 /* by id: the one after it, in a circle */
	uint32_t limit;	 /* slots are below this */
};

#define ID_NOWHERE UINT32_MAX

static void inverse_free(struct inverse *inverse)
{
	free(inverse->first);
	free(inverse->next);
}

static int inverse_make(struct inverse *inverse, const uint32_t *slots, uint32_t count)
{
	*inverse = (struct inverse){ 0 };
	for (uint32_t id = 0; id < count; id++)
		if (slots[id] >= inverse->limit)
			inverse->limit = slots[id] + 1;
	inverse->first = malloc(((size_t)inverse->limit + 1) * sizeof(uint32_t));
	inverse->next = malloc(((size_t)count + 1) * sizeof(uint32_t));
	if (!inverse->first || !inverse->next) {
		inverse_free(inverse);
		return -ENOMEM;
	}
	memset(inverse->first, 0xff, inverse->limit * sizeof(uint32_t)); /* ID_NOWHERE */
	for (uint32_t id = 0; id < count; id++) {
		uint32_t *first = &inverse->first[slots[id]];

		/* `first` is the last one while the circle grows. */
		inverse->next[id] = *first == ID_NOWHERE ? id : inverse->next[*first];
		if (*first != ID_NOWHERE)
			inverse->next[*first] = id;
		*first = id;
	}
	for (uint32_t slot = 0; slot < inverse->limit; slot++)
		if (inverse->first[slot] != ID_NOWHERE)
			inverse->first[slot] = inverse->next[inverse->first[slot]];
	return 0;
}

static uint32_t inverse_take(struct inverse *inverse, uint32_t slot)
{
	uint32_t id = slot < inverse->limit ? inverse->first[slot] : ID_NOWHERE;

	if (id != ID_NOWHERE)
		inverse->first[slot] = inverse->next[id];
	return id;
}

/* Slots become ids of the descriptor, in place. */
static int translate(struct control_file *file, uint32_t *slots, uint32_t count)
{
	struct cache *cache = cache_of(file->control);
	struct inverse inverse;
	uint32_t table_count, *table_slots;
	const uint32_t *table = control_parser_table(file->parser, &table_count);
	int rc;

	if (!table) {
		cache_ids(cache, slots, count);
		return 0;
	}
	table_slots = copy_of(table, table_count);
	rc = table_slots ? cache_slots(cache, table_slots, table_count) : -ENOMEM;
	if (!rc)
		rc = inverse_make(&inverse, table_slots, table_count);
	free(table_slots);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < count; i++)
		slots[i] = inverse_take(&inverse, slots[i]);
	inverse_free(&inverse);
	return 0;
}

/* Makes room for a record that is read next. NULL: no memory. */
static unsigned char *new_reply(struct control_file *file, size_t size)
{
	lock_assert_held(&file->lock);
	apply_drop_reply(file);
	file->reply = malloc(size);
	file->reply_size = file->reply ? size : 0;
	return file->reply;
}

/* The reply counts as the user's, or there is none. */
static int charge_reply(struct control_file *file)
{
	int rc = charge_bytes(file, apply_bytes(file));

	lock_assert_held(&file->lock);
	if (rc)
		apply_drop_reply(file);
	return rc;
}

static struct shade_record head_of(uint16_t type, size_t record_bytes)
{
	return (struct shade_record){
		.magic = htole32(SHADE_RECORD_MAGIC),
		.version = htole16(SHADE_RECORD_VERSION),
		.type = htole16(type),
		.payload_bytes = htole64(record_bytes - sizeof(struct shade_record)),
	};
}

/* The arrays of the reply come after `head` bytes, and begin with `count` slots: these become
 * ids. */
static int finish_reply(struct control_file *file, size_t head, uint32_t count)
{
	uint32_t *words = (uint32_t *)(file->reply + head);
	int rc = translate(file, words, count);

	lock_assert_held(&file->lock);
	if (!rc)
		rc = charge_reply(file);
	if (rc) {
		apply_drop_reply(file);
		return rc;
	}
	for (size_t i = 0; i < (file->reply_size - head) / sizeof(*words); i++)
		words[i] = htole32(words[i]);
	return 0;
}

/* The reply has the slots of the order, and `*count` is how many. */
static int copy_order_locked(struct control_file *file, uint64_t epoch, uint32_t *count)
{
	struct control *control = file->control;
	const struct group *group = find_of_job_locked(control, file->job);
	const struct group_order *order = group ? group_find(group, epoch) : NULL;
	struct shade_record_order record;
	unsigned char *reply;
	size_t words;

	lock_assert_held(&control->groups_lock);
	if (!order)
		return group ? -ENOENT : -ENXIO;
	*count = order->count;
	words = order->count * sizeof(*order->ids);
	reply = new_reply(file, sizeof(record) + words * (order->weights ? 2 : 1));
	if (!reply)
		return -ENOMEM;
	record = (struct shade_record_order){
		.head = head_of(SHADE_RECORD_SHARED, file->reply_size),
		.epoch = htole64(epoch),
		.count = htole64(order->count),
	};
	memcpy(reply, &record, sizeof(record));
	memcpy(reply + sizeof(record), order->ids, words);
	if (order->weights)
		memcpy(reply + sizeof(record) + words, order->weights, words);
	return 0;
}

int groups_read_order(struct control_file *file, uint64_t epoch)
{
	struct control *control = file->control;
	uint32_t count = 0;
	int rc;

	lock_acquire(&control->groups_lock);
	rc = copy_order_locked(file, epoch, &count);
	lock_release(&control->groups_lock);
	return rc ? rc : finish_reply(file, sizeof(struct shade_record_order), count);
}

/* The jobs of the group, a bit for each; 0: there is no such group. */
static uint32_t members_locked(const struct control *control, const struct group *group)
{
	uint32_t jobs = 0;

	lock_assert_held(&control->groups_lock);
	for (uint32_t job = 0; group && job < GROUP_MEMBERS; job++)
		jobs |= (uint32_t)group->members[job].is_in << job;
	return jobs;
}

/* Moves those that have an importance to the front: their slots and theirs. */
static uint32_t pick_known(float *importance, uint32_t count, uint32_t *slots)
{
	uint32_t known = 0;

	for (uint32_t slot = 0; slot < count; slot++)
		if (importance[slot] >= 0) {
			slots[known] = slot;
			importance[known++] = importance[slot];
		}
	return known;
}

/* By slot: `*slots` and `*importance`, to be freed. */
static int find_importance(struct control *control, uint32_t jobs, uint32_t **slots,
			   float **importance, uint32_t *count)
{
	int rc = cache_importance(cache_of(control), jobs, importance, count);

	*slots = NULL;
	if (rc)
		return rc;
	*slots = malloc(((size_t)*count + 1) * sizeof(**slots));
	if (!*slots) {
		free(*importance);
		return -ENOMEM;
	}
	*count = pick_known(*importance, *count, *slots);
	return 0;
}

static int reply_scores(struct control_file *file, const uint32_t *slots, const float *values,
			uint32_t count)
{
	struct shade_record_scores record = {
		.head = head_of(SHADE_RECORD_SCORES, sizeof(record) + (size_t)count * 8),
		.count = htole64(count),
	};
	size_t words = (size_t)count * sizeof(*slots);
	unsigned char *reply = new_reply(file, sizeof(record) + 2 * words);

	if (!reply)
		return -ENOMEM;
	memcpy(reply, &record, sizeof(record));
	memcpy(reply + sizeof(record), slots, words);
	memcpy(reply + sizeof(record) + words, values, words);
	return finish_reply(file, sizeof(record), count);
}

int groups_read_importance(struct control_file *file)
{
	struct control *control = file->control;
	uint32_t jobs, count, *slots;
	float *importance;
	int rc;

	lock_acquire(&control->groups_lock);
	jobs = members_locked(control, find_of_job_locked(control, file->job));
	lock_release(&control->groups_lock);
	if (!jobs)
		return -ENXIO;
	rc = find_importance(control, jobs, &slots, &importance, &count);
	if (rc)
		return rc;
	rc = reply_scores(file, slots, importance, count);
	free(slots);
	free(importance);
	return rc;
}

/* --- texts --------------------------------------------------------------------------------------
 */

struct job_names {
	char names[GROUP_MEMBERS][sizeof(((struct control *)0)->jobs[0].name)];
};

static void get_names(struct control *control, struct job_names *found)
{
	*found = (struct job_names){ 0 };
	lock_acquire(&control->jobs_lock);
	for (unsigned dir = 1; dir <= JOBS_MAX; dir++)
		if (*control->jobs[dir].name)
			strcpy(found->names[control->jobs[dir].id], control->jobs[dir].name);
	lock_release(&control->jobs_lock);
}

int report_group_members(struct control *control, uint32_t number, FILE *out)
{
	struct group *group = &control->groups[number];
	struct job_names jobs;

	get_names(control, &jobs);
	lock_acquire(&control->groups_lock);
	look_locked(control, group);
	for (uint32_t job = 0; job < GROUP_MEMBERS; job++) {
		const struct group_member *member = &group->members[job];
		struct group_place place = group_where(group, job);

		if (!member->is_in)
			continue;
		if (member->has_begun)
			fprintf(out, "%s\t%" PRIu64 "\t%" PRIu32 "\t%" PRIu32 "\n", jobs.names[job],
				place.epoch, place.position, member->begin.position);
		else
			fprintf(out, "%s\t-\t-\t-\n", jobs.names[job]);
	}
	lock_release(&control->groups_lock);
	return 0;
}

static int copy_kept(struct control *control, uint32_t number, struct group_order *kept)
{
	const struct group *group = &control->groups[number];
	int rc = 0;

	lock_acquire(&control->groups_lock);
	for (uint32_t i = 0; i < group->order_count; i++) {
		kept[i] = group->orders[i];
		kept[i].ids = copy_of(group->orders[i].ids, kept[i].count);
		kept[i].weights = NULL;
		if (!kept[i].ids)
			rc = -ENOMEM;
	}
	lock_release(&control->groups_lock);
	return rc;
}

static void print_order(FILE *out, const struct group_order *order)
{
	fprintf(out, "%" PRIu64, order->epoch);
	for (uint32_t i = 0; i < order->count; i++)
		fprintf(out, " %" PRIu32, order->ids[i]);
	fputc('\n', out);
}

/* A line for each: its epoch, then its ids. */
int report_group_order(struct control *control, uint32_t number, FILE *out)
{
	struct group_order kept[GROUP_ORDERS] = { 0 };
	int rc = copy_kept(control, number, kept);

	for (uint32_t i = 0; i < GROUP_ORDERS; i++) {
		if (!rc && kept[i].ids) {
			cache_ids(cache_of(control), kept[i].ids, kept[i].count);
			print_order(out, &kept[i]);
		}
		free(kept[i].ids);
	}
	return rc;
}

int report_group_scores(struct control *control, uint32_t number, FILE *out)
{
	uint32_t jobs, count, *slots;
	float *importance;
	int rc;

	lock_acquire(&control->groups_lock);
	jobs = members_locked(control, &control->groups[number]);
	lock_release(&control->groups_lock);
	rc = find_importance(control, jobs, &slots, &importance, &count);
	if (rc)
		return rc == -ENOMEM ? rc : 0;
	cache_ids(cache_of(control), slots, count);
	for (uint32_t i = 0; i < count; i++)
		fprintf(out, "%" PRIu32 "\t%.9g\n", slots[i], importance[i]);
	free(slots);
	free(importance);
	return 0;
}
