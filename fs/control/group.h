/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Trainings that read one shared order: the rules. Pure: the caller has a lock, and says how far
 * each training has read and how far apart two of them may be for one fetch to serve both.
 *
 * A group has one order for each epoch of its own, one after the other: the stream. Who needs the
 * next one first draws it; one that comes too late is refused, and its writer reads the winner's.
 * An epoch of a member is a stretch of the stream that is as long as an order: order E from
 * `offset` on, then order E + 1 up to it. So a training that comes late begins where the others
 * are, and goes around once.
 *
 * For each sample to come once on the way around, what order E + 1 has before the offset must be
 * what order E has there. So an order that comes is rearranged: the offsets of all members cut it
 * into segments, and each segment gets the samples that the order before has in it, in the
 * sequence in which they were drawn. That works if both orders have the same samples equally often;
 * otherwise the order stays as it was drawn, and a member's epoch is simply that stretch.
 *
 * What a member has been told that it reads does not change any more. The rest of an order may,
 * when a training joins with an offset of its own.
 */
#ifndef SHADE_GROUP_H
#define SHADE_GROUP_H

#include <stdbool.h>
#include <stdint.h>

#define GROUP_NAME_MAX 63
#define GROUP_ORDERS 3	 /* epochs that are kept, the latest */
#define GROUP_MEMBERS 16 /* jobs have numbers below this */

struct group_order {
	uint64_t epoch;
	uint32_t count;
	uint32_t *ids;	/* NULL: there is none */
	float *weights; /* by entry; NULL: all are 1 */
};

/* Where an epoch of a member begins, or how far a member has got. */
struct group_place {
	uint64_t epoch;
	uint32_t position;
};

struct group_member {
	bool is_in;
	bool has_begun;		  /* an epoch */
	uint64_t own_epoch;	  /* what the training calls it */
	struct group_place begin; /* where that begins; its position is the member's offset */
	uint32_t read;		  /* entries of it that were read, as the caller says */
};

struct group {
	char name[GROUP_NAME_MAX + 1];		    /* empty: there is no such group */
	struct group_order orders[GROUP_ORDERS];    /* by epoch, without gaps */
	uint32_t order_count;			    /* so many of these are there */
	struct group_member members[GROUP_MEMBERS]; /* by job */
};

/* Whether `name` can be the name of a group. */
bool group_is_name(const char *name);

void group_join(struct group *group, uint32_t job);
/* False: nobody is in the group any more. */
bool group_leave(struct group *group, uint32_t job);
/* Frees the orders: the group is empty as at its beginning. */
void group_clear(struct group *group);

/* How far a member has got; normalised: at the end of an order is the beginning of the next. */
struct group_place group_where(const struct group *group, uint32_t job);

/*
 * A member begins its epoch `own_epoch`, and `*begin` is where: after the last one, but where the
 * foremost other member is if that is farther ahead than `reach` entries, and at the beginning of
 * an order if that member has hardly left it. Who begins an epoch again begins it at the same
 * place. `first` numbers the stream's epochs if there is no order yet.
 * -ENOMEM: nothing has changed.
 */
int group_begin(struct group *group, uint32_t job, uint64_t own_epoch, uint64_t first,
		uint32_t reach, struct group_place *begin);

/* Takes an order over, whatever comes of it; its arrays were allocated with malloc().
 * -EEXIST: the epoch has one; -ERANGE: it is not the next one's; -ENOMEM. */
int group_put(struct group *group, struct group_order *order);

/* NULL: the group has none for that epoch. */
const struct group_order *group_find(const struct group *group, uint64_t epoch);

#endif
