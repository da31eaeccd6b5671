/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "control/quota.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* Whether a user may have `own` if the others have `others`. */
static bool is_within(bool mounts, uint64_t own, uint64_t others, uint64_t limit)
{
	uint64_t left = others < limit ? limit - others : 0;

	return mounts ? own <= left || own <= limit / 2 : own <= left / 2;
}

static struct quota_user *find_user(const struct quota *quota, uid_t uid, bool mounts)
{
	struct quota_user *user = quota->users;

	while (user && (user->mounts != mounts || (!mounts && user->uid != uid)))
		user = user->next;
	return user;
}

static struct quota_user *add_user(struct quota *quota, uid_t uid, bool mounts)
{
	struct quota_user *user = calloc(1, sizeof(*user));

	if (!user)
		return NULL;
	*user = (struct quota_user){ .uid = uid, .mounts = mounts, .next = quota->users };
	quota->users = user;
	return user;
}

int quota_open(struct quota *quota, uid_t uid, bool mounts, struct quota_user **user)
{
	struct quota_user *found = find_user(quota, uid, mounts);
	uint64_t own = found ? found->files : 0;

	assert(own <= quota->files);
	if (!is_within(mounts, own + 1, quota->files - own, QUOTA_FILES))
		return -EMFILE;
	if (!found)
		found = add_user(quota, uid, mounts);
	if (!found)
		return -ENOMEM;
	found->files++;
	quota->files++;
	*user = found;
	return 0;
}

void quota_close(struct quota *quota, struct quota_user *user, uint64_t bytes)
{
	struct quota_user **at = &quota->users;

	quota_set(quota, user, bytes, 0);
	assert(user->files && quota->files);
	quota->files--;
	if (--user->files)
		return;
	assert(!user->bytes);
	while (*at != user)
		at = &(*at)->next;
	*at = user->next;
	free(user);
}

void quota_set(struct quota *quota, struct quota_user *user, uint64_t before, uint64_t now)
{
	assert(before <= user->bytes && user->bytes <= quota->bytes);
	user->bytes = user->bytes - before + now;
	quota->bytes = quota->bytes - before + now;
}

int quota_change(struct quota *quota, struct quota_user *user, uint64_t before, uint64_t now,
		 uint64_t limit)
{
	assert(before <= user->bytes && user->bytes <= quota->bytes);
	if (now > before &&
	    !is_within(user->mounts, user->bytes - before + now, quota->bytes - user->bytes, limit))
		return -ENOMEM;
	quota_set(quota, user, before, now);
	return 0;
}
