/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What all backends share: the version check of a read, buffers, and the call of the right
 * backend. */
#include "source/store.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "source/align.h"

void *store_buffer(size_t size)
{
	return aligned_alloc(STORE_ALIGN, store_round_up(size + !size));
}

/* The attributes are from after the read and are compared with what was known before it: a change
 * in between shows. */
int store_read_outcome(struct store_read *read, const struct store_attr *found, size_t bytes)
{
	if (!store_same_version(found, read->expected))
		return -ESTALE;
	read->got += bytes;
	if (read->got > read->size)
		read->got = read->size; /* a direct read is rounded up */
	if (!read->buffer || read->got == read->size || read->offset + read->got >= found->size)
		return 0;
	return bytes ? STORE_MORE : -EIO;
}

void store_close(struct store *store)
{
	store->ops->close(store);
}

void store_stop(struct store *store)
{
	if (store->ops->stop)
		store->ops->stop(store);
}

int store_stat(struct store *store, const char *path, struct store_attr *attr)
{
	return store->ops->stat(store, path, attr);
}

int store_acl(struct store *store, const char *path, const struct store_attr *expected, void *value,
	      size_t size)
{
	assert(expected || !*path);
	return store->ops->acl(store, path, expected, value, size);
}

int store_readlink(struct store *store, const char *path, const struct store_attr *expected,
		   char **target)
{
	return store->ops->readlink(store, path, expected, target);
}

int store_open_dir(struct store *store, const char *path, const struct store_attr *expected,
		   struct store_dir *dir, struct store_attr *attr)
{
	assert(expected);
	*dir = (struct store_dir){ .store = store, .fd = -1 };
	return store->ops->open_dir(dir, path, expected, attr);
}

void store_close_dir(struct store_dir *dir)
{
	dir->store->ops->close_dir(dir);
}

int store_stat_in(const struct store_dir *dir, const char *name, struct store_attr *attr)
{
	return dir->store->ops->stat_in(dir, name, attr);
}

int store_list(struct store_dir *dir, store_entry *entry, void *context)
{
	return dir->store->ops->list(dir, entry, context);
}

int store_statfs(struct store *store, struct statvfs *out)
{
	return store->ops->statfs(store, out);
}

void store_read(struct store *store, struct store_read *read)
{
	assert(read->path && read->expected && read->done);
	assert(!read->got && !read->progress);
	store->ops->read(store, read);
}

void store_cancel(struct store *store, struct store_read *read)
{
	store->ops->cancel(store, read);
}

bool store_revive(struct store *store)
{
	return store->ops->revive && store->ops->revive(store);
}

enum store_life store_life(const struct store *store)
{
	return store->ops->life ? store->ops->life(store) : STORE_ALIVE;
}

void store_forget(struct store *store, const struct store_attr *attr)
{
	if (store->ops->forget)
		store->ops->forget(store, attr);
}

bool store_takes_ratings(const struct store *store)
{
	return store->ops->rate;
}

size_t store_rate(struct store *store, const struct store_rating *ratings, size_t count)
{
	return store->ops->rate ? store->ops->rate(store, ratings, count) : count;
}

unsigned store_get_counts(struct store *store, struct store_count *counts, unsigned room)
{
	return store->ops->count ? store->ops->count(store, counts, room) : 0;
}
