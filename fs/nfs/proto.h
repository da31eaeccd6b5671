/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The calls that are made of an NFSv3 server (RFC 1813), of its mount daemon and of its portmapper,
 * and what the replies say: bytes from and to structs, and nothing else. What a server sends is
 * believed only as far as it fits.
 */
#ifndef SHADE_NFS_PROTO_H
#define SHADE_NFS_PROTO_H

#include "nfs/xdr.h"
#include "source/attr.h"

#define NFS_HANDLE_MAX 64
#define NFS_NAME_MAX 255   /* bytes, as the kernel has it */
#define NFS_PATH_MAX 1024  /* of an export */
#define NFS_LINK_MAX 4095  /* bytes of a link's target */
#define NFS_CALL_MAX 2048  /* bytes of a call */
#define NFS_REPLY_MAX 2048 /* bytes of a reply to all but READ and READDIRPLUS, and READLINK */

/* What names a file at the server, whatever its path. */
struct nfs_handle {
	uint8_t size;
	uint8_t bytes[NFS_HANDLE_MAX];
};

enum nfs_procedure {
	NFS_GETATTR,
	NFS_LOOKUP,
	NFS_READLINK,
	NFS_READ,
	NFS_READDIRPLUS,
	NFS_FSSTAT,
	NFS_FSINFO,
	NFS_MOUNT,   /* of the mount daemon: the handle of an export */
	NFS_GETPORT, /* of the portmapper: where a program listens */
};

/* AUTH_SYS: whom the server takes us for. */
struct nfs_identity {
	uint32_t uid, gid;
};

struct nfs_args {
	enum nfs_procedure procedure;
	struct nfs_handle handle; /* all but NFS_MOUNT and NFS_GETPORT */
	const char *name;	  /* NFS_LOOKUP: in the directory; NFS_MOUNT: the path */
	uint64_t offset;	  /* NFS_READ; NFS_READDIRPLUS: the cookie */
	uint64_t verifier;	  /* NFS_READDIRPLUS */
	uint32_t count;		  /* NFS_READ, NFS_READDIRPLUS: bytes */
	uint32_t program;	  /* NFS_GETPORT; its version is 3 */
};

#define NFS_PROGRAM 100003
#define NFS_MOUNT_PROGRAM 100005

/* Writes a call with its record mark. Its size; 0: it does not fit. */
size_t nfs_put_call(void *bytes, size_t room, uint32_t xid, const struct nfs_identity *identity,
		    const struct nfs_args *args);

/* --- replies ------------------------------------------------------------------------------------
 */

#define NFS_JUKEBOX 10008 /* the server asks to try again later */

/* Begins with the xid; `reply` is then where the result begins. 0, or what the server's refusal
 * means as a negative errno. `status` is the server's own number, or 0 if it is not about that. */
int nfs_open_reply(struct xdr *reply, const struct nfs_args *args, uint32_t *status);

/* Where a READ's bytes begin in a reply of which there are `got` bytes by now. */
enum nfs_split {
	NFS_SPLIT_MORE,	 /* not known yet: see `head` */
	NFS_SPLIT_BYTES, /* `count` bytes of the file follow `head` bytes */
	NFS_SPLIT_NONE,	 /* the reply has none */
};
#define NFS_SPLIT_LEAST 20 /* bytes before it can say anything */
/* `head`: with NFS_SPLIT_MORE, how many bytes are needed at least to know more. */
enum nfs_split nfs_split_read(const uint8_t *reply, size_t got, size_t *head, size_t *count);

/* A file's attributes. Which device number the file system has is the caller's knowledge:
 * `attr.dev` is 0. */
struct nfs_attr {
	struct store_attr attr;
	uint64_t fsid;
};

/* Results, in the sequence in which the server sends them. Each sets `bad` as struct xdr says. */
void nfs_get_attr(struct xdr *reply, struct nfs_attr *attr);
/* Whether there are any. */
bool nfs_get_maybe_attr(struct xdr *reply, struct nfs_attr *attr);
void nfs_get_handle(struct xdr *reply, struct nfs_handle *handle);
bool nfs_get_maybe_handle(struct xdr *reply, struct nfs_handle *handle);

struct nfs_found {
	struct nfs_handle handle;
	struct nfs_attr attr;
	bool has_attr;
};
void nfs_get_found(struct xdr *reply, struct nfs_found *found);

/* What comes before the bytes of a READ. */
struct nfs_read_head {
	struct nfs_attr attr;
	bool has_attr;
	uint32_t count;
	bool at_end; /* of the file, the server says */
};
void nfs_get_read_head(struct xdr *reply, struct nfs_read_head *head);

struct nfs_limits {
	uint32_t read_max; /* bytes that one READ gives */
	uint32_t list_best;
};
void nfs_get_limits(struct xdr *reply, struct nfs_limits *limits);

struct nfs_space {
	uint64_t total_bytes, free_bytes, available_bytes;
	uint64_t total_files, free_files, available_files;
};
void nfs_get_space(struct xdr *reply, struct nfs_space *space);

/* The target of a link is `size` bytes, without a 0. */
const uint8_t *nfs_get_link(struct xdr *reply, struct nfs_attr *attr, bool *has_attr,
			    uint32_t *size);

/* The head of a listing; then one entry after the other while nfs_get_entry() returns true. */
void nfs_get_list_head(struct xdr *reply, uint64_t *verifier);
struct nfs_entry {
	const uint8_t *name; /* of `size` bytes, whatever the server has sent */
	uint32_t size;
	uint64_t cookie;
	struct nfs_attr attr;
	bool has_attr;
	struct nfs_handle handle;
	bool has_handle;
};
bool nfs_get_entry(struct xdr *reply, struct nfs_entry *entry);

/* NFS_MOUNT: the handle of an export, and whether the server takes AUTH_SYS there. */
bool nfs_get_mounted(struct xdr *reply, struct nfs_handle *handle);

static inline bool nfs_same_handle(const struct nfs_handle *a, const struct nfs_handle *b)
{
	return a->size == b->size && !__builtin_memcmp(a->bytes, b->bytes, a->size);
}

#endif
