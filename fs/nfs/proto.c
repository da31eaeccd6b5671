/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "nfs/proto.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/sysmacros.h>

#define RPC_VERSION 2
#define RPC_CALL 0
#define RPC_REPLY 1
#define AUTH_NONE 0
#define AUTH_SYS 1
#define VERIFIER_MAX 400 /* bytes of a reply's */
#define FLAVORS_MAX 64	 /* ways to authenticate that an export may name */
#define TCP_NUMBER 6
#define LAST_FRAGMENT 0x80000000u
#define MACHINE "shadefs"

/* --- calls --------------------------------------------------------------------------------------
 */

static const struct {
	uint32_t program, version, number;
} procedures[] = {
	[NFS_GETATTR] = { NFS_PROGRAM, 3, 1 },	    [NFS_LOOKUP] = { NFS_PROGRAM, 3, 3 },
	[NFS_READLINK] = { NFS_PROGRAM, 3, 5 },	    [NFS_READ] = { NFS_PROGRAM, 3, 6 },
	[NFS_READDIRPLUS] = { NFS_PROGRAM, 3, 17 }, [NFS_FSSTAT] = { NFS_PROGRAM, 3, 18 },
	[NFS_FSINFO] = { NFS_PROGRAM, 3, 19 },	    [NFS_MOUNT] = { NFS_MOUNT_PROGRAM, 3, 1 },
	[NFS_GETPORT] = { 100000, 2, 3 },
};

static void put_identity(struct xdr_out *out, const struct nfs_identity *identity)
{
	xdr_put_number(out, AUTH_SYS);
	xdr_put_number(out, (uint32_t)(4 + 4 + xdr_padded(strlen(MACHINE)) + 4 + 4 + 4));
	xdr_put_number(out, 0); /* a stamp, which nobody looks at */
	xdr_put_opaque(out, MACHINE, strlen(MACHINE));
	xdr_put_number(out, identity->uid);
	xdr_put_number(out, identity->gid);
	xdr_put_number(out, 0); /* no further groups */
	xdr_put_number(out, AUTH_NONE);
	xdr_put_number(out, 0);
}

static void put_handle(struct xdr_out *out, const struct nfs_handle *handle)
{
	xdr_put_opaque(out, handle->bytes, handle->size);
}

static void put_read(struct xdr_out *out, const struct nfs_args *args)
{
	put_handle(out, &args->handle);
	xdr_put_long(out, args->offset);
	xdr_put_number(out, args->count);
}

/* The server counts names and cookies against the first limit, and everything against the second;
 * here the second alone is meant to bind. */
static void put_list(struct xdr_out *out, const struct nfs_args *args)
{
	put_handle(out, &args->handle);
	xdr_put_long(out, args->offset);
	xdr_put_long(out, args->verifier);
	xdr_put_number(out, args->count);
	xdr_put_number(out, args->count);
}

static void put_getport(struct xdr_out *out, const struct nfs_args *args)
{
	xdr_put_number(out, args->program);
	xdr_put_number(out, 3);
	xdr_put_number(out, TCP_NUMBER);
	xdr_put_number(out, 0);
}

static void put_args(struct xdr_out *out, const struct nfs_args *args)
{
	switch (args->procedure) {
	case NFS_READ:
		put_read(out, args);
		break;
	case NFS_READDIRPLUS:
		put_list(out, args);
		break;
	case NFS_LOOKUP:
		put_handle(out, &args->handle);
		xdr_put_opaque(out, args->name, strlen(args->name));
		break;
	case NFS_MOUNT:
		xdr_put_opaque(out, args->name, strlen(args->name));
		break;
	case NFS_GETPORT:
		put_getport(out, args);
		break;
	case NFS_GETATTR:
	case NFS_READLINK:
	case NFS_FSSTAT:
	case NFS_FSINFO:
		put_handle(out, &args->handle);
	}
}

size_t nfs_put_call(void *bytes, size_t room, uint32_t xid, const struct nfs_identity *identity,
		    const struct nfs_args *args)
{
	struct xdr_out out = { .at = bytes, .end = (uint8_t *)bytes + room };
	struct xdr_out mark = out;
	size_t size;

	xdr_put_number(&out, 0); /* the mark, below */
	xdr_put_number(&out, xid);
	xdr_put_number(&out, RPC_CALL);
	xdr_put_number(&out, RPC_VERSION);
	xdr_put_number(&out, procedures[args->procedure].program);
	xdr_put_number(&out, procedures[args->procedure].version);
	xdr_put_number(&out, procedures[args->procedure].number);
	put_identity(&out, identity);
	put_args(&out, args);
	if (out.bad)
		return 0;
	size = (size_t)(out.at - (uint8_t *)bytes);
	xdr_put_number(&mark, LAST_FRAGMENT | (uint32_t)(size - 4));
	return size;
}

/* --- replies ------------------------------------------------------------------------------------
 */

/* Most numbers of the server are those of errno on every Unix of its time. */
static int errno_of(uint32_t status)
{
	static const struct {
		uint32_t status;
		int error;
	} others[] = {
		{ 63, ENAMETOOLONG },	 { 66, ENOTEMPTY },	{ 69, EDQUOT },
		{ 70, ESTALE },		 { 71, EREMOTE },	{ 10001, ESTALE },
		{ 10003, EAGAIN },	 { 10004, EOPNOTSUPP }, { 10006, EIO },
		{ NFS_JUKEBOX, EAGAIN },
	};

	if (status <= 31)
		return (int)status;
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (others[i].status == status)
			return others[i].error;
	return EIO;
}

/* The call was not made: the server does not take it, or not from us. */
static int refusal(struct xdr *reply)
{
	bool is_auth = xdr_get_number(reply) == 1;

	return is_auth ? -EACCES : -EPROTONOSUPPORT;
}

static int accepted(struct xdr *reply)
{
	uint32_t size;

	(void)xdr_get_number(reply);
	(void)xdr_get_opaque(reply, VERIFIER_MAX, &size);
	switch (xdr_get_number(reply)) {
	case 0:
		return 0;
	case 1:
	case 2:
	case 3:
		return -EPROTONOSUPPORT; /* no such program, version or procedure */
	default:
		return -EIO;
	}
}

int nfs_open_reply(struct xdr *reply, const struct nfs_args *args, uint32_t *status)
{
	int rc;

	*status = 0;
	(void)xdr_get_number(reply); /* the xid */
	if (xdr_get_number(reply) != RPC_REPLY)
		return -EBADMSG;
	rc = xdr_get_number(reply) == 0 ? accepted(reply) : refusal(reply);
	if (!rc && args->procedure != NFS_GETPORT)
		*status = xdr_get_number(reply);
	if (reply->bad)
		return -EBADMSG;
	return *status ? -errno_of(*status) : rc;
}

#define ATTR_SIZE 84

/* Reads the numbers that decide in the sequence in which they come. */
enum nfs_split nfs_split_read(const uint8_t *reply, size_t got, size_t *head, size_t *count)
{
	size_t at = NFS_SPLIT_LEAST, verifier;

	*count = 0;
	*head = NFS_SPLIT_LEAST;
	if (got < *head)
		return NFS_SPLIT_MORE;
	verifier = xdr_number_at(reply + 16);
	if (xdr_number_at(reply + 8) || verifier > VERIFIER_MAX)
		return NFS_SPLIT_NONE; /* refused */
	at += xdr_padded(verifier);
	*head = at + 12; /* whether it was accepted; the status; whether attributes follow */
	if (got < *head)
		return NFS_SPLIT_MORE;
	if (xdr_number_at(reply + at) || xdr_number_at(reply + at + 4))
		return NFS_SPLIT_NONE;
	*head += (xdr_number_at(reply + at + 8) ? ATTR_SIZE : 0) + 12;
	if (got < *head)
		return NFS_SPLIT_MORE;
	*count = xdr_number_at(reply + *head - 4);
	return NFS_SPLIT_BYTES;
}

static uint32_t get_mode(struct xdr *reply)
{
	static const uint32_t types[] = { 0,	   0100000, 0040000, 0060000,
					  0020000, 0120000, 0140000, 0010000 };
	uint32_t type = xdr_get_number(reply), mode = xdr_get_number(reply);

	if (type < 1 || type > 7) {
		reply->bad = true;
		return 0;
	}
	return types[type] | (mode & 07777);
}

static __int128 get_time(struct xdr *reply)
{
	__int128 seconds = xdr_get_number(reply);

	return seconds * 1000000000 + xdr_get_number(reply);
}

void nfs_get_attr(struct xdr *reply, struct nfs_attr *attr)
{
	uint32_t links, major, minor;

	*attr = (struct nfs_attr){ 0 };
	attr->attr.mode = get_mode(reply) & 0xffff;
	links = xdr_get_number(reply);
	attr->attr.nlink = (links < STORE_LINKS_MAX ? links : STORE_LINKS_MAX) & STORE_LINKS_MAX;
	attr->attr.uid = xdr_get_number(reply);
	attr->attr.gid = xdr_get_number(reply);
	attr->attr.size = xdr_get_long(reply);
	(void)xdr_get_long(reply); /* the bytes that it takes */
	major = xdr_get_number(reply);
	minor = xdr_get_number(reply);
	if (store_is_device(&attr->attr))
		attr->attr.size = makedev(major, minor);
	attr->fsid = xdr_get_long(reply);
	attr->attr.ino = xdr_get_long(reply);
	(void)get_time(reply); /* of the last access */
	store_set_mtime(&attr->attr, get_time(reply));
	store_set_ctime(&attr->attr, get_time(reply));
}

bool nfs_get_maybe_attr(struct xdr *reply, struct nfs_attr *attr)
{
	bool has = xdr_get_bool(reply);

	if (has)
		nfs_get_attr(reply, attr);
	return has;
}

void nfs_get_handle(struct xdr *reply, struct nfs_handle *handle)
{
	uint32_t size;
	const uint8_t *bytes = xdr_get_opaque(reply, NFS_HANDLE_MAX, &size);

	handle->size = 0;
	if (!bytes)
		return;
	if (!size)
		reply->bad = true;
	handle->size = (uint8_t)size;
	memcpy(handle->bytes, bytes, size);
}

bool nfs_get_maybe_handle(struct xdr *reply, struct nfs_handle *handle)
{
	bool has = xdr_get_bool(reply);

	if (has)
		nfs_get_handle(reply, handle);
	return has;
}

void nfs_get_found(struct xdr *reply, struct nfs_found *found)
{
	struct nfs_attr dir;

	nfs_get_handle(reply, &found->handle);
	found->has_attr = nfs_get_maybe_attr(reply, &found->attr);
	(void)nfs_get_maybe_attr(reply, &dir);
}

void nfs_get_read_head(struct xdr *reply, struct nfs_read_head *head)
{
	head->has_attr = nfs_get_maybe_attr(reply, &head->attr);
	head->count = xdr_get_number(reply);
	head->at_end = xdr_get_bool(reply);
	if (xdr_get_number(reply) != head->count)
		reply->bad = true;
}

void nfs_get_limits(struct xdr *reply, struct nfs_limits *limits)
{
	struct nfs_attr attr;

	(void)nfs_get_maybe_attr(reply, &attr);
	limits->read_max = xdr_get_number(reply);
	xdr_skip(reply, 20); /* the best sizes of reads, and those of writes */
	limits->list_best = xdr_get_number(reply);
}

void nfs_get_space(struct xdr *reply, struct nfs_space *space)
{
	struct nfs_attr attr;

	(void)nfs_get_maybe_attr(reply, &attr);
	space->total_bytes = xdr_get_long(reply);
	space->free_bytes = xdr_get_long(reply);
	space->available_bytes = xdr_get_long(reply);
	space->total_files = xdr_get_long(reply);
	space->free_files = xdr_get_long(reply);
	space->available_files = xdr_get_long(reply);
}

const uint8_t *nfs_get_link(struct xdr *reply, struct nfs_attr *attr, bool *has_attr,
			    uint32_t *size)
{
	const uint8_t *target;

	*has_attr = nfs_get_maybe_attr(reply, attr);
	target = xdr_get_opaque(reply, NFS_LINK_MAX, size);
	if (target && memchr(target, 0, *size))
		reply->bad = true;
	return target;
}

void nfs_get_list_head(struct xdr *reply, uint64_t *verifier)
{
	struct nfs_attr dir;

	(void)nfs_get_maybe_attr(reply, &dir);
	*verifier = xdr_get_long(reply);
}

bool nfs_get_entry(struct xdr *reply, struct nfs_entry *entry)
{
	if (!xdr_get_bool(reply))
		return false;
	(void)xdr_get_long(reply); /* the attributes have the number, too */
	entry->name = xdr_get_opaque(reply, UINT32_MAX - 3, &entry->size);
	entry->cookie = xdr_get_long(reply);
	entry->has_attr = nfs_get_maybe_attr(reply, &entry->attr);
	entry->has_handle = nfs_get_maybe_handle(reply, &entry->handle);
	return !reply->bad;
}

bool nfs_get_mounted(struct xdr *reply, struct nfs_handle *handle)
{
	bool takes = false;
	uint32_t count;

	nfs_get_handle(reply, handle);
	count = xdr_get_number(reply);
	if (count > FLAVORS_MAX)
		reply->bad = true;
	takes = !count;
	for (uint32_t i = 0; i < count && !reply->bad; i++)
		takes |= xdr_get_number(reply) == AUTH_SYS;
	return takes;
}
