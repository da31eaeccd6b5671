/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What rpc.c and connection.c share. */
#ifndef SHADE_NFS_RPC_INTERNAL_H
#define SHADE_NFS_RPC_INTERNAL_H

#include <stdatomic.h>

#include "base/threads.h"
#include "nfs/connection.h"

struct rpc {
	struct rpc_options options;
	int epoll, wakeup; /* the latter is an eventfd */
	struct thread thread;
	_Atomic uint64_t calls, reads, reconnects;
	_Atomic bool tells;   /* see rpc_begin_telling() */
	uint64_t patience_ms; /* after which a connection that says nothing is given up */

	/* The I/O thread's. */
	uint32_t last_xid;
	struct keyed_table sent; /* by xid */
	struct call_list ready, delayed;
	uint64_t ticked_ms;
	uint64_t heard_ms; /* when something last came, over any connection */
	unsigned stalls;   /* since something came */
	bool is_missed;	   /* it was said that the server does not answer */

	struct lock lock;
	struct cond changed;	/* lock: an asked call is over */
	struct call_list asked; /* lock: by other threads */
	bool awake;		/* lock: the I/O thread will look at the lock before it sleeps */
	bool wanted;		/* lock: `woken` is to be called */
	bool stopping;		/* lock */
	bool closing;		/* lock */

	struct connection connections[]; /* the I/O thread's */
};

/* A reply came: the call is not on its connection any more. False: it made no sense, so what else
 * comes over that connection may not, either. */
bool rpc_complete(struct rpc *rpc, struct rpc_call *call, int rc);

/* No connection is up, and none can be had for now. */
void rpc_miss(struct rpc *rpc, int rc);

#endif
