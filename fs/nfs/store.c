/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* An NFS export as the source: begin and end. */
#include "nfs/store.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nfs/internal.h"

static_assert(NFS_CONNECTIONS_MAX == RPC_CONNECTIONS_MAX, "the options promise so many");

static void nfs_read(struct store *store, struct store_read *read)
{
	reads_add(((struct nfs_store *)store)->reads, read);
}

static void nfs_cancel(struct store *store, struct store_read *read)
{
	reads_cancel(((struct nfs_store *)store)->reads, read);
}

static void nfs_forget(struct store *store, const struct store_attr *attr)
{
	if (nfs_keeps_handle(attr))
		handles_forget(&((struct nfs_store *)store)->handles, attr);
}

static void nfs_stop(struct store *store)
{
	rpc_stop(((struct nfs_store *)store)->rpc);
}

static unsigned nfs_count(struct store *store, struct store_count *counts, unsigned room)
{
	struct rpc_counts now;

	assert(room >= 3);
	rpc_get_counts(((struct nfs_store *)store)->rpc, &now);
	counts[0] = (struct store_count){ "nfs_rpcs", now.calls, "Requests to the server." };
	counts[1] = (struct store_count){ "nfs_reads", now.reads,
					  "READs among the requests to the server." };
	counts[2] = (struct store_count){ "nfs_reconnects", now.reconnects,
					  "Connections lost while something was asked over them." };
	return 3;
}

static void free_store(struct nfs_store *store)
{
	if (store->rpc)
		rpc_close(store->rpc);
	if (store->reads)
		reads_destroy(store->reads);
	handles_destroy(&store->handles);
	lock_destroy(&store->lock);
	devices_close(store->devices, store->options.estate);
	free(store);
}

static void nfs_close(struct store *store)
{
	free_store((struct nfs_store *)store);
}

static const struct store_ops nfs_ops = {
	.stat = nfs_stat,
	.acl = nfs_acl,
	.readlink = nfs_readlink,
	.open_dir = nfs_open_dir,
	.stat_in = nfs_stat_in,
	.list = nfs_list,
	.close_dir = nfs_close_dir,
	.statfs = nfs_statfs,
	.read = nfs_read,
	.cancel = nfs_cancel,
	.stop = nfs_stop,
	.close = nfs_close,
	.forget = nfs_forget,
	.count = nfs_count,
};

static int start(struct nfs_store *store)
{
	struct rpc_options options = {
		.server = store->export.server,
		.server_size = store->export.server_size,
		.name = store->options.name,
		.connections = store->options.connections,
		.identity = store->options.identity,
		.deadline_ms = store->options.deadline_ms,
		.woken = reads_woken,
	};
	int rc = reads_create(&store->reads, store);

	options.context = store->reads;
	return rc ? rc : rpc_open(&store->rpc, &options);
}

int store_nfs_open(struct store **out, const struct nfs_options *options, char *why, size_t room)
{
	struct nfs_store *store = calloc(1, sizeof(*store));
	int rc;

	if (!store) {
		snprintf(why, room, "out of memory");
		return -ENOMEM;
	}
	store->store.ops = &nfs_ops;
	store->options = *options;
	lock_init(&store->lock, LOCK_STORE);
	handles_init(&store->handles);
	store->devices = devices_open(options->estate);
	if (!store->devices) {
		snprintf(why, room, "out of memory");
		free_store(store);
		return -ENOMEM;
	}
	rc = mount_find(&store->export, options, why, room);
	if (!rc) {
		rc = start(store);
		if (!rc)
			rc = nfs_begin(store);
		if (rc)
			snprintf(why, room, "the server (port %u): %s", options->nfs_port,
				 strerror(-rc));
	}
	if (rc) {
		free_store(store);
		return rc;
	}
	rpc_begin_telling(store->rpc);
	*out = &store->store;
	return 0;
}
