/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * An NFS export as the source: listings. READDIRPLUS brings attributes and handles along with the
 * names, hundreds at a time.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nfs/internal.h"

#define RESTARTS 4 /* of a listing whose cookies the server has forgotten */

struct listing {
	struct nfs_store *store;
	const struct nfs_handle *dir;
	store_entry *entry;
	void *context;
	uint64_t cookie, verifier;
	uint64_t seen;		   /* a cookie at which an earlier part has ended */
	uint64_t parts, next_seen; /* how many parts there were; when `seen` changes next */
	uint8_t *buffer;
	size_t room;
};

static bool is_dots(const struct nfs_entry *entry)
{
	return (entry->size == 1 && entry->name[0] == '.') ||
	       (entry->size == 2 && entry->name[0] == '.' && entry->name[1] == '.');
}

/* A name that no file can have here is told as one that fails, with other characters. */
static int check_name(const struct nfs_entry *entry, char *name)
{
	size_t size = entry->size < NFS_NAME_MAX ? entry->size : NFS_NAME_MAX;
	int rc = entry->size > NFS_NAME_MAX ? -ENAMETOOLONG : 0;

	memcpy(name, entry->name, size);
	name[size] = 0;
	for (size_t i = 0; i < size; i++)
		if (!name[i] || name[i] == '/') {
			name[i] = '?';
			rc = -EIO;
		}
	if (size)
		return rc;
	strcpy(name, "?");
	return -EIO;
}

static bool has_vanished(int rc)
{
	return rc == -ENOENT || rc == -ESTALE;
}

/* Asks about a name of which the server has told nothing else. */
static int ask_about(struct listing *listing, const char *name, struct nfs_entry *entry,
		     struct store_attr *attr)
{
	struct nfs_found found = { 0 };
	int rc = nfs_lookup(listing->store, listing->dir, name, &found, attr, RPC_PATIENT);

	entry->handle = found.handle;
	entry->has_handle = !rc;
	return rc;
}

/* A name may fail alone, or the source as a whole: then none may be left out. The latter shows by
 * how the name has failed. */
static bool is_of_source(int rc)
{
	return rc == -ETIMEDOUT || rc == -ESHUTDOWN || rc == -ENOMEM;
}

static int tell(struct listing *listing, struct nfs_entry *entry)
{
	char name[NFS_NAME_MAX + 1];
	struct store_attr attr;
	int rc = check_name(entry, name);

	if (rc)
		return listing->entry(listing->context, name, NULL, rc);
	if (entry->has_attr)
		nfs_convert(listing->store, &entry->attr, &attr);
	else
		rc = ask_about(listing, name, entry, &attr);
	if (rc && !has_vanished(rc) && !is_of_source(rc))
		rc = ask_about(listing, name, entry, &attr); /* it may have failed for a moment */
	if (has_vanished(rc))
		return 0;
	if (is_of_source(rc))
		return rc;
	if (!rc && entry->has_handle && nfs_keeps_handle(&attr))
		handles_put(&listing->store->handles, &attr, &entry->handle);
	return listing->entry(listing->context, name, rc ? NULL : &attr, rc);
}

/* Whether the server leads back to where the listing was before, and would do so for ever. One
 * cookie is remembered, twice as long each time, so that a circle of any length is found. */
static bool is_circle(struct listing *listing)
{
	if (listing->parts && listing->cookie == listing->seen)
		return true;
	if (listing->parts++ == listing->next_seen) {
		listing->seen = listing->cookie;
		listing->next_seen = listing->parts * 2;
	}
	return false;
}

static void begin_listing(struct listing *listing)
{
	listing->cookie = listing->verifier = 0;
	listing->parts = listing->next_seen = 0;
}

/* 0: there is more; 1: that was all; or a negative errno, or what `entry` returned. */
static int tell_part(struct listing *listing, struct xdr *reply, int *told)
{
	struct nfs_entry entry;
	bool is_last;

	nfs_get_list_head(reply, &listing->verifier);
	while (nfs_get_entry(reply, &entry)) {
		listing->cookie = entry.cookie;
		*told = is_dots(&entry) ? 0 : tell(listing, &entry);
		if (*told)
			return *told;
	}
	is_last = xdr_get_bool(reply);
	if (reply->bad || (!is_last && is_circle(listing)))
		return -EIO;
	return is_last;
}

static int ask_for_part(struct listing *listing, struct rpc_call *call)
{
	*call = (struct rpc_call){
		.args = { .procedure = NFS_READDIRPLUS,
			  .handle = *listing->dir,
			  .offset = listing->cookie,
			  .verifier = listing->verifier,
			  .count = listing->store->list_most },
		.reply = { .buffer = listing->buffer, .room = listing->room },
		.until_ms = RPC_PATIENT,
	};
	return rpc_ask(listing->store->rpc, call);
}

/* If the directory changes, a server may refuse to go on: then the listing begins anew. Names that
 * are told twice do not matter to whoever lists. */
static int list_all(struct listing *listing)
{
	unsigned restarts = 0;
	int rc, told = 0;

	do {
		struct rpc_call call;

		rc = ask_for_part(listing, &call);
		if (rc == -EAGAIN && listing->cookie && restarts++ < RESTARTS) {
			begin_listing(listing);
			rc = 0;
		} else if (!rc) {
			rc = tell_part(listing, &call.result, &told);
		}
	} while (!rc);
	if (told)
		return told;
	return rc == 1 ? 0 : rc;
}

int nfs_list(struct store_dir *dir, store_entry *entry, void *context)
{
	struct nfs_store *store = (struct nfs_store *)dir->store;
	struct listing listing = { .store = store,
				   .dir = dir->handle,
				   .entry = entry,
				   .context = context,
				   .room = store->list_most + NFS_REPLY_MAX };
	int rc;

	listing.buffer = malloc(listing.room);
	if (!listing.buffer)
		return -ENOMEM;
	rc = list_all(&listing);
	free(listing.buffer);
	return rc;
}
