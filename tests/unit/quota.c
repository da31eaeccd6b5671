/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* How much of .shade each user may have. */
#include <criterion/criterion.h>
#include <errno.h>

#include "control/quota.h"

#define LIMIT ((uint64_t)1000000)
#define ROOT 0
#define OTHER 1000

/* As many files as the user may open. */
static uint64_t open_all(struct quota *quota, uid_t uid, struct quota_user **user)
{
	uint64_t count = 0;

	while (!quota_open(quota, uid, uid == ROOT, user))
		count++;
	return count;
}

static void close_all(struct quota *quota, struct quota_user *user, uint64_t count)
{
	while (count--)
		quota_close(quota, user, 0);
}

Test(quota, leaves_files_to_others)
{
	struct quota_user *user = NULL, *second = NULL, *root = NULL;
	struct quota quota = { 0 };
	uint64_t of_user, of_second, of_root;

	of_user = open_all(&quota, OTHER, &user);
	of_second = open_all(&quota, OTHER + 1, &second);
	of_root = open_all(&quota, ROOT, &root);
	cr_assert_eq(of_user, QUOTA_FILES / 2);
	cr_assert_eq(of_second, QUOTA_FILES / 4);
	cr_assert_eq(of_root, QUOTA_FILES / 2);
	cr_assert_eq(quota.files, of_user + of_second + of_root);
	cr_assert_eq(quota_open(&quota, OTHER, false, &user), -EMFILE);
	quota_close(&quota, user, 0);
	cr_assert_eq(quota_open(&quota, OTHER, false, &user), -EMFILE, "root has too many");
	close_all(&quota, root, of_root);
	close_all(&quota, second, of_second);
	cr_assert_eq(quota_open(&quota, OTHER, false, &user), 0);
	close_all(&quota, user, of_user);
	cr_assert_eq(quota.files, 0);
	cr_assert_null(quota.users);
}

/* Many users together leave something to root. */
Test(quota, nobody_takes_everything)
{
	struct quota_user *users[64], *root;
	struct quota quota = { 0 };

	for (uid_t i = 0; i < 64; i++) {
		uint64_t bytes = 0;

		cr_assert_eq(quota_open(&quota, OTHER + i, false, &users[i]), 0);
		for (uint64_t more = LIMIT; more; more /= 2)
			while (!quota_change(&quota, users[i], bytes, bytes + more, LIMIT))
				bytes += more;
		cr_assert_eq(users[i]->bytes, bytes);
		cr_assert_lt(quota.bytes, LIMIT);
	}
	cr_assert_eq(users[0]->bytes, LIMIT / 2);
	cr_assert_eq(users[1]->bytes, LIMIT / 4);
	cr_assert_eq(quota_open(&quota, ROOT, true, &root), 0);
	cr_assert_eq(quota_change(&quota, root, 0, LIMIT / 2, LIMIT), 0);
	cr_assert_eq(quota_change(&quota, root, LIMIT / 2, LIMIT / 2 + 1, LIMIT), -ENOMEM);
	cr_assert_leq(quota.bytes, LIMIT + LIMIT / 2);
	for (uid_t i = 0; i < 64; i++)
		quota_close(&quota, users[i], users[i]->bytes);
	cr_assert_eq(quota_change(&quota, root, LIMIT / 2, LIMIT, LIMIT), 0, "all is root's");
	quota_close(&quota, root, LIMIT);
	cr_assert_eq(quota.bytes, 0);
}

/* Whoever has more than a lower limit allows may still have less. */
Test(quota, shrinking_is_always_allowed)
{
	struct quota quota = { 0 };
	struct quota_user *user;

	cr_assert_eq(quota_open(&quota, OTHER, false, &user), 0);
	quota_set(&quota, user, 0, LIMIT);
	cr_assert_eq(quota_change(&quota, user, LIMIT, LIMIT + 1, LIMIT), -ENOMEM);
	cr_assert_eq(quota_change(&quota, user, LIMIT, LIMIT - 1, LIMIT), 0);
	quota_close(&quota, user, LIMIT - 1);
	cr_assert_null(quota.users);
}
