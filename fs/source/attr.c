/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "source/attr.h"

static __int128 join_time(int64_t low, int era)
{
	return (__int128)era * ((__int128)1 << 64) + low;
}

/* Returns the era. */
static int split_time(__int128 ns, int64_t *low)
{
	if (ns < -STORE_TIME_MAX)
		ns = -STORE_TIME_MAX;
	if (ns > STORE_TIME_MAX)
		ns = STORE_TIME_MAX;
	*low = (int64_t)(uint64_t)ns;
	return (int)((ns - *low) / ((__int128)1 << 64));
}

__int128 store_mtime(const struct store_attr *attr)
{
	return join_time(attr->mtime_ns, attr->mtime_era);
}

__int128 store_ctime(const struct store_attr *attr)
{
	return join_time(attr->ctime_ns, attr->ctime_era);
}

void store_set_mtime(struct store_attr *attr, __int128 ns)
{
	attr->mtime_era = split_time(ns, &attr->mtime_ns);
}

void store_set_ctime(struct store_attr *attr, __int128 ns)
{
	attr->ctime_era = split_time(ns, &attr->ctime_ns);
}

int64_t store_changed_ms(const struct store_attr *attr)
{
	return (int64_t)(store_ctime(attr) / 1000000);
}

bool store_is_coarse(const struct store_attr *attr)
{
	return store_ctime(attr) % 1000000000 == 0;
}
