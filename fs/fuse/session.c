/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "fuse/session.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include "base/log.h"
#include "base/mount.h"
#include "base/threads.h"
#include "fuse/agreed.h"
#include "fuse/fusermount.h"
#include "fuse/internal.h"

#define PATIENCE_MS 1000 /* how long session_stop() waits for busy workers */
/* Newer headers than those of protocol 7.38 have these, too. */
#define NOTIFY_REPEAT 7			/* FUSE_NOTIFY_RESEND */
#define CAN_REPEAT (1u << 7)		/* FUSE_HAS_RESEND, in the second word of flags */
#define IS_REPEATED ((uint64_t)1 << 63) /* FUSE_UNIQUE_RESEND */

/* A request that waits for a worker. */
struct queued {
	struct queued *next;
	void *held; /* by session_options.hold(); NULL: nothing */
	struct fuse_buf buffer;
	char data[];
};

/* A queue and its workers. */
struct lane {
	struct session *session;
	struct thread *workers;
	unsigned worker_max;
	unsigned worker_count; /* only `thread` uses it, and after that whoever ends the session */
	struct cond changed;
	struct queued *first, **end; /* lock */
	unsigned waiting;	     /* lock: requests in the queue */
	unsigned idle;		     /* lock: workers without a request */
};

struct session {
	struct session_options options;
	struct fuse_session *fuse;
	struct mount mount; /* constant once it is started */
	struct thread thread;
	_Atomic bool running, stopping;
	bool started; /* session_start() has succeeded; for whoever starts and ends the session */
	bool stopped; /* only the thread that ends the session uses it: `thread` was joined */

	struct lock lock;
	struct lane lanes[SESSION_LANES];
	bool closing; /* lock */
};

static _Thread_local bool is_repeated;
static _Thread_local uint64_t request;

bool session_is_repeated(void)
{
	return is_repeated;
}

uint64_t session_request(void)
{
	return request;
}

/* libfuse keeps what answers or interrupts a request that it does not know, as after that was a
 * dead daemon's, until the next one comes or for ever: no leak of ours. */
static bool may_be_kept(uint32_t opcode)
{
	return opcode == FUSE_INTERRUPT || opcode == FUSE_NOTIFY_REPLY;
}

static void process_unanswered(struct session *session, const struct fuse_buf *buffer)
{
#ifdef __SANITIZE_ADDRESS__
	__lsan_disable();
#endif
	fuse_session_process_buf(session->fuse, buffer);
#ifdef __SANITIZE_ADDRESS__
	__lsan_enable();
#endif
}

/* The answer has the request's number, with that bit: the kernel wants it so. */
static void process(struct session *session, const struct fuse_buf *buffer)
{
	uint64_t unique = ((const struct fuse_in_header *)buffer->mem)->unique;

	is_repeated = unique & IS_REPEATED;
	request = unique & ~IS_REPEATED;
	if (may_be_kept(((const struct fuse_in_header *)buffer->mem)->opcode))
		process_unanswered(session, buffer);
	else
		fuse_session_process_buf(session->fuse, buffer);
	is_repeated = false;
}

static void work(void *argument)
{
	struct lane *lane = argument;
	struct session *session = lane->session;

	lock_acquire(&session->lock);
	while (lane->first || !session->closing) {
		struct queued *queued = lane->first;

		if (!queued) {
			lane->idle++;
			cond_wait(&lane->changed, &session->lock);
			lane->idle--;
			continue;
		}
		lane->waiting--;
		lane->first = queued->next;
		if (!lane->first)
			lane->end = &lane->first;
		lock_release(&session->lock);
		process(session, &queued->buffer);
		if (queued->held)
			session->options.let_go(session->options.user_data, queued->held);
		free(queued);
		lock_acquire(&session->lock);
	}
	lock_release(&session->lock);
}

static void start_worker(struct lane *lane)
{
	if (lane->worker_count < lane->worker_max &&
	    !thread_start(&lane->workers[lane->worker_count], "shade-worker", work, lane))
		lane->worker_count++;
}

static void *hold(const struct session *session, const struct fuse_buf *buffer)
{
	const struct fuse_in_header *head = buffer->mem;

	if (!session->options.hold || !(head->unique & IS_REPEATED))
		return NULL;
	return session->options.hold(session->options.user_data, head->nodeid);
}

/* Queues a copy of a request for the workers. The queue is bounded by the number of threads that
 * use the mount, since each waits for its own request. */
static int queue_request(struct lane *lane, const struct fuse_buf *buffer, size_t size)
{
	struct session *session = lane->session;
	struct queued *queued = malloc(sizeof(*queued) + size);
	bool all_busy;

	if (!queued)
		return -ENOMEM;
	*queued = (struct queued){ .buffer = *buffer };
	memcpy(queued->data, buffer->mem, size);
	queued->buffer.mem = queued->data;
	queued->held = hold(session, buffer);
	lock_acquire(&session->lock);
	*lane->end = queued;
	lane->end = &queued->next;
	all_busy = ++lane->waiting > lane->idle;
	cond_wake_one(&lane->changed);
	lock_release(&session->lock);
	if (all_busy)
		start_worker(lane);
	return 0;
}

/* A lookup by a file handle that somebody kept: the node may be gone, so lane_of() must not
 * dereference it. */
static bool is_by_handle(const struct fuse_in_header *head, size_t size)
{
	const char *name = (const char *)(head + 1);

	return head->opcode == FUSE_LOOKUP && size >= sizeof(*head) + 2 && name[0] == '.' &&
	       (!name[1] || (name[1] == '.' && size >= sizeof(*head) + 3 && !name[2]));
}

static void handle(struct session *session, const struct fuse_buf *buffer, size_t size)
{
	const struct fuse_in_header *head = buffer->mem;
	enum session_lane lane = SESSION_AT_ONCE;

	if (head->opcode == FUSE_INIT) {
		agreed_answer(session->fuse, session->options.heritage, buffer, size);
		return;
	}
	if (!is_by_handle(head, size))
		lane = session->options.lane_of(session->options.user_data, head->opcode,
						head->nodeid);
	/* Without memory for a copy the request is handled here, and delays the others. */
	if (lane == SESSION_AT_ONCE || queue_request(&session->lanes[lane], buffer, size))
		process(session, buffer);
}

static _Thread_local bool is_prompt;

bool session_is_prompt(void)
{
	return is_prompt;
}

static void serve(void *argument)
{
	struct session *session = argument;
	struct fuse_buf buffer = { .mem = NULL };

	is_prompt = true;
	while (!fuse_session_exited(session->fuse)) {
		int rc = fuse_session_receive_buf(session->fuse, &buffer);

		if (rc == -EINTR || rc == -EAGAIN)
			continue;
		if (rc <= 0)
			break;
		handle(session, &buffer, (size_t)rc);
	}
	atomic_store(&session->running, false);
	free(buffer.mem);
	if (!atomic_load(&session->stopping))
		session->options.ended(session->options.context);
}

/* --- mounting ----------------------------------------------------------------------------------*/

/* A file system for a connection. A descriptor of it, or a negative errno. */
static int create_file_system(const struct session_options *o, int connection)
{
	char fd[16], uid[16], gid[16];
	struct mount_setting settings[] = { { "source", o->source },
					    { "subtype", "shadefs" },
					    { "fd", fd },
					    { "rootmode", "40000" },
					    { "user_id", uid },
					    { "group_id", gid },
					    { "default_permissions", NULL },
					    { o->allow_other ? "allow_other" : NULL, NULL },
					    { NULL, NULL } };

	snprintf(fd, sizeof(fd), "%d", connection);
	snprintf(uid, sizeof(uid), "%u", getuid());
	snprintf(gid, sizeof(gid), "%u", getgid());
	return mount_create("fuse", settings);
}

/* Mounts a connection. 0, or a negative errno: -EPERM if only fusermount3 may do that. */
static int mount_connection(struct session *session, int connection)
{
	const struct session_options *o = &session->options;
	unsigned attributes =
		MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (o->noexec ? MOUNT_ATTR_NOEXEC : 0);
	int file_system = create_file_system(o, connection), root;

	if (file_system < 0)
		return file_system;
	root = mount_attach(&session->mount, file_system, attributes, o->directory);
	close(file_system); /* or the connection would outlive its mount */
	if (root < 0)
		return root;
	close(root);
	return 0;
}

/* A descriptor of the connection, or a negative errno. In the option, a comma would end the name of
 * the source and a backslash begin an escape: both are replaced. */
static int mount_by_fusermount(struct session *session)
{
	const struct session_options *o = &session->options;
	char *name = strdup(o->source), *text = NULL;
	int connection, root;

	for (char *at = name; at && *at; at++)
		if (*at == ',' || *at == '\\')
			*at = '_';
	if (!name ||
	    asprintf(&text, "default_permissions,subtype=shadefs,fsname=%s%s%s", name,
		     o->allow_other ? ",allow_other" : "", o->noexec ? ",noexec" : "") < 0) {
		free(name);
		return -ENOMEM;
	}
	connection = fusermount_mount(o->mount_point, text);
	free(text);
	free(name);
	root = connection < 0 ? -1 : open(o->mount_point, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root >= 0) {
		(void)mount_identify(&session->mount, root);
		close(root);
	}
	return connection;
}

static int mount_session(struct session *session)
{
	int connection = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	int rc = connection < 0 ? -errno : mount_connection(session, connection);

	if (rc) {
		if (connection >= 0)
			close(connection);
		if (rc != -EPERM && rc != -EACCES && rc != -ENOSYS)
			return rc;
		connection = mount_by_fusermount(session);
		if (connection < 0)
			return connection;
	}
	mount_set_above(&session->mount, session->options.above, session->options.mount_point);
	*session->options.heritage = (struct session_heritage){ .mount = session->mount };
	return agreed_take_connection(session->fuse, connection);
}

/* What the dead daemon had read comes again before anything that this one reads. */
static int take_over(struct session *session)
{
	const struct session_heritage *heritage = session->options.heritage;
	int connection = session->options.connection, rc;

	session->mount = heritage->mount;
	session->mount.above = session->options.above;
	rc = agreed_take_connection(session->fuse, connection);
	if (!rc)
		rc = agreed_repeat(session->fuse, heritage);
	/* If it was unmounted meanwhile, the first read tells. */
	if (!rc)
		(void)session_repeat(connection);
	return rc;
}

int session_connection(const struct session *session)
{
	return fuse_session_fd(session->fuse);
}

const struct mount *session_mount(const struct session *session)
{
	return &session->mount;
}

/* Whether the file system may still exist. Otherwise its numbers may mean another one by now. */
static bool is_connected(int connection)
{
	struct pollfd polled = { .fd = connection };

	return poll(&polled, 1, 0) >= 0 && !(polled.revents & (POLLERR | POLLNVAL));
}

int session_reach(const struct session *session)
{
	int root = session->options.above < 0 ? -ENOENT : mount_reach(&session->mount);

	/* Asked about while the descriptor keeps the mount: it is this connection's. */
	if (root < 0 || is_connected(session_connection(session)))
		return root;
	close(root);
	return -ENOENT;
}

/* Only root may unmount; fusermount3 has the rights for others. */
void session_detach(int root)
{
	char link[64], name[4096];
	ssize_t length;

	if (mount_detach(root) != -EPERM)
		return;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", root);
	length = readlink(link, name, sizeof(name) - 1);
	name[length > 0 ? length : 0] = 0;
	fusermount_unmount(name);
}

static void detach(const struct session *session)
{
	int root = session_reach(session);

	if (root < 0 && root != -ENOENT)
		log_say(LOG_ERRORS, "%s stays mounted, without files: %s",
			session->options.mount_point, strerror(-root));
	if (root < 0)
		return;
	session_detach(root);
	close(root);
}

/* --- of a connection that nobody serves --------------------------------------------------------*/

bool session_can_repeat(const struct session_heritage *heritage)
{
	const struct fuse_init_in *init =
		(const void *)(heritage->request + sizeof(struct fuse_in_header));

	return atomic_load(&heritage->reply_size) &&
	       heritage->request_size >= sizeof(struct fuse_in_header) + sizeof(*init) &&
	       init->flags & FUSE_INIT_EXT && init->flags2 & CAN_REPEAT;
}

int session_repeat(int connection)
{
	struct fuse_out_header head = { .len = sizeof(head), .error = NOTIFY_REPEAT };

	return write(connection, &head, sizeof(head)) < 0 ? -errno : 0;
}

void session_abandon(const struct session_heritage *heritage, int connection, int above)
{
	struct mount mount = heritage->mount;
	int root;

	mount.above = above;
	root = connection < 0 ? -ENOENT : mount_reach(&mount);
	if (root < 0)
		return;
	if (is_connected(connection)) {
		(void)mount_abort(root);
		session_detach(root);
	}
	close(root);
}

/* --- begin and end -----------------------------------------------------------------------------*/

static void stop_serving(struct session *session)
{
	if (session->stopped)
		return;
	session->stopped = true;
	atomic_store(&session->stopping, true);
	fuse_session_exit(session->fuse);
	/* A signal just before the read begins has no effect: send it until the thread has ended.
	 */
	while (atomic_load(&session->running)) {
		thread_interrupt(&session->thread, SIGUSR1);
		clock_sleep_us(1000);
	}
	thread_join(&session->thread);
}

static bool is_busy(struct session *session)
{
	bool busy = false;

	lock_acquire(&session->lock);
	for (unsigned i = 0; i < SESSION_LANES; i++) {
		const struct lane *lane = &session->lanes[i];

		busy = busy || lane->first || lane->idle < lane->worker_count;
	}
	lock_release(&session->lock);
	return busy;
}

bool session_stop(struct session *session)
{
	stop_serving(session);
	for (int ms = 0; ms < PATIENCE_MS && is_busy(session); ms++)
		clock_sleep_us(1000);
	return !is_busy(session);
}

/* A worker may wait for a source that hangs. The mount is detached first, so that whoever uses the
 * mount point does not wait, too; daemon/main.c limits how long the daemon does. */
static void stop_workers(struct session *session)
{
	if (is_busy(session))
		detach(session);
	lock_acquire(&session->lock);
	session->closing = true;
	for (unsigned i = 0; i < SESSION_LANES; i++)
		cond_wake_all(&session->lanes[i].changed);
	lock_release(&session->lock);
	for (struct lane *lane = session->lanes; lane < session->lanes + SESSION_LANES; lane++)
		while (lane->worker_count)
			thread_join(&lane->workers[--lane->worker_count]);
}

static void release(struct session *session)
{
	if (session->fuse)
		fuse_session_destroy(session->fuse);
	lock_destroy(&session->lock);
	for (unsigned i = 0; i < SESSION_LANES; i++) {
		cond_destroy(&session->lanes[i].changed);
		free(session->lanes[i].workers);
	}
	free(session);
}

void session_close(struct session *session)
{
	if (session->started) {
		(void)session_stop(session);
		stop_workers(session);
		detach(session);
	}
	release(session);
}

struct fuse_session *session_fuse(struct session *session)
{
	return session->fuse;
}

/* The first worker of each lane, which must have one. */
static int start_lanes(struct session *session)
{
	for (struct lane *lane = session->lanes; lane < session->lanes + SESSION_LANES; lane++) {
		if (!lane->worker_max)
			continue;
		lane->workers = calloc(lane->worker_max, sizeof(*lane->workers));
		if (!lane->workers)
			return -ENOMEM;
		start_worker(lane);
		if (!lane->worker_count)
			return -EAGAIN;
	}
	return 0;
}

int session_start(struct session *session)
{
	bool is_mounted = session->options.connection >= 0;
	int rc = is_mounted ? take_over(session) : mount_session(session);

	if (rc)
		return rc;
	atomic_store(&session->running, true);
	rc = start_lanes(session);
	if (!rc)
		rc = thread_start(&session->thread, "shade-requests", serve, session);
	if (rc) {
		stop_workers(session);
		detach(session);
	}
	session->started = !rc;
	return rc;
}

int session_create(struct session **out, const struct session_options *options)
{
	char program[] = "shadefs", *argv[] = { program, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(1, argv);
	struct session *session = calloc(1, sizeof(*session));

	assert(options->ops && options->lane_of && options->ended && options->heritage);
	if (!session)
		return -ENOMEM;
	session->options = *options;
	lock_init(&session->lock, LOCK_SESSION);
	for (unsigned i = 0; i < SESSION_LANES; i++) {
		session->lanes[i] = (struct lane){ .session = session,
						   .worker_max = options->workers[i],
						   .end = &session->lanes[i].first };
		cond_init(&session->lanes[i].changed);
	}
	session->fuse =
		fuse_session_new(&args, options->ops, sizeof(*options->ops), options->user_data);
	fuse_opt_free_args(&args);
	if (!session->fuse) {
		release(session);
		return -ENOMEM;
	}
	*out = session;
	return 0;
}
