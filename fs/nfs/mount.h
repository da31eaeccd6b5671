/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Finding the server, and the handle of an export on it. */
#ifndef SHADE_NFS_MOUNT_H
#define SHADE_NFS_MOUNT_H

#include "nfs/socket.h"
#include "nfs/store.h"

struct nfs_export {
	struct sockaddr_storage server; /* with the port of NFS */
	socklen_t server_size;
	uint16_t mount_port; /* 0: the portmapper knows */
	struct nfs_identity identity;
	const char *path;
	/* What was found. */
	struct nfs_handle handle;
	const char *rest; /* of the path: below `handle`, to be looked up; "" if it is all */
};

/* How many milliseconds a server has to answer at the start. Signals wait until then. */
uint64_t mount_patience(const struct nfs_options *options);
/* Asks all addresses that the server's name has, until one answers. 0, or a negative errno with a
 * reason. */
int mount_find(struct nfs_export *export, const struct nfs_options *options, char *why,
	       size_t room);
/* Asks the server that is known already once more. */
int mount_again(struct nfs_export *export, uint64_t until_ms, char *why, size_t room);

#endif
