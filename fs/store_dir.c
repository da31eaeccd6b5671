/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A directory as the source: a local one, NFS, or anything that is mounted.
 *
 * Contents come through io_uring, driven by one thread: open, statx, read, statx, close,
 * each step when the one before is done, many files at a time. A file that hangs keeps one
 * of the kernel's workers and nobody else. What was read is dropped from the page cache of
 * the source's own filesystem, where it would be a second copy.
 */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "log.h"
#include "store.h"

#define STAT_WANTED (STATX_BASIC_STATS)
#define WORKERS 64 /* of the kernel, for steps that wait */

enum step_state { STEP_OPEN, STEP_STAT, STEP_READ, STEP_STAT_AGAIN, STEP_DROP, STEP_CLOSE };

/* A read on its way. */
struct store_step {
	struct store_read *read;
	enum step_state state;
	int fd;
	int rc;
	bool submitted; /* the ring knows it */
	bool cancelled;
	struct statx stat;
	struct open_how how;
	struct store_step *next; /* in `incoming` or `cancels` */
};

struct store {
	int root;
	unsigned depth;
	struct io_uring ring; /* the thread's alone */
	int wake;	      /* eventfd */
	uint64_t woken;
	pthread_t thread;
	unsigned running; /* the thread's alone */

	pthread_mutex_t lock;
	struct store_step *incoming, **incoming_end; /* lock */
	struct store_step *cancels;		     /* lock */
	bool stopping;				     /* lock */
};

/* --- names and attributes -------------------------------------------------------------- */

static int open_beneath(const struct store *store, const char *path, int flags)
{
	struct open_how how = { .flags = (uint64_t)(flags | O_CLOEXEC | O_NOFOLLOW),
				.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
					   RESOLVE_NO_MAGICLINKS };
	long fd = syscall(SYS_openat2, store->root, *path ? path : ".", &how, sizeof(how));

	return fd < 0 ? -errno : (int)fd;
}

static void convert(const struct statx *from, struct store_attr *to)
{
	*to = (struct store_attr){
		.ino = from->stx_ino,
		.size = from->stx_size,
		.mtime_ns = from->stx_mtime.tv_sec * 1000000000 + from->stx_mtime.tv_nsec,
		.ctime_ns = from->stx_ctime.tv_sec * 1000000000 + from->stx_ctime.tv_nsec,
		.mode = from->stx_mode,
		.uid = from->stx_uid,
		.gid = from->stx_gid,
		.nlink = from->stx_nlink,
	};
}

static int stat_fd(int fd, const char *name, struct store_attr *attr)
{
	struct statx stat;

	if (statx(fd, name, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, STAT_WANTED, &stat))
		return -errno;
	convert(&stat, attr);
	return 0;
}

int store_stat(struct store *store, const char *path, struct store_attr *attr)
{
	int fd = open_beneath(store, path, O_PATH);
	int rc;

	if (fd < 0)
		return fd;
	rc = stat_fd(fd, "", attr);
	close(fd);
	return rc;
}

int store_readlink(struct store *store, const char *path, char **target)
{
	char text[4096];
	int fd = open_beneath(store, path, O_PATH);
	ssize_t length;

	if (fd < 0)
		return fd;
	length = readlinkat(fd, "", text, sizeof(text) - 1);
	close(fd);
	if (length < 0)
		return -errno;
	text[length] = 0;
	*target = strdup(text);
	return *target ? 0 : -ENOMEM;
}

static bool is_dots(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..");
}

int store_list(struct store *store, const char *path,
	       int (*entry)(void *context, const char *name, const struct store_attr *attr),
	       void *context)
{
	int fd = open_beneath(store, path, O_RDONLY | O_DIRECTORY);
	struct dirent *dirent;
	int rc = 0;
	DIR *dir;

	if (fd < 0)
		return fd;
	dir = fdopendir(fd);
	if (!dir) {
		rc = -errno;
		close(fd);
		return rc;
	}
	while (!rc && (errno = 0, dirent = readdir(dir))) {
		struct store_attr attr;

		if (is_dots(dirent->d_name))
			continue;
		rc = stat_fd(fd, dirent->d_name, &attr);
		if (rc == -ENOENT)
			rc = 0;
		else if (!rc)
			rc = entry(context, dirent->d_name, &attr);
	}
	if (!rc && errno)
		rc = -errno;
	closedir(dir);
	return rc;
}

int store_statfs(struct store *store, struct statvfs *out)
{
	return fstatvfs(store->root, out) ? -errno : 0;
}

/* --- one step after the other ------------------------------------------------------------- */

static struct io_uring_sqe *next_sqe(struct store *store)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&store->ring);

	if (!sqe) {
		io_uring_submit(&store->ring);
		sqe = io_uring_get_sqe(&store->ring);
	}
	assert(sqe); /* the ring is larger than what runs at a time */
	return sqe;
}

static void submit_step(struct store *store, struct store_step *step)
{
	struct store_read *read = step->read;
	struct io_uring_sqe *sqe = next_sqe(store);

	switch (step->state) {
	case STEP_OPEN:
		step->how = (struct open_how){
			.flags = (uint64_t)((read->buffer ? O_RDONLY | O_NONBLOCK : O_PATH) |
					    O_CLOEXEC | O_NOFOLLOW),
			.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS
		};
		io_uring_prep_openat2(sqe, store->root, read->path, &step->how);
		break;
	case STEP_STAT:
	case STEP_STAT_AGAIN:
		io_uring_prep_statx(sqe, step->fd, "", AT_EMPTY_PATH, STAT_WANTED, &step->stat);
		break;
	case STEP_READ:
		io_uring_prep_read(sqe, step->fd, (char *)read->buffer + read->got,
				   (unsigned)(read->size - read->got > 1u << 30
						      ? 1u << 30
						      : read->size - read->got),
				   read->offset + read->got);
		break;
	case STEP_DROP:
		io_uring_prep_fadvise(sqe, step->fd, 0, 0, POSIX_FADV_DONTNEED);
		break;
	case STEP_CLOSE:
		io_uring_prep_close(sqe, step->fd);
		break;
	}
	io_uring_sqe_set_data(sqe, step);
}

/* What comes after a step that ended with `rc`. False: the read is done. */
static bool advance(struct store_step *step, int rc)
{
	struct store_read *read = step->read;
	struct store_attr found;

	switch (step->state) {
	case STEP_OPEN:
		if (rc < 0) {
			step->rc = rc;
			return false;
		}
		step->fd = rc;
		step->state = STEP_STAT;
		return true;
	case STEP_STAT:
	case STEP_STAT_AGAIN:
		convert(&step->stat, &found);
		if (rc < 0)
			step->rc = rc;
		else if (!store_same_version(&found, read->expected))
			step->rc = -ESTALE;
		if (step->rc || !read->buffer)
			step->state = STEP_CLOSE;
		else if (step->state == STEP_STAT_AGAIN)
			step->state = STEP_DROP;
		else
			step->state = read->size ? STEP_READ : STEP_STAT_AGAIN;
		return true;
	case STEP_READ:
		if (rc < 0)
			step->rc = rc;
		else
			read->got += (size_t)rc;
		if (step->rc)
			step->state = STEP_CLOSE;
		else if (rc == 0 || read->got == read->size)
			step->state = STEP_STAT_AGAIN;
		return true;
	case STEP_DROP:
		step->state = STEP_CLOSE;
		return true;
	case STEP_CLOSE:
		return false;
	}
	return false;
}

static void finish(struct store *store, struct store_step *step)
{
	struct store_read *read = step->read;
	int rc = step->rc;

	store->running--;
	/* The version has `size` bytes beyond the offset, or the source lied about it. */
	if (!rc && read->buffer && read->got < read->size &&
	    read->offset + read->got < read->expected->size)
		rc = -EIO;
	if (rc && step->cancelled)
		rc = -ETIMEDOUT;
	pthread_mutex_lock(&store->lock);
	read->step = NULL;
	for (struct store_step **at = &store->cancels; *at; at = &(*at)->next)
		if (*at == step) {
			*at = step->next;
			break;
		}
	pthread_mutex_unlock(&store->lock);
	free(step);
	read->done(read, rc);
}

/* --- the thread ------------------------------------------------------------------------------ */

static void listen_for_wake(struct store *store)
{
	struct io_uring_sqe *sqe = next_sqe(store);

	io_uring_prep_read(sqe, store->wake, &store->woken, sizeof(store->woken), 0);
	io_uring_sqe_set_data(sqe, NULL);
}

static void wake(struct store *store)
{
	uint64_t one = 1;
	ssize_t written = write(store->wake, &one, sizeof(one));

	(void)written; /* it can only be full, and then the thread is awake */
}

static struct store_step *take_incoming(struct store *store)
{
	struct store_step *step;

	pthread_mutex_lock(&store->lock);
	step = store->running < store->depth ? store->incoming : NULL;
	if (step) {
		store->incoming = step->next;
		if (!store->incoming)
			store->incoming_end = &store->incoming;
		step->next = NULL;
		step->submitted = true;
	}
	pthread_mutex_unlock(&store->lock);
	return step;
}

static void submit_cancels(struct store *store)
{
	struct store_step *step;

	pthread_mutex_lock(&store->lock);
	step = store->cancels;
	store->cancels = NULL;
	for (struct store_step *next; step; step = next) {
		struct io_uring_sqe *sqe = next_sqe(store);

		next = step->next;
		step->next = NULL;
		io_uring_prep_cancel(sqe, step, 0);
		io_uring_sqe_set_data(sqe, &store->woken); /* an answer that nobody needs */
	}
	pthread_mutex_unlock(&store->lock);
}

static void handle(struct store *store, struct io_uring_cqe *cqe)
{
	void *data = io_uring_cqe_get_data(cqe);
	struct store_step *step = data;
	int rc = cqe->res;

	io_uring_cqe_seen(&store->ring, cqe);
	if (!data) {
		listen_for_wake(store);
		return;
	}
	if (data == &store->woken)
		return;
	if (advance(step, rc))
		submit_step(store, step);
	else
		finish(store, step);
}

static bool should_stop(struct store *store)
{
	bool stop;

	pthread_mutex_lock(&store->lock);
	stop = store->stopping && !store->incoming && !store->running;
	pthread_mutex_unlock(&store->lock);
	return stop;
}

static void *serve(void *argument)
{
	struct store *store = argument;

	listen_for_wake(store);
	while (!should_stop(store)) {
		struct io_uring_cqe *cqe;
		struct store_step *step;
		int rc;

		while ((step = take_incoming(store))) {
			store->running++;
			if (step->cancelled) {
				step->rc = -ETIMEDOUT;
				finish(store, step);
			} else {
				submit_step(store, step);
			}
		}
		submit_cancels(store);
		rc = io_uring_submit_and_wait(&store->ring, 1);
		if (rc < 0 && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY)
			log_say(LOG_ERRORS, "io_uring: %s", strerror(-rc));
		while (!io_uring_peek_cqe(&store->ring, &cqe))
			handle(store, cqe);
	}
	return NULL;
}

void store_read(struct store *store, struct store_read *read)
{
	struct store_step *step = calloc(1, sizeof(*step));

	read->got = 0;
	if (!step) {
		read->done(read, -ENOMEM);
		return;
	}
	step->read = read;
	step->fd = -1;
	read->step = step;
	pthread_mutex_lock(&store->lock);
	*store->incoming_end = step;
	store->incoming_end = &step->next;
	pthread_mutex_unlock(&store->lock);
	wake(store);
}

void store_cancel(struct store *store, struct store_read *read)
{
	pthread_mutex_lock(&store->lock);
	if (read->step && !read->step->cancelled) {
		read->step->cancelled = true;
		if (read->step->submitted) {
			read->step->next = store->cancels;
			store->cancels = read->step;
		}
	}
	pthread_mutex_unlock(&store->lock);
	wake(store);
}

/* --- begin and end -----------------------------------------------------------------------------
 */

static int start(struct store *store)
{
	unsigned workers[2] = { WORKERS, WORKERS };
	int rc = io_uring_queue_init(store->depth * 2 + 8, &store->ring, 0);

	if (rc)
		return rc;
	(void)io_uring_register_iowq_max_workers(&store->ring, workers);
	rc = -pthread_create(&store->thread, NULL, serve, store);
	if (rc)
		io_uring_queue_exit(&store->ring);
	return rc;
}

int store_open(struct store **out, const char *path, unsigned depth)
{
	struct store *store = calloc(1, sizeof(*store));
	int rc;

	if (!store)
		return -ENOMEM;
	store->depth = depth;
	store->incoming_end = &store->incoming;
	pthread_mutex_init(&store->lock, NULL);
	store->root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	store->wake = eventfd(0, EFD_CLOEXEC);
	rc = store->root < 0 || store->wake < 0 ? -errno : start(store);
	if (!rc) {
		*out = store;
		return 0;
	}
	if (store->root >= 0)
		close(store->root);
	if (store->wake >= 0)
		close(store->wake);
	pthread_mutex_destroy(&store->lock);
	free(store);
	return rc;
}

void store_close(struct store *store)
{
	pthread_mutex_lock(&store->lock);
	store->stopping = true;
	pthread_mutex_unlock(&store->lock);
	wake(store);
	pthread_join(store->thread, NULL);
	io_uring_queue_exit(&store->ring);
	close(store->root);
	close(store->wake);
	pthread_mutex_destroy(&store->lock);
	free(store);
}
