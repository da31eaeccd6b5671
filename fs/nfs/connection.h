/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One connection to the server, and the calls that were sent over it. Everything here is the I/O
 * thread's.
 *
 *   state     event                      state
 *   DOWN      connection_open()          OPENING
 *   OPENING   the server accepts         UP
 *   OPENING   refused, or no answer      DOWN, until `retry_ms`
 *   UP        lost, stalled or senseless DOWN, until `retry_ms`; its calls are to be sent again
 */
#ifndef SHADE_NFS_CONNECTION_H
#define SHADE_NFS_CONNECTION_H

#include "nfs/rpc.h"

#define CONNECTION_OUT 65536 /* bytes that wait to be sent */
#define CONNECTION_RETRY_LEAST_MS 50
#define CONNECTION_RETRY_MOST_MS 2000

enum connection_state { CONNECTION_DOWN, CONNECTION_OPENING, CONNECTION_UP };

struct call_list {
	struct rpc_call *first, **end;
};

struct connection {
	struct rpc *rpc;
	enum connection_state state;
	int fd;
	bool awaits_room;  /* epoll is to tell when more can be sent */
	bool is_senseless; /* a reply made no sense: what follows may not, either */
	uint64_t retry_ms; /* DOWN: not before */
	uint64_t pause_ms; /* before the next try; 0: it works */
	bool owes;	   /* something was asked since anything last came */
	uint64_t heard_ms; /* when something last came, or was first asked */
	uint64_t weight;   /* of its calls */
	struct call_list calls;
	size_t out_begin, out_end;
	uint8_t out[CONNECTION_OUT];
	struct reader reader;
};

void connection_init(struct connection *connection, struct rpc *rpc);
void connection_open(struct connection *connection, uint64_t now_ms);
/* Its calls go to the front of those to be sent. */
void connection_lose(struct connection *connection, int rc, uint64_t now_ms);
/* Takes a call along, to be sent by connection_flush(). False: it has no room. */
bool connection_add(struct connection *connection, struct rpc_call *call, uint64_t now_ms);
void connection_remove(struct connection *connection, struct rpc_call *call);
void connection_flush(struct connection *connection, uint64_t now_ms);
/* What epoll has told of it. */
void connection_handle(struct connection *connection, uint32_t events, uint64_t now_ms);

/* --- lists of calls ------------------------------------------------------------------------------
 */

static inline void call_list_init(struct call_list *list)
{
	*list = (struct call_list){ .end = &list->first };
}

static inline void call_list_add(struct call_list *list, struct rpc_call *call)
{
	call->next = NULL;
	call->before = list->end;
	*list->end = call;
	list->end = &call->next;
}

static inline void call_list_add_first(struct call_list *list, struct rpc_call *call)
{
	call->next = list->first;
	call->before = &list->first;
	if (call->next)
		call->next->before = &call->next;
	else
		list->end = &call->next;
	list->first = call;
}

static inline void call_list_remove(struct call_list *list, struct rpc_call *call)
{
	*call->before = call->next;
	if (call->next)
		call->next->before = call->before;
	else
		list->end = call->before;
}

#endif
