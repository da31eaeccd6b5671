/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Calls of a server, many at a time over a few connections. One thread, the I/O thread, owns the
 * connections and all calls under way, and no lock is needed for them.
 *
 * A connection that is lost, or over which nothing comes although something is asked, is closed
 * with all that it has half received, and its calls are sent again over another one: whatever is
 * asked here can be asked twice. So is a call sent again to which no reply comes, although others
 * are answered. A call ends by its reply, by its own time limit, by rpc_forget(), or by the end. If
 * there is no server, it waits.
 */
#ifndef SHADE_NFS_RPC_H
#define SHADE_NFS_RPC_H

#include <sys/socket.h>

#include "base/keyed.h"
#include "nfs/proto.h"
#include "nfs/reader.h"

struct rpc;
struct connection;

enum call_state {
	CALL_IDLE,    /* rpc does not know it */
	CALL_READY,   /* to be sent */
	CALL_SENT,    /* over its connection */
	CALL_DELAYED, /* the server has asked to try again later */
};

struct rpc_call {
	struct keyed keyed; /* rpc's own: by xid */

	/* The caller's. */
	struct nfs_args args;
	struct reply reply;
	uint64_t until_ms; /* then it ends with -ETIMEDOUT; 0: never */
	/* In the I/O thread, without locks: 0 and `result`, or a negative errno. The call may be
	 * started again there. */
	void (*done)(struct rpc_call *call, int rc);
	void *context;

	struct xdr result;

	/* rpc's own. */
	enum call_state state;
	struct connection *connection;
	uint32_t weight; /* bytes that are expected */
	unsigned delays;
	unsigned losses; /* no reply came, although others did */
	bool is_doubted; /* a reply to it made no sense */
	uint64_t sent_ms, again_ms;
	struct rpc_call *next, **before;
};

struct rpc_options {
	struct sockaddr_storage server;
	socklen_t server_size;
	const char *name; /* for messages */
	unsigned connections;
	struct nfs_identity identity;
	uint64_t deadline_ms; /* of those who wait for calls */
	/* In the I/O thread, after rpc_wake(). */
	void (*woken)(void *context);
	void *context;
};

struct rpc_counts {
	uint64_t calls, reads, reconnects;
};

#define RPC_CONNECTIONS_MAX 64

/* 0 or a negative errno. It connects when the first call is made. */
int rpc_open(struct rpc **out, const struct rpc_options *options);
/* From now on, and for those who wait now, rpc_ask() fails with -ESHUTDOWN. */
void rpc_stop(struct rpc *rpc);
/* No call is under way. */
void rpc_close(struct rpc *rpc);
/* From any thread: has `woken` called soon. */
void rpc_wake(struct rpc *rpc);
/* From now on the log tells when the server does not answer. Before that, whoever opens it does. */
void rpc_begin_telling(struct rpc *rpc);
void rpc_get_counts(const struct rpc *rpc, struct rpc_counts *counts);

/* In the I/O thread. */
void rpc_start(struct rpc *rpc, struct rpc_call *call);
/* Nothing is received for it any more; `done` is not called. */
void rpc_forget(struct rpc *rpc, struct rpc_call *call);

/* In any other thread: makes a call, and waits until `until_ms` at most. Returns what `done` would
 * get. `args`, `reply` and `until_ms` are the caller's to fill in. */
#define RPC_PATIENT UINT64_MAX /* until the end */
int rpc_ask(struct rpc *rpc, struct rpc_call *call);

#endif
