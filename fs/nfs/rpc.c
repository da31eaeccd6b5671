/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "nfs/rpc.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"
#include "nfs/rpc_internal.h"

#define TICK_MS 50	      /* while something is under way */
#define STALL_MOST_MS 5000    /* without a byte, although something is asked, for the first time */
#define PATIENCE_MS 60000     /* for a server that is slow */
#define DEADLINE_LEAST_MS 400 /* readers may wait less, but connections get so much time */
#define DOUBLINGS 6	      /* of how long a server that is slow has */
#define DELAY_LEAST_MS 100    /* before a server that has no time is asked again */
#define DELAY_DOUBLINGS 4
#define CALL_WEIGHT 256 /* bytes of a reply without a file's */
#define EVENTS 16

/* --- calls --------------------------------------------------------------------------------------
 */

void rpc_start(struct rpc *rpc, struct rpc_call *call)
{
	assert(call->state == CALL_IDLE && call->done);
	call->delays = call->losses = 0;
	call->is_doubted = false;
	call->weight = CALL_WEIGHT + call->args.count;
	call->state = CALL_READY;
	call_list_add(&rpc->ready, call);
}

void rpc_forget(struct rpc *rpc, struct rpc_call *call)
{
	if (call->state == CALL_SENT)
		connection_remove(call->connection, call);
	else if (call->state == CALL_READY)
		call_list_remove(&rpc->ready, call);
	else if (call->state == CALL_DELAYED)
		call_list_remove(&rpc->delayed, call);
	call->state = CALL_IDLE;
}

static void delay(struct rpc *rpc, struct rpc_call *call)
{
	unsigned doublings = call->delays < DELAY_DOUBLINGS ? call->delays : DELAY_DOUBLINGS;

	call->delays++;
	call->again_ms = clock_now_ms() + ((uint64_t)DELAY_LEAST_MS << doublings);
	call->state = CALL_DELAYED;
	call_list_add(&rpc->delayed, call);
}

/* A reply that makes no sense may be the end of one that was cut: the call is made once more, over
 * another connection. */
static void doubt(struct rpc *rpc, struct rpc_call *call)
{
	if (call->is_doubted) {
		call->done(call, -EIO);
		return;
	}
	call->is_doubted = true;
	call->state = CALL_READY;
	call_list_add_first(&rpc->ready, call);
}

static void meet(struct rpc *rpc)
{
	if (rpc->is_missed)
		log_say(LOG_NOTES, "%s answers again", rpc->options.name);
	rpc->is_missed = false;
}

void rpc_miss(struct rpc *rpc, int rc)
{
	for (unsigned i = 0; i < rpc->options.connections; i++)
		if (rpc->connections[i].state == CONNECTION_UP)
			return;
	if (rpc->is_missed || !atomic_load(&rpc->tells))
		return;
	log_say(LOG_WARNINGS, "%s does not answer: %s", rpc->options.name, strerror(-rc));
	rpc->is_missed = true;
}

bool rpc_complete(struct rpc *rpc, struct rpc_call *call, int rc)
{
	uint32_t status = 0;

	assert(!call->connection && call->state == CALL_IDLE);
	call->result = (struct xdr){ .at = call->reply.buffer,
				     .end = call->reply.buffer + call->reply.size };
	if (!rc)
		rc = nfs_open_reply(&call->result, &call->args, &status);
	if (rc == -EBADMSG) {
		doubt(rpc, call);
		return false;
	}
	meet(rpc);
	if (status == NFS_JUKEBOX)
		delay(rpc, call);
	else
		call->done(call, rc == -EMSGSIZE ? -EIO : rc);
	return true;
}

/* --- calls of other threads ---------------------------------------------------------------------
 */

struct asking {
	struct rpc *rpc;
	bool is_over; /* the lock of rpc */
	int rc;
};

static void end_asking(struct rpc_call *call, int rc)
{
	struct asking *asking = call->context;
	struct rpc *rpc = asking->rpc;

	lock_acquire(&rpc->lock);
	asking->is_over = true;
	asking->rc = rc;
	cond_wake_all(&rpc->changed);
	lock_release(&rpc->lock);
}

static void wake_locked(struct rpc *rpc)
{
	uint64_t one = 1;

	lock_assert_held(&rpc->lock);
	if (rpc->awake)
		return;
	rpc->awake = true;
	if (write(rpc->wakeup, &one, sizeof(one)) < 0)
		log_say(LOG_ERRORS, "eventfd: %s", strerror(errno));
}

void rpc_wake(struct rpc *rpc)
{
	lock_acquire(&rpc->lock);
	rpc->wanted = true;
	wake_locked(rpc);
	lock_release(&rpc->lock);
}

int rpc_ask(struct rpc *rpc, struct rpc_call *call)
{
	struct asking asking = { .rpc = rpc };

	assert(call->until_ms);
	call->done = end_asking;
	call->context = &asking;
	call->state = CALL_IDLE;
	lock_acquire(&rpc->lock);
	if (rpc->stopping) {
		asking.is_over = true;
		asking.rc = -ESHUTDOWN;
	} else {
		call_list_add(&rpc->asked, call);
		wake_locked(rpc);
	}
	while (!asking.is_over)
		cond_wait(&rpc->changed, &rpc->lock);
	lock_release(&rpc->lock);
	return asking.rc;
}

void rpc_stop(struct rpc *rpc)
{
	lock_acquire(&rpc->lock);
	rpc->stopping = true;
	wake_locked(rpc);
	lock_release(&rpc->lock);
}

void rpc_begin_telling(struct rpc *rpc)
{
	atomic_store(&rpc->tells, true);
}

void rpc_get_counts(const struct rpc *rpc, struct rpc_counts *counts)
{
	counts->calls = atomic_load_explicit(&rpc->calls, memory_order_relaxed);
	counts->reads = atomic_load_explicit(&rpc->reads, memory_order_relaxed);
	counts->reconnects = atomic_load_explicit(&rpc->reconnects, memory_order_relaxed);
}

/* --- sending ------------------------------------------------------------------------------------
 */

/* The connection with the least to do; NULL: none is up. */
static struct connection *find_idlest(struct rpc *rpc)
{
	struct connection *idlest = NULL;

	for (unsigned i = 0; i < rpc->options.connections; i++) {
		struct connection *connection = &rpc->connections[i];

		if (connection->state == CONNECTION_UP &&
		    (!idlest || connection->weight < idlest->weight))
			idlest = connection;
	}
	return idlest;
}

/* There is more to do than the connections have room for that are up. */
static void open_another(struct rpc *rpc, uint64_t now_ms)
{
	for (unsigned i = 0; i < rpc->options.connections; i++) {
		struct connection *connection = &rpc->connections[i];

		if (connection->state == CONNECTION_OPENING)
			return; /* one at a time */
		if (connection->state == CONNECTION_DOWN && connection->retry_ms <= now_ms) {
			connection_open(connection, now_ms);
			return;
		}
	}
}

static void send_ready(struct rpc *rpc, uint64_t now_ms)
{
	while (rpc->ready.first) {
		struct rpc_call *call = rpc->ready.first;
		struct connection *connection = find_idlest(rpc);

		if (!connection || connection->weight)
			open_another(rpc, now_ms);
		if (!connection)
			break;
		call_list_remove(&rpc->ready, call);
		if (!connection_add(connection, call, now_ms)) {
			call_list_add_first(&rpc->ready, call);
			break;
		}
	}
	for (unsigned i = 0; i < rpc->options.connections; i++)
		connection_flush(&rpc->connections[i], now_ms);
}

/* --- what time brings ---------------------------------------------------------------------------
 */

/* Calls that have waited long enough, or, if `all`, all that other threads wait for. */
static struct rpc_call *find_late(const struct call_list *list, uint64_t now_ms, bool all)
{
	struct rpc_call *call = list->first;

	while (call && (!call->until_ms || (!all && call->until_ms > now_ms)))
		call = call->next;
	return call;
}

static void end_late(struct rpc *rpc, struct call_list *list, uint64_t now_ms, bool all)
{
	struct rpc_call *call;

	while ((call = find_late(list, now_ms, all))) {
		rpc_forget(rpc, call);
		call->done(call, all ? -ESHUTDOWN : -ETIMEDOUT);
	}
}

static void end_all_late(struct rpc *rpc, uint64_t now_ms, bool all)
{
	end_late(rpc, &rpc->ready, now_ms, all);
	end_late(rpc, &rpc->delayed, now_ms, all);
	for (unsigned i = 0; i < rpc->options.connections; i++)
		end_late(rpc, &rpc->connections[i].calls, now_ms, all);
}

static void start_delayed(struct rpc *rpc, uint64_t now_ms)
{
	for (struct rpc_call *call = rpc->delayed.first, *next; call; call = next) {
		next = call->next;
		if (call->again_ms > now_ms)
			continue;
		call_list_remove(&rpc->delayed, call);
		call->state = CALL_READY;
		call_list_add(&rpc->ready, call);
	}
}

static uint64_t doubled(uint64_t ms, unsigned times)
{
	return ms << (times < DOUBLINGS ? times : DOUBLINGS);
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* How long a connection may say nothing although something is asked. A server that is slow is not
 * to be asked again and again while it works: each time that nothing came it has twice as long, and
 * more than any reader waits, or a listing that takes so long would never be there. As long as
 * something comes over other connections, the slow one may merely have to wait. */
static uint64_t patience(const struct rpc *rpc, uint64_t now_ms)
{
	uint64_t deadline_ms = rpc->options.deadline_ms;
	uint64_t ms = doubled(rpc->patience_ms, rpc->stalls);

	if (now_ms - rpc->heard_ms < rpc->patience_ms && ms < deadline_ms / 2)
		ms = deadline_ms / 2;
	return least(ms, deadline_ms > PATIENCE_MS ? deadline_ms : PATIENCE_MS);
}

static void lose_stalled(struct rpc *rpc, uint64_t now_ms)
{
	uint64_t patience_ms = patience(rpc, now_ms);
	bool has_stalled = false;

	for (unsigned i = 0; i < rpc->options.connections; i++) {
		struct connection *connection = &rpc->connections[i];
		bool opens = connection->state == CONNECTION_OPENING;
		uint64_t most_ms = opens ? rpc->options.deadline_ms : patience_ms;

		if ((!opens && !connection->calls.first) ||
		    now_ms - connection->heard_ms < least(patience_ms, most_ms))
			continue;
		has_stalled = true;
		connection_lose(connection, -ETIMEDOUT, now_ms);
		rpc_miss(rpc, -ETIMEDOUT);
	}
	rpc->stalls += has_stalled;
}

/* Calls that others have overtaken for so long that the server must have dropped them. Only those
 * get so old for which nobody's deadline counts. */
static void ask_again(struct rpc *rpc, struct connection *connection, uint64_t now_ms)
{
	for (struct rpc_call *call = connection->calls.first, *next; call; call = next) {
		next = call->next;
		if (now_ms - call->sent_ms < doubled(2 * rpc->options.deadline_ms, call->losses))
			continue;
		connection_remove(connection, call);
		call->losses++;
		call->state = CALL_READY;
		call_list_add(&rpc->ready, call);
	}
}

static void tick(struct rpc *rpc, uint64_t now_ms)
{
	if (now_ms - rpc->ticked_ms < TICK_MS)
		return;
	rpc->ticked_ms = now_ms;
	end_all_late(rpc, now_ms, false);
	start_delayed(rpc, now_ms);
	lose_stalled(rpc, now_ms);
	for (unsigned i = 0; i < rpc->options.connections; i++)
		ask_again(rpc, &rpc->connections[i], now_ms);
}

static bool is_busy(const struct rpc *rpc)
{
	bool busy = rpc->ready.first || rpc->delayed.first;

	for (unsigned i = 0; i < rpc->options.connections; i++)
		busy |= rpc->connections[i].calls.first ||
			rpc->connections[i].state == CONNECTION_OPENING;
	return busy;
}

/* --- the thread ---------------------------------------------------------------------------------
 */

static void wait_for_events(struct rpc *rpc)
{
	struct epoll_event events[EVENTS];
	int timeout = is_busy(rpc) ? TICK_MS : -1, count;
	uint64_t now_ms, ignored;

	lock_acquire(&rpc->lock);
	if (rpc->wanted || rpc->asked.first || rpc->closing)
		timeout = 0;
	else
		rpc->awake = false;
	lock_release(&rpc->lock);
	count = epoll_wait(rpc->epoll, events, EVENTS, timeout);
	lock_acquire(&rpc->lock);
	rpc->awake = true; /* what `done` wants of this thread needs no wakeup */
	lock_release(&rpc->lock);
	now_ms = clock_now_ms();
	for (int i = 0; i < count; i++)
		if (events[i].data.ptr)
			connection_handle(events[i].data.ptr, events[i].events, now_ms);
		else if (read(rpc->wakeup, &ignored, sizeof(ignored)) < 0 && errno != EAGAIN)
			log_say(LOG_ERRORS, "eventfd: %s", strerror(errno));
}

/* Takes what others want. False: it is over. */
static bool take_wishes(struct rpc *rpc)
{
	bool wanted, stopping, closing;
	struct rpc_call *asked;

	lock_acquire(&rpc->lock);
	wanted = rpc->wanted;
	rpc->wanted = false;
	stopping = rpc->stopping;
	closing = rpc->closing;
	asked = rpc->asked.first;
	call_list_init(&rpc->asked);
	lock_release(&rpc->lock);
	for (struct rpc_call *next; asked; asked = next) {
		next = asked->next;
		rpc_start(rpc, asked);
	}
	if (stopping)
		end_all_late(rpc, 0, true);
	if (wanted)
		rpc->options.woken(rpc->options.context);
	return !closing;
}

static void serve(void *argument)
{
	struct rpc *rpc = argument;
	bool goes_on = true;

	while (goes_on) {
		wait_for_events(rpc);
		goes_on = take_wishes(rpc);
		tick(rpc, clock_now_ms());
		send_ready(rpc, clock_now_ms());
	}
}

/* --- begin and end ------------------------------------------------------------------------------
 */

static void free_rpc(struct rpc *rpc)
{
	for (unsigned i = 0; i < rpc->options.connections; i++)
		if (rpc->connections[i].fd >= 0)
			close(rpc->connections[i].fd);
	if (rpc->epoll >= 0)
		close(rpc->epoll);
	if (rpc->wakeup >= 0)
		close(rpc->wakeup);
	cond_destroy(&rpc->changed);
	lock_destroy(&rpc->lock);
	free(rpc);
}

static int start(struct rpc *rpc)
{
	struct epoll_event event = { .events = EPOLLIN };

	rpc->epoll = epoll_create1(EPOLL_CLOEXEC);
	rpc->wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (rpc->epoll < 0 || rpc->wakeup < 0 ||
	    epoll_ctl(rpc->epoll, EPOLL_CTL_ADD, rpc->wakeup, &event))
		return -errno;
	return thread_start(&rpc->thread, "shade-nfs", serve, rpc);
}

int rpc_open(struct rpc **out, const struct rpc_options *options)
{
	struct rpc *rpc =
		calloc(1, sizeof(*rpc) + options->connections * sizeof(rpc->connections[0]));
	int rc;

	assert(options->connections && options->connections <= RPC_CONNECTIONS_MAX);
	if (!rpc)
		return -ENOMEM;
	rpc->options = *options;
	if (rpc->options.deadline_ms < DEADLINE_LEAST_MS)
		rpc->options.deadline_ms = DEADLINE_LEAST_MS;
	rpc->patience_ms = least(rpc->options.deadline_ms / 4, STALL_MOST_MS);
	rpc->last_xid = (uint32_t)clock_now_ns();
	call_list_init(&rpc->ready);
	call_list_init(&rpc->delayed);
	call_list_init(&rpc->asked);
	lock_init(&rpc->lock, LOCK_STORE);
	cond_init(&rpc->changed);
	for (unsigned i = 0; i < options->connections; i++)
		connection_init(&rpc->connections[i], rpc);
	rc = start(rpc);
	if (rc)
		free_rpc(rpc);
	else
		*out = rpc;
	return rc;
}

void rpc_close(struct rpc *rpc)
{
	lock_acquire(&rpc->lock);
	rpc->closing = true;
	wake_locked(rpc);
	lock_release(&rpc->lock);
	thread_join(&rpc->thread);
	assert(!rpc->ready.first && !rpc->delayed.first);
	free_rpc(rpc);
}
