/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Sockets to a server, and calls that have one of their own. */
#ifndef SHADE_NFS_SOCKET_H
#define SHADE_NFS_SOCKET_H

#include <sys/socket.h>

#include "nfs/proto.h"

/* Begins to connect; from a port below 1024 where that is allowed, since servers may insist. The
 * descriptor, which does not block, or a negative errno. */
int socket_connect(const struct sockaddr_storage *server, socklen_t size);

/* Makes one call over a connection of its own and waits for the reply until `until_ms`. 0, and
 * `result` in `buffer`; or a negative errno. */
struct socket_call {
	struct sockaddr_storage server;
	socklen_t server_size;
	struct nfs_identity identity;
	struct nfs_args args;
	uint64_t until_ms;
	uint8_t buffer[NFS_REPLY_MAX];
	struct xdr result;
};
int socket_ask(struct socket_call *call);

#endif
