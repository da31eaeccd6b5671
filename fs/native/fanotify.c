/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "native/fanotify.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/threads.h"
#include "control/control.h"

/* Events that come within this time are read together: waking up for each would cost more
 * than the hit. */
#define GATHER_US 1000
#define IDLE_MS 200

/* The handle of a file in an overlay, as the kernel lays it out (fs/overlayfs/overlayfs.h), with
 * the handle of a FUSE file in it. */
struct overlay_handle {
	uint8_t padding[3];
	uint8_t version;
	uint8_t magic;
	uint8_t length;
	uint8_t flags;
	uint8_t type;
	uint8_t uuid[16];
	uint32_t node_high, node_low, generation;
};

#define OVERLAY_HANDLE_TYPE 0xf8
#define OVERLAY_MAGIC 0xfb
#define FUSE_HANDLE_TYPE 0x81

struct fanotify {
	struct fanotify_options options;
	int events;
	int mounts; /* /proc/self/mountinfo */
	struct thread thread;
	bool started; /* the thread has to be joined */
	_Atomic bool stopping, wake_wanted;
	_Atomic uint64_t lost;
	struct lock lock;
	_Alignas(8) char buffer[65536]; /* lock */
};

/* --- events ----------------------------------------------------------------------------------*/

/* The number and generation of the node that an event is about. */
static bool decode(const struct fanotify_event_metadata *event, uint64_t *number,
		   uint32_t *generation)
{
	const struct fanotify_event_info_fid *info = (const void *)(event + 1);
	const struct file_handle *handle = (const void *)info->handle;
	const struct overlay_handle *inner = (const void *)handle->f_handle;

	if (event->event_len < sizeof(*event) + sizeof(*info) + sizeof(*handle) + sizeof(*inner) ||
	    info->hdr.info_type != FAN_EVENT_INFO_TYPE_FID ||
	    handle->handle_type != OVERLAY_HANDLE_TYPE || handle->handle_bytes < sizeof(*inner) ||
	    inner->magic != OVERLAY_MAGIC || inner->type != FUSE_HANDLE_TYPE)
		return false;
	*number = (uint64_t)inner->node_high << 32 | inner->node_low;
	*generation = inner->generation;
	return true;
}

static void tell(struct fanotify *fanotify, const struct fanotify_event_metadata *event)
{
	struct cache *cache = fanotify->options.cache;
	const struct node *node;
	uint32_t generation;
	uint64_t number;

	if (event->mask & FAN_Q_OVERFLOW) {
		atomic_fetch_add(&fanotify->lost, 1);
		return;
	}
	if (!decode(event, &number, &generation) || !generation)
		return;
	node = files_find(fanotify->options.files, number);
	if (node && event->mask & FAN_OPEN)
		cache_saw_open(cache, node, generation - 1,
			       control_job_of(fanotify->options.control, event->pid), event->pid);
	if (node && event->mask & FAN_CLOSE_NOWRITE)
		cache_saw_close(cache, node, generation - 1);
}

/* The lock is held until the cache knows: a second caller must not return before that. */
void fanotify_drain(struct fanotify *fanotify)
{
	ssize_t length;

	lock_acquire(&fanotify->lock);
	while ((length = read(fanotify->events, fanotify->buffer, sizeof(fanotify->buffer))) > 0) {
		const struct fanotify_event_metadata *event = (const void *)fanotify->buffer;

		for (; FAN_EVENT_OK(event, length); event = FAN_EVENT_NEXT(event, length))
			tell(fanotify, event);
	}
	lock_release(&fanotify->lock);
}

uint64_t fanotify_lost(const struct fanotify *fanotify)
{
	return atomic_load(&fanotify->lost);
}

/* --- the thread --------------------------------------------------------------------------------*/

static void watch(void *argument)
{
	struct fanotify *fanotify = argument;
	const struct fanotify_options *options = &fanotify->options;
	/* Below 0: it could not be found out, and is asked about again. While nobody watched, it
	 * may have been unmounted. */
	int exists = options->events < 0 ? 1 : -EAGAIN;

	while (!atomic_load(&fanotify->stopping)) {
		struct pollfd polled[2] = { { .fd = fanotify->events, .events = POLLIN },
					    { .fd = fanotify->mounts, .events = POLLPRI } };

		if (poll(polled, 2, IDLE_MS) > 0 && polled[0].revents) {
			clock_sleep_us(GATHER_US);
			fanotify_drain(fanotify);
		}
		if (atomic_exchange(&fanotify->wake_wanted, false))
			options->woken(options->context);
		if (exists < 0 || polled[1].revents & (POLLPRI | POLLERR))
			exists = mount_exists(options->mount);
		if (!exists) {
			options->unmounted(options->context);
			break;
		}
	}
}

void fanotify_wake(struct fanotify *fanotify)
{
	atomic_store(&fanotify->wake_wanted, true);
}

/* --- begin and end ---------------------------------------------------------------------------*/

/* Opens a directory whose node number is known, .shade, and looks whether the event has it. */
static int try_out(struct fanotify *fanotify, int root)
{
	const uint64_t mask = FAN_OPEN | FAN_ONDIR;
	uint64_t event[512], number = 0;
	uint32_t generation;
	ssize_t length;
	int fd;

	if (fanotify_mark(fanotify->events, FAN_MARK_ADD, mask, root, ".shade"))
		return -errno;
	fd = openat(root, ".shade", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	close(fd);
	length = read(fanotify->events, event, sizeof(event));
	(void)fanotify_mark(fanotify->events, FAN_MARK_REMOVE, mask, root, ".shade");
	if (length < (ssize_t)sizeof(struct fanotify_event_metadata) ||
	    !decode((const void *)event, &number, &generation) || number != CONTROL_DIR)
		return -EPROTO;
	return 0;
}

static int mark(struct fanotify *fanotify, int root)
{
	int rc;

	/* With thread ids the kernel keeps events of different threads apart. */
	fanotify->events = fanotify_init(FAN_CLASS_NOTIF | FAN_REPORT_FID | FAN_REPORT_TID |
						 FAN_CLOEXEC | FAN_NONBLOCK,
					 O_RDONLY);
	if (fanotify->events < 0)
		return -errno;
	rc = try_out(fanotify, root);
	if (rc)
		return rc;
	if (fanotify_mark(fanotify->events, FAN_MARK_ADD | FAN_MARK_FILESYSTEM,
			  FAN_OPEN | FAN_CLOSE_NOWRITE, root, "."))
		return -errno;
	return 0;
}

static int start(struct fanotify *fanotify, int root)
{
	int rc = 0;

	fanotify->events = fanotify->options.events;
	if (fanotify->events < 0)
		rc = mark(fanotify, root);
	if (rc)
		return rc;
	fanotify->mounts = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	if (fanotify->mounts < 0)
		return -errno;
	rc = thread_start(&fanotify->thread, "shade-fanotify", watch, fanotify);
	fanotify->started = !rc;
	return rc;
}

int fanotify_open(struct fanotify **out, const struct fanotify_options *options, int root)
{
	struct fanotify *fanotify = calloc(1, sizeof(*fanotify));
	int rc;

	assert(options->cache && options->control && options->files && options->mount &&
	       options->unmounted && options->woken);
	if (!fanotify)
		return -ENOMEM;
	fanotify->options = *options;
	fanotify->events = fanotify->mounts = -1;
	lock_init(&fanotify->lock, LOCK_FANOTIFY);
	*out = fanotify; /* the thread may call back before start() returns */
	rc = start(fanotify, root);
	if (rc) {
		*out = NULL;
		fanotify_close(fanotify);
	}
	return rc;
}

int fanotify_events(const struct fanotify *fanotify)
{
	return fanotify->events;
}

void fanotify_stop(struct fanotify *fanotify)
{
	atomic_store(&fanotify->stopping, true);
	if (fanotify->started)
		thread_join(&fanotify->thread);
	fanotify->started = false;
}

void fanotify_close(struct fanotify *fanotify)
{
	fanotify_stop(fanotify);
	if (fanotify->events >= 0)
		close(fanotify->events);
	if (fanotify->mounts >= 0)
		close(fanotify->mounts);
	lock_destroy(&fanotify->lock);
	free(fanotify);
}
