/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How much of .shade each user may have at a time: open files, and bytes of texts, tables, and
 * orders that are not complete. Pure bookkeeping: the caller has a lock, and says what the limit
 * is.
 *
 * A user may have half of what all others leave. So one user alone gets half of the limit, a second
 * one a quarter, and nobody can take everything. Root and the user who mounted count as one; they
 * may have all that others leave, and in any case half of the limit. So there are never more than
 * one and a half times the limit.
 */
#ifndef SHADE_QUOTA_H
#define SHADE_QUOTA_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define QUOTA_FILES ((uint64_t)2048)
#define QUOTA_BYTES ((uint64_t)128 << 20)
#define QUOTA_BYTES_A_SAMPLE ((uint64_t)1024)

/* A user who has at least one open file. */
struct quota_user {
	uid_t uid;
	bool mounts; /* root, or who mounted */
	uint64_t files;
	uint64_t bytes;
	struct quota_user *next;
};

struct quota {
	struct quota_user *users;
	uint64_t files; /* of all users */
	uint64_t bytes;
};

/* A user opens one more file. 0, -EMFILE or -ENOMEM. */
int quota_open(struct quota *quota, uid_t uid, bool mounts, struct quota_user **user);
/* The file had `bytes`. */
void quota_close(struct quota *quota, struct quota_user *user, uint64_t bytes);
/* The bytes of a file are to be `now` instead of `before`. -ENOMEM: that is more than there were,
 * and more than the user may have; then nothing has changed. */
int quota_change(struct quota *quota, struct quota_user *user, uint64_t before, uint64_t now,
		 uint64_t limit);
/* The same, whatever the limit is. */
void quota_set(struct quota *quota, struct quota_user *user, uint64_t before, uint64_t now);

#endif
