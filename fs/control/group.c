/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "control/group.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* --- members -----------------------------------------------------------------------------------*/

bool group_is_name(const char *name)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789._-";
	size_t length = strlen(name);

	return length && length <= GROUP_NAME_MAX && *name != '.' &&
	       strspn(name, allowed) == length;
}

void group_join(struct group *group, uint32_t job)
{
	assert(job < GROUP_MEMBERS);
	if (!group->members[job].is_in)
		group->members[job] = (struct group_member){ .is_in = true };
}

bool group_leave(struct group *group, uint32_t job)
{
	bool any = false;

	assert(job < GROUP_MEMBERS);
	group->members[job] = (struct group_member){ 0 };
	for (uint32_t i = 0; i < GROUP_MEMBERS; i++)
		any |= group->members[i].is_in;
	return any;
}

static void order_free(struct group_order *order)
{
	free(order->ids);
	free(order->weights);
	*order = (struct group_order){ 0 };
}

void group_clear(struct group *group)
{
	for (uint32_t i = 0; i < group->order_count; i++)
		order_free(&group->orders[i]);
	*group = (struct group){ 0 };
}

/* --- orders ------------------------------------------------------------------------------------*/

static struct group_order *find(const struct group *group, uint64_t epoch)
{
	for (uint32_t i = 0; i < group->order_count; i++)
		if (group->orders[i].epoch == epoch)
			return (struct group_order *)&group->orders[i];
	return NULL;
}

const struct group_order *group_find(const struct group *group, uint64_t epoch)
{
	return find(group, epoch);
}

/* Whether a member reads that order now, or will read it next. */
static bool is_wanted(const struct group *group, uint64_t epoch)
{
	for (uint32_t i = 0; i < GROUP_MEMBERS; i++) {
		const struct group_member *member = &group->members[i];

		if (member->has_begun &&
		    (member->begin.epoch == epoch || member->begin.epoch + 1 == epoch))
			return true;
	}
	return false;
}

/* Entries at the beginning of an order that members have been told. */
static uint32_t told_of(const struct group *group, const struct group_order *order)
{
	uint32_t told = 0;

	for (uint32_t i = 0; i < GROUP_MEMBERS; i++) {
		const struct group_member *member = &group->members[i];
		uint32_t own = 0;

		if (!member->has_begun)
			continue;
		if (member->begin.epoch == order->epoch)
			own = order->count;
		else if (member->begin.epoch + 1 == order->epoch)
			own = member->begin.position;
		told = own > told ? own : told;
	}
	return told < order->count ? told : order->count;
}

/* --- segments ----------------------------------------------------------------------------------*/

/* Where orders are cut: the offsets of the members, ascending, and the end. */
struct cuts {
	uint32_t at[GROUP_MEMBERS + 2];
	uint32_t count;
};

static void cuts_add(struct cuts *cuts, uint32_t at)
{
	uint32_t i = cuts->count;

	for (uint32_t known = 0; known < cuts->count; known++)
		if (cuts->at[known] == at)
			return;
	for (; i && cuts->at[i - 1] > at; i--)
		cuts->at[i] = cuts->at[i - 1];
	cuts->at[i] = at;
	cuts->count++;
}

static struct cuts cuts_of(const struct group *group, uint32_t end, uint32_t another)
{
	struct cuts cuts = { 0 };

	cuts_add(&cuts, end);
	if (another && another < end)
		cuts_add(&cuts, another);
	for (uint32_t i = 0; i < GROUP_MEMBERS; i++) {
		const struct group_member *member = &group->members[i];

		if (member->has_begun && member->begin.position && member->begin.position < end)
			cuts_add(&cuts, member->begin.position);
	}
	return cuts;
}

/* The entries of an order that each sample has, in their sequence, counted from 1; 0: none. */
struct entries {
	uint32_t *first; /* by sample: its next entry */
	uint32_t *next;	 /* by entry: the same sample's following one */
	uint32_t limit;	 /* samples are below this */
};

static void entries_free(struct entries *entries)
{
	free(entries->first);
	free(entries->next);
}

static int entries_find(struct entries *entries, const struct group_order *order)
{
	entries->limit = 0;
	for (uint32_t i = 0; i < order->count; i++)
		if (order->ids[i] >= entries->limit)
			entries->limit = order->ids[i] + 1;
	entries->first = calloc((size_t)entries->limit + 1, sizeof(*entries->first));
	entries->next = calloc((size_t)order->count + 1, sizeof(*entries->next));
	if (!entries->first || !entries->next)
		return -ENOMEM;
	for (uint32_t entry = order->count; entry > 0; entry--) {
		uint32_t id = order->ids[entry - 1];

		entries->next[entry] = entries->first[id];
		entries->first[id] = entry;
	}
	return 0;
}

/* Takes the first entry of a sample away, and returns it; 0: there is none any more. */
static uint32_t entries_take(struct entries *entries, uint32_t id)
{
	uint32_t entry;

	if (id >= entries->limit)
		return 0;
	entry = entries->first[id];
	entries->first[id] = entries->next[entry];
	return entry;
}

/* Of an entry, counted from 1. The last cut is the end. */
static uint32_t segment_of(const struct cuts *cuts, uint32_t entry)
{
	uint32_t segment = 0;

	while (segment + 1 < cuts->count && cuts->at[segment] < entry)
		segment++;
	return segment;
}

/* `to[i]` is where entry i of `order` goes. False: it cannot be arranged, since the samples are
 * others, or since what is told of it is in the way. */
static bool arrange(const struct group_order *order, struct entries *before,
		    const struct cuts *cuts, uint32_t told, uint32_t *to)
{
	uint32_t at[GROUP_MEMBERS + 2] = { 0 };

	for (uint32_t i = 0; i < cuts->count; i++) {
		at[i] = i ? cuts->at[i - 1] : 0;
		at[i] = at[i] > told ? at[i] : told;
	}
	for (uint32_t i = 0; i < order->count; i++) {
		uint32_t entry = entries_take(before, order->ids[i]), segment;

		if (!entry)
			return false;
		to[i] = i;
		if (i < told)
			continue;
		segment = segment_of(cuts, entry);
		if (at[segment] >= cuts->at[segment])
			return false;
		to[i] = at[segment]++;
	}
	return true;
}

static void move(void *words, void *spare, const uint32_t *to, uint32_t count)
{
	uint32_t *from = words, *moved = spare;

	for (uint32_t i = 0; i < count; i++)
		moved[to[i]] = from[i];
	memcpy(words, moved, (size_t)count * sizeof(*moved));
}

/* Rearranges what is not told of `order`, which follows `before`. 0 or -ENOMEM. */
static int conform(struct group_order *order, const struct group_order *before,
		   const struct cuts *cuts, uint32_t told)
{
	struct entries entries = { 0 };
	uint32_t *to, *spare;
	int rc = 0;

	if (cuts->count < 2 || before->count != order->count || !order->count)
		return 0;
	to = malloc((size_t)order->count * sizeof(*to));
	spare = malloc((size_t)order->count * sizeof(*spare));
	if (!to || !spare || entries_find(&entries, before)) {
		rc = -ENOMEM;
	} else if (arrange(order, &entries, cuts, told, to)) {
		move(order->ids, spare, to, order->count);
		if (order->weights)
			move(order->weights, spare, to, order->count);
	}
	entries_free(&entries);
	free(to);
	free(spare);
	return rc;
}

static void drop_oldest(struct group *group)
{
	order_free(&group->orders[0]);
	group->order_count--;
	memmove(group->orders, group->orders + 1, group->order_count * sizeof(*group->orders));
}

static int put(struct group *group, struct group_order *order)
{
	const struct group_order *last =
		group->order_count ? &group->orders[group->order_count - 1] : NULL;
	int rc = 0;

	if (find(group, order->epoch))
		return -EEXIST;
	if (!is_wanted(group, order->epoch) || (last && order->epoch != last->epoch + 1))
		return -ERANGE;
	if (last) {
		struct cuts cuts = cuts_of(group, order->count, 0);

		rc = conform(order, last, &cuts, 0);
	}
	if (rc)
		return rc;
	if (group->order_count == GROUP_ORDERS)
		drop_oldest(group);
	group->orders[group->order_count++] = *order;
	*order = (struct group_order){ 0 };
	return 0;
}

int group_put(struct group *group, struct group_order *order)
{
	int rc = put(group, order);

	order_free(order);
	return rc;
}

/* --- where an epoch begins ---------------------------------------------------------------------*/

static uint32_t count_of(const struct group *group, uint64_t epoch)
{
	const struct group_order *order = find(group, epoch);

	return order ? order->count : 0;
}

struct group_place group_where(const struct group *group, uint32_t job)
{
	const struct group_member *member = &group->members[job];
	struct group_place place = member->begin;
	uint32_t count = count_of(group, place.epoch), left;

	if (!member->has_begun || !count)
		return place;
	left = place.position < count ? count - place.position : 0;
	if (member->read < left) {
		place.position += member->read;
		return place;
	}
	/* From its offset on nothing is left of that order; it goes around once. */
	place = (struct group_place){ place.epoch + 1, member->read - left };
	count = count_of(group, place.epoch);
	return count && place.position >= count ? (struct group_place){ place.epoch + 1, 0 }
						: place;
}

static bool is_after(struct group_place a, struct group_place b)
{
	return a.epoch > b.epoch || (a.epoch == b.epoch && a.position > b.position);
}

/* Another member that has got farthest; false: there is none. */
static bool find_foremost(const struct group *group, uint32_t job, struct group_place *foremost)
{
	bool found = false;

	for (uint32_t i = 0; i < GROUP_MEMBERS; i++) {
		struct group_place place;

		if (i == job || !group->members[i].has_begun)
			continue;
		place = group_where(group, i);
		if (!found || is_after(place, *foremost))
			*foremost = place;
		found = true;
	}
	return found;
}

/* Whether all that a member which begins there is to read can still be had. */
static bool is_kept(const struct group *group, struct group_place place)
{
	return !group->order_count || place.epoch >= group->orders[0].epoch;
}

/* Whether `foremost` is farther ahead of a place than `reach` entries. Who is ahead of all others
 * goes on: it would read again what it has read. */
static bool is_left_behind(const struct group *group, struct group_place place,
			   struct group_place foremost, uint32_t reach)
{
	uint64_t entries = foremost.position;

	if (!is_kept(group, place))
		return true;
	if (!is_after(foremost, place))
		return false;
	for (uint64_t epoch = place.epoch; epoch < foremost.epoch; epoch++)
		entries += count_of(group, epoch);
	return entries > (uint64_t)place.position + reach;
}

/* After its last epoch, but not after an order that nobody has drawn. */
static struct group_place next_of(const struct group *group, const struct group_member *member)
{
	struct group_place next = { member->begin.epoch + 1, member->begin.position };
	uint64_t last = group->order_count ? group->orders[group->order_count - 1].epoch
					   : member->begin.epoch;

	if (next.epoch > last + 1)
		next.epoch = last + 1;
	return next;
}

static struct group_place choose(const struct group *group, uint32_t job, uint64_t first,
				 uint32_t reach)
{
	const struct group_member *member = &group->members[job];
	struct group_place next = next_of(group, member);
	struct group_place start = { 0 }, foremost = { 0 };

	/* One that was left behind itself says nothing of where the stream is. */
	if (find_foremost(group, job, &foremost) && is_kept(group, foremost)) {
		start.epoch = foremost.epoch;
		if (member->has_begun && !is_left_behind(group, next, foremost, reach))
			return next;
		return foremost.position <= reach ? start : foremost;
	}
	if (member->has_begun && is_kept(group, next))
		return next;
	/* Those that left it behind have ended: the stream goes on from what is kept of it. */
	if (member->has_begun)
		return (struct group_place){ group->orders[0].epoch, 0 };
	if (group->order_count)
		first = group->orders[group->order_count - 1].epoch + 1;
	start.epoch = first;
	return start;
}

/* The order that follows may have been drawn before anybody had this offset. */
static int conform_following(struct group *group, struct group_place begin)
{
	const struct group_order *order = find(group, begin.epoch);
	struct group_order *following = find(group, begin.epoch + 1);
	struct cuts cuts;

	if (!order || !following || !begin.position)
		return 0;
	cuts = cuts_of(group, order->count, begin.position);
	return conform(following, order, &cuts, told_of(group, following));
}

int group_begin(struct group *group, uint32_t job, uint64_t own_epoch, uint64_t first,
		uint32_t reach, struct group_place *begin)
{
	struct group_member *member = &group->members[job];
	struct group_member old = *member;
	int rc;

	assert(job < GROUP_MEMBERS && member->is_in);
	if (old.has_begun && old.own_epoch == own_epoch && is_kept(group, old.begin)) {
		*begin = old.begin;
		return 0;
	}
	*begin = choose(group, job, first, reach);
	member->has_begun = false; /* what it was told for its last epoch is done with */
	rc = conform_following(group, *begin);
	*member = rc ? old : (struct group_member){ true, true, own_epoch, *begin, 0 };
	return rc;
}
