/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A directory as the source: a local one, NFS, or anything that is mounted. Here are the contents
 * of its files; names and attributes are in dir_names.c.
 *
 * They come through io_uring, many files at a time. A file that hangs holds one of the
 * kernel's workers and delays no other file. Reads go around the page cache of the source's own
 * file system, where they would leave a second copy; where it cannot do that, the copy is dropped.
 * Where it is allowed, they do not set the time of the last access either.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/openat2.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/threads.h"
#include "source/align.h"
#include "source/anchor.h"
#include "source/devices.h"
#include "source/dir.h"

#define WORKERS 64 /* of the kernel, for chains that wait */

/*
 * A path is resolved once, to a descriptor that can be asked about the file but not read (O_PATH).
 * What is opened for reading is that descriptor's file, by its name in /proc/self/fd, and what is
 * compared in the end is that descriptor's file, too. So it does not matter what has the path
 * meanwhile. Such a descriptor is needed because statx does not take a file that only the ring has
 * open, and because resolving can be had without waiting: see find_now().
 *
 * A read on its way is a chain of requests that one of the kernel's workers follows, so that
 * nobody is woken between them: open, read, statx, drop, close, and release of the descriptor. They
 * are hard links: after a failure the file is still closed. The statx comes after the read and is
 * compared with what was known before it: a change in between shows. Where resolving the path has
 * to wait for the source, that is a chain of its own before the other one (LINK_FIND).
 */
enum link {
	LINK_FIND,
	LINK_OPEN,
	LINK_READ,
	LINK_STAT,
	LINK_DROP,
	LINK_CLOSE,
	LINK_RELEASE,
	LINKS
};

#define CHAIN_ALIGN 16 /* completions name the chain and the link in one number */
static_assert(LINKS < CHAIN_ALIGN, "links fit into the tag");

struct chain {
	_Alignas(CHAIN_ALIGN) struct store_read *read;
	unsigned file;	/* in the ring's table of files */
	int found;	/* what the path led to; -1: it is not resolved */
	char name[16];	/* of `found`, in /proc/self/fd */
	enum link last; /* to complete */
	bool direct;	/* around the page cache */
	bool noatime;	/* and without a trace at the source */
	int results[LINKS];
	bool cancelled;
	struct statx stat;
	struct open_how how;
	struct chain *next; /* in `waiting` or `free` */
};

/* What a file system has refused. It is not tried again there. */
struct refusals {
	bool direct;  /* reads around the page cache */
	bool noatime; /* reads that do not set the time of the last one */
};

struct dir_store {
	struct store store;
	int root;	      /* the number stays if it is opened again */
	struct anchor anchor; /* constant */
	_Atomic bool doubted; /* something failed as if the source were dead */
	_Atomic int life;     /* enum store_life */
	int fds;	      /* /proc/self/fd */
	uid_t uid;	      /* the daemon's */
	unsigned depth;
	struct thread thread;

	struct lock lock;
	struct io_uring ring; /* lock: submissions; completions are the thread's */
	struct chain *chains; /* `depth` of them; lock: who has them */
	struct chain *free;   /* lock */
	struct store_read *waiting, **waiting_end; /* lock: for a chain */
	struct refusals refused[STORE_DEVICES];	   /* lock: by device */
	bool stopping;				   /* lock */
	struct estate *estate;
	struct devices *devices;
};

/* --- chains -------------------------------------------------------------------------------------
 */

static struct io_uring_sqe *add_link_locked(struct dir_store *store)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&store->ring);

	lock_assert_held(&store->lock);
	assert(sqe); /* the ring has room for all chains, and their cancels */
	return sqe;
}

/* Each completion wakes the thread. Of links that succeed nothing needs to be known, but how much
 * was read, and that it is over. */
static void seal_link(struct io_uring_sqe *sqe, struct chain *chain, enum link link, bool last)
{
	unsigned flags = IOSQE_ASYNC;

	if (last)
		chain->last = link;
	else
		flags |= IOSQE_IO_HARDLINK | (link == LINK_READ ? 0 : IOSQE_CQE_SKIP_SUCCESS);
	io_uring_sqe_set_data(sqe, (char *)chain + link);
	io_uring_sqe_set_flags(sqe, sqe->flags | flags);
}

static void add_stat_locked(struct dir_store *store, struct chain *chain)
{
	struct io_uring_sqe *sqe = add_link_locked(store);

	lock_assert_held(&store->lock);
	io_uring_prep_statx(sqe, chain->found, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, DIR_WANTED,
			    &chain->stat);
	seal_link(sqe, chain, LINK_STAT, false);
}

static void add_release_locked(struct dir_store *store, struct chain *chain)
{
	struct io_uring_sqe *sqe = add_link_locked(store);

	lock_assert_held(&store->lock);
	io_uring_prep_close(sqe, chain->found);
	seal_link(sqe, chain, LINK_RELEASE, true);
}

/* Only whether the path leads to the version that is expected: nothing is read. */
static void add_check_locked(struct dir_store *store, struct chain *chain)
{
	lock_assert_held(&store->lock);
	add_stat_locked(store, chain);
	add_release_locked(store, chain);
}

static void add_drop_locked(struct dir_store *store, struct chain *chain)
{
	struct io_uring_sqe *sqe = add_link_locked(store);

	lock_assert_held(&store->lock);
	io_uring_prep_fadvise(sqe, (int)chain->file, 0, 0, POSIX_FADV_DONTNEED);
	sqe->flags |= IOSQE_FIXED_FILE;
	seal_link(sqe, chain, LINK_DROP, false);
}

/* Only the owner of a file and root may leave its atime as it is. In a user namespace root may not
 * always, and then the file system refuses. */
static bool may_keep_atime_locked(const struct dir_store *store, const struct store_attr *attr)
{
	lock_assert_held(&store->lock);
	return !store->refused[attr->dev].noatime && (!store->uid || store->uid == attr->uid);
}

/* An O_PATH descriptor needs nothing of the file but its name, so this does not wait if the kernel
 * has that in memory, which it has after a listing. -1: it has not. Another one would have to be
 * woken for resolving the path, which takes longer than the rest of all this. */
static int find_now(const struct dir_store *store, const char *path)
{
	struct open_how how = dir_how_beneath(O_PATH);

	how.resolve |= RESOLVE_CACHED;
	return (int)syscall(SYS_openat2, store->root, path, &how, sizeof(how));
}

static void add_find_locked(struct dir_store *store, struct chain *chain)
{
	struct io_uring_sqe *sqe = add_link_locked(store);

	lock_assert_held(&store->lock);
	chain->how = dir_how_beneath(O_PATH);
	io_uring_prep_openat2(sqe, store->root, chain->read->path, &chain->how);
	seal_link(sqe, chain, LINK_FIND, true);
}

static void add_read_locked(struct dir_store *store, struct chain *chain)
{
	struct store_read *read = chain->read;
	uint64_t from = read->offset + read->got;
	size_t left = read->size - read->got;
	struct io_uring_sqe *sqe = add_link_locked(store);

	lock_assert_held(&store->lock);
	chain->direct = !store->refused[read->expected->dev].direct && from % STORE_ALIGN == 0 &&
			read->got % STORE_ALIGN == 0;
	chain->noatime = may_keep_atime_locked(store, read->expected);

	chain->how = (struct open_how){ .flags = (uint64_t)(O_RDONLY | O_NONBLOCK |
							    (chain->direct ? O_DIRECT : 0) |
							    (chain->noatime ? O_NOATIME : 0)) };
	snprintf(chain->name, sizeof(chain->name), "%d", chain->found);
	io_uring_prep_openat2_direct(sqe, store->fds, chain->name, &chain->how, chain->file);
	seal_link(sqe, chain, LINK_OPEN, false);
	sqe = add_link_locked(store);
	io_uring_prep_read(sqe, (int)chain->file, (char *)read->buffer + read->got,
			   (unsigned)(chain->direct ? store_round_up(left) : left), from);
	sqe->flags |= IOSQE_FIXED_FILE;
	seal_link(sqe, chain, LINK_READ, false);
	add_stat_locked(store, chain);
	if (!chain->direct)
		add_drop_locked(store, chain);
	sqe = add_link_locked(store);
	io_uring_prep_close_direct(sqe, chain->file);
	seal_link(sqe, chain, LINK_CLOSE, false);
	add_release_locked(store, chain);
}

/* It was cancelled while it waited: ends by the thread, like all. */
static void add_nothing_locked(struct dir_store *store, struct chain *chain)
{
	struct io_uring_sqe *sqe = add_link_locked(store);

	lock_assert_held(&store->lock);
	io_uring_prep_nop(sqe);
	seal_link(sqe, chain, LINK_OPEN, true);
}

static void submit_locked(struct dir_store *store, struct chain *chain)
{
	int rc;

	lock_assert_held(&store->lock);
	memset(chain->results, 0, sizeof(chain->results));
	if (!chain->read->cancelled && chain->found < 0)
		chain->found = find_now(store, chain->read->path);
	if (chain->read->cancelled)
		add_nothing_locked(store, chain);
	else if (chain->found < 0)
		add_find_locked(store, chain);
	else if (!chain->read->buffer)
		add_check_locked(store, chain);
	else
		add_read_locked(store, chain);
	do {
		rc = io_uring_submit(&store->ring);
	} while (rc == -EINTR || rc == -EAGAIN || rc == -EBUSY);
	if (rc < 0)
		log_say(LOG_ERRORS, "io_uring: %s", strerror(-rc));
}

/* Gives free chains to reads that wait. */
static void start_waiting_locked(struct dir_store *store)
{
	lock_assert_held(&store->lock);
	while (store->free && store->waiting) {
		struct store_read *read = store->waiting;
		struct chain *chain = store->free;

		store->waiting = read->next;
		if (!store->waiting)
			store->waiting_end = &store->waiting;
		store->free = chain->next;
		chain->read = read;
		chain->cancelled = read->cancelled;
		read->progress = chain;
		submit_locked(store, chain);
	}
}

/* Whether the file system cannot read around its cache, or not without setting atime. What another
 * file says to that, which somebody has put in the place of the one that is wanted, does not count.
 */
static struct refusals refused(const struct chain *chain, bool is_expected)
{
	int opened = chain->results[LINK_OPEN];

	if (!is_expected)
		return (struct refusals){ 0 };
	return (struct refusals){
		.direct = chain->direct &&
			  (opened == -EINVAL || chain->results[LINK_READ] == -EINVAL),
		.noatime = chain->noatime && opened == -EPERM,
	};
}

/* What came of it: 0, STORE_MORE, or a negative errno. Whatever error another file gave, the one
 * that is wanted is not there. */
static int outcome(const struct chain *chain, const struct store_attr *found)
{
	if (chain->read->cancelled)
		return -ETIMEDOUT;
	if (!chain->results[LINK_STAT] && !store_same_version(found, chain->read->expected))
		return -ESTALE;
	for (enum link link = LINK_OPEN; link <= LINK_STAT; link++)
		if (chain->results[link] < 0)
			return chain->results[link];
	return store_read_outcome(chain->read, found, (size_t)chain->results[LINK_READ]);
}

/* The chain has ended; nothing is open. */
static int conclude(struct dir_store *store, const struct chain *chain, struct refusals *now)
{
	struct store_attr found = { 0 };
	bool is_expected = false;

	if (!chain->read->cancelled && !chain->results[LINK_STAT]) {
		dir_convert(&store->store, &chain->stat, &found);
		is_expected = store_same_version(&found, chain->read->expected);
	}
	*now = refused(chain, is_expected);
	return now->direct || now->noatime ? STORE_MORE : outcome(chain, &found);
}

/* After LINK_FIND: the rest follows. */
static int take_found(struct chain *chain)
{
	chain->found = chain->results[LINK_FIND] < 0 ? -1 : chain->results[LINK_FIND];
	return chain->found < 0 ? chain->results[LINK_FIND] : STORE_MORE;
}

/* After LINK_RELEASE, which is never cancelled, but might be with the whole ring. */
static void forget_found(struct chain *chain)
{
	if (chain->last == LINK_RELEASE && chain->results[LINK_RELEASE] != -ECANCELED)
		chain->found = -1;
}

static void finish(struct dir_store *store, struct chain *chain)
{
	struct store_read *read = chain->read;
	struct refusals now = { 0 }, *known = &store->refused[read->expected->dev];
	int rc, unused;

	forget_found(chain);
	rc = chain->last == LINK_FIND ? take_found(chain) : conclude(store, chain, &now);
	lock_acquire(&store->lock);
	known->direct |= now.direct;
	known->noatime |= now.noatime;
	if (rc == STORE_MORE && !chain->cancelled) {
		submit_locked(store, chain);
		lock_release(&store->lock);
		return;
	}
	if (rc && chain->cancelled)
		rc = -ETIMEDOUT;
	unused = chain->found;
	chain->found = -1;
	read->progress = NULL;
	chain->next = store->free;
	store->free = chain;
	start_waiting_locked(store);
	lock_release(&store->lock);
	if (unused >= 0)
		close(unused);
	read->done(read, dir_doubt(&store->store, rc));
}

/* --- the thread ------------------------------------------------------------------------------ */

/* A completion without a chain only wakes the thread. */
static void handle(struct dir_store *store, const struct io_uring_cqe *cqe)
{
	uintptr_t tag = (uintptr_t)cqe->user_data;
	struct chain *chain = (struct chain *)(tag & ~(uintptr_t)(CHAIN_ALIGN - 1));
	bool done;

	if (!chain)
		return;
	lock_acquire(&store->lock);
	chain->results[tag % CHAIN_ALIGN] = cqe->res;
	done = tag % CHAIN_ALIGN == chain->last;
	lock_release(&store->lock);
	if (done)
		finish(store, chain);
}

static bool should_stop(struct dir_store *store)
{
	bool stop;

	lock_acquire(&store->lock);
	stop = store->stopping;
	lock_release(&store->lock);
	return stop;
}

static void serve(void *argument)
{
	struct dir_store *store = argument;

	while (!should_stop(store)) {
		struct io_uring_cqe *cqe, copy;
		int rc = io_uring_wait_cqe(&store->ring, &cqe);

		if (rc < 0 && rc != -EINTR && rc != -EAGAIN)
			log_say(LOG_ERRORS, "io_uring: %s", strerror(-rc));
		while (!io_uring_peek_cqe(&store->ring, &cqe)) {
			copy = *cqe;
			io_uring_cqe_seen(&store->ring, cqe);
			handle(store, &copy);
		}
	}
}

struct devices *dir_devices(struct store *store)
{
	return ((struct dir_store *)store)->devices;
}

int dir_root(const struct store *store)
{
	return ((const struct dir_store *)store)->root;
}

/* --- its life ----------------------------------------------------------------------------------
 */

/* What a FUSE mount without a server and a stale export of NFS give. */
static bool is_of_the_dead(int rc)
{
	return rc == -ENOTCONN || rc == -ECONNABORTED || rc == -ESTALE;
}

int dir_doubt(const struct store *store, int rc)
{
	if (is_of_the_dead(rc))
		atomic_store(&((struct dir_store *)store)->doubted, true);
	return rc;
}

/* 0, or a negative errno. */
static int ask(int root, struct statx *stat)
{
	return statx(root, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, DIR_WANTED, stat) ? -errno : 0;
}

static void set_life(struct dir_store *store, enum store_life life)
{
	static const char *const news[] = {
		[STORE_ALIVE] = "the source answers again",
		[STORE_DEAD] = "the source's file system has ended; mount it again at its place",
		[STORE_REPLACED] = "something else is mounted where the source was; it is not used",
	};

	if (atomic_exchange(&store->life, life) != (int)life)
		log_say(LOG_ERRORS, "%s", news[life]);
}

/* The source is dead: takes what is mounted in its place by now, if it is of its kind and lives.
 * All who use the descriptor go on with its number. */
static bool replace_root(struct dir_store *store)
{
	int fd = anchor_reopen(&store->anchor);
	struct statx stat;
	bool lives = fd >= 0 && !ask(fd, &stat) && S_ISDIR(stat.stx_mode);

	if (lives) {
		devices_replace_top(store->devices, stat.stx_dev_major, stat.stx_dev_minor);
		lives = dup3(fd, store->root, O_CLOEXEC) >= 0;
	}
	if (fd >= 0)
		close(fd);
	set_life(store, lives ? STORE_ALIVE : fd == -EXDEV ? STORE_REPLACED : STORE_DEAD);
	return lives;
}

static bool dir_revive(struct store *base)
{
	struct dir_store *store = (struct dir_store *)base;
	struct statx stat;
	bool again = false;

	if (!atomic_exchange(&store->doubted, false))
		return false;
	if (is_of_the_dead(ask(store->root, &stat)))
		again = replace_root(store);
	else
		set_life(store, STORE_ALIVE);
	if (atomic_load(&store->life) != STORE_ALIVE)
		atomic_store(&store->doubted, true); /* nobody may ask before it is back */
	return again;
}

static enum store_life dir_life(const struct store *store)
{
	return (enum store_life)atomic_load(&((const struct dir_store *)store)->life);
}

static void dir_read(struct store *base, struct store_read *read)
{
	struct dir_store *store = (struct dir_store *)base;

	read->next = NULL;
	lock_acquire(&store->lock);
	*store->waiting_end = read;
	store->waiting_end = &read->next;
	start_waiting_locked(store);
	lock_release(&store->lock);
}

static void cancel_locked(struct dir_store *store, struct chain *chain)
{
	lock_assert_held(&store->lock);
	chain->cancelled = true;
	for (enum link link = LINK_FIND; link < LINK_RELEASE; link++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&store->ring);

		if (!sqe)
			break;
		io_uring_prep_cancel(sqe, (char *)chain + link, 0);
		io_uring_sqe_set_data(sqe, NULL);
	}
	io_uring_submit(&store->ring);
}

static void dir_cancel(struct store *base, struct store_read *read)
{
	struct dir_store *store = (struct dir_store *)base;
	struct chain *chain;

	lock_acquire(&store->lock);
	chain = read->progress;
	if (!chain)
		read->cancelled = true;
	else if (!chain->cancelled)
		cancel_locked(store, chain);
	lock_release(&store->lock);
}

/* --- begin and end -----------------------------------------------------------------------------
 */

static int make_chains(struct dir_store *store)
{
	store->chains = aligned_alloc(CHAIN_ALIGN, store->depth * sizeof(*store->chains));
	if (!store->chains)
		return -ENOMEM;
	memset(store->chains, 0, store->depth * sizeof(*store->chains));
	for (unsigned i = 0; i < store->depth; i++) {
		store->chains[i].file = i;
		store->chains[i].found = -1;
		store->chains[i].next = store->free;
		store->free = &store->chains[i];
	}
	return 0;
}

static int start(struct dir_store *store)
{
	unsigned workers[2] = { WORKERS, WORKERS };
	int rc = io_uring_queue_init(store->depth * LINKS * 2, &store->ring, 0);

	if (rc)
		return rc;
	(void)io_uring_register_iowq_max_workers(&store->ring, workers);
	rc = io_uring_register_files_sparse(&store->ring, store->depth);
	if (!rc)
		rc = make_chains(store);
	if (!rc)
		rc = thread_start(&store->thread, "shade-store", serve, store);
	if (rc) {
		free(store->chains);
		io_uring_queue_exit(&store->ring);
	}
	return rc;
}

static void wake(struct dir_store *store)
{
	struct io_uring_sqe *sqe;

	lock_acquire(&store->lock);
	store->stopping = true;
	sqe = io_uring_get_sqe(&store->ring);
	io_uring_prep_nop(sqe);
	io_uring_sqe_set_data(sqe, NULL);
	io_uring_submit(&store->ring);
	lock_release(&store->lock);
}

static void free_store(struct dir_store *store)
{
	if (store->fds >= 0)
		close(store->fds);
	if (store->root >= 0)
		close(store->root);
	anchor_free(&store->anchor);
	lock_destroy(&store->lock);
	devices_close(store->devices, store->estate);
	free(store);
}

static void dir_close(struct store *base)
{
	struct dir_store *store = (struct dir_store *)base;

	wake(store);
	thread_join(&store->thread);
	/* Linux 6.1 keeps closed files for up to a second, and the source busy; this waits. */
	(void)io_uring_unregister_files(&store->ring);
	io_uring_queue_exit(&store->ring);
	free(store->chains);
	free_store(store);
}

static const struct store_ops dir_ops = {
	.stat = dir_stat,
	.acl = dir_acl,
	.readlink = dir_readlink,
	.open_dir = dir_open_dir,
	.stat_in = dir_stat_in,
	.list = dir_list,
	.close_dir = dir_close_dir,
	.statfs = dir_statfs,
	.read = dir_read,
	.cancel = dir_cancel,
	.close = dir_close,
	.life = dir_life,
	.revive = dir_revive,
};

/* 0 or a negative errno. */
static int open_dirs(struct dir_store *store, const char *path)
{
	store->root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (store->root < 0)
		return -errno;
	anchor_set(&store->anchor, store->root);
	store->fds = open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (store->fds >= 0)
		return 0;
	log_say(LOG_ERRORS, "/proc/self/fd: %s", strerror(errno));
	return -EIO;
}

int store_dir_open(struct store **out, const char *path, unsigned depth, struct estate *estate)
{
	struct dir_store *store = calloc(1, sizeof(*store));
	struct store_attr top;
	int rc;

	if (!store)
		return -ENOMEM;
	store->store.ops = &dir_ops;
	store->depth = depth;
	store->uid = geteuid();
	store->waiting_end = &store->waiting;
	lock_init(&store->lock, LOCK_STORE);
	store->fds = -1;
	store->root = store->anchor.above = -1;
	store->estate = estate;
	store->devices = devices_open(estate);
	rc = store->devices ? open_dirs(store, path) : -ENOMEM;
	if (!rc && !devices_are_known(store->devices))
		rc = dir_stat(&store->store, "", &top); /* in device 0 */
	if (!rc)
		rc = start(store);
	if (!rc) {
		*out = &store->store;
		return 0;
	}
	free_store(store);
	return rc;
}
