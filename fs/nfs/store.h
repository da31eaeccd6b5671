/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* An export of an NFSv3 server as the source, without the kernel's client. */
#ifndef SHADE_NFS_STORE_H
#define SHADE_NFS_STORE_H

#include "nfs/proto.h"
#include "nfs/url.h"
#include "source/store.h"

#define NFS_PORT 2049
#define NFS_CONNECTIONS 4
#define NFS_CONNECTIONS_MAX 64

struct estate;

struct nfs_options {
	const struct nfs_url *url;
	const char *name; /* the URL as it was given, for messages; it stays */
	uint16_t nfs_port;
	uint16_t mount_port; /* 0: the portmapper is asked */
	unsigned connections;
	struct nfs_identity identity;
	unsigned depth; /* READs at a time */
	uint64_t deadline_ms;
	struct estate *estate; /* as for store_dir_open() */
};

/* 0, or a negative errno with a reason. */
int store_nfs_open(struct store **out, const struct nfs_options *options, char *why, size_t room);

#endif
