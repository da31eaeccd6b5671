/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * An NFS export as the source: names and attributes, asked for by threads that wait.
 *
 * A path is looked up name by name from the top, each time: so what is found is what has the path
 * now, as it is with a directory that is opened. No link is followed, for the server follows none.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/log.h"
#include "nfs/internal.h"

#define MOUNT_MS 5000	    /* for another answer of the mount daemon */
#define MOUNT_AGAIN_MS 1000 /* between two */
#define READ_UNKNOWN 65536  /* bytes of a READ if the server does not say */
#define BLOCK 4096

void nfs_convert(struct nfs_store *store, const struct nfs_attr *from, struct store_attr *to)
{
	unsigned dev =
		devices_number(store->devices, (uint32_t)(from->fsid >> 32), (uint32_t)from->fsid);

	*to = from->attr;
	to->dev = dev & (STORE_DEVICES - 1);
}

void nfs_get_root(struct nfs_store *store, struct nfs_handle *root)
{
	lock_acquire(&store->lock);
	*root = store->root;
	lock_release(&store->lock);
}

uint64_t nfs_deadline(const struct nfs_store *store)
{
	return clock_now_ms() + store->options.deadline_ms;
}

int nfs_ask(struct nfs_store *store, struct nfs_question *question, enum nfs_procedure procedure,
	    const struct nfs_handle *handle, const char *name, uint64_t until_ms)
{
	struct rpc_call *call = &question->call;

	*call = (struct rpc_call){
		.args = { .procedure = procedure, .handle = *handle, .name = name },
		.reply = { .buffer = question->buffer, .room = sizeof(question->buffer) },
		.until_ms = until_ms,
	};
	return rpc_ask(store->rpc, call);
}

static int get_attr(struct nfs_store *store, const struct nfs_handle *handle, struct nfs_attr *attr,
		    uint64_t until_ms)
{
	struct nfs_question question;
	int rc = nfs_ask(store, &question, NFS_GETATTR, handle, NULL, until_ms);

	if (rc)
		return rc;
	nfs_get_attr(&question.call.result, attr);
	return question.call.result.bad ? -EIO : 0;
}

/* --- paths --------------------------------------------------------------------------------------
 */

int nfs_lookup(struct nfs_store *store, const struct nfs_handle *dir, const char *name,
	       struct nfs_found *found, struct store_attr *attr, uint64_t until_ms)
{
	struct nfs_question question;
	int rc = nfs_ask(store, &question, NFS_LOOKUP, dir, name, until_ms);

	if (rc)
		return rc;
	nfs_get_found(&question.call.result, found);
	if (question.call.result.bad)
		return -EIO;
	if (!found->has_attr)
		rc = get_attr(store, &found->handle, &found->attr, until_ms);
	if (!rc)
		nfs_convert(store, &found->attr, attr);
	return rc;
}

/* Follows a path from `found->handle` on, whose attributes are asked for if the path is empty. */
static int walk(struct nfs_store *store, const char *path, struct nfs_found *found,
		struct store_attr *attr, uint64_t until_ms)
{
	char name[NFS_NAME_MAX + 1];
	int rc;

	if (!*path) {
		rc = get_attr(store, &found->handle, &found->attr, until_ms);
		if (!rc)
			nfs_convert(store, &found->attr, attr);
		return rc;
	}
	do {
		size_t length = strcspn(path, "/");
		struct nfs_handle dir = found->handle;

		if (length > NFS_NAME_MAX)
			return -ENAMETOOLONG;
		memcpy(name, path, length);
		name[length] = 0;
		path += length + (path[length] == '/');
		rc = nfs_lookup(store, &dir, name, found, attr, until_ms);
	} while (!rc && *path);
	return rc;
}

/* The top of the source, below the export. */
static int find_root(struct nfs_store *store, const struct nfs_export *export,
		     struct nfs_handle *root, uint64_t until_ms)
{
	struct nfs_found found = { .handle = export->handle };
	struct store_attr attr;
	int rc = walk(store, export->rest, &found, &attr, until_ms);

	if (!rc && !S_ISDIR(attr.mode))
		rc = -ENOTDIR;
	*root = found.handle;
	return rc;
}

/* The server may have another handle for the top by now, because the export was taken away and is
 * back. 0: the top has been found again. */
static int mount_root_again(struct nfs_store *store)
{
	uint64_t now_ms = clock_now_ms();
	struct nfs_export export;
	struct nfs_handle root;
	char why[256];
	bool is_soon;
	int rc;

	lock_acquire(&store->lock);
	export = store->export;
	is_soon = now_ms < store->mounted_ms + MOUNT_AGAIN_MS;
	if (!is_soon)
		store->mounted_ms = now_ms;
	lock_release(&store->lock);
	if (is_soon)
		return -ESTALE;
	rc = mount_again(&export, now_ms + MOUNT_MS, why, sizeof(why));
	if (!rc)
		rc = find_root(store, &export, &root, nfs_deadline(store));
	if (rc)
		return -ESTALE;
	lock_acquire(&store->lock);
	store->export = export;
	store->root = root;
	lock_release(&store->lock);
	return 0;
}

static int walk_or_mount(struct nfs_store *store, const char *path, struct nfs_found *found,
			 struct store_attr *attr, uint64_t until_ms)
{
	struct nfs_handle root;
	struct nfs_attr ignored;
	int rc;

	nfs_get_root(store, &root);
	found->handle = root;
	rc = walk(store, path, found, attr, until_ms);
	if (rc != -ESTALE || get_attr(store, &root, &ignored, until_ms) != -ESTALE ||
	    mount_root_again(store))
		return rc;
	nfs_get_root(store, &found->handle);
	return walk(store, path, found, attr, until_ms);
}

/* The top is whatever the server exports by now. It may be another directory than it was at first,
 * or be in a file system that has another number since the server was restarted; it keeps its
 * number here, for there is only one top, and without it nothing below could be found again. */
static int walk_from_root(struct nfs_store *store, const char *path, struct nfs_found *found,
			  struct store_attr *attr, uint64_t until_ms)
{
	int rc = walk_or_mount(store, path, found, attr, until_ms);

	if (!rc && !*path) {
		attr->ino = store->top.ino;
		attr->dev = store->top.dev;
	}
	return rc;
}

/* --- one at a time ------------------------------------------------------------------------------
 */

int nfs_stat(struct store *base, const char *path, struct store_attr *attr)
{
	struct nfs_store *store = (struct nfs_store *)base;
	uint64_t start_ms = clock_now_ms() + mount_patience(&store->options);
	uint64_t until_ms = atomic_load(&store->has_begun) ? RPC_PATIENT : start_ms;
	struct nfs_found found;
	int rc = walk_from_root(store, path, &found, attr, until_ms);

	if (!rc)
		atomic_store(&store->has_begun, true);
	return rc;
}

/* NFSv3 has none: the modes that the server shows are all that is known. */
int nfs_acl(struct store *store, const char *path, const struct store_attr *expected, void *value,
	    size_t size)
{
	(void)store;
	(void)path;
	(void)expected;
	(void)value;
	(void)size;
	return -ENODATA;
}

/* By its handle. The attributes are from after the answer, or from the same moment. */
static int read_link(struct nfs_store *store, const struct nfs_handle *handle,
		     const struct store_attr *expected, char **target, uint64_t until_ms)
{
	struct nfs_question question;
	int rc = nfs_ask(store, &question, NFS_READLINK, handle, NULL, until_ms);
	struct store_attr found;
	struct nfs_attr attr;
	const uint8_t *text;
	bool has_attr;
	uint32_t size;

	if (rc)
		return rc == -EINVAL ? -ESTALE : rc; /* it is no link any more */
	text = nfs_get_link(&question.call.result, &attr, &has_attr, &size);
	if (question.call.result.bad)
		return -EIO;
	if (!has_attr)
		rc = get_attr(store, handle, &attr, until_ms);
	if (rc)
		return rc;
	nfs_convert(store, &attr, &found);
	if (!store_same_version(&found, expected))
		return -ESTALE;
	*target = strndup((const char *)text, size);
	return *target ? 0 : -ENOMEM;
}

int nfs_readlink(struct store *base, const char *path, const struct store_attr *expected,
		 char **target)
{
	struct nfs_store *store = (struct nfs_store *)base;
	uint64_t until_ms = nfs_deadline(store);
	struct nfs_found found;
	struct store_attr attr;
	int rc = -ESTALE;

	if (handles_find(&store->handles, expected, &found.handle))
		rc = read_link(store, &found.handle, expected, target, until_ms);
	if (rc != -ESTALE)
		return rc;
	rc = walk_from_root(store, path, &found, &attr, until_ms);
	if (!rc && !store_same_version(&attr, expected))
		rc = -ESTALE;
	if (rc)
		return rc;
	handles_put(&store->handles, &attr, &found.handle);
	return read_link(store, &found.handle, expected, target, until_ms);
}

static uint64_t blocks(uint64_t bytes)
{
	return bytes / BLOCK;
}

int nfs_statfs(struct store *base, struct statvfs *out)
{
	struct nfs_store *store = (struct nfs_store *)base;
	struct nfs_question question;
	struct nfs_handle root;
	struct nfs_space space;
	int rc;

	nfs_get_root(store, &root);
	rc = nfs_ask(store, &question, NFS_FSSTAT, &root, NULL, nfs_deadline(store));
	if (rc)
		return rc;
	nfs_get_space(&question.call.result, &space);
	if (question.call.result.bad)
		return -EIO;
	*out = (struct statvfs){ .f_bsize = BLOCK,
				 .f_frsize = BLOCK,
				 .f_blocks = blocks(space.total_bytes),
				 .f_bfree = blocks(space.free_bytes),
				 .f_bavail = blocks(space.available_bytes),
				 .f_files = space.total_files,
				 .f_ffree = space.free_files,
				 .f_favail = space.available_files,
				 .f_namemax = 255 };
	return 0;
}

/* --- directories --------------------------------------------------------------------------------
 */

int nfs_open_dir(struct store_dir *dir, const char *path, const struct store_attr *expected,
		 struct store_attr *attr)
{
	struct nfs_found found;
	int rc = walk_from_root((struct nfs_store *)dir->store, path, &found, attr, RPC_PATIENT);

	if (!rc && !S_ISDIR(attr->mode))
		rc = -ENOTDIR;
	if (!rc && !store_same_file(attr, expected))
		rc = -ESTALE;
	if (rc)
		return rc;
	dir->handle = malloc(sizeof(found.handle));
	if (!dir->handle)
		return -ENOMEM;
	memcpy(dir->handle, &found.handle, sizeof(found.handle));
	return 0;
}

void nfs_close_dir(struct store_dir *dir)
{
	free(dir->handle);
	dir->handle = NULL;
}

int nfs_stat_in(const struct store_dir *dir, const char *name, struct store_attr *attr)
{
	struct nfs_store *store = (struct nfs_store *)dir->store;
	struct nfs_found found;
	int rc = nfs_lookup(store, dir->handle, name, &found, attr, RPC_PATIENT);

	if (!rc && nfs_keeps_handle(attr))
		handles_put(&store->handles, attr, &found.handle);
	return rc;
}

/* --- the beginning ------------------------------------------------------------------------------
 */

static int get_limits(struct nfs_store *store, uint64_t until_ms)
{
	struct nfs_question question;
	struct nfs_limits limits;
	int rc = nfs_ask(store, &question, NFS_FSINFO, &store->root, NULL, until_ms);

	if (rc)
		return rc;
	nfs_get_limits(&question.call.result, &limits);
	if (question.call.result.bad)
		return -EIO;
	store->read_most = limits.read_max ? limits.read_max : READ_UNKNOWN;
	if (store->read_most > NFS_READ_MOST)
		store->read_most = NFS_READ_MOST;
	store->list_most = NFS_LIST_MOST;
	return 0;
}

int nfs_begin(struct nfs_store *store)
{
	uint64_t until_ms = clock_now_ms() + mount_patience(&store->options);
	bool are_known = devices_are_known(store->devices);
	struct nfs_found found;
	int rc = find_root(store, &store->export, &store->root, until_ms);

	if (rc)
		return rc;
	found.handle = store->root;
	/* What is above the top may be in another file system; the top is in device 0. */
	if (!are_known)
		memset(store->devices, 0, sizeof(*store->devices));
	rc = walk(store, "", &found, &store->top, until_ms);
	return rc ? rc : get_limits(store, until_ms);
}
