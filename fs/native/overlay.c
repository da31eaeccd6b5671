/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "native/overlay.h"
#include "base/threads.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/log.h"
#include "fuse/session.h"
#include "native/fanotify.h"
#include "native/run_dir.h"

struct native {
	struct place place;
	struct observe *observe;
	bool overlaid;
	struct store_attr top; /* what the overlay's root was made of */
	char *control_path;
};

__attribute__((format(printf, 3, 4))) static void say(char *why, size_t room, const char *format,
						      ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, room, format, args);
	va_end(args);
}

/* --- the connections -----------------------------------------------------------------------------
 */

static void files_ended(void *context)
{
	struct front *front = context;

	front->end(front);
}

/* Whoever unmounts everything begins with this one. If the overlay stays, so does .shade. */
static void control_ended(void *context)
{
	struct front *front = context;

	observe_control_ended(front->native_state->observe);
}

static int open_files(struct front *front)
{
	struct channel_options options = { .ops = front_files_ops(true),
					   .context = front,
					   .source = front->options.source,
					   .mount_point = front->files_path,
					   .workers = front->options.threads,
					   .may_wait = front_may_wait,
					   .ended = files_ended };

	return channel_open(&front->files, &options);
}

static bool always_waits(void *context, uint32_t opcode, uint64_t ino)
{
	(void)context, (void)opcode, (void)ino;
	return true;
}

/* Everybody may ask: who is answered, permissions and every open decide. */
static int open_control(struct front *front)
{
	struct channel_options options = { .ops = &front_control_ops,
					   .context = front,
					   .source = front->options.source,
					   .mount_point = front->native_state->control_path,
					   .allow_other = true,
					   .workers = 16,
					   .may_wait = always_waits,
					   .ended = control_ended };

	return channel_open(&front->control, &options);
}

/* --- the overlay
 * ----------------------------------------------------------------------------------- */

static int copy_acl(struct store *store, const char *top)
{
	char acl[65536]; /* none is larger */
	int length = store_acl(store, "", acl, sizeof(acl));

	if (length < 0)
		return length == -ENODATA ? 0 : length;
	return setxattr(top, STORE_ACL, acl, (size_t)length, 0) ? -errno : 0;
}

/* The root's permissions are those of the upper of its two layers, an empty directory. */
static int prepare_top(struct front *front)
{
	const char *top = front->native_state->place.top;
	struct store_attr attr;

	tree_get_attr(cache_tree(front->cache), tree_root(cache_tree(front->cache)), &attr);
	if (!front->options.allow_other) {
		attr.mode = 0700;
		attr.uid = attr.gid = 0;
	}
	front->native_state->top = attr;
	if (chown(top, attr.uid, attr.gid) || chmod(top, attr.mode & 07777))
		return -errno;
	return front->acls ? copy_acl(front->store, top) : 0;
}

/* nfs_export and a file system id are what fanotify needs to tell files by their handles; older
 * kernels have the id without an option. */
static unsigned long overlay_flags(const struct front *front)
{
	return MS_RDONLY | MS_NOSUID | MS_NODEV | (front->options.noexec ? MS_NOEXEC : 0);
}

static int mount_overlay(struct front *front)
{
	const struct place *place = &front->native_state->place;
	static const char *const ids[] = { ",uuid=null", "" };
	int rc = -EINVAL;

	for (unsigned i = 0; rc == -EINVAL && i < 2; i++) {
		char data[512];

		snprintf(data, sizeof(data),
			 "lowerdir=%s:%s,xino=off,nfs_export=on,redirect_dir=nofollow%s",
			 place->top, place->files, ids[i]);
		rc = mount(front->options.source, front->options.mount_point, "overlay",
			   overlay_flags(front), data)
			     ? -errno
			     : 0;
	}
	front->native_state->overlaid = !rc;
	return rc;
}

/* An overlay's root stays as open as it was. */
static bool is_too_open(struct front *front)
{
	const struct store_attr *then = &front->native_state->top;
	struct store_attr now;

	tree_get_attr(cache_tree(front->cache), tree_root(cache_tree(front->cache)), &now);
	return front->options.allow_other &&
	       (then->uid != now.uid || then->gid != now.gid || then->mode & ~now.mode & 0777);
}

static void flush_locked(struct front *front)
{
	if (is_too_open(front)) {
		log_say(LOG_ERRORS,
			"fewer may enter %s now than when it was mounted: unmounted, since an "
			"overlay cannot learn that",
			front->options.source);
		front->end(front);
		return;
	}
	/* Something that somebody has mounted over it is not ours to change. */
	if (!observe_is_on_top(front->native_state->observe))
		return;
	/* A remount sets all flags anew. */
	if (mount(NULL, front->options.mount_point, NULL, MS_REMOUNT | overlay_flags(front), NULL))
		log_say(LOG_WARNINGS, "the overlay keeps old names: %s", strerror(errno));
}

/* The scan, which may wait for the source, goes on while everything is unmounted. */
void native_flush(struct front *front)
{
	lock_acquire(&front->flush_lock);
	if (!atomic_load(&front->stopping))
		flush_locked(front);
	lock_release(&front->flush_lock);
}

void native_settle(struct front *front)
{
	observe_drain(front->native_state->observe);
}

/* --- begin and end
 * -------------------------------------------------------------------------------- */

static int mount_all(struct front *front, char *why, size_t room)
{
	struct native *native = front->native_state;
	int rc = open_files(front);

	if (rc) {
		say(why, room, "FUSE cannot be mounted at %s: %s", native->place.files,
		    strerror(-rc));
		return rc;
	}
	rc = prepare_top(front);
	if (!rc)
		rc = mount_overlay(front);
	if (rc) {
		say(why, room, "an overlay cannot be mounted: %s", strerror(-rc));
		return rc;
	}
	rc = observe_open(&native->observe, front, open_control);
	if (rc) {
		say(why, room, "fanotify does not tell of files in the overlay: %s", strerror(-rc));
		return rc;
	}
	rc = open_control(front);
	if (rc)
		say(why, room, "FUSE cannot be mounted at %s: %s", native->control_path,
		    strerror(-rc));
	return rc;
}

int native_open(struct front *front, char *why, size_t room)
{
	struct native *native = calloc(1, sizeof(*native));
	int rc;

	if (!native)
		return -ENOMEM;
	front->native_state = native;
	front->native = true;
	if (asprintf(&native->control_path, "%s/.shade", front->options.mount_point) < 0)
		native->control_path = NULL;
	rc = native->control_path ? place_open(&native->place, front->options.mount_point)
				  : -ENOMEM;
	front->files_path = native->place.files;
	front->control_path = native->control_path;
	if (rc)
		say(why, room, "%s cannot be used: %s", PLACES, strerror(-rc));
	else
		rc = mount_all(front, why, room);
	if (rc) {
		native_close(front);
		front->native = false;
	}
	return rc;
}

void native_close(struct front *front)
{
	struct native *native = front->native_state;
	bool overlaid = native->overlaid;

	/* From now on nobody begins to flush: it is stopping, or has not started. */
	lock_acquire(&front->flush_lock);
	lock_release(&front->flush_lock);
	if (native->observe) {
		overlaid = observe_is_on_top(native->observe);
		if (!overlaid && observe_is_mounted(native->observe))
			log_say(LOG_WARNINGS,
				"something is mounted over %s: it stays, without files",
				front->options.mount_point);
		observe_stop(native->observe);
	}
	/* Until this is closed, its thread may have something to tell the observer. */
	if (front->control)
		channel_close(front->control);
	if (overlaid)
		umount2(front->options.mount_point, MNT_DETACH);
	native->overlaid = false;
	if (native->observe)
		observe_close(native->observe);
	if (front->files)
		channel_close(front->files);
	front->control = front->files = NULL;
	place_close(&native->place);
	free(native->control_path);
	free(native);
	front->native_state = NULL;
}

void native_abandon(struct front *front)
{
	struct native *native = front->native_state;

	if (!native)
		return;
	umount2(native->control_path, MNT_DETACH);
	if (native->overlaid && observe_is_on_top(native->observe))
		umount2(front->options.mount_point, MNT_DETACH);
	umount2(native->place.files, MNT_DETACH);
	place_close(&native->place);
}

void native_clean_up(void)
{
	place_clean_up();
}
