/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "native/fanotify.h"
#include "base/threads.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/watchdog.h"
#include "fuse/session.h"

/* Events that come within this time are taken together: waking up for each would cost more
 * than the hit. */
#define GATHER_NS 1000000
#define IDLE_MS 200
#define UNMOUNT_MS 1000 /* .shade is gone: how long the overlay may take to follow */

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

struct observe {
	struct front *front;
	int (*reopen)(struct front *front);
	int events;
	int mounts; /* /proc/self/mountinfo */
	uint64_t mount_id;
	struct thread thread;
	bool started;
	_Atomic bool stopping, control_ended;
	struct lock lock;
	_Alignas(8) char buffer[65536]; /* lock */
};

/* --- events -------------------------------------------------------------------------------------
 */

/* The node and generation that an event is about. */
static bool decode(const struct fanotify_event_metadata *event, uint64_t *node,
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
	*node = (uint64_t)inner->node_high << 32 | inner->node_low;
	*generation = inner->generation;
	return true;
}

static void tell(struct observe *observe, const struct fanotify_event_metadata *event)
{
	struct cache *cache = observe->front->cache;
	uint32_t generation;
	uint64_t node;

	if (event->mask & FAN_Q_OVERFLOW) {
		observe->front->accesses_lost++;
		return;
	}
	if (!decode(event, &node, &generation) || !generation)
		return;
	if (event->mask & FAN_OPEN)
		cache_saw_open(cache, (const struct node *)(uintptr_t)node, generation - 1);
	if (event->mask & FAN_CLOSE_NOWRITE)
		cache_saw_close(cache, (const struct node *)(uintptr_t)node, generation - 1);
}

void observe_drain(struct observe *observe)
{
	ssize_t length;

	/* Whoever is second is back only when the first has told. */
	lock_acquire(&observe->lock);
	while ((length = read(observe->events, observe->buffer, sizeof(observe->buffer))) > 0) {
		const struct fanotify_event_metadata *event = (const void *)observe->buffer;

		for (; FAN_EVENT_OK(event, length); event = FAN_EVENT_NEXT(event, length))
			tell(observe, event);
	}
	lock_release(&observe->lock);
}

/* --- the end of the mount -----------------------------------------------------------------------
 */

static uint64_t mount_id_of(const char *path)
{
	struct statx stat;

	return statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_MNT_ID, &stat) ? 0 : stat.stx_mnt_id;
}

bool observe_is_on_top(const struct observe *observe)
{
	return mount_id_of(observe->front->options.mount_point) == observe->mount_id;
}

bool observe_is_mounted(struct observe *observe)
{
	FILE *file = fopen("/proc/self/mountinfo", "re");
	unsigned long long id;
	char *line = NULL;
	size_t room = 0;
	bool found = false;

	while (file && !found && getline(&line, &room, file) > 0)
		found = sscanf(line, "%llu", &id) == 1 && id == observe->mount_id;
	free(line);
	if (file)
		fclose(file);
	return found;
}

/* What the connection had open is nobody's any more, and whoever waits there cannot be answered. A
 * command that waits for a source that hangs keeps its connection, unseen. */
static void close_control(struct front *front)
{
	if (channel_stop(front->control)) {
		shade_trace_tick(front, true);
		shade_close_all(front);
		channel_close(front->control);
	}
	front->control = NULL;
}

/* Who unmounts the tree begins with .shade. If that is all they want, they get it back. */
static void see_to_control(struct observe *observe)
{
	struct timespec moment = { .tv_nsec = 20000000 };
	struct front *front = observe->front;

	for (int ms = 0; ms < UNMOUNT_MS && observe_is_mounted(observe); ms += 20) {
		nanosleep(&moment, NULL);
		observe_drain(observe);
	}
	if (atomic_load(&observe->stopping) || !observe_is_mounted(observe))
		return;
	close_control(front);
	if (observe->reopen(front))
		log_say(LOG_ERRORS, ".shade was unmounted and cannot be mounted again");
	else
		guardian_add(front->control_path);
}

/* --- the thread ---------------------------------------------------------------------------------
 */

static void watch(void *argument)
{
	struct observe *observe = argument;
	struct timespec moment = { .tv_nsec = GATHER_NS };

	while (!atomic_load(&observe->stopping)) {
		struct pollfd polled[2] = { { .fd = observe->events, .events = POLLIN },
					    { .fd = observe->mounts, .events = POLLPRI } };

		if (poll(polled, 2, IDLE_MS) > 0 && polled[0].revents) {
			nanosleep(&moment, NULL);
			observe_drain(observe);
		}
		if (atomic_exchange(&observe->control_ended, false))
			see_to_control(observe);
		if ((polled[1].revents & (POLLPRI | POLLERR)) && !observe_is_mounted(observe)) {
			observe->front->end(observe->front);
			break;
		}
	}
}

void observe_control_ended(struct observe *observe)
{
	atomic_store(&observe->control_ended, true);
}

/* --- begin and end ------------------------------------------------------------------------------
 */

/* Opens a directory whose number is known, and sees whether it is told. */
static int try_out(struct observe *observe, const char *path)
{
	uint64_t event[512], node = 0;
	uint32_t generation;
	ssize_t length;
	int fd;

	if (fanotify_mark(observe->events, FAN_MARK_ADD, FAN_OPEN | FAN_ONDIR, AT_FDCWD, path))
		return -errno;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	close(fd);
	length = read(observe->events, event, sizeof(event));
	(void)fanotify_mark(observe->events, FAN_MARK_REMOVE, FAN_OPEN | FAN_ONDIR, AT_FDCWD, path);
	if (length < (ssize_t)sizeof(struct fanotify_event_metadata) ||
	    !decode((const void *)event, &node, &generation) || node != SHADE_DIR_INO)
		return -EPROTO;
	return 0;
}

static int start(struct observe *observe)
{
	struct front *front = observe->front;
	const char *path = front->options.mount_point;
	char *inside = NULL;
	int rc;

	/* With thread ids the kernel keeps events of different threads apart. */
	observe->events = fanotify_init(FAN_CLASS_NOTIF | FAN_REPORT_FID | FAN_REPORT_TID |
						FAN_CLOEXEC | FAN_NONBLOCK,
					O_RDONLY);
	if (observe->events < 0)
		return -errno;
	if (asprintf(&inside, "%s/.shade", path) < 0)
		return -ENOMEM;
	rc = try_out(observe, inside);
	free(inside);
	if (rc)
		return rc;
	if (fanotify_mark(observe->events, FAN_MARK_ADD | FAN_MARK_FILESYSTEM,
			  FAN_OPEN | FAN_CLOSE_NOWRITE, AT_FDCWD, path))
		return -errno;
	observe->mount_id = mount_id_of(path);
	observe->mounts = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	if (observe->mounts < 0)
		return -errno;
	rc = thread_start(&observe->thread, "shade-fanotify", watch, observe);
	observe->started = !rc;
	return rc;
}

int observe_open(struct observe **out, struct front *front, int (*reopen)(struct front *front))
{
	struct observe *observe = calloc(1, sizeof(*observe));
	int rc;

	if (!observe)
		return -ENOMEM;
	observe->front = front;
	observe->reopen = reopen;
	observe->events = observe->mounts = -1;
	lock_init(&observe->lock, LOCK_FANOTIFY);
	rc = start(observe);
	if (rc)
		observe_close(observe);
	else
		*out = observe;
	return rc;
}

void observe_stop(struct observe *observe)
{
	atomic_store(&observe->stopping, true);
	if (observe->started)
		thread_join(&observe->thread);
	observe->started = false;
}

void observe_close(struct observe *observe)
{
	observe_stop(observe);
	if (observe->events >= 0)
		close(observe->events);
	if (observe->mounts >= 0)
		close(observe->mounts);
	lock_destroy(&observe->lock);
	free(observe);
}
