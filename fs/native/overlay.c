/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "native/overlay.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mount.h"
#include "base/threads.h"
#include "fuse/shade.h"
#include "native/fanotify.h"
#include "native/run_dir.h"
#include "native/utab.h"

#define UNMOUNT_MS 1000 /* after .shade was unmounted: how long the overlay may take to follow */
#define POLL_MS 20
#define LIST_TRIES 3 /* flushes that may fail to read a list; scan.c has as many follow news */
#define STUCK_MAX 16 /* connections of .shade that hang while they are unmounted */

struct overlay {
	struct overlay_options options;
	struct run_dir run_dir;
	int run_fd; /* a descriptor of it; -1: none */
	struct fanotify *fanotify;
	struct shade shade;
	struct session *control;	  /* .shade; the fanotify thread's while that runs */
	struct session *stuck[STUCK_MAX]; /* former ones; the fanotify thread's, too */
	unsigned stuck_count;
	char *control_path;    /* for messages */
	int file_system;       /* the overlay itself: it lives as long as this is open; -1: none */
	struct mount mount;    /* where it is mounted; constant once that is done */
	char *told;	       /* the mount point as umount(8) was told of it; NULL: it was not */
	struct store_attr top; /* what the overlay's root was made of */
	struct store_attr listed; /* flush_lock: the source's root, before its list was last read */
	unsigned list_failures;	  /* flush_lock: since then */
	/* Hold flush_lock and check !closing before you touch the mounts: the scan may flush while
	 * overlay_close() unmounts. */
	struct lock flush_lock;
	_Atomic bool closing;
};

__attribute__((format(printf, 3, 4))) static void say(char *why, size_t room, const char *format,
						      ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, room, format, args);
	va_end(args);
}

/* --- .shade ------------------------------------------------------------------------------------*/

/* Called by the session's thread. Whoever unmounts the whole tree begins with .shade, so the
 * fanotify thread looks whether the overlay follows. */
static void control_ended(void *context)
{
	struct overlay *overlay = context;

	fanotify_wake(overlay->fanotify);
}

static struct session_options describe_control(struct overlay *overlay)
{
	return (struct session_options){ .source = overlay->options.source,
					 .mount_point = overlay->control_path,
					 .directory = -1,
					 .connection = -1,
					 .heritage = &overlay->options.heritage->control,
					 .ended = control_ended,
					 .context = overlay };
}

/* `root` is a descriptor of the overlay's root. */
static int open_control(struct overlay *overlay, int root)
{
	struct session_options options = describe_control(overlay);
	int rc;

	options.directory = openat(root, ".shade", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (options.directory < 0)
		return -errno;
	rc = shade_mount(&overlay->control, &overlay->shade, &options);
	close(options.directory);
	return rc;
}

static void keep(struct overlay *overlay, enum overlay_part part, int fd, const struct mount *mount)
{
	overlay->options.keep(overlay->options.context, part, fd, mount);
}

static void tell_control(struct overlay *overlay)
{
	keep(overlay, OVERLAY_CONTROL, session_connection(overlay->control),
	     session_mount(overlay->control));
}

/* Nobody can use the files that were open in the connection, and no reader there can be answered. A
 * command that waits for a source that hangs keeps its connection, which nobody sees any more, and
 * all open files of .shade, since nobody can tell which of them it uses: overlay_close() waits for
 * it. False: there are too many of these. */
static bool close_control(struct overlay *overlay)
{
	struct session *control = overlay->control;

	if (!control)
		return true;
	if (session_stop(control) && !overlay->stuck_count) {
		control_close_all(overlay->options.control);
		session_close(control);
	} else if (overlay->stuck_count < STUCK_MAX) {
		overlay->stuck[overlay->stuck_count++] = control;
	} else {
		return false;
	}
	overlay->control = NULL;
	return true;
}

/* Waits for the workers of all connections that .shade ever had. */
static void close_controls(struct overlay *overlay)
{
	if (overlay->control)
		session_close(overlay->control);
	overlay->control = NULL;
	while (overlay->stuck_count)
		session_close(overlay->stuck[--overlay->stuck_count]);
}

/* Nobody else may keep the old connection, or it would not end. */
static void mount_control_again(struct overlay *overlay)
{
	int root = mount_reach(&overlay->mount);

	keep(overlay, OVERLAY_CONTROL, -1, NULL);
	if (root < 0 || !close_control(overlay) || open_control(overlay, root))
		log_say(LOG_ERRORS, ".shade was unmounted and cannot be mounted again");
	else
		tell_control(overlay);
	if (root >= 0)
		close(root);
}

/* Called by the fanotify thread: if somebody has unmounted .shade and nothing else, mounts it
 * again. */
static void restore_control(void *context)
{
	struct overlay *overlay = context;

	for (int ms = 0; ms < UNMOUNT_MS && mount_exists(&overlay->mount) == 1; ms += POLL_MS) {
		clock_sleep_us((uint64_t)POLL_MS * 1000);
		fanotify_drain(overlay->fanotify);
	}
	if (!atomic_load(&overlay->closing) && mount_exists(&overlay->mount) == 1)
		mount_control_again(overlay);
}

/* --- the overlay -------------------------------------------------------------------------------*/

/* Gives the overlay's root the access control list of the source's. The overlay asks its upper
 * layer each time, so this also works later. */
static int copy_acl(struct store *store, const char *top, bool *has_list)
{
	char acl[65536]; /* none is larger */
	int length = store_acl(store, "", NULL, acl, sizeof(acl));

	*has_list = length > 0;
	if (length > 0)
		return setxattr(top, STORE_ACL, acl, (size_t)length, 0) ? -errno : 0;
	if (length < 0 && length != -ENODATA)
		return length;
	return removexattr(top, STORE_ACL) && errno != ENODATA && errno != EOPNOTSUPP ? -errno : 0;
}

static void get_root_attr(const struct overlay *overlay, struct store_attr *attr)
{
	struct tree *tree = cache_tree(overlay->options.cache);

	tree_get_attr(tree, tree_root(tree), attr);
}

/* df(1) shows the upper layer, a tmpfs: it gets the size of the source's file system, which costs
 * nothing. What is free there it cannot be made to say. */
static void size_top(struct overlay *overlay)
{
	struct statvfs space;

	if (store_statfs(overlay->options.store, &space) || !space.f_blocks ||
	    space.f_blocks > INT64_MAX / space.f_frsize)
		return;
	(void)run_dir_size(&overlay->run_dir, (uint64_t)space.f_blocks * space.f_frsize);
}

/* The root's permissions are those of the upper of its two layers, an empty directory. */
static int prepare_top(struct overlay *overlay)
{
	const char *top = overlay->run_dir.top;
	struct store_attr attr;
	bool has_list;

	get_root_attr(overlay, &attr);
	overlay->listed = attr;
	if (!overlay->options.allow_other) {
		attr.mode = 0700;
		attr.uid = attr.gid = 0;
	}
	overlay->top = attr;
	overlay->options.heritage->top = overlay->top;
	overlay->options.heritage->listed = overlay->listed;
	size_top(overlay);
	if (chown(top, attr.uid, attr.gid) || chmod(top, attr.mode & 07777))
		return -errno;
	return overlay->options.allow_other ? copy_acl(overlay->options.store, top, &has_list) : 0;
}

/* fanotify tells files by their handles, for which the overlay needs nfs_export and a file system
 * id. Older kernels have the id without an option. */
static int create_overlay(struct overlay *overlay)
{
	static const char *const ids[] = { "uuid", NULL };
	char layers[sizeof(overlay->run_dir.top) + sizeof(overlay->run_dir.files) + 1];
	int rc = -EINVAL;

	snprintf(layers, sizeof(layers), "%s:%s", overlay->run_dir.top, overlay->run_dir.files);
	for (unsigned i = 0; rc == -EINVAL && i < 2; i++) {
		struct mount_setting settings[] = {
			{ "ro", NULL },		{ "source", overlay->options.source },
			{ "lowerdir", layers }, { "xino", "off" },
			{ "nfs_export", "on" }, { "redirect_dir", "nofollow" },
			{ ids[i], "null" },	{ NULL, NULL }
		};

		rc = mount_create("overlay", settings);
	}
	if (rc < 0)
		return rc;
	overlay->file_system = rc;
	return 0;
}

/* A descriptor of the overlay's root, or a negative errno. */
static int mount_overlay(struct overlay *overlay)
{
	unsigned attributes = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
			      (overlay->options.noexec ? MOUNT_ATTR_NOEXEC : 0);
	int rc = create_overlay(overlay);

	if (rc)
		return rc;
	rc = mount_attach(&overlay->mount, overlay->file_system, attributes,
			  overlay->options.directory);
	mount_set_above(&overlay->mount, overlay->options.above, overlay->options.mount_point);
	overlay->options.heritage->mount = overlay->mount;
	return rc;
}

/* The source's root has changed: perhaps its list has. Whether the overlay's root cannot have that
 * list. The kernel looks at a list only if the mode gives the group some right, and the mode is
 * still that of the mount. */
static bool is_list_refused_locked(struct overlay *overlay, const struct store_attr *now)
{
	bool has_list;
	int rc;

	lock_assert_held(&overlay->flush_lock);
	if (store_same_attr(now, &overlay->listed))
		return false;
	rc = copy_acl(overlay->options.store, overlay->run_dir.top, &has_list);
	if (rc) {
		log_say(LOG_WARNINGS, "the access control list of %s: %s", overlay->options.source,
			strerror(-rc));
		return ++overlay->list_failures == LIST_TRIES;
	}
	/* Half of it would be read as another version, whose list is read again. */
	overlay->listed = overlay->options.heritage->listed = *now;
	overlay->list_failures = 0;
	return has_list && !(overlay->top.mode & 0070);
}

/* An overlay's root keeps the mode and the owner that it was mounted with. */
static bool is_too_open_locked(struct overlay *overlay)
{
	const struct store_attr *then = &overlay->top;
	struct store_attr now;

	lock_assert_held(&overlay->flush_lock);
	if (!overlay->options.allow_other)
		return false;
	get_root_attr(overlay, &now);
	return then->uid != now.uid || then->gid != now.gid || then->mode & ~now.mode & 0777 ||
	       is_list_refused_locked(overlay, &now);
}

static void flush_locked(struct overlay *overlay)
{
	const struct overlay_options *options = &overlay->options;
	int rc;

	lock_assert_held(&overlay->flush_lock);
	if (is_too_open_locked(overlay)) {
		log_say(LOG_ERRORS,
			"fewer may enter %s now than when it was mounted: it is unmounted, since "
			"an "
			"overlay cannot learn that",
			options->source);
		options->ended(options->context);
		return;
	}
	rc = mount_refresh(overlay->file_system);
	if (rc)
		log_say(LOG_WARNINGS, "the overlay keeps old names: %s", strerror(-rc));
}

void overlay_flush(struct overlay *overlay)
{
	lock_acquire(&overlay->flush_lock);
	if (!atomic_load(&overlay->closing))
		flush_locked(overlay);
	lock_release(&overlay->flush_lock);
}

void overlay_catch_up(struct overlay *overlay)
{
	fanotify_drain(overlay->fanotify);
}

uint64_t overlay_accesses_lost(const struct overlay *overlay)
{
	return fanotify_lost(overlay->fanotify);
}

/* --- begin and end -----------------------------------------------------------------------------*/

static void unmounted(void *context)
{
	struct overlay *overlay = context;

	overlay->options.ended(overlay->options.context);
}

static int open_fanotify(struct overlay *overlay, int events, int root)
{
	struct fanotify_options options = { .cache = overlay->options.cache,
					    .control = overlay->options.control,
					    .files = overlay->options.files,
					    .mount = &overlay->mount,
					    .events = events,
					    .unmounted = unmounted,
					    .woken = restore_control,
					    .context = overlay };

	return fanotify_open(&overlay->fanotify, &options, root);
}

/* `connection` is to be taken over; -1: it is not mounted yet. */
static int mount_files(struct overlay *overlay, int connection)
{
	const int flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	struct files_point point = { .path = overlay->run_dir.files,
				     .directory = -1,
				     .connection = connection };
	int rc;

	if (connection < 0)
		point.directory = open(overlay->run_dir.files, flags);
	overlay->run_fd = point.above = open(overlay->run_dir.dir, flags);
	rc = (connection < 0 && point.directory < 0) || point.above < 0 ? -errno : 0;
	if (!rc)
		rc = files_mount(overlay->options.files, &point, true);
	if (point.directory >= 0)
		close(point.directory);
	return rc;
}

/* What needs the overlay. Each part is tried out. */
static int mount_rest(struct overlay *overlay, int root, char *why, size_t room)
{
	int rc = mount_refresh(overlay->file_system);

	if (rc) {
		say(why, room, "an overlay cannot be made to forget names: %s", strerror(-rc));
		return rc;
	}
	rc = open_fanotify(overlay, -1, root);
	if (rc) {
		say(why, room, "fanotify does not tell of files in the overlay: %s", strerror(-rc));
		return rc;
	}
	rc = open_control(overlay, root);
	if (rc)
		say(why, room, "FUSE cannot be mounted at %s: %s", overlay->control_path,
		    strerror(-rc));
	return rc;
}

static int mount_all(struct overlay *overlay, char *why, size_t room)
{
	int rc = mount_files(overlay, -1), root;

	if (rc) {
		say(why, room, "FUSE cannot be mounted at %s: %s", overlay->run_dir.files,
		    strerror(-rc));
		return rc;
	}
	rc = prepare_top(overlay);
	root = rc ? rc : mount_overlay(overlay);
	if (root < 0) {
		say(why, room, "an overlay cannot be mounted: %s", strerror(-root));
		return root;
	}
	rc = mount_rest(overlay, root, why, room);
	close(root);
	return rc;
}

static void tell_umount(struct overlay *overlay)
{
	int run_dirs = run_dir_lock();

	if (run_dirs < 0)
		return;
	overlay->told = utab_add(&overlay->mount);
	close(run_dirs);
	if (overlay->told && strlen(overlay->told) < OVERLAY_TOLD_MAX)
		strcpy(overlay->options.heritage->told, overlay->told);
}

/* It is unmounted by now. */
static void untell_umount(struct overlay *overlay)
{
	int run_dirs = overlay->told ? run_dir_lock() : -1;

	if (run_dirs < 0)
		return;
	utab_remove(overlay->told);
	close(run_dirs);
}

/* What others need to know once everything is mounted. */
static void keep_all(struct overlay *overlay)
{
	struct files *files = overlay->options.files;

	keep(overlay, OVERLAY_FILES, files_connection(files), files_get_mount(files));
	tell_control(overlay);
	keep(overlay, OVERLAY_EVENTS, fanotify_events(overlay->fanotify), NULL);
	keep(overlay, OVERLAY_FILE_SYSTEM, overlay->file_system, NULL);
	/* It is to end with the supervisor, whatever keeps this process from ending then. */
	keep(overlay, OVERLAY_LOCK, overlay->run_dir.lock, NULL);
	run_dir_hand_over(&overlay->run_dir);
}

static struct overlay *create(const struct overlay_options *options)
{
	struct overlay *overlay = calloc(1, sizeof(*overlay));

	assert(*options->mount_point == '/' && options->keep && options->ended &&
	       options->heritage);
	if (!overlay)
		return NULL;
	if (asprintf(&overlay->control_path, "%s/.shade", options->mount_point) < 0) {
		free(overlay);
		return NULL;
	}
	overlay->options = *options;
	overlay->file_system = overlay->run_fd = -1;
	overlay->shade =
		(struct shade){ .control = options->control, .timeout_s = options->staleness_s };
	lock_init(&overlay->flush_lock, LOCK_FLUSH);
	return overlay;
}

int overlay_open(struct overlay **out, const struct overlay_options *options, char *why,
		 size_t room)
{
	struct overlay *overlay = create(options);
	int rc;

	if (!overlay) {
		say(why, room, "%s", strerror(ENOMEM));
		return -ENOMEM;
	}
	*out = overlay;
	rc = run_dir_open(&overlay->run_dir, options->owner);
	options->heritage->run_dir = overlay->run_dir;
	if (rc && geteuid())
		say(why, room, "native mode needs root");
	else if (rc)
		say(why, room, "%s cannot be used: %s", RUN_DIRS, strerror(-rc));
	else
		rc = mount_all(overlay, why, room);
	if (rc) {
		*out = NULL;
		overlay_close(overlay);
		overlay_free(overlay);
		return rc;
	}
	if (options->allow_other) /* root may enter anyway */
		tree_set_closing(cache_tree(options->cache));
	keep_all(overlay);
	tell_umount(overlay);
	return 0;
}

/* --- taking over -------------------------------------------------------------------------------*/

static int take_control(struct overlay *overlay, int connection)
{
	struct session_options options = describe_control(overlay);

	/* The dead daemon was about to mount it again. */
	if (connection < 0) {
		fanotify_wake(overlay->fanotify);
		return 0;
	}
	options.connection = connection;
	return shade_mount(&overlay->control, &overlay->shade, &options);
}

static int take_parts(struct overlay *overlay, const int *parts)
{
	int rc = mount_files(overlay, parts[OVERLAY_FILES]);

	if (!rc)
		rc = open_fanotify(overlay, parts[OVERLAY_EVENTS], -1);
	return rc ? rc : take_control(overlay, parts[OVERLAY_CONTROL]);
}

int overlay_take_over(struct overlay **out, const struct overlay_options *options,
		      const int parts[OVERLAY_PARTS], char *why, size_t room)
{
	const struct overlay_heritage *heritage = options->heritage;
	struct overlay *overlay = create(options);
	int rc = overlay ? 0 : -ENOMEM;

	*out = overlay;
	if (overlay) {
		overlay->run_dir = heritage->run_dir;
		overlay->run_dir.lock = parts[OVERLAY_LOCK];
		run_dir_hand_over(&overlay->run_dir);
		overlay->file_system = parts[OVERLAY_FILE_SYSTEM];
		overlay->mount = heritage->mount;
		overlay->mount.above = options->above;
		overlay->top = heritage->top;
		overlay->listed = heritage->listed;
		overlay->told = *heritage->told ? strdup(heritage->told) : NULL;
		if (options->allow_other)
			tree_set_closing(cache_tree(options->cache));
		rc = take_parts(overlay, parts);
	}
	if (rc)
		say(why, room, "%s",
		    rc == -EPROTO ? "the kernel has agreed to something else with its predecessor"
				  : strerror(-rc));
	return rc; /* the process ends, and whoever waits for it unmounts */
}

/* --- the end -----------------------------------------------------------------------------------*/

/* The overlay's file system is open, so that its numbers mean no other. */
static void unmount_overlay(struct overlay *overlay)
{
	int root = mount_reach(&overlay->mount);

	if (root < 0 && root != -ENOENT)
		log_say(LOG_ERRORS, "%s stays mounted, without files: %s",
			overlay->options.mount_point, strerror(-root));
	if (root < 0)
		return;
	(void)mount_detach(root);
	close(root);
}

/* What its thread has not read waits for the successor. */
void overlay_pause(struct overlay *overlay)
{
	fanotify_stop(overlay->fanotify);
	files_pause(overlay->options.files);
	if (overlay->control)
		(void)session_stop(overlay->control);
}

void overlay_close(struct overlay *overlay)
{
	/* Waits for a flush that is under way; no other begins. */
	lock_acquire(&overlay->flush_lock);
	atomic_store(&overlay->closing, true);
	lock_release(&overlay->flush_lock);
	if (overlay->fanotify)
		fanotify_stop(overlay->fanotify);
	unmount_overlay(overlay); /* with the .shade that is mounted in it */
	/* Until this is closed, its thread may call control_ended(). */
	close_controls(overlay);
	if (overlay->fanotify)
		fanotify_close(overlay->fanotify);
	overlay->fanotify = NULL;
	files_unmount(overlay->options.files);
	untell_umount(overlay);
	run_dir_close(&overlay->run_dir);
	memset(overlay->options.heritage, 0, sizeof(*overlay->options.heritage));
}

void overlay_free(struct overlay *overlay)
{
	if (!overlay)
		return;
	assert(atomic_load(&overlay->closing));
	if (overlay->file_system >= 0)
		close(overlay->file_system);
	if (overlay->run_fd >= 0)
		close(overlay->run_fd);
	lock_destroy(&overlay->flush_lock);
	free(overlay->control_path);
	free(overlay->told);
	free(overlay);
}

void overlay_abandon(struct overlay *overlay)
{
	unmount_overlay(overlay);
	umount2(overlay->run_dir.files, MNT_DETACH);
	run_dir_close(&overlay->run_dir);
}

/* The overlay's numbers mean no other while its file system is open. */
void overlay_abandon_heritage(struct overlay_heritage *heritage, int file_system, int above)
{
	struct mount mount = heritage->mount;
	int root = -1, run_dirs;

	if (!*heritage->run_dir.dir)
		return;
	mount.above = above;
	if (file_system >= 0)
		root = mount_reach(&mount);
	if (root >= 0)
		(void)mount_detach(root);
	if (root >= 0)
		close(root);
	umount2(heritage->run_dir.files, MNT_DETACH);
	run_dirs = *heritage->told ? run_dir_lock() : -1;
	if (run_dirs >= 0) {
		utab_remove(heritage->told);
		close(run_dirs);
	}
	heritage->run_dir.lock = 0;
	run_dir_close(&heritage->run_dir);
}

void overlay_clean_up(void)
{
	run_dir_clean_up();
}

const struct format_line overlay_format[] = { FORMAT_SIZE(struct overlay_heritage),
					      FORMAT_FIELD(struct overlay_heritage, mount),
					      FORMAT_FIELD(struct overlay_heritage, control),
					      FORMAT_FIELD(struct overlay_heritage, top),
					      FORMAT_FIELD(struct overlay_heritage, listed),
					      FORMAT_FIELD(struct overlay_heritage, told),
					      FORMAT_SIZE(struct run_dir),
					      FORMAT_FIELD(struct run_dir, top),
					      FORMAT_FIELD(struct run_dir, files),
					      FORMAT_FIELD(struct run_dir, lock),
					      FORMAT_NUMBER(OVERLAY_CONTROL),
					      FORMAT_NUMBER(OVERLAY_EVENTS),
					      FORMAT_NUMBER(OVERLAY_FILE_SYSTEM),
					      FORMAT_NUMBER(OVERLAY_LOCK),
					      FORMAT_NUMBER(OVERLAY_PARTS),
					      FORMAT_END };
